"""Records of a run: what callbacks, logs and progress bars are told while it learns.

A callback is a plain function of a record, ``fit(X, y, callback=print)``. A callback that looks at the model itself while it
learns also has a method ``begin``. It is called with the :class:`~orbitgp.training.engine.Engine` before the first step, and
must not change it. The time of callbacks does not count as training. Every record also goes to Python's logging, under the name
``orbitgp``, at level INFO.

A record is a dictionary: ``step``, ``seconds``, ``bound`` (in the units of y), ``orbit`` (what is learned, in physical units),
the hyperparameters by name, and diagnostics:

- ``orbit_snr``: |mean| / standard deviation of the gradient of the orbit's parameters over the last thirty steps, the median
  over parameters. Far below one, the orbit wanders: more samples or larger batches help. It is small at an optimum too.
- ``cone_exits``: the share of updates of q(u) in which the unbiased second moment was not positive definite enough, so that
  some of the biased one was blended in (:mod:`orbitgp.inference.natural_gradient`). More orbit samples for q(u) help.
- ``failed_factors``: how often Kuu had no Cholesky factor, so that the jitter was raised.
- ``jitter``: of a sparse model, what is added to the diagonal of Kuu; of an exact one, the share of the diagonal that had to be
  added to K_f and its noise (:mod:`orbitgp.kernels.cholesky`). Zero is usual there.
- ``climb`` and ``without_orbit``: of an exact run, which climb this is, as there are several starts, and whether it is one of
  the model without the orbit. In such a climb the orbit stays as it is and does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Quantity

Record = dict[str, Any]
Callback = Callable[[Record], None]

logger = logging.getLogger("orbitgp")

_WINDOW = 30  # steps whose gradients of the orbit are kept


class Diagnostics:
    """The last gradients of the orbit, and counts since the last report."""

    def __init__(self) -> None:
        self.gradients: list[Tensor] = []
        self.updates = self.cone_exits = self.failed_factors = 0

    def saw_gradient(self, orbit: nn.Module) -> None:
        """Keep the gradient of this step, which lies in the parameters."""
        grads = [p.grad.detach().flatten() for p in orbit.parameters() if p.grad is not None]
        if grads:
            self.gradients = [*self.gradients[1 - _WINDOW :], torch.cat(grads)]

    def saw_update(self, blend: float) -> None:
        """Count an update of q(u), and whether some of the biased moment was blended in."""
        self.updates += 1
        self.cone_exits += blend > 0

    def report(self) -> dict[str, float | int]:
        """The diagnostics for a record of the history. Counts start again from zero."""
        report: dict[str, float | int] = {"failed_factors": self.failed_factors}
        if len(self.gradients) == _WINDOW:
            steps = torch.stack(self.gradients).double().cpu()
            ratio = steps.mean(0).abs() / steps.std(0).clamp_min(torch.finfo(torch.float64).tiny)
            report["orbit_snr"] = float(ratio.median())
        if self.updates:
            report["cone_exits"] = self.cone_exits / self.updates
        self.updates = self.cone_exits = self.failed_factors = 0
        return report

    def state_dict(self) -> dict[str, Any]:
        """The gradients and the counts."""
        return {**vars(self), "gradients": list(self.gradients)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        vars(self).update(state)


def hyperparameters(kernel: Kernel, likelihood: Likelihood) -> dict[str, float]:
    """Hyperparameters of kernel and likelihood by their constrained names; a vector is represented by its median."""
    values: dict[str, float] = {}
    for name, raw, constraint in kernel.named_parameters_and_constraints():
        value = raw.detach() if constraint is None else constraint.transform(raw.detach())
        values[name.rsplit(".", 1)[-1].removeprefix("raw_")] = float(value.median())
    for name in ("noise", "scale"):
        value = getattr(likelihood, name, None)
        if isinstance(value, Tensor):
            values[name] = float(value.detach().mean())
    return values


def first_record(bound: float, kernel: Kernel, orbit: Orbit, likelihood: Likelihood) -> Record:
    """Of a run that was stopped before its first step."""
    return {
        "step": 0,
        "seconds": 0.0,
        "bound": bound,
        "orbit": orbit.describe().to_dict(),
        **hyperparameters(kernel, likelihood),
    }


def headline(record: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """A record in a few words, for a progress bar or a log line; ``units`` of its quantities by name."""
    known = units or {}
    learned = {name: Quantity.of(value, known.get(name, "")) for name, value in record["orbit"].items()}
    words = [f"{name} {quantity}" for name, quantity in learned.items() if not name.endswith("elements")]
    if record.get("without_orbit"):
        words = ["without the orbit"]
    exact = "climb" in record
    climb = [f"climb {record['climb'] + 1}"] if exact else []
    return ", ".join([*climb, f"{'evidence' if exact else 'bound'} {record['bound']:,.0f}", *words])


def log(record: Record) -> None:
    """Write the record to the log, in one line."""
    logger.info("step %d, %.1f s: %s", record["step"], record["seconds"], headline(record))
