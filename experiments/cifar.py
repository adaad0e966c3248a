"""CIFAR-10: an exact Gaussian process of patches, of which the evidence chooses the orbit and the layers.

Every model of :data:`MODELS` learns its constants from some training images, with small dictionaries. There are two
kinds: g of a whole image, which sees how its patches compare with a dictionary, and a mean of g over the patches of a
first layer. The best of each kind goes on with large dictionaries, and with kernel and noise from more images. The one
with the most evidence of yet more images, at their best noise and variance, is conditioned on all images, exactly,
again at their best noise and variance. The test images are read once, after that; ``--held-out`` takes the last
training images in their place.

On a GPU, the maps of the last models are products in TF32. The record says what that changes of the evidence.

``--folder`` holds ``.npz`` files with arrays ``x_train`` (N, 32, 32, 3), ``y_train``, ``x_test`` and ``y_test``; parts
of an array, in several files, are joined in the order of the names of the files.

``python -m experiments cifar --folder data/cifar10 --device cuda``
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.inference.dense_posterior import solve
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import ConvolutionalKernel, PatchDictionary, PatchVectors, SideBySide
from orbitgp.kernels.feature_maps import prepare
from orbitgp.kernels.patches import WhitenedPatches
from orbitgp.likelihoods import Gaussian, Likelihood
from orbitgp.orbits.parse import make_orbit
from orbitgp.training.records import hyperparameters

_WITH_PREDICTIONS = 1.6  # of the time for the covariance of all images
_DIM = 189  # of a patch; with its place and a column of ones, these are blocks of tensor cores

Layers = tuple[tuple[float, dict[str, Any]], ...]  # the share of a single layer's patches in each, and its shape

# Climbs begin near what the evidence of 3,000 images found before: whitening, bias, level and window of each layer.
ONE: Layers = ((1, {"whitening": 0.09, "bias": 2.3, "level": 0.001, "window": 0.46}),)
FINE: tuple[float, dict[str, Any]] = (  # a fine grid, of which the next layer sees patches
    0.5,
    {"size": 5, "cells": 14, "whitening": 0.07, "bias": 1.2, "level": 0.001, "window": 0.4},
)
SECOND = {"size": 3, "whitening": 4.0, "bias": 2.8, "level": 0.02, "window": 0.68}
TWO: Layers = (FINE, (4, SECOND))
LOCAL: tuple[float, dict[str, Any]] = (0.5, {**FINE[1], "window": 1.0})
GRID = LOCAL[1]["cells"]


class Model(NamedTuple):
    """An orbit, and what g sees: stacks of layers of patches side by side, or patches of this size of a first layer."""

    orbit: str
    stacks: tuple[Layers, ...] = ()
    size: int | None = None


MODELS = {
    "one layer, none": Model("none", (ONE,)),
    "one layer, flip": Model("flip", (ONE,)),
    "one and two layers, flip": Model("flip", (ONE, TWO)),
    "mean over patches of 3, flip": Model("flip", size=3),
    "mean over patches of 5, flip": Model("flip", size=5),
}
GOALS = (0.862, 0.88, 0.90)


def feature_map(model: Model, patches: int) -> nn.Module:
    """What g sees."""
    if model.size is not None:
        first = PatchDictionary(round(LOCAL[0] * patches), **LOCAL[1])
        return nn.Sequential(first, PatchVectors(_DIM, model.size, stride=2, whitening=10.0))
    layers = [[PatchDictionary(round(share * patches), **shape) for share, shape in stack] for stack in model.stacks]
    return SideBySide(*(nn.Sequential(*stack) if len(stack) > 1 else stack[0] for stack in layers))


def with_constants(seen: nn.Module, start: InvariantGPClassifier) -> nn.Module:
    """A map with the constants that a model has learned, which stay, and with its weights, which may be learned."""
    seen.load_state_dict(dict(start.kernel_.feature_map.named_parameters()), strict=False)
    for part in seen.modules():
        if isinstance(part, WhitenedPatches):
            part.requires_grad_(False)
    return seen


def first_kernel(model: Model) -> Kernel | None:
    """The kernel where learning begins; None for the default one."""
    if model.size is None:
        return None
    base = ScaleKernel(RBFKernel()).double()
    base.base_kernel.lengthscale, base.outputscale = 0.75, 0.45
    return ConvolutionalKernel(base, ((GRID - model.size) // 2 + 1) ** 2)


def take_patches(model: InvariantGPClassifier, size: int, stride: int) -> None:
    """Let a mean over patches be one over these patches."""
    next(part for part in model.kernel_.modules() if isinstance(part, PatchVectors)).stride = stride
    model.kernel_.base_kernel.places = ((GRID - size) // stride + 1) ** 2


@contextmanager
def possibly(name: str) -> Iterator[None]:
    """A model that cannot be had is not chosen, and it is said why."""
    try:
        yield
    except Exception as error:  # what compiles programs for a GPU has errors of its own
        say(f"{name} is left out: {type(error).__name__}: {error}")


def read(folder: Path, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first images, between 0 and 1, and their labels."""
    arrays: dict[str, list[np.ndarray]] = {f"x_{kind}": [], f"y_{kind}": []}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            for name in arrays.keys() & set(file.files):
                arrays[name].append(file[name])
    if not all(arrays.values()):
        raise FileNotFoundError(f"there is no .npz file with x_{kind} and y_{kind} in {folder}.")
    x, y = (np.concatenate(parts)[:count] for parts in arrays.values())
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).astype(np.float32) / 255, y


