"""A fitted estimator as one file, and back.

The file holds the constructor's arguments, what ``fit`` learned (orbit, kernel, likelihood, inducing points, q(u)), and what
it noted (labels, shapes, scales, evidence, history, versions). Orbit, kernel, likelihood and feature map occur twice: as they
were given, so that the loaded estimator can be cloned and fitted again, and as they were learned.

Objects of classes that nobody registered are handed in by the reader. To see that they are the right ones, the file also holds
two predictions, at the first and the last inducing point.

An exact model keeps the data themselves, as they came to the model, their noise and their weights; the covariance of the data
is made again from these when it is needed. 60,000 images of 28 x 28 in single precision take 188 MB, with noise and weights of
ten classes 198 MB.
"""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.evidence import Evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.saving.container import Contents, SavedFileError, read, versions, write
from orbitgp.saving.modules import distinct, pack, put, unpack
from orbitgp.saving.registry import class_name
from orbitgp.saving.values import Inexpressible, Tensors, decode, encode
from orbitgp.training.options import TrainingOptions

Loaded = TypeVar("Loaded")

KINDS = {"classifier": "InvariantGPClassifier", "regressor": "InvariantGPRegressor"}
_OWN = ("model_", "orbit_", "kernel_", "likelihood_")  # attributes that the learned parts give back
_PROBE_SAMPLES = 16
_LONGEST = 200  # characters of a reason why a file cannot be loaded
_OPTIONS = "$training"

logger = logging.getLogger("orbitgp")


def save_estimator(estimator: Any, path: Path, kind: str) -> None:
    """Write a fitted estimator, whole or not at all."""
    tensors: Tensors = {}
    given = estimator.get_params(deep=False)
    model: InvariantGP | ExactGP = estimator.model_
    noted = {name: value for name, value in vars(estimator).items() if name not in given and name not in _OWN}
    noted["evidence_"] = asdict(estimator.evidence_)
    config = {
        "given": {name: _write(name, value, tensors) for name, value in given.items()},
        "learned": {name: pack(module, tensors, f"learned.{name}") for name, module in _learned(estimator).items()},
        "posterior": _write_posterior(model, tensors),
        "noted": {name: _write(name, value, tensors) for name, value in noted.items()},
        "versions": versions("torch", "gpytorch", "scikit-learn", "numpy"),
        "python": platform.python_version(),
    }
    tensors["probes"] = _probes(model, estimator.likelihood_)
    if name := _undefined(tensors):
        raise ValueError(f"the model cannot be saved: {name!r} holds a number that is not finite.")
    write(path, kind, config, tensors)


def load_estimator(cls: type[Loaded], path: Path, kind: str, handed_in: Mapping[str, nn.Module | None]) -> Loaded:
    """The estimator in this file, with objects that the file cannot rebuild taken from ``handed_in``."""
    contents = read(path)
    if contents.kind not in KINDS:
        raise SavedFileError(f"{path} holds a {contents.kind}, not a model: give it to fit as resume=….")
    if contents.kind != kind:
        raise SavedFileError(f"{path} holds a {contents.kind}: load it with {KINDS[contents.kind]}.load.")
    if name := _undefined(contents.tensors):
        raise SavedFileError(f"{path} is damaged: {name!r} holds a number that is not finite.")
    given = {name: module for name, module in handed_in.items() if module is not None}
    try:
        _check_handed_in(path, contents.config, given)
        return _rebuild(cls, path, contents, given)
    except SavedFileError as error:
        if str(path) in str(error):
            raise
        raise SavedFileError(f"{path} cannot be loaded: {_first_line(error)}") from error
    except Exception as error:  # whoever wrote the header may have asked for anything
        raise SavedFileError(f"{path} cannot be loaded: {_first_line(error)}") from error


