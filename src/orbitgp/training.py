"""Training: maximise the bound over q(u), the inducing points, the kernel, the likelihood and the orbit, together.

Two optimisers:

- ``natural`` (the default): each step refits q(u) in closed form from fresh orbit samples of a large batch, forward only
  (:mod:`orbitgp.natural`), then takes one Adam step of everything else on a small batch. With q(u) at its best, that step
  follows the gradient of the bound with q(u) optimised out, which is what lets the orbit move freely.
- ``adam``: one Adam step of everything, q(u) too. The reference.

The learning rate warms up, holds, and falls to zero; in the end q(u) is refitted from many averaged passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from orbitgp.elbo import expected_log_likelihood
from orbitgp.evidence import chunks
from orbitgp.likelihoods import Likelihood
from orbitgp.natural import Statistics, set_posterior, statistics
from orbitgp.orbits.draws import Policy
from orbitgp.variational import InvariantGP

OptimizerName = Literal["natural", "adam"]
Record = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How to train. Budgets: whichever of ``max_steps`` and ``max_seconds`` ends first."""

    optimizer: OptimizerName = "natural"
    max_steps: int = 300
    max_seconds: float | None = None
    batch_size: int = 256
    num_samples: int | None = 32
    num_groups: int = 2
    draws: Policy = "qmc"
    learning_rate: float = 0.03
    inducing_rate: float = 0.01
    orbit_rate: float = 0.03
    posterior_rows: int = 20_000
    posterior_rho: float = 0.5
    polish_passes: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(OptimizerName):
            raise ValueError(f"optimizer must be one of {', '.join(get_args(OptimizerName))}, got {self.optimizer!r}.")
        for name in ("max_steps", "batch_size", "posterior_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive, got {self.max_seconds}.")