class InTF32(nn.Module):
    """A feature map whose products of matrices are in TF32, on GPUs that have it. Covariances of what it yields are
    not.

    Whatever a map yields, its covariance is positive definite. Products of 200,000 features in TF32 are not: the
    covariance of 10,467 images had an eigenvalue below -0.009 of the variance.
    """

    def __init__(self, feature_map: nn.Module) -> None:
        super().__init__()
        self.feature_map = feature_map

    def prepare(self, x: Tensor) -> None:
        """Let the map see these inputs."""
        prepare(self.feature_map, x)

    def forward(self, x: Tensor) -> Tensor:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            mapped: Tensor = self.feature_map(x)
        finally:
            torch.set_float32_matmul_precision(before)
        return mapped


@dataclass(frozen=True)
class Photographs(harness.Run):
    """The choice among models, and the model that was chosen, of the first ``num_train`` images."""

    folder: str
    seed: int = 0
    num_train: int = 50_000
    num_test: int = 10_000
    held_out: int = 0
    choice_rows: int = 2000
    choice_patches: int = 256
    choice_steps: int = 20
    learn_rows: int = 4000
    learn_steps: int = 8
    noise_rows: int = 10_000
    patches: int = 1536
    seconds: float = 600.0

    def name(self) -> str:
        return harness.slug("cifar", self.seed)

    def measure(self, device: str) -> Record:
        begun = time.perf_counter()
        x, y = read(Path(self.folder), "train", self.num_train)
        order = np.random.default_rng(self.seed).permutation(len(x))
        x_test, y_test = x[order[len(x) - self.held_out :]], y[order[len(x) - self.held_out :]]
        x, y = x[order[: len(x) - self.held_out]], y[order[: len(x) - self.held_out]]
        some = slice(self.choice_rows)
        say(f"{len(x):,} images, {len(x[some]):,} of them to choose by")
        choice, learned = {}, {}
        for name, one in MODELS.items():
            given = feature_map(one, self.choice_patches), x[some], y[some], device, first_kernel(one)
            with possibly(name):
                learned[name], choice[name] = self.fitted(one.orbit, *given, max_steps=self.choice_steps)
            if (found := choice.get(name)) is None:
                continue
            say(f"{name}: {found['evidence']['value']:,.0f} nats in {found['seconds']:.0f} s")
            say(f"  {found['learned']}, {found['constants']}")
        kinds = [[name for name in choice if (MODELS[name].size is None) == whole] for whole in (True, False)]
        best = [max(kind, key=lambda name: choice[name]["evidence"]["value"]) for kind in kinds if kind]
        larger = {}
        for name in best:
            with possibly(name):
                larger[name] = self.larger(MODELS[name], learned[name], x, y, device, begun)
        learned.clear()
        for chosen in sorted(larger, key=lambda name: -larger[name][1]["evidence of more"]):
            say(f"the evidence chooses: {chosen}")
            model = larger[chosen][0]
            with possibly(chosen):
                record = self.of_all(model, x, y, device)
                break
        record["larger"] = {name: found for name, (_, found) in larger.items()}
        larger.clear()
        if not self.held_out:
            x_test, y_test = read(Path(self.folder), "test", self.num_test)
        begin = time.perf_counter()
        probs = model.predict_proba(x_test)
        scores = self.scores(probs, np.searchsorted(model.classes_, y_test))
        say(f"{scores}, predicted in {time.perf_counter() - begin:.0f} s")
        seconds = {"choice": sum(found["seconds"] for found in choice.values()), **record["seconds"]}
        found = {"choice": choice, "chosen": chosen, **record, "seconds": seconds, "metrics": scores}
        return {"data": {"name": "CIFAR-10", "train": len(y), "test": len(y_test)}, **found}

    def larger(
        self, one: Model, start: InvariantGPClassifier, x: np.ndarray, y: np.ndarray, device: str, begun: float
    ) -> tuple[InvariantGPClassifier, Record]:
        """A model with large dictionaries, kernel and noise of more images, and its evidence of yet more."""
        seen = with_constants(feature_map(one, self.patches), start)
        rows, few, most = slice(self.learn_rows), slice(self.choice_rows), slice(self.noise_rows)
        given = x[rows], y[rows], device, start.kernel_.base_kernel, start.likelihood_
        model, found = self.fitted(one.orbit, InTF32(seen), *given, max_steps=self.learn_steps)
        result = f"{found['evidence']['value']:,.0f} nats in {found['seconds']:.0f} s"
        say(f"{len(x[rows]):,} images: {result}; {found['learned']}")
        if one.size is not None:
            take_patches(model, one.size, 1)
        for part in (seen := model.kernel_.feature_map, model.kernel_.base_kernel, model.likelihood_):
            part.requires_grad_(False)
        given = x[few], y[few], device, model.kernel_.base_kernel, model.likelihood_
        both = [self.fitted(one.orbit, one_map, *given)[1]["evidence"]["value"] for one_map in (seen.feature_map, seen)]
        change = f"{both[0]:,.1f} nats, by {both[1] - both[0]:.2g}"
        say(f"maps in TF32 change the evidence of {len(x[few]):,} images, {change}")
        begin = time.perf_counter()
        nats = rescale(model, x[most], y[most], device)[2]
        say(f"{len(x[most]):,} images: {nats:,.0f} nats in {time.perf_counter() - begin:.0f} s")
        needed = (time.perf_counter() - begin) * (len(x) / len(x[most])) ** 2 * _WITH_PREDICTIONS
        if one.size is not None and time.perf_counter() - begun + needed > self.seconds:
            say(f"a mean over all patches would take {needed:.0f} s: it takes every second one in every second row")
            take_patches(model, one.size, 2)
            nats = rescale(model, x[most], y[most], device)[2]
        changed = {"evidence": both[0], "change": both[1] - both[0]}
        return model, {
            "learned": found["learned"],
            "tf32": changed,
            "evidence of more": nats,
            "seconds": found["seconds"],
        }

    def of_all(self, model: InvariantGPClassifier, x: np.ndarray, y: np.ndarray, device: str) -> Record:
        """Condition the model on all images, at their best noise and variance."""
        begin = time.perf_counter()
        exact, gram, nats = rescale(model, x, y, device, within=1.5, most=8)
        say(f"all images: {nats:,.0f} nats in {time.perf_counter() - begin:.0f} s")
        likelihood = model.likelihood_.to(gram.device)
        targets = likelihood.encode(torch.from_numpy(np.searchsorted(model.classes_, y)).to(gram.device))
        means = exact.prior_mean.without_bias(exact.means(exact.x))
        with torch.no_grad():
            solution = solve(gram, means, likelihood, targets, None, exact.prior_mean.bias.requires_grad)
        model.likelihood_.cpu()
        exact.prior_mean.set_bias(solution.bias)
        exact.weights, exact.noise = solution.weights, solution.system.noise
        exact._inverted = {gram.device: solution.system}
        model.model_ = exact
        seconds = time.perf_counter() - begin
        say(f"  {solution.log_evidence:,.0f} nats, conditioned after {seconds:.0f} s")
        return {
            "evidence": {"value": solution.log_evidence, "num_data": len(x)},
            "learned": hyperparameters(exact.kernel, model.likelihood_),
            "seconds": {"all images": seconds},
        }

    def fitted(
        self,
        orbit: str,
        seen: nn.Module,
        x: np.ndarray,
        y: np.ndarray,
        device: str,
        kernel: Kernel | None = None,
        likelihood: Likelihood | str = "gaussian",
        max_steps: int | None = None,
    ) -> tuple[InvariantGPClassifier, Record]:
        """A model of these data, and what is to be told of it."""
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        model = InvariantGPClassifier(
            make_orbit(orbit),
            kernel,
            feature_map=seen,
            likelihood=likelihood,
            inference="exact",
            max_steps=max_steps,
            device=device,
            random_state=self.seed,
            training=TrainingOptions(start_rows=0),  # one climb: a few rows would only mislead the constants of the map
        )
        begin = time.perf_counter()

        def progress(found: dict[str, Any]) -> None:
            say(f"  step {found['step']}, {time.perf_counter() - begin:.0f} s, evidence {found['bound']:,.1f}")

        model.fit(x, y, callback=progress)
        maps = [part for part in model.kernel_.feature_map.modules() if isinstance(part, WhitenedPatches)]
        return model, {
            "plan": str(model.plan_),
            "evidence": asdict(model.evidence_),
            "seconds": time.perf_counter() - begin,
            "learned": hyperparameters(model.model_.kernel, model.likelihood_),
            "constants": [
                {name: float(f"{value:.3g}") for name, value in part.named_constants().items()} for part in maps
            ],
        }