def _rebuild(cls: type[Loaded], path: Path, contents: Contents, handed_in: Mapping[str, nn.Module]) -> Loaded:
    _, config, tensors = contents
    arguments = {name: _read_argument(name, value, tensors, handed_in) for name, value in config["given"].items()}
    arguments["device"] = _usable(path, arguments["device"])
    learned = {
        name: unpack(packed, tensors, f"learned.{name}", handed_in.get(name)) for name, packed in config["learned"].items()
    }
    noted = {name: decode(value, tensors) for name, value in config["noted"].items()}
    if "feature_map" in learned:
        shape = tuple(noted["input_shape_"])
        learned["kernel"] = FeatureMapKernel(learned["kernel"], learned["feature_map"], shape if len(shape) > 1 else None)
    model = _read_posterior(config["posterior"], tensors, learned)
    likelihood = learned["likelihood"]
    if handed_in and not torch.allclose(_probes(model, likelihood), tensors["probes"], rtol=1e-3, atol=1e-6):
        names = " and ".join(handed_in)
        raise SavedFileError(f"{path} was not fitted with the {names} handed in: it predicts something else with it.")
    estimator = cls(**arguments)
    noted["evidence_"] = Evidence(**noted["evidence_"])
    noted.setdefault("plausible_", {})  # older files have none
    fitted = {"model_": model, "orbit_": model.orbit, "kernel_": model.kernel, "likelihood_": likelihood, **noted}
    for name, value in fitted.items():
        if hasattr(estimator, name):
            raise ValueError(f"{name!r} is no attribute that fit sets.")
        setattr(estimator, name, value)
    _check_predicts(estimator)
    return estimator


def _check_predicts(estimator: Any) -> None:
    """Predict for one row, as the user will: what a header left out, or has in the wrong place, shows here."""
    model, device = estimator.model_, estimator.device
    point = (model.x if isinstance(model, ExactGP) else model.inducing.detach())[:1]
    estimator.device = "cpu"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")  # the model's own have none
            predicted = estimator.predict(point.numpy())
    finally:
        estimator.device = device
    if len(predicted) != 1:
        raise ValueError("it predicts something else than one value for one row")


def _write(name: str, value: Any, tensors: Tensors) -> Any:
    if isinstance(value, nn.Module):
        return {"$module": pack(value, tensors, f"given.{name}")}
    if isinstance(value, TrainingOptions):
        return {_OPTIONS: _write_value(name, value.get_params(), tensors)}
    return _write_value(name, value, tensors)


def _write_value(name: str, value: Any, tensors: Tensors) -> Any:
    try:
        return encode(value, tensors, f"value.{name}")
    except Inexpressible as error:
        raise TypeError(f"the model cannot be saved: {name} holds {error}, which the file format cannot express.") from error


def _read_argument(name: str, value: Any, tensors: Tensors, handed_in: Mapping[str, nn.Module]) -> Any:
    if _is_module(value):
        return unpack(value["$module"], tensors, f"given.{name}", handed_in.get(name))
    if isinstance(value, dict) and _OPTIONS in value:
        return TrainingOptions(**decode(value[_OPTIONS], tensors))
    return decode(value, tensors)


def _is_module(value: Any) -> bool:
    return isinstance(value, dict) and "$module" in value


def _write_posterior(model: InvariantGP | ExactGP, tensors: Tensors) -> dict[str, Any]:
    """What the model holds besides orbit and kernel: of an exact one, the data, their noise and weights."""
    state = {name: tensor for name, tensor in model.state_dict().items() if _of_posterior(name)}
    tensors.update({f"posterior.{name}": tensor.cpu().contiguous() for name, tensor in state.items()})
    fixed = [name for name, p in model.named_parameters() if _of_posterior(name) and not p.requires_grad]
    mean = "linear" if model.prior_mean.weight is not None else "constant" if model.prior_mean.bias.requires_grad else "zero"
    common = {"num_latents": model.num_latents, "mean": mean, "fixed": fixed}
    if isinstance(model, ExactGP):
        return {**common, "exact": True, "num_samples": model.num_samples, "seed": model.seed}
    return {**common, "jitter": model.jitter}


