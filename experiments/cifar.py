"""CIFAR-10: an exact Gaussian process of patches, of which the evidence chooses layers, constants and reflections.

g sees stacks of layers of patches side by side, each times a weight, w_s phi_s(x) with sum_s w_s^2 = 1. With the mirror
image x_1 of x_0 = x, and p the probability of a mirror image,

    k_f(x, x') = v sum_ij p_i p_j exp((sum_s w_s^2 phi_s(x_i) . phi_s(x'_j) - 1) / l^2),    p_0 = 1 - p, p_1 = p,

an RBF kernel, as features of a stack have unit length. They are rounded to half precision, and stay features: the
covariance stays positive definite, and products of their matrices are sums of single precision on tensor cores. So a
stack matters through its products alone, and the evidence is sought in w, l, p, noise and v at their price.

The search asks for the evidence of some training images alone. It begins with one layer, adds a second one, changes
each constant by factors, and adds stacks, as long as the evidence rises. The best stacks get larger dictionaries, and
weights and p once more. Then l, noise and v get the most evidence of all images, which the model is conditioned on.
Test images are read when the stacks are chosen, and their labels used at the end; ``--held-out`` takes training images
in their place, of which nothing before has seen anything.

``--folder`` holds ``.npz`` files with arrays ``x_train`` (N, 32, 32, 3), ``y_train``, ``x_test`` and ``y_test``; parts
of an array, in several files, are joined in the order of the names of the files.

``python -m experiments cifar --folder data/cifar10 --device cuda``
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp.kernels import PatchDictionary
from orbitgp.kernels.feature_maps import prepare
from orbitgp.likelihoods import GaussianIndicators
from orbitgp.machine import chunk_elements

Stack = tuple[dict[str, Any], ...]  # arguments of a PatchDictionary for each layer

# The search begins near what the evidence of 10,000 training images found before.
ONE: Stack = ({"patches": 1536, "size": 6, "whitening": 0.002, "bias": 1.8, "level": 0.0035, "window": 0.48},)
FINE = {"patches": 1536, "size": 5, "cells": 14, "whitening": 0.06, "bias": 1.5, "level": 2e-5, "window": 0.42}
SECOND = {"patches": 6144, "size": 3, "components": 192, "whitening": 2.5, "bias": 1.3, "level": 0.01, "window": 0.7}
CONSTANTS = ("whitening", "bias", "level", "window")
BESIDE: dict[str, Callable[[Stack], Stack]] = {  # what else may stand beside the two layers that were found
    "three layers": lambda two: (two[0], {**two[1], "patches": 3072, "cells": 9}, two[1]),
    "larger patches of the second layer": lambda two: (two[0], {**two[1], "size": 4}),
    "smaller patches of the first layer": lambda two: ({**two[0], "size": 4}, two[1]),
}
GOALS = (0.862, 0.88, 0.90)
ENOUGH = 1.0  # nats that a step of the search must gain
_TOLD = 4000  # images that patches are taken from
_LEAST = 3e-5  # noise over variance: products of single precision know no less


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


@contextmanager
def tensor_cores() -> Any:
    """Products of maps in TF32, on GPUs that have it: whatever a map yields, its covariance is positive definite."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def made(stack: Stack, share: float, x: Tensor) -> nn.Sequential:
    """The map of a stack, with this share of its patches, taken from these images."""
    layers = [PatchDictionary(**{**layer, "patches": max(2, round(share * layer["patches"]))}) for layer in stack]
    with tensor_cores():
        prepare(seen := nn.Sequential(*layers).to(x.device), x[:_TOLD])
    return seen