@torch.no_grad()
def rescale(
    model: InvariantGPClassifier, x: np.ndarray, y: np.ndarray, device: str, within: float = 4.0, most: int = 20
) -> tuple[ExactGP, Tensor, float]:
    """Set variance v and noise of a fitted model to those with the most evidence of these data; all else stays as it
    is.

    With targets t of N rows and L latent functions, v = t^T (K + r I)^-1 t / (N L) is the best for the ratio r of noise
    and variance, where K has unit variance. So one number is sought, and the covariance is computed once. What is
    returned are the model of these data, their covariance, and the evidence.
    """
    assert isinstance(model.model_, ExactGP)
    likelihood, kernel = model.likelihood_, variance_of(model.kernel_)
    noise = next(part for part in likelihood.modules() if isinstance(part, Gaussian))
    exact = model.model_.copied_to(torch.device(device)).restricted(torch.from_numpy(x).to(device), None)
    gram = exact.gram().double()
    gram /= float(kernel.outputscale)
    targets = likelihood.encode(torch.from_numpy(np.searchsorted(model.classes_, y))).to(gram)
    targets = targets - exact.prior_mean.bias
    size = targets.numel()

    def at(log_ratio: float) -> tuple[float, float]:
        """The best variance, and minus the evidence there."""
        matrix = gram.clone()
        matrix.diagonal().add_(math.exp(log_ratio))
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if failed:
            return math.nan, 1e12
        variance = float((targets * torch.cholesky_solve(targets, factor)).mean())
        logdet = 2 * float(factor.diagonal().log().sum())
        return variance, 0.5 * (size * (math.log(2 * math.pi * variance) + 1) + targets.shape[1] * logdet)

    before = math.log(float(noise.noise / kernel.outputscale))
    bounds = (before - within, before + within)
    found = minimize_scalar(
        lambda r: at(r)[1], bounds=bounds, method="bounded", options={"xatol": 0.02, "maxiter": most}
    )
    variance, nats = at(found.x)
    ratio = math.exp(found.x)
    said = f"noise over it {math.exp(before):.4g} -> {ratio:.4g}"
    say(f"variance {float(kernel.outputscale):.4g} -> {variance:.4g}, {said}")
    for part in (kernel, variance_of(exact.kernel)):
        part.outputscale = variance
    noise.set_noise(variance * ratio)
    gram *= variance
    return exact, gram, -nats