@dataclass
class Trainer:
    """One training run: call :meth:`run`, or :meth:`step` by hand and :meth:`polish` at the end."""

    model: InvariantGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"]
    y: Float[Tensor, "rows *outputs"]
    options: Options = field(default_factory=Options)
    callback: Callable[[Record], None] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        options = self.options
        natural = options.optimizer == "natural"
        self.generator = torch.Generator(device=self.x.device).manual_seed(options.seed)
        self.model.q_mean.requires_grad_(not natural)
        self.model.q_sqrt.requires_grad_(not natural)
        self.optimizer = torch.optim.Adam(_parameter_groups(self.model, self.likelihood, options), betas=(0.9, 0.99))
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.stats: Statistics | None = None
        self.local: Tensor | None = None
        if self.likelihood.num_locals:
            self.local = torch.ones(len(self.x), self.likelihood.num_locals, dtype=torch.float64, device=self.x.device)
            self.refresh_local()
        self.steps = 0
        self.seconds = 0.0
        self.blend = 0.0
        self.bounds: list[Tensor] = []
        self.history: list[Record] = []
        self.rows = self._batches()

    def run(self) -> list[Record]:
        """Train to the end of the budget, refit q(u), and return the history."""
        options = self.options
        every = max(1, options.max_steps // 100)
        with tqdm(total=options.max_steps, disable=not self.progress or None, unit="step", dynamic_ncols=True) as bar:
            while self.fraction() < 1.0:
                self.step()
                bar.update()
                if self.steps % every == 0 or self.fraction() >= 1.0:
                    record = self.record()
                    bar.set_postfix_str(_short(record))
                    if self.callback is not None:
                        self.callback(record)
        self.polish()
        return self.history

    def fraction(self) -> float:
        """How much of the budget is spent."""
        by_time = 0.0 if self.options.max_seconds is None else self.seconds / self.options.max_seconds
        return max(self.steps / self.options.max_steps, by_time)

    def step(self) -> None:
        """One step: q(u) in closed form (natural), then a gradient step of everything else."""
        start = time.perf_counter()
        if self.options.optimizer == "natural":
            self.update_posterior(self.options.posterior_rho)
        fraction = self.fraction()
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * _schedule(self.steps, fraction)
        rows = next(self.rows)
        options = self.options
        samples = self.model.orbit.sample(self.x[rows], options.num_samples, options.num_groups, options.draws, self.generator)
        local = None if self.local is None else self.local[rows]
        expected, moments = expected_log_likelihood(self.model, self.likelihood, samples, self.y[rows], local)
        bound = expected.sum() * (len(self.x) / len(rows)) - self.model.kl()
        self.optimizer.zero_grad(set_to_none=True)
        (-(bound + log_prior(self.model))).backward()
        self.optimizer.step()
        if options.optimizer == "adam":
            with torch.no_grad():
                self.model.q_sqrt.tril_()
                if self.local is not None:
                    # For the next visit of these data, whose draws will be others.
                    self.local[rows] = self.likelihood.local(self.y[rows], moments)
        self.bounds.append(bound.detach())
        self.steps += 1
        self.seconds += time.perf_counter() - start

    @torch.no_grad()
    def update_posterior(self, rho: float) -> None:
        """Refit q(u), and the local parameters of the data that it sees, from fresh orbit samples."""
        options, count = self.options, len(self.x)
        size = min(count, options.posterior_rows)
        rows = torch.arange(count, device=self.x.device)
        if size < count:
            rows = torch.randperm(count, generator=self.generator, device=self.x.device)[:size]
        factor = self.model.factor()
        total: Statistics | None = None
        for piece in chunks(rows, self.model, options.num_samples, max_elements=2**25):
            part = rows[piece]
            samples = self.model.orbit.sample(
                self.x[part], options.num_samples, options.num_groups, options.draws, self.generator
            )
            projection = self.model.project(samples, factor)
            local = None
            if self.local is not None:
                moments = self.model.moments(projection, cross=self.likelihood.couples)
                local = self.likelihood.local(self.y[part], moments)
                self.local[part] = local
            quadratic = self.likelihood.quadratic(self.y[part], local)
            stats = statistics(self.model, projection, quadratic, num_data=len(part))
            total = stats if total is None else Statistics(*(a + b for a, b in zip(total, stats, strict=True)))
        assert total is not None
        total = Statistics(*(term * (count / size) for term in total))
        self.stats = total if self.stats is None else self.stats.mix(total, rho)
        self.blend = set_posterior(self.model, self.stats)

    @torch.no_grad()
    def refresh_local(self) -> None:
        """Local parameters of all data from the current q(f)."""
        assert self.local is not None
        options = self.options
        factor = self.model.factor()
        for rows in chunks(self.x, self.model, options.num_samples):
            samples = self.model.orbit.sample(
                self.x[rows], options.num_samples, options.num_groups, options.draws, self.generator
            )
            moments = self.model.moments(self.model.project(samples, factor), cross=self.likelihood.couples)
            self.local[rows] = self.likelihood.local(self.y[rows], moments)

    def polish(self) -> None:
        """With all else fixed, q(u) from an average over many passes: noise out, nothing else changed."""
        if self.options.optimizer == "natural":
            for i in range(self.options.polish_passes):
                self.update_posterior(1.0 / (i + 1))

    def record(self) -> Record:
        """Append the state of the run to the history: bound (mean since the last record), ranges, hyperparameters."""
        bound = float(torch.stack(self.bounds).mean())
        self.bounds.clear()
        if not math.isfinite(bound):
            raise FloatingPointError(
                f"the bound is {bound} after {self.steps} steps: lower the learning rate, raise jitter, or scale the inputs."
            )
        record: Record = {
            "step": self.steps,
            "seconds": self.seconds,
            "bound": bound,
            "blend": self.blend,
            "orbit": self.model.orbit.describe().to_dict(),
            **hyperparameters(self.model, self.likelihood),
        }
        self.history.append(record)
        return record

    def _batches(self) -> Iterator[Tensor]:
        """Rows of one minibatch after another, every datum once before any comes again."""
        count = len(self.x)
        size = min(self.options.batch_size, count)
        order = torch.empty(0, dtype=torch.long, device=self.x.device)
        while True:
            while len(order) < size:
                fresh = torch.randperm(count, generator=self.generator, device=self.x.device)
                order = torch.cat([order, fresh])
            yield order[:size]
            order = order[size:]


def _schedule(step: int, fraction: float, warmup: int = 10, hold: float = 0.5) -> float:
    """Up over ``warmup`` steps, level, then a cosine down to zero over the last part of the budget."""
    up = min(1.0, (step + 1) / warmup)
    down = 0.0 if fraction <= hold else (fraction - hold) / (1 - hold)
    return up * 0.5 * (1 + math.cos(math.pi * min(1.0, down)))


def _parameter_groups(model: InvariantGP, likelihood: Likelihood, options: Options) -> list[dict[str, Any]]:
    orbit = list(model.orbit.parameters())
    known = {id(p) for p in (*orbit, model.inducing)}
    rest = [p for p in (*model.parameters(), *likelihood.parameters()) if id(p) not in known]
    groups = [(rest, options.learning_rate), (orbit, options.orbit_rate), ([model.inducing], options.inducing_rate)]
    learned = [([p for p in parameters if p.requires_grad], rate) for parameters, rate in groups]
    return [{"params": parameters, "lr": rate} for parameters, rate in learned if parameters]


def log_prior(model: InvariantGP) -> Tensor:
    """The log density of the priors that the user put on the kernel's hyperparameters (zero without any)."""
    total = torch.zeros((), dtype=torch.float64, device=model.q_mean.device)
    for _, module, prior, closure, _ in model.kernel.named_priors():
        total = total + prior.log_prob(closure(module)).sum()
    return total


def hyperparameters(model: InvariantGP, likelihood: Likelihood) -> dict[str, float]:
    """Scalar hyperparameters by their constrained names; a vector is represented by its median."""
    values: dict[str, float] = {}
    for name, _, constraint in model.kernel.named_parameters_and_constraints():
        raw = dict(model.kernel.named_parameters())[name].detach()
        value = raw if constraint is None else constraint.transform(raw)
        values[name.rsplit(".", 1)[-1].removeprefix("raw_")] = float(value.median())
    for name in ("noise", "scale"):
        value = getattr(likelihood, name, None)
        if isinstance(value, Tensor):
            values[name] = float(value.detach().mean())
    return values


def _short(record: Record) -> str:
    learned = ", ".join(f"{name} {_number(value)}" for name, value in record["orbit"].items())
    return f"bound {record['bound']:,.0f}" + (f", {learned}" if learned else "")


def _number(value: Any) -> str:
    return f"[{value[0]:.3g}, {value[1]:.3g}]" if isinstance(value, tuple) else f"{value:.3g}"
