"""Records of a run: what callbacks, logs and progress bars are told while it learns.

A callback is a plain function of a record, ``fit(X, y, callback=print)``. A callback that looks at the model itself
while it learns also has a method ``begin``. It is called with the :class:`~orbitgp.training.run.Engine` before the
first step, and must not change it. The time of callbacks does not count as training. Every record also goes to Python's
logging, under the name ``orbitgp``, at level INFO.

A record is a dictionary: ``step``, ``seconds``, ``bound`` (in the units of y), ``orbit`` (what is learned, in physical
units), the hyperparameters by name, and how the run is doing:

- ``jitter``: of a sparse model, what is added to the diagonal of Kuu; of an exact one, the share of the diagonal that
  had to be added to K_f and its noise (:mod:`orbitgp.kernels.cholesky`). Zero is usual there.
- ``climb`` and ``without_orbit``: of an exact run, which climb this is, as there are several starts, and whether it is
  one of the model without the orbit. In such a climb the orbit stays as it is and does nothing.
- ``exact``: whether ``bound`` is the evidence of exact inference.

Stochastic steps have converged when what the bound still gains is small, and known to be. Their records hold means of
the bound. The last half of them is cut into two windows. The difference of their means is what the bound has gained
from one to the next, and their scatter says how well that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gpytorch.kernels import Kernel
from torch import Tensor

from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Quantity

Record = dict[str, Any]
Callback = Callable[[Record], None]

_FEWEST = 40  # records before anything can be said about convergence
_NATS, _SHARE = 2.0, 0.003  # what a run twice as long may gain: nats, or this share of all that was gained


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


def make_record(
    kernel: Kernel,
    orbit: Orbit,
    likelihood: Likelihood,
    bound: float,
    step: int = 0,
    seconds: float = 0.0,
    progress: Mapping[str, Any] | None = None,
) -> Record:
    """A record of this moment. ``progress`` says how the run is doing."""
    named = {"step": step, "seconds": seconds, "bound": bound, **(progress or {}), "orbit": orbit.describe().to_dict()}
    return {**named, **hyperparameters(kernel, likelihood)}


def headline(record: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """A record in a few words, for a progress bar or a log line; ``units`` of its quantities by name."""
    known = units or {}
    learned = {name: Quantity.of(value, known.get(name, "")) for name, value in record["orbit"].items()}
    words = [f"{name} {quantity}" for name, quantity in learned.items() if not name.endswith("elements")]
    if record.get("without_orbit"):
        words = ["without the orbit"]
    climb = [f"climb {record['climb'] + 1}"] if "climb" in record else []
    return ", ".join([*climb, f"{'evidence' if record.get('exact') else 'bound'} {record['bound']:,.0f}", *words])


class Rise(NamedTuple):
    """What the bound gained from the third quarter of the records to the last, with its standard error."""

    gain: float
    stderr: float
    total: float  # since the first records


def rise(bounds: Sequence[float]) -> Rise | None:
    """How much the bound is still rising; None where too few records say."""
    if len(bounds) < _FEWEST:
        return None
    size = len(bounds) // 4
    before, last = np.asarray(bounds[-2 * size : -size]), np.asarray(bounds[-size:])
    # Differences of neighbours show the noise without the trend.
    noise = np.concatenate([np.diff(before), np.diff(last)]).std() / np.sqrt(2)
    return Rise(float(last.mean() - before.mean()), float(noise * np.sqrt(2 / size)), float(last.mean() - bounds[0]))


def is_level(bounds: Sequence[float]) -> bool:
    """Whether little is left to gain, whatever the noise. A run twice as long has four more quarters."""
    found = rise(bounds)
    return found is not None and 4 * found.gain + 2 * found.stderr < max(_NATS, _SHARE * found.total)


def in_words(steps: int, converged: bool, stopped: bool, found: Rise | None) -> str:
    """What happened, for people."""
    if stopped:
        return f"The run was stopped after {steps:,} steps."
    if converged:
        return f"The bound had stopped rising, and the run ended after {steps:,} steps."
    end = f"The run met its limit after {steps:,} steps"
    if found is None:
        return f"{end}, too few to say whether the bound was still rising: raise max_steps or max_seconds."
    if found.gain > 2 * found.stderr:
        gained = f"{found.gain:,.0f} nats in their last quarter"
        return f"{end} while the bound was rising: it gained {gained}. Raise the limit."
    return f"{end}. In their last quarter the bound gained no more than its noise, {2 * found.stderr:,.1f} nats."
