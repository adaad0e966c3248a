"""How to train: one frozen record of numbers, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from orbitgp.inference.inducing_points import Method
from orbitgp.inference.local_parameters import LocalName
from orbitgp.orbits.sampling import Policy

OptimizerName = Literal["natural", "adam"]


@dataclass(frozen=True)
class Options:
    """How to train.

    Budget: whichever of ``max_steps`` and ``max_seconds`` ends first.
    Samples: ``num_samples`` orbit samples of each of ``batch_size`` data in ``num_groups`` groups for the gradient;
        ``posterior_samples`` (by default as many) of each of up to ``posterior_rows`` data for q(u).
    Steps: ``learning_rate`` of kernel, likelihood and mean (by default 0.03, or 0.1 where q(u) and local parameters are
        found together: log odds may be far from where they start), ``orbit_rate`` of the orbit, ``inducing_rate`` of the
        inducing points (in units of the spread of the inputs), each reached after a number of warm-up steps.
        ``posterior_rho`` is the natural-gradient step where q(u) sees all data; where it sees a part of them, half of it, to
        average. ``posterior_every`` is how many steps pass from one refit of q(u) to the next. In the end q(u) is averaged over
        ``polish_passes`` over all data (fewer where there are so many data that this would take long).
    Local parameters, where the likelihood has any: ``local`` is where they come from; where the orbit is
        enumerated, each refit of q(u) finds the two in turns, ``local_rounds`` times; ``network_rate`` is the rate of a
        recognition network.
    Starts: multiples of the orbit's initial reach to try, for ``start_steps`` each (a quarter of ``max_steps`` at most).
    """

    optimizer: OptimizerName = "natural"
    max_steps: int = 300
    max_seconds: float | None = None
    batch_size: int = 512
    num_samples: int | None = 32
    num_groups: int = 2
    draws: Policy = "qmc"
    learning_rate: float | None = None
    orbit_rate: float = 0.05
    warmup: int = 10
    orbit_warmup: int = 40
    inducing_rate: float = 0.1
    inducing: Method = "random"
    posterior_rows: int = 20_000
    posterior_samples: int | None = None
    posterior_rho: float = 1.0
    posterior_every: int = 1
    polish_passes: int = 10
    local: LocalName = "kept"
    local_rounds: int = 5
    network_rate: float = 0.01
    starts: tuple[float, ...] = (1.0, 0.25, 0.0625)
    start_steps: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(OptimizerName):
            raise ValueError(f"optimizer must be one of {', '.join(get_args(OptimizerName))}, got {self.optimizer!r}.")
        for name in ("max_steps", "batch_size", "posterior_rows", "posterior_every", "local_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive, got {self.max_seconds}.")