def variance_of(kernel: Kernel) -> ScaleKernel:
    """The part of a kernel that scales it."""
    return next(part for part in kernel.modules() if isinstance(part, ScaleKernel))


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)


def table(records: Records) -> str:
    """The models to choose from, and the one that was chosen, for each seed."""
    cells = []
    for record in records:
        for name, found in record["choice"].items():
            rows = str(record["settings"]["choice_rows"])
            cells.append([name, rows, f"{found['evidence']['value']:,.0f}", "", "", "", f"{found['seconds']:.0f}"])
        scores, data = record["metrics"], record["data"]
        accuracy = f"{100 * (1 - scores['error_rate']):.2f} %"
        found = [f"{record['evidence']['value']:,.0f}", accuracy, f"{scores['nll']:.3f}", f"{scores['ece']:.4f}"]
        cells.append(
            [f"**{record['chosen']}**", f"{data['train']:,}", *found, f"{record['seconds']['all images']:.0f}"]
        )
    return harness.markdown(["model", "images", "evidence (nats)", "accuracy", "NLL", "ECE", "seconds"], cells)


def check(records: Records) -> Claims:
    """What the experiment is to show; accuracies are asked of all images alone."""
    claims = {}
    for record in records:
        seed = f"seed {record['settings']['seed']}"
        nats = {name: found["evidence"]["value"] for name, found in record["choice"].items()}
        if {"one layer, flip", "one layer, none"} <= nats.keys():
            claims[f"{seed}: the evidence wants reflections"] = nats["one layer, flip"] > nats["one layer, none"]
        if record["data"]["train"] == 50_000:
            accuracy = 1 - record["metrics"]["error_rate"]
            claims |= {f"{seed}: {accuracy:.2%} is at least {goal:.1%}": accuracy >= goal for goal in GOALS}
    return claims