def _read_posterior(posterior: Mapping[str, Any], tensors: Tensors, learned: Mapping[str, Any]) -> InvariantGP | ExactGP:
    parts, common = (learned["kernel"], learned["orbit"]), (posterior["num_latents"], posterior["mean"])
    model: InvariantGP | ExactGP
    if posterior.get("exact"):
        model = ExactGP(*parts, tensors["posterior.x"], *common, posterior["num_samples"], posterior["seed"])
        model.noise = _checked_noise(tensors["posterior.noise"], len(model.x), model.num_latents)
    else:
        draws = tensors.get("posterior.inducing_draws")
        model = InvariantGP(
            *parts,
            tensors["posterior.inducing"],
            *common,
            shared_covariance=len(tensors["posterior.q_sqrt"]) == 1,
            jitter=posterior["jitter"],
            inducing_samples=draws.shape[1] if draws is not None else 1,
        )
    state = {name: tensor.detach() for name, tensor in distinct(model).items() if not _of_posterior(name)}
    state.update({name.removeprefix("posterior."): t for name, t in tensors.items() if name.startswith("posterior.")})
    put(model, state)
    for name, parameter in model.named_parameters():
        if _of_posterior(name):
            parameter.requires_grad_(name not in posterior["fixed"])
    return model


def _checked_noise(noise: Tensor, rows: int, latents: int) -> Tensor:
    """The noise of all data: one column, or one for each latent function."""
    if noise.shape not in ((rows, 1), (rows, latents)) or not bool((noise > 0).all()):
        raise SavedFileError(f"its noise must be positive, for {rows} data and 1 or {latents} outputs.")
    return noise


def _of_posterior(name: str) -> bool:
    return not name.startswith(("orbit.", "covariance."))


def _check_handed_in(path: Path, config: Mapping[str, Any], handed_in: Mapping[str, nn.Module]) -> None:
    """One sentence that names all that the file cannot rebuild."""
    packed = [*config["learned"].items()]
    packed += [(name, value["$module"]) for name, value in config["given"].items() if _is_module(value)]
    missing = {name: entry["lacks"] for name, entry in packed if entry["build"] is None and name not in handed_in}
    if missing:
        what = " and ".join(f"the {name} ({described})" for name, described in missing.items())
        arguments = ", ".join(f"{name}=…" for name in missing)
        raise SavedFileError(f"{path} cannot rebuild {what}: hand it in, load(path, {arguments}).")


def _learned(estimator: Any) -> dict[str, nn.Module]:
    """Orbit, kernel and likelihood; where the user gave a feature map, that and the kernel of its features."""
    learned = {name: getattr(estimator, f"{name}_") for name in ("orbit", "kernel", "likelihood")}
    if estimator.feature_map is not None:
        mapped = learned["kernel"]
        learned |= {"kernel": mapped.base_kernel, "feature_map": mapped.feature_map}
    return learned


@torch.no_grad()
def _probes(model: InvariantGP | ExactGP, likelihood: Any) -> Float[Tensor, " numbers"]:
    """Predictions that tell one orbit, kernel or likelihood from another, at the first inducing point and at the last.

    One point would not do: in a model without an orbit, whatever the kernel does between points drops out there. The posterior
    of an exact model takes long to make again, so of that the prior at some data is enough.
    """
    if isinstance(model, ExactGP):
        mean, variance = model.probe()
    else:
        mean, variance = model.predict(model.inducing.detach()[[0, -1]], _PROBE_SAMPLES)
    law = likelihood.predictive(mean, variance)
    said = [getattr(law, name) for name in ("probs", "mean", "std") if hasattr(law, name)]
    return torch.cat([part.flatten().double() for part in (mean, variance, *said)])


def _undefined(tensors: Tensors) -> str | None:
    """The name of a tensor with a number that is not finite, if there is one; constraints alone may have infinite bounds."""
    bad = (n for n, t in tensors.items() if (t.isnan() if n.endswith("_bound") else ~t.isfinite()).any())
    return next(bad, None)


def _usable(path: Path, device: Any) -> Any:
    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError):
        logger.info("%s was fitted on %s, which is not here: it will predict on the CPU.", path, device)
        return "cpu"
    return device


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else class_name(type(error))
    text = text if len(text) < _LONGEST else f"{text[:_LONGEST]}…"
    text = f"{text} is missing" if isinstance(error, KeyError) else text
    return text if text.endswith(".") else f"{text}."
