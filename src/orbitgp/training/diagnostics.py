"""What a training run tells about itself: one flat record after another.

A record holds the bound, the orbit, the hyperparameters and signs of health:

- ``orbit_snr``: |mean| / standard deviation of the gradient of the orbit's parameters over the last thirty steps, the median
  over parameters. Far below one, the orbit wanders: more samples or larger batches help. It is small at an optimum too.
- ``cone_exits``: the share of refits of q(u) in which the unbiased second moment was not positive definite enough, so that some
  of the biased one was blended in (:mod:`orbitgp.inference.natural_gradient`). More orbit samples for q(u) help.
- ``failed_factors``: how often Kuu had no Cholesky factor, so that the jitter was raised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits.description import Quantity

Record = dict[str, Any]

WINDOW, ENOUGH = 30, 5  # steps whose gradients are kept, and that it takes to speak of noise


class Health:
    """The last gradients of the orbit, and counts since the last report."""

    def __init__(self) -> None:
        self.gradients: list[Tensor] = []
        self._begin()

    def _begin(self) -> None:
        self.refits = 0
        self.cone_exits = 0
        self.failed_factors = 0

    def saw_gradient(self, orbit: nn.Module) -> None:
        """The gradient of this step is there, in the parameters."""
        grads = [p.grad.detach().flatten() for p in orbit.parameters() if p.grad is not None]
        if grads:
            self.gradients = [*self.gradients[1 - WINDOW :], torch.cat(grads)]

    def saw_refit(self, blend: float) -> None:
        """q(u) was refitted, with so much of the biased moment."""
        self.refits += 1
        self.cone_exits += blend > 0

    def report(self) -> dict[str, float | int]:
        """What a record of the history says; counting begins anew."""
        report: dict[str, float | int] = {}
        if len(self.gradients) >= ENOUGH:
            # Looked at on the host: those of a run that was resumed are there.
            steps = torch.stack([gradient.cpu() for gradient in self.gradients]).double()
            ratio = steps.mean(0).abs() / steps.std(0).clamp_min(torch.finfo(torch.float64).tiny)
            report["orbit_snr"] = float(ratio.median())
        if self.refits:
            report["cone_exits"] = self.cone_exits / self.refits
        report["failed_factors"] = self.failed_factors
        self._begin()
        return report

    def state_dict(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        vars(self).update(state)


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
    return f"bound {record['bound']:,.0f}" + "".join(f", {name} {Quantity.of(v)}" for name, v in record["orbit"].items())