def plan(options: argparse.Namespace) -> list[Photographs]:
    """A run for each seed."""
    few = {"num_train": 200, "num_test": 100, "choice_rows": 40, "choice_patches": 8, "patches": 16}
    shape = ("patches", "held_out", "num_train", "seconds")
    names = (*shape, "choice_rows", "choice_patches", "choice_steps", "learn_rows", "noise_rows")
    sizes = {name: value for name in names if (value := getattr(options, name)) is not None}
    quick = few | {"choice_steps": 5, "learn_rows": 60, "noise_rows": 100} if options.quick else {}
    return [Photographs(str(options.folder), seed, **(quick | sizes)) for seed in range(options.seeds)]


EXPERIMENT = harness.Experiment(
    "cifar",
    __doc__,
    plan,
    table,
    check,
    seeds=1,
    options={
        "--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of the images, as .npz files"},
        "--patches": {"type": int, "help": "in the dictionary of one layer"},
        "--held-out": {"type": int, "help": "predict so many training images, and leave the test images alone"},
        "--num-train": {"type": int, "help": "images"},
        "--choice-rows": {"type": int, "help": "images to choose by"},
        "--choice-patches": {"type": int, "help": "patches meanwhile"},
        "--choice-steps": {"type": int, "help": "evaluations for each model"},
        "--learn-rows": {"type": int, "help": "images that tell the kernel"},
        "--noise-rows": {"type": int, "help": "images that tell which of two models goes on"},
        "--seconds": {"type": float, "help": "that all of it should take"},
    },
)
