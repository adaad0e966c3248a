"""A fitted estimator as one file, and back.

The file holds the constructor's arguments, what ``fit`` learned (the ``state_dict`` of the model and of the
likelihood), and what it noted (labels, shapes, scales, evidence, history, versions). Orbit, kernel, likelihood and
feature map occur twice: as given, so that the loaded estimator can be cloned and fitted again, and as learned.

Objects of classes that nobody registered are handed in by the reader. To see that they are the right ones, the file
also holds a few predictions.

An exact model keeps the data themselves, as they came to the model, their noise and their weights; the covariance of
the data is made again from these when it is needed. 60,000 images of 28 x 28 in single precision take 188 MB, with
noise and weights of ten classes 198 MB.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from torch import Tensor, nn

from orbitgp.datasets.columns import Columns
from orbitgp.inference import streamed
from orbitgp.inference.evidence import Evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.covariance import show_values
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.planning.options import TrainingOptions
from orbitgp.planning.plan import Plan
from orbitgp.planning.rungs import Rung
from orbitgp.saving import objects
from orbitgp.saving.container import Contents, SavedFileError, Tensors, read, versions, write
from orbitgp.saving.objects import class_name, decode, encode, load_state, pack, pack_state, register, unpack

Loaded = TypeVar("Loaded")

KINDS = {"classifier": "InvariantGPClassifier", "regressor": "InvariantGPRegressor"}
_LEARNED = ("model_", "orbit_", "kernel_", "likelihood_")

logger = logging.getLogger("orbitgp")
register(Columns, name="Columns")
register(TrainingOptions, lambda own: {name: getattr(own, name) for name in sorted(own.changed())}, "TrainingOptions")
register(
    Plan,
    lambda plan: {**vars(plan), "ladder": [list(rung) for rung in plan.ladder]},
    "Plan",
    lambda ladder, **rest: Plan(ladder=tuple(Rung(*rung) for rung in ladder), **rest),
)


def save_estimator(estimator: Any, path: Path) -> None:
    """Write a fitted estimator, whole or not at all."""
    tensors: Tensors = {}
    given = estimator.get_params(deep=False)
    parts = _parts(estimator)
    modules = {f"learned.{name}": part for name, part in {**parts, "likelihood": estimator.likelihood_}.items()}
    modules |= {f"given.{name}": value for name, value in given.items() if isinstance(value, nn.Module)}
    shared = [f"learned.{name}" for name in parts]  # their tensors are the model's
    noted = {name: value for name, value in vars(estimator).items() if name not in given and name not in _LEARNED}
    config = {
        "given": {name: _encode(name, v, tensors) for name, v in given.items() if not isinstance(v, nn.Module)},
        "modules": {name: pack(module, tensors, name, state=name not in shared) for name, module in modules.items()},
        "model": {**_model_arguments(estimator.model_), **pack_state(estimator.model_, tensors, "model")},
        "noted": {name: _encode(name, value, tensors) for name, value in noted.items() if name != "evidence_"},
        "evidence": asdict(estimator.evidence_),
        "versions": versions("torch", "gpytorch", "scikit-learn", "numpy"),
    }
    tensors["probes"] = _probes(estimator.model_, estimator.likelihood_)
    if name := _undefined(tensors):
        raise ValueError(f"the model cannot be saved: {name!r} holds a number that is not finite.")
    write(path, _kind(type(estimator)), config, tensors)


def load_estimator(cls: type[Loaded], path: Path, handed_in: Mapping[str, nn.Module | None]) -> Loaded:
    """The estimator in this file, with objects that the file cannot rebuild taken from ``handed_in``."""
    contents = read(path)
    if contents.kind not in KINDS:
        raise SavedFileError(f"{path} holds a {contents.kind}, not a model: give it to fit as resume=….")
    if contents.kind != _kind(cls):
        raise SavedFileError(f"{path} holds a {contents.kind}: load it with {KINDS[contents.kind]}.load.")
    if name := _undefined(contents.tensors):
        raise SavedFileError(f"{path} is damaged: {name!r} holds a number that is not finite.")
    try:
        return _rebuild(cls, contents, {name: module for name, module in handed_in.items() if module is not None})
    except Exception as error:  # whoever wrote the header may have asked for anything
        raise SavedFileError(f"{path} cannot be loaded: {_first_line(error)}") from error


def _kind(cls: type) -> str:
    return "classifier" if issubclass(cls, ClassifierMixin) else "regressor"


def _rebuild(cls: type[Loaded], contents: Contents, handed_in: Mapping[str, nn.Module]) -> Loaded:
    _, config, tensors = contents
    _check_handed_in(config["modules"], handed_in)
    given, noted = decode(config["given"], tensors), decode(config["noted"], tensors)
    learned: dict[str, Any] = {}
    for name, packed in config["modules"].items():
        owner, _, part = name.partition(".")
        (given if owner == "given" else learned)[part] = unpack(packed, tensors, name, handed_in.get(part))
    if "feature_map" in learned:
        shape = tuple(noted["input_shape_"])
        learned["kernel"] = FeatureMapKernel(learned["kernel"], learned["feature_map"], shape if shape[1:] else None)
    model, likelihood = _load_model(config["model"], tensors, learned), learned["likelihood"]
    if handed_in and not torch.allclose(_probes(model, likelihood), tensors["probes"], rtol=1e-3, atol=1e-6):
        raise ValueError(f"it was not fitted with the {' and '.join(handed_in)} handed in: it predicts something else.")
    estimator: Any = cls(**{**given, "device": "cpu"})
    kernel = show_values(model.kernel)
    fitted = {"model_": model, "orbit_": model.orbit, "kernel_": kernel, "likelihood_": likelihood, **noted}
    for name, value in {**fitted, "evidence_": Evidence(**config["evidence"])}.items():
        if hasattr(estimator, name):
            raise ValueError(f"{name!r} is no attribute that fit sets.")
        setattr(estimator, name, value)
    _check_predicts(estimator)
    try:
        torch.zeros((), device=given["device"])
        estimator.device = given["device"]
    except (RuntimeError, AssertionError):
        logger.info("the model was fitted on %s, which is not here: it will predict on the CPU.", given["device"])
    rebuilt: Loaded = estimator
    return rebuilt


def _check_predicts(estimator: Any) -> None:
    """Predict for one row, as the user will: what a header left out, or has in the wrong place, shows here.

    Of an exact model, the first datum alone predicts: the factor of all data takes long, and may not be needed.
    """
    model = estimator.model_
    point = (model.x if isinstance(model, ExactGP) else model.inducing.detach())[:1]
    if isinstance(model, ExactGP):
        estimator.model_ = model.restricted(point, model.num_samples)
        estimator.model_.weights, estimator.model_.noise = model.weights[:1], model.noise[:1]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # the model's own have none
        if len(estimator.predict(point.numpy())) != 1:
            raise ValueError("it predicts something else than one value for one row")
    estimator.model_ = model


def _encode(name: str, value: Any, tensors: Tensors) -> Any:
    try:
        return encode(value, tensors, f"value.{name}")
    except objects.Inexpressible as error:
        raise TypeError(f"the model cannot be saved: {name} holds {error}, which the format cannot express.") from error


def _model_arguments(model: InvariantGP | ExactGP) -> dict[str, Any]:
    """Arguments of the constructor, besides kernel, orbit and tensors."""
    prior = model.prior_mean
    mean = "linear" if prior.weight is not None else "constant" if prior.bias.requires_grad else "zero"
    common = {"num_latents": model.num_latents, "mean": mean}
    if isinstance(model, ExactGP):
        return {"exact": True, "arguments": {**common, "num_samples": model.num_samples, "seed": model.seed}}
    shared, samples = len(model.q_sqrt) == 1, model.inducing_samples
    arguments = {**common, "shared_covariance": shared, "jitter": model.jitter, "inducing_samples": samples}
    draws = {} if model.fixed_draws is None else {"fixed_draws": list(model.fixed_draws)}
    return {"exact": False, "arguments": {**arguments, **draws}}


def _load_model(packed: Mapping[str, Any], tensors: Tensors, learned: Mapping[str, Any]) -> InvariantGP | ExactGP:
    model: InvariantGP | ExactGP
    kernel, orbit = learned["kernel"], learned["orbit"]
    if packed["exact"]:
        model, noise = ExactGP(kernel, orbit, tensors["model.x"], **packed["arguments"]), tensors["model.noise"]
        rows, latents = len(model.x), model.num_latents
        if noise.shape not in ((rows, 1), (rows, latents)) or not bool((noise > 0).all()):
            raise ValueError(f"its noise must be positive, for {rows} data and 1 or {latents} outputs.")
        model.noise = noise
    else:
        model = InvariantGP(kernel, orbit, tensors["model.inducing"], **packed["arguments"])
    load_state(model, packed, tensors, "model")
    return model


def _check_handed_in(modules: Mapping[str, Any], handed_in: Mapping[str, nn.Module]) -> None:
    """One sentence that names all that the file cannot rebuild."""
    lacking = {name.partition(".")[2]: packed["lacks"] for name, packed in modules.items() if packed["build"] is None}
    missing = {name: lacks for name, lacks in lacking.items() if name not in handed_in}
    if missing:
        what = " and ".join(f"the {name} ({described})" for name, described in missing.items())
        arguments = ", ".join(f"{name}=…" for name in missing)
        raise ValueError(f"it cannot rebuild {what}: hand it in, load(path, {arguments}).")


def _parts(estimator: Any) -> dict[str, nn.Module]:
    """Orbit and kernel; where the user gave a feature map, that and the kernel of its features."""
    kernel = estimator.kernel_
    if estimator.feature_map is None:
        return {"orbit": estimator.orbit_, "kernel": kernel}
    return {"orbit": estimator.orbit_, "kernel": kernel.base_kernel, "feature_map": kernel.feature_map}


@torch.no_grad()
def _probes(model: InvariantGP | ExactGP, likelihood: Any) -> Float[Tensor, " numbers"]:
    """Predictions that tell one orbit, kernel or likelihood from another, at the first inducing point and at the last.

    One point would not do: in a model without an orbit, whatever the kernel does between points drops out there. The
    posterior of an exact model takes long to make again, so of that the prior at some data is enough.
    """
    if isinstance(model, ExactGP):
        seen, means = model.seen_and_means(model.x[:4])
        gram = streamed.gram(model.vectors, seen).double()
        mean, variance = means + gram @ model.weights[:4], gram.diagonal()[:, None].expand(-1, model.num_latents)
    else:
        mean, variance = model.predict(model.inducing.detach()[[0, -1]], 16)
    predicted = likelihood.predictive(mean, variance)
    said = [getattr(predicted, name) for name in ("probs", "mean", "std") if hasattr(predicted, name)]
    return torch.cat([part.flatten().double() for part in (mean, variance, *said)])


def _undefined(tensors: Tensors) -> str | None:
    """The name of a tensor with a number that is not finite, if any; constraints alone may have infinite bounds."""
    bad = (n for n, t in tensors.items() if (t.isnan() if n.endswith("_bound") else ~t.isfinite()).any())
    return next(bad, None)


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).splitlines()), class_name(type(error)))
    text = text if len(text) < 300 else f"{text[:300]}…"
    return f"{text} is missing." if isinstance(error, KeyError) else f"{text.removesuffix('.')}."