@torch.no_grad()
def features(seen: nn.Module, x: Tensor) -> Tensor:
    """What a map sees of images, and after that of their mirror images, in half precision."""
    state = {name: t.to(x) for name, t in seen.state_dict().items()}
    rows = max(1, chunk_elements(x.device) // 2**21)
    found, start = torch.empty(0), 0
    with tensor_cores():
        for images in (x, x.flip(-1)):
            for part in images.split(rows):
                mapped = torch.func.functional_call(seen, state, (part,)).flatten(1)
                if not start:  # a list of parts would need the memory twice
                    found = torch.empty(2 * len(x), mapped.shape[1], dtype=torch.float16, device=x.device)
                found[start : start + len(part)] = mapped
                start += len(part)
    return found


def products(a: Tensor, b: Tensor) -> Tensor:
    """Their products a b^T in single precision, which holds products of numbers of half precision."""
    return torch.mm(a, b.mT, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float().mT


def add_products(total: Tensor, a: Tensor, b: Tensor, weight: float) -> None:
    """Add weight a b^T, some rows at a time."""
    for rows in torch.arange(len(a), device=a.device).split(4096):
        total[rows] += weight * products(a[rows], b)


def kernel(inner: Tensor, lengthscale: Tensor | float, chances: Sequence[Tensor | float]) -> Tensor:
    """k_f / v, from the products of all elements of two sets of orbits."""
    (half, other), k = (n // 2 for n in inner.shape), torch.zeros((), device=inner.device)
    for i, p in enumerate(chances):
        for j, q in enumerate(chances):
            block = inner[i * half : (i + 1) * half, j * other : (j + 1) * other]
            k = k + p * q * torch.exp((block - 1) / lengthscale**2)
    return k


class Posterior(NamedTuple):
    """The log evidence at the best variance, that variance, the factor of k_f / v + ratio, and its solution."""

    nats: Tensor
    variance: Tensor
    factor: Tensor
    solution: Tensor


def posterior(k: Tensor, ratio: Tensor | float, targets: Tensor) -> Posterior:
    """With T = targets of N rows and L latent functions, v = tr(T^T (k + ratio)^-1 T) / (N L) has the most evidence."""
    matrix = k.to(torch.float64, copy=True)
    matrix.diagonal().add_(ratio)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    del matrix
    if failed:
        raise FloatingPointError("noise does not make the covariance positive definite.")
    solution = torch.cholesky_solve(targets, factor)
    variance, size = (targets * solution).mean(), targets.numel()
    logdet = targets.shape[1] * factor.diagonal().log().sum()
    return Posterior(-0.5 * size * (math.log(2 * math.pi) + 1 + variance.log()) - logdet, variance, factor, solution)


class Fit(NamedTuple):
    """The best evidence of some stacks, and where it is: logs of weights, l and noise over v; p = sin(angle)^2."""

    nats: float
    weights: Tensor
    length: Tensor
    ratio: Tensor
    angle: Tensor
    variance: float = math.nan

    @property
    def noise(self) -> float:
        """Noise over v."""
        return float(self.ratio.exp()) + _LEAST

    @property
    def mirrored(self) -> float:
        """The probability of a mirror image."""
        return float(self.angle.sin().square())

    def described(self) -> Record:
        """In numbers."""
        ends = {"lengthscale": float(self.length.exp()), "noise over variance": self.noise}
        return {
            "weights": self.weights.softmax(0).tolist(),
            **ends,
            "variance": self.variance,
            "mirrored": self.mirrored,
        }


def first(device: torch.device, mirrored: bool = True) -> Fit:
    """Where a fit of one stack begins."""
    begin = torch.tensor([0.0, math.log(0.6), math.log(0.03), 0.6 if mirrored else 0.0], dtype=torch.float64)
    weight, length, ratio, angle = begin.to(device)
    return Fit(-math.inf, weight[None], length, ratio, angle)


def fit(inners: Sequence[Tensor], targets: Tensor, start: Fit, steps: int) -> Fit:
    """The best evidence near a start, where stacks have these products. A new stack begins with a small weight.

    No mirror images stay none.
    """
    weights = torch.cat([start.weights, start.weights.new_full((len(inners) - len(start.weights),), -1.0)])
    at = [p.clone().requires_grad_() for p in (weights, start.length, start.ratio, start.angle)]
    at[3].requires_grad_(start.mirrored > 0)
    best = start._replace(nats=-math.inf, weights=weights)
    optimiser = torch.optim.LBFGS(
        [p for p in at if p.requires_grad], max_iter=steps, max_eval=2 * steps, line_search_fn="strong_wolfe"
    )

    def minus_nats() -> Tensor:
        nonlocal best
        optimiser.zero_grad()
        shares, length, p = at[0].softmax(0).float(), at[1].exp().float(), at[3].sin().square().float()
        inner = sum((share * one for share, one in zip(shares, inners, strict=True)), start=torch.zeros_like(length))
        try:
            found = posterior(kernel(inner, length, (1 - p, p)), at[2].exp() + _LEAST, targets)
        except FloatingPointError:
            return torch.full_like(at[1], 1e9)
        (-found.nats / len(targets)).backward()
        if (nats := float(found.nats.detach())) > best.nats:
            weights, length, ratio, angle = (p.detach().clone() for p in at)
            best = Fit(nats, weights, length, ratio, angle, float(found.variance.detach()))
        return -found.nats.detach() / len(targets)

    optimiser.step(minus_nats)
    return best


@dataclass
class Search:
    """Stacks, the products of what they see of some images, and the best evidence; ``steps`` is what was tried."""

    x: Tensor
    targets: Tensor
    share: float  # of the patches of each layer
    seconds: float
    stacks: list[Stack] = field(default_factory=list)
    inners: list[Tensor] = field(default_factory=list)
    steps: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun, self.best = time.perf_counter(), first(self.x.device)

    def over(self) -> bool:
        """Whether the time is over."""
        return time.perf_counter() - self.begun > self.seconds

    def inner(self, stack: Stack) -> Tensor:
        """The products of what a stack sees."""
        seen = features(made(stack, self.share, self.x), self.x)
        total = torch.zeros(len(seen), len(seen), device=seen.device)
        add_products(total, seen, seen, 1.0)
        return total

    def attempt(self, name: str, stack: Stack, place: int, steps: int = 6) -> bool:
        """Put a stack in this place, if the evidence is higher with it."""
        inners = [*self.inners[:place], self.inner(stack), *self.inners[place + 1 :]]
        found = fit(inners, self.targets, self.best, steps)
        better = found.nats > self.best.nats + ENOUGH
        self.tell(name, found, better)
        if better:
            self.stacks[place : place + 1], self.inners, self.best = [stack], inners, found
        return better

    def tell(self, name: str, found: Fit, better: bool) -> None:
        """Keep and print what was tried."""
        seconds = time.perf_counter() - self.begun
        self.steps.append({"step": name, "nats": found.nats, "taken": better, "seconds": seconds})
        say(f"{seconds:4.0f} s  {found.nats:,.1f} nats{'' if better else ', not taken'}: {name}; {found.described()}")

    def run(self) -> None:
        """From one layer to all that the evidence wants."""
        self.attempt("one layer, reflections", ONE, 0, steps=20)
        self.tell("one layer, none", fit(self.inners, self.targets, first(self.x.device, False), 20), False)
        self.attempt("one and two layers", (FINE, SECOND), 1, steps=12)
        self.change_constants(1.6)
        for name, beside in BESIDE.items() if len(self.stacks) == 2 else ():
            self.attempt(name, beside(self.stacks[1]), len(self.stacks))
        self.change_constants(1.25)

    def change_constants(self, factor: float) -> None:
        """Multiply or divide each constant of each layer by a factor, those of the last stack first."""
        layers = [(place, layer) for place, stack in enumerate(self.stacks) for layer in range(len(stack))]
        for place, layer in reversed(layers):
            for name in CONSTANTS:
                for by in (factor, 1 / factor):
                    if self.over():
                        return
                    stack = list(self.stacks[place])
                    stack[layer] = {**stack[layer], name: by * stack[layer][name]}
                    if self.attempt(f"{name} of layer {layer + 1} of {len(stack)}: × {by:.3g}", tuple(stack), place):
                        break


@dataclass(frozen=True)
class Photographs(harness.Run):
    """The search, and what it found, conditioned on the first ``num_train`` images."""

    folder: str
    seed: int = 0
    num_train: int = 50_000
    num_test: int = 10_000
    held_out: int = 0
    choice_rows: int = 10_000
    share: float = 0.5  # of the patches, while stacks are sought
    last_share: float = 1.0  # the same after that
    search_seconds: float = 200.0
    evaluations: int = 14  # of the evidence of all images

    def name(self) -> str:
        return harness.slug("cifar", self.seed)

    def measure(self, device: str) -> Record:
        begun = time.perf_counter()
        x, y = read(Path(self.folder), "train", self.num_train)
        order = np.random.default_rng(self.seed).permutation(len(x))
        apart, order = order[len(x) - self.held_out :], order[: len(x) - self.held_out]
        likelihood = GaussianIndicators(int(y.max()) + 1)
        images = torch.from_numpy(x[order]).to(device)
        targets = likelihood.encode(torch.from_numpy(y[order])).to(device)
        some = slice(self.choice_rows)
        search = Search(images[some], targets[some], self.share, self.search_seconds)
        search.run()
        chosen = search.stacks
        search.share, search.inners = self.last_share, []
        search.inners = [search.inner(stack) for stack in chosen]
        best = fit(search.inners, targets[some], search.best, 12)
        search.tell("all patches", best, True)
        weights, choice = best.weights.softmax(0).tolist(), search.steps
        say(f"chosen: {chosen}")  # a run that stops later has not searched in vain
        del search
        clear(device)
        seconds = {"search": time.perf_counter() - begun}
        unseen, labels = (x[apart], y[apart]) if self.held_out else read(Path(self.folder), "test", self.num_test)
        inner, cross, own = sums(chosen, weights, self.last_share, images, torch.from_numpy(unseen).to(device))
        say(f"{time.perf_counter() - begun:.0f} s: products of all images")
        best, solved = of_all(best, inner, targets, self.evaluations)
        del inner
        seconds["all images"] = time.perf_counter() - begun - seconds["search"]
        chances = 1 - best.mirrored, best.mirrored
        across = kernel(cross, float(best.length.exp()), chances).double()
        prior = kernel(own, float(best.length.exp()), chances).double()[:, 0]
        means = across @ solved.solution
        explained = torch.linalg.solve_triangular(solved.factor, across.mT, upper=False).square().sum(0)
        likelihood.gaussian.set_noise(best.variance * best.noise)
        variances = best.variance * (prior - explained)[:, None].expand_as(means)
        scores = self.scores(likelihood.predict_proba(means.cpu(), variances.cpu()).numpy(), labels)
        seconds["all"] = time.perf_counter() - begun
        say(f"{scores}, after {seconds['all']:.0f} s")
        return {
            "data": {"name": "CIFAR-10", "train": len(order), "test": len(labels)},
            "choice": choice,
            "stacks": chosen,
            "evidence": {"value": best.nats, "num_data": len(order)},
            "learned": best.described(),
            "seconds": seconds,
            "metrics": scores,
        }


def clear(device: str) -> None:
    """Give the memory of a GPU back."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def sums(
    stacks: Sequence[Stack], weights: Sequence[float], share: float, x: Tensor, new: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Products of all that these stacks see: of images with each other, of new images with them, and with themselves.

    One stack after the other, as features of all would not fit into memory. The third has pairs of the same new image
    on the diagonals of four squares; a column of them is kept.
    """
    inner, cross = (torch.zeros(2 * len(rows), 2 * len(x), device=x.device) for rows in (x, new))
    own = torch.zeros(2 * len(new), 2, device=x.device)

    def add(stack: Stack, weight: float) -> None:
        seen = made(stack, share, x)
        known, unseen = features(seen, x), features(seen, new)
        add_products(inner, known, known, weight)
        add_products(cross, unseen, known, weight)
        sides = unseen.split(len(new))
        for j, side in enumerate(sides):
            for i, other in enumerate(sides):
                parts = zip(side.split(1000), other.split(1000), strict=True)
                pairs = torch.cat([(a.float() * b.float()).sum(1) for a, b in parts])
                own[i * len(new) : (i + 1) * len(new), j] += weight * pairs
        say(f"  {len(stack)} layers, {unseen.shape[1]:,} features, weight {weight:.2f}")

    for stack, weight in zip(stacks, weights, strict=True):
        add(stack, weight)
        clear(x.device.type)
    return inner, cross, own


def of_all(start: Fit, inner: Tensor, targets: Tensor, evaluations: int) -> tuple[Fit, Posterior]:
    """The best lengthscale, noise and variance of all images, by a simplex; weights and p stay."""
    p = start.mirrored
    origin = np.array([float(start.length), float(start.ratio)])

    def minus_nats(at: np.ndarray) -> float:
        begin = time.perf_counter()
        try:
            nats = float(posterior(kernel(inner, math.exp(at[0]), (1 - p, p)), math.exp(at[1]) + _LEAST, targets).nats)
        except FloatingPointError:
            nats = -math.inf
        say(f"  l {math.exp(at[0]):.3f}, noise over v {math.exp(at[1]):.3g}: {nats:,.0f} nats, "
            f"{time.perf_counter() - begin:.1f} s")  # fmt: skip
        return -nats if math.isfinite(nats) else 1e12

    simplex = origin + np.array([[0.0, 0.0], [0.1, 0.0], [0.0, -0.7]])
    options = {"maxfev": evaluations, "initial_simplex": simplex}
    found = minimize(minus_nats, origin, method="Nelder-Mead", options=options)
    length, ratio = (start.length.new_tensor(value) for value in found.x)
    best = start._replace(length=length, ratio=ratio)
    solved = posterior(kernel(inner, float(length.exp()), (1 - p, p)), best.noise, targets)
    return best._replace(nats=float(solved.nats), variance=float(solved.variance)), solved


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)


def table(records: Records) -> str:
    """What the search took, and the model of all images, for each seed."""
    cells = []
    for record in records:
        rows = f"{record['settings']['choice_rows']:,}"
        for step in record["choice"]:
            if step["taken"] or step["step"].endswith("none"):
                cells.append([step["step"], rows, f"{step['nats']:,.0f}", "", "", "", f"{step['seconds']:.0f}"])
        scores, data = record["metrics"], record["data"]
        accuracy = f"{100 * (1 - scores['error_rate']):.2f} %"
        found = [f"{record['evidence']['value']:,.0f}", accuracy, f"{scores['nll']:.3f}", f"{scores['ece']:.4f}"]
        cells.append(["**all images**", f"{data['train']:,}", *found, f"{record['seconds']['all']:.0f}"])
    return harness.markdown(["model", "images", "evidence (nats)", "accuracy", "NLL", "ECE", "seconds so far"], cells)


def check(records: Records) -> Claims:
    """What the experiment is to show; accuracies are asked of all images alone."""
    claims = {}
    for record in records:
        seed = f"seed {record['settings']['seed']}"
        nats = {step["step"]: step["nats"] for step in record["choice"]}
        claims[f"{seed}: the evidence wants reflections"] = nats["one layer, reflections"] > nats["one layer, none"]
        if record["data"]["train"] == 50_000:
            accuracy = 1 - record["metrics"]["error_rate"]
            claims |= {f"{seed}: {accuracy:.2%} is at least {goal:.1%}": accuracy >= goal for goal in GOALS}
            claims[f"{seed}: in less than ten minutes"] = record["seconds"]["all"] < 600
    return claims


def plan(options: argparse.Namespace) -> list[Photographs]:
    """A run for each seed."""
    quick = {
        "num_train": 120,
        "num_test": 60,
        "choice_rows": 80,
        "share": 0.005,
        "last_share": 0.01,
        "search_seconds": 8.0,
    }
    names = ("held_out", "num_train", "choice_rows", "search_seconds")
    sizes = {name: value for name in names if (value := getattr(options, name)) is not None}
    given = (quick if options.quick else {}) | sizes
    return [Photographs(str(options.folder), seed, **given) for seed in range(options.seeds)]


EXPERIMENT = harness.Experiment(
    "cifar",
    __doc__,
    plan,
    table,
    check,
    seeds=1,
    options={
        "--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of the images, as .npz files"},
        "--held-out": {"type": int, "help": "predict so many training images, and leave the test images alone"},
        "--num-train": {"type": int, "help": "images"},
        "--choice-rows": {"type": int, "help": "images to search by"},
        "--search-seconds": {"type": float, "help": "that the search may take"},
    },
)
