"""A fitted estimator in a few lines: as text, as HTML with a picture for notebooks, and what it was made with."""

from __future__ import annotations

import os
import platform
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, Shaped

from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.plotting import show
from orbitgp.report.finding import Fitted, finding_of
from orbitgp.saving.container import versions

_EXAMPLES = 4


def summary(model: Fitted, over_plain: float | None = None) -> str:
    """What may be said, what was learned, the evidence, and how it was found."""
    described = model.describe()
    learned = [repr(described), ""] if described else []
    found = (f"{name}: {text}" for name, text in how_found(model))
    return "\n".join([finding_of(model, over_plain).text, "", *learned, *found])


def how_found(model: Fitted) -> list[tuple[str, str]]:
    """The evidence, and how it was found."""
    last = model.history_[-1]
    gp = model.model_
    how = f"sparse, {len(gp.inducing):,} inducing points" if isinstance(gp, InvariantGP) else "exact"
    lines = [
        ("g sees", seen_by_g(model)),
        ("evidence", str(model.evidence_)),
        ("plausible", "known for exact inference alone" if model.inference_ == "sparse" and model.describe() else ""),
        ("inference", f"{how}; {last['step']:,} steps, {last['seconds']:,.1f} s"),
    ]
    return [(name, text) for name, text in lines if text]


def seen_by_g(model: Fitted) -> str:
    """The parts of a model's feature map by name, with the constants that each has learned; nothing without a map."""
    if model.feature_map is None:
        return ""
    feature_map, words = model.kernel_.feature_map, []
    for part in (part for part in feature_map.modules() if hasattr(part, "named_constants")):
        constants = ", ".join(f"{name} {value:.3g}" for name, value in part.named_constants().items())
        words.append(f"{type(part).__name__} ({constants})")
    return ", ".join(words) or type(feature_map).__name__


def html(model: Fitted) -> str:
    """The same, with samples of the orbit around a typical input."""
    said, described = finding_of(model).text, model.describe()
    try:
        samples = picture(show(model.orbit_, model.examples_[0][0]), "samples of the orbit") if described else ""
    except ImportError:  # without matplotlib
        samples = ""
    return f"<div><p><b>{escape(said)}</b></p>{samples}{table((), [*described.rows(), *how_found(model)])}</div>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as an element of a page: numbers to the right, the first and the last column to the left."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left", *["right"] * (len(cells) - 2), "left"]
        styled = (f'<{tag} style="text-align:{side}">{escape(c)}</{tag}>' for side, c in zip(sides, cells, strict=True))
        return f"<tr>{''.join(styled)}</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def picture(figure: Any, alt: str) -> str:
    """A figure as an element of a page that needs no other file."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{b64encode(file.getvalue()).decode("ascii")}">'


def typical_rows(x: Shaped[np.ndarray, "rows ..."], y: Shaped[np.ndarray, "rows ..."]) -> Int64[np.ndarray, " some"]:
    """A few inputs that stand for all: of classes, those nearest to their means; else some from first to last."""
    if y.ndim > 1 or y.dtype.kind == "f":
        return _spread(np.arange(len(y)))
    found = []
    for label in _spread(np.unique(y)):
        members = np.flatnonzero(y == label)
        some = x[members].reshape(len(members), -1)
        found.append(members[np.square(some - some.mean(0)).sum(1).argmin()])
    return np.array(found)


def _spread(values: Shaped[np.ndarray, " all"]) -> Shaped[np.ndarray, " some"]:
    return values[np.linspace(0, len(values) - 1, min(_EXAMPLES, len(values))).round().astype(int)]


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Versions of Python and the packages, and the hardware."""
    packages = versions("torch", "gpytorch", "numpy", "scikit-learn")
    hardware = {"machine": platform.machine(), "cpus": os.cpu_count(), "threads": torch.get_num_threads()}
    if torch.device(device).type == "cuda":
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {"versions": {"python": platform.python_version(), **packages}, "hardware": hardware}


def model_settings(model: Fitted) -> dict[str, str]:
    """How a fitted estimator was made, by name; what does not apply is left out."""
    kernel = model.kernel_.base_kernel if isinstance(model.kernel_, FeatureMapKernel) else model.kernel_
    kernels = [type(part).__name__ for part in kernel.modules() if type(part).__name__.endswith("Kernel")]
    steps, samples = f"{model.history_[-1]['step']:,}", model.evidence_.num_samples
    if isinstance(model.model_, InvariantGP):
        inference = {"Inference": "sparse", "Inducing points": f"{len(model.model_.inducing):,}", "Steps": steps}
    else:
        count, learned = model.evidence_.num_data, model.evidence_.learned_from
        some = f"; learned on {learned:,} of {count:,} data, conditioned on all" if learned < count else ""
        inference = {
            "Inference": f"exact, without inducing points{some}",
            "Orbit samples": "all elements of the orbit" if samples is None else f"{samples}, the same for every datum",
            "Steps": f"{steps} evaluations of the evidence",
        }
    listed = {
        "Likelihood": type(model.likelihood_).__name__,
        "Kernel": " of ".join(dict.fromkeys(kernels)),
        "Feature map": seen_by_g(model),
        **inference,
        "Seed": str(model.random_state),
        "Device": str(model.device),
    }
    return {name: value for name, value in listed.items() if value}
