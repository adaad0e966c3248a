"""What a training run tells about itself: one flat record after another."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood

Record = dict[str, Any]


def hyperparameters(model: InvariantGP, likelihood: Likelihood) -> dict[str, float]:
    """Hyperparameters of kernel and likelihood by their constrained names; a vector is represented by its median."""
    values: dict[str, float] = {}
    for name, raw, constraint in model.kernel.named_parameters_and_constraints():
        value = raw.detach() if constraint is None else constraint.transform(raw.detach())
        values[name.rsplit(".", 1)[-1].removeprefix("raw_")] = float(value.median())
    for name in ("noise", "scale"):
        value = getattr(likelihood, name, None)
        if isinstance(value, Tensor):
            values[name] = float(value.detach().mean())
    return values


def headline(record: Record) -> str:
    """A record in a few words, for a progress bar or a log line."""
    learned = ", ".join(f"{name} {_number(value)}" for name, value in record["orbit"].items())
    return f"bound {record['bound']:,.0f}" + (f", {learned}" if learned else "")


def _number(value: float | tuple[float, float]) -> str:
    return f"[{value[0]:.3g}, {value[1]:.3g}]" if isinstance(value, tuple) else f"{value:.3g}"
