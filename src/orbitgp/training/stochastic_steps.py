"""Minibatches, fresh orbit samples, Adam, and q(u) in closed form. They learn from any number of data.

Each step refits q(u) in closed form from fresh orbit samples of a large batch, forward only (``posterior``), then takes
one Adam step of everything else on a smaller batch. With q(u) at its best, that step follows the gradient of the bound
with q(u) optimised out, which lets the orbit move freely.

The learning rates are in units of how far inputs spread, and targets. They hold until the bound has stopped rising
(``records``), or for half of the budget, and fall to zero.
In the end q(u) is refitted from an average over many passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.elbo import elbo
from orbitgp.inference.local_parameters import LocalParameters, Setting
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import Minibatches, first, owned, prefetch, spread
from orbitgp.likelihoods import Classification
from orbitgp.orbits import Orbit, Pairing
from orbitgp.planning.sparse import MOST_PASSES, pass_seconds, step_seconds
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training.objective import log_prior
from orbitgp.training.posterior import PosteriorUpdates
from orbitgp.training.records import Record, in_words, is_level, make_record, rise
from orbitgp.training.run import Engine

_INDUCING_RATE = 0.1  # of Adam, in units of the spread of the inputs
_PROGRESS = ("steps", "seconds", "history", "hold")  # of the state, with the parts and the bounds


@dataclass
class StochasticSteps(Engine):
    """A run of stochastic steps from where the model is: :meth:`run`, or :meth:`step` by hand, and :meth:`polish`."""

    model: InvariantGP

    def __post_init__(self) -> None:
        options = self.options
        self.generator = torch.Generator(device=self.x.device).manual_seed(options.seed)
        self.model.q_mean.requires_grad_(False)
        self.model.q_sqrt.requires_grad_(False)
        samples = (options.num_samples, 2, options.sampler)
        one = self.model.orbit.sample(first(self.x, 1), *samples, torch.Generator(self.x.device))
        self.local = LocalParameters(options.local, Setting(self.model, self.likelihood, self.x, self.y), options.seed)
        enumerated = one.pairing == Pairing.exact()
        self.posterior = PosteriorUpdates(self.local, options, self.generator, enumerated)
        # Gradients may be small because the unit of a parameter is, so eps is next to nothing.
        groups = parameter_groups(self.local, options.learning_rate or 0.03)
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-15, fused=self.x.is_cuda)
        self.minibatches = Minibatches(self.x, self.generator)
        self.pace = 1.0  # measured over nominal seconds of a step
        self.hold = 0.5  # the share of the budget for which rates hold; then they fall for as long again
        self.bounds: list[Tensor] = []

    def summary(self) -> str:
        return in_words(self.steps, self.converged, self.stopped, rise(self._bounds()))

    def run(self) -> None:
        """Take steps until the bound has stopped rising or the budget is spent."""
        every = min(max(1, self.options.max_steps // 100), 10)  # so that a run with a far limit is found level early
        steps, seconds = self.steps, self.seconds
        while self.fraction() < 1.0 and not self.stopped:
            self.step()
            if self.steps % every == 0 or self.fraction() >= 1.0:
                record = self.record()
                if self.fraction() < 0.5 and is_level(self._bounds()):
                    self.hold = self._spent()  # rates fall from now on
                if self.callback is not None:
                    self.callback(record)
            if self.after_step is not None:
                self.after_step(self)
        self.converged = self.hold < 0.5 and self.fraction() >= 1.0
        if self.bounds:  # the run was stopped between two records, or all its time went into the choice of a start
            self.record()
        if self.steps > steps:
            nominal = step_seconds(self.model, self.likelihood, self.x, self.options)
            self.pace = (self.seconds - seconds) / ((self.steps - steps) * nominal)

    def _bounds(self) -> list[float]:
        return [record["bound"] for record in self.history]

    def _spent(self) -> float:
        by_time = 0.0 if self.options.max_seconds is None else self.seconds / self.options.max_seconds
        return max(self.steps / self.options.max_steps, by_time)

    def fraction(self) -> float:
        """How much of the run is over: of the budget, or of twice the time after which the bound had stopped rising."""
        return self._spent() / (2 * self.hold)

    def step(self) -> None:
        """One step: q(u) in closed form, then a gradient step of everything else."""
        with self.timed():
            factor = schedule(self.fraction())
            self.posterior.update(self.posterior.rho(factor))
            for group in self.optimizer.param_groups:
                group["lr"] = group["first"] * factor
            rows = self.minibatches.take(min(self.options.batch_size, len(self.x)))
            self.bounds.append(self._gradient(rows))
            prefetch(self.x, self.minibatches.upcoming(len(rows)))
            self._share_gradient()
            self.optimizer.step()
            self.steps += 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time within this context as training."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def _gradient(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, ""]:
        """The bound from fresh orbit samples of a minibatch; its gradient is left in the parameters."""
        self.optimizer.zero_grad()
        own, options = owned(self.x, rows), self.options
        how = options.num_samples, 2, options.sampler, self.generator, own.among
        samples = self.model.orbit.sample(self.x[own.rows], *how)
        local = self.local.at(own.rows)
        bound = elbo(self.model, self.likelihood, samples, self.y[own.rows], len(self.x), local, batch=len(rows))
        objective = bound + log_prior(self.model, self.likelihood) * (processes.rank() == 0)
        if objective.requires_grad:
            (-objective).backward()
        return bound.detach()

    def _share_gradient(self) -> None:
        """Add bound, gradients and clocks over the processes; a run stopped in one of them stops in all."""
        if processes.count() == 1:
            return
        learned = self._learned()
        for parameter in learned:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        clock = torch.tensor([self.seconds, float(self.stopped)], dtype=torch.float64, device=self.x.device)
        processes.all_reduce([*(p.grad for p in learned if p.grad is not None), self.bounds[-1], clock])
        self.seconds, self.stopped = float(clock[0]) / processes.count(), bool(clock[1])

    def polish(self, rest: TimeLeft) -> None:
        """With all else fixed, q(u) from an average over passes over all data, or from one more update.

        Where an update sees a part of the data, passes see at most a quarter of what updates saw, or all data once.
        """
        posterior, count = self.posterior, len(self.x)
        quarter = max(1, self.steps * posterior.size // (4 * count))
        most = MOST_PASSES if posterior.size == count else min(MOST_PASSES, quarter)
        a_pass = pass_seconds(self.model, self.likelihood, self.x, count, posterior.num_samples)
        passes = int(min(most, rest.share() / a_pass))
        with rest.timed(a_pass * (passes or posterior.size / count)):
            for i in range(passes):
                posterior.update(min(1.0 / (i + 1), posterior.rho(partial=False)), count)
            if not passes:
                posterior.update(posterior.rho())

    def record(self) -> Record:
        """Append the state of the run to the history: bound (mean since the last record), ranges, hyperparameters."""
        with self.timed():  # here the host waits for a GPU
            bound = float(torch.stack(self.bounds).mean())
        self.bounds.clear()
        self._check_equal()
        if not math.isfinite(bound):
            advice = "lower the learning rate, raise jitter, or scale the inputs."
            raise FloatingPointError(f"the bound is {bound} after {self.steps} steps: {advice}")
        progress = {"blend": self.posterior.blend, "jitter": self.model.jitter}
        described = self.model.kernel, self.model.orbit, self.likelihood
        record = make_record(*described, bound, self.steps, self.seconds, progress)
        self.history.append(record)
        return record

    @torch.no_grad()
    def _gather_local(self) -> None:
        """Bring the local parameters of all data to every process. Until then each knows those of its own."""
        values = self.local.values
        if processes.count() > 1 and values is not None:
            own = owned(self.x, torch.arange(len(self.x), device=self.x.device)).rows
            mine = torch.zeros_like(values).index_copy_(0, own, values[own])
            processes.all_reduce([mine])
            values.copy_(mine)

    def _check_equal(self) -> None:
        """All processes must have come to the same parameters."""
        sums = processes.all_gather([float(p.detach().double().sum()) for p in (*self._learned(), self.model.q_mean)])
        if any(one != sums[0] for one in sums):
            raise RuntimeError(
                "the processes of this run have come to different parameters: run all on the same kind of machine."
            )

    def _learned(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _parts(self) -> dict[str, Any]:
        """The parts of the run that change from step to step. Each owns its state."""
        return {
            "model": self.model,
            "likelihood": self.likelihood,
            "local": self.local,
            "optimizer": self.optimizer,
            "minibatches": self.minibatches,
            "posterior": self.posterior,
        }

    def state_dict(self) -> dict[str, Any]:
        self._gather_local()
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            **{name: getattr(self, name) for name in _PROGRESS},
            "bounds": torch.stack(self.bounds) if self.bounds else torch.empty(0),
            "generator": self.generator.get_state().numpy().tobytes().hex(),  # on the CPU, wherever the generator draws
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same run, whose tensors lie on the data's device and become those of the run."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        for name in _PROGRESS:
            setattr(self, name, state[name])
        self.bounds = list(state["bounds"])
        self.generator.set_state(torch.frombuffer(bytearray.fromhex(state["generator"]), dtype=torch.uint8))


def parameter_groups(local: LocalParameters, rate: float) -> list[dict[str, Any]]:
    """What is learned, as an optimiser takes it. Inducing points have their own rate; all else has ``rate``."""
    model, likelihood, x, y = local.setting
    of_inputs = spread(x)
    of_targets = 1.0 if isinstance(likelihood, Classification) else spread(y)  # log odds have no units
    scaled = [part for part in model.orbit.modules() if isinstance(part, Orbit) and part.in_units_of_inputs]
    rates = {id(p): rate * of_inputs for part in scaled for p in part.parameters()}
    rates |= {id(p): rate * of_targets for p in model.prior_mean.parameters()}
    rates[id(model.inducing)] = _INDUCING_RATE * of_inputs
    learned = [p for part in (model, likelihood, local) for p in part.parameters() if p.requires_grad]
    # Where nothing is learned, q(u) is still found: the optimiser then holds what it never moves.
    each = ((p, rates.get(id(p), rate)) for p in learned or [model.inducing])
    return [{"params": [p], "lr": first, "first": first} for p, first in each]


def schedule(fraction: float) -> float:
    """The factor of the rates: level, then a cosine down to zero over the last half of the budget."""
    down = min(1.0, max(0.0, 2 * fraction - 1))
    return 0.5 * (1 + math.cos(math.pi * down))
