"""Training: maximise the bound over q(u), the inducing points, the kernel, the likelihood and the orbit, together.

Two optimisers:

- ``natural`` (the default): each step refits q(u) in closed form from fresh orbit samples of a large batch, forward only
  (``posterior``), then takes one Adam step of everything else on a smaller batch. With q(u) at its best, that step
  follows the gradient of the bound with q(u) optimised out, which lets the orbit move freely.
- ``adam``: one Adam step of everything, q(u) too. The reference.

Where data are few and the likelihood is Gaussian in f, there are no such steps: all else climbs the bound at its best q(u), by
quasi-Newton steps (``collapsed_climb``).

Before the first step, kernel, likelihood and orbit are learned from a few data by their exact evidence (``screening``). The
learning rates warm up, hold, and fall to zero; those of the inducing points fall from the beginning. They hold until the bound
has stopped rising, or for half of the budget (``convergence``). In the end q(u) is refitted from an average over many passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.elbo import elbo
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.local_parameters import Setting, local_source
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import Owned, Rows, first, minibatches, on_disk, owned, prefetch
from orbitgp.kernels.stationary import Stationary
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, Pairing, Samples
from orbitgp.training import convergence, screening
from orbitgp.training.adam import Adam
from orbitgp.training.collapsed_climb import POSTERIOR_DRAWS, CollapsedClimb, held, most_draws
from orbitgp.training.cuda_graphs import Replayed
from orbitgp.training.diagnostics import Diagnostics, Record, headline, hyperparameters
from orbitgp.training.learning_rates import LearningRates, parameter_groups, points_are_best, schedule
from orbitgp.training.objective import log_prior
from orbitgp.training.options import TrainerSettings
from orbitgp.training.posterior import PosteriorUpdates
from orbitgp.training.progress import progress_bar
from orbitgp.training.quasi_newton import LEAST_SAMPLES
from orbitgp.training.state import GeneratorState, Stateful, copied_to


@dataclass
class Trainer:
    """One training run: call :meth:`run`, or :meth:`step` by hand and :meth:`polish` at the end.

    ``callback`` is called with every record of the history, ``after_step`` when a step is done. ``state_dict`` holds everything
    that the rest of the run depends on, so that a run that continues from it ends where it would have ended.
    """

    model: InvariantGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"] | Rows
    y: Float[Tensor, "rows *outputs"]
    options: TrainerSettings = field(default_factory=TrainerSettings)
    callback: Callable[[Record], None] | None = None
    progress: bool = False
    after_step: Callable[[Trainer], None] | None = None

    def __post_init__(self) -> None:
        options = self.options
        self.natural = options.optimizer == "natural"
        self.generator = torch.Generator(device=self.x.device).manual_seed(options.seed)
        self.model.q_mean.requires_grad_(not self.natural)
        self.model.q_sqrt.requires_grad_(not self.natural)
        samples = (options.num_samples, options.num_groups, options.sampler)
        one = self.model.orbit.sample(first(self.x, 1), *samples, torch.Generator(self.x.device))
        # With natural gradients, local parameters follow the updates of q(u), not the visits of minibatches.
        setting = Setting(self.model, self.likelihood, self.x, self.y)
        self.local = local_source(options.local, setting, options.seed)
        self.local.train(not self.natural)
        self.diagnostics = Diagnostics()
        enumerated = one.pairing == Pairing.exact()
        self.posterior = PosteriorUpdates(self.local, options, self._sample, self.generator, enumerated, self.diagnostics)
        self.optimizer = Adam(
            parameter_groups(setting, options, self.local, self.posterior.rounds),
            betas=(0.9, 0.99),
            eps=1e-15,  # gradients may be small because the unit of a parameter is
            fused=self.x.is_cuda,
        )
        self.gradient = self._replayed() if self._is_small() else self._gradient
        self.rates = LearningRates(self.optimizer.param_groups, self.model, options)
        self.keeps_orbit = False
        self.screened = not screening.is_needed(self.likelihood, options)
        self.posterior.refresh_local()
        self.minibatches = minibatches(self.x, self.generator)
        self.steps = 0
        self.seconds = 0.0
        self.hold = 0.5  # of the budget: rates hold for so long, then they fall for as long again
        self.bounds: list[Tensor] = []
        self.history: list[Record] = []
        self.stopped = False
        # Draws of the orbit with which the collapsed bound can be climbed; None where steps are stochastic.
        self.draws = most_draws(self.model, self.likelihood, self.x, options)
        self.climber: CollapsedClimb | None = None
        self.at_top = False
        self._begin: dict[str, Any] = {}  # the state in which the climb began
        self._known_climb: dict[str, Any] | None = None  # from a checkpoint

    def stop(self) -> None:
        """Let the run end after the step that it is in, short of its budget."""
        self.stopped = True
        if self.climber is not None:
            self.climber.stop()

    @property
    def converged(self) -> bool:
        """Whether the bound had stopped rising before the budget was spent."""
        return self.at_top or (self.hold < 0.5 and self.fraction() >= 1.0)

    def summary(self) -> str:
        """What happened, in words."""
        if self.draws is not None:
            return convergence.climb_in_words(self.steps, self.converged, self.stopped)
        rise = convergence.rise([record["bound"] for record in self.history])
        return convergence.in_words(self.steps, self.converged, self.stopped, rise)

    def run(self) -> list[Record]:
        """Train until the bound has stopped rising or the budget is spent, refit q(u), and return the history."""
        if not self.screened:
            with progress_bar(self.progress, "steps") as bar:
                bar.set_postfix_str("choosing a start")
                self.choose_start()
            self._step_done()
        if self.draws is not None and not self.stopped:
            self._climb()
        if self.draws is None:
            self._take_steps()
        self.polish()
        return self.history

    def _take_steps(self) -> None:
        """Stochastic steps."""
        every = max(1, self.options.max_steps // 100)
        with progress_bar(self.progress, "steps", self.options.max_steps) as bar:
            bar.update(self.steps)
            while self.fraction() < 1.0 and not self.stopped:
                self.step()
                bar.update()
                if self.steps % every == 0 or self.fraction() >= 1.0:
                    record = self.record()
                    self._cool_down_if_level()
                    bar.set_postfix_str(headline(record))
                    if self.callback is not None:
                        self.callback(record)
                self._step_done()
        if self.bounds:  # the run was stopped between two records, or all its time went into the choice of a start
            self.record()
        if isinstance(self.gradient, Replayed):
            self.gradient.release()

    def _climb(self) -> None:
        """Climb the collapsed bound, until it is at a top or the budget is spent; stochastic steps go on where that fails."""
        self.steps = 0  # evaluations, which a climb that goes on has counted
        self._begin, known = self.snapshot(), self._known_climb
        fixed = list(self.model.orbit.parameters()) if self.keeps_orbit else []
        with held([*fixed, self.model.inducing] if points_are_best(self.model, len(self.x)) else fixed):
            self.posterior.factor()
            self.climber = self._new_climber()
            if known is not None:
                self.climber.load_state_dict(known)
            self.history = [self._of_climb(record) for record in self.climber.history]
            try:
                self.climber.run()
            except FloatingPointError:
                self.load_state_dict(self._begin)
                self.draws = None
            else:
                self._count(self.climber)
        self.climber = None

    def _new_climber(self) -> CollapsedClimb:
        options = replace(self.options, start_rows=0)
        if options.max_seconds is not None:  # of which the start has taken some
            options = replace(options, max_seconds=max(options.max_seconds - self.seconds, 1e-3))
        return CollapsedClimb(
            CollapsedGP(self.model, self._all_rows()),
            self.likelihood,
            self._all_rows(),
            self.y,
            options,
            max_steps=options.max_steps,
            most_samples=self.draws or LEAST_SAMPLES,
            callback=self._watch_climb,
            progress=self.progress,
            after_step=self._stage_done,
        )

    def _all_rows(self) -> Float[Tensor, "rows *features"]:
        assert isinstance(self.x, Tensor)
        return self.x

    def _watch_climb(self, record: Record) -> None:
        """Keep a record of the climb as one of this run."""
        self.history.append(self._of_climb(record))
        self.steps, self.seconds = self.history[-1]["step"], self.history[-1]["seconds"]
        if self.callback is not None:
            self.callback(self.history[-1])

    def _of_climb(self, record: Record) -> Record:
        """A record of the climb, without what tells several climbs apart. Its clock starts with that of the run."""
        kept = {name: value for name, value in record.items() if name not in ("climb", "without_orbit", "rows")}
        return {**kept, "seconds": record["seconds"] + self._begin["seconds"], "blend": self.posterior.blend}

    def _stage_done(self, climber: CollapsedClimb) -> None:
        self._count(climber)
        self._step_done()

    def _count(self, climber: CollapsedClimb) -> None:
        self.steps, self.seconds = climber.steps, climber.seconds + self._begin["seconds"]
        self.at_top = climber.converged

    def choose_start(self) -> None:
        """Leave kernel, likelihood, prior mean and orbit at the best start. A run that is stopped has made no choice."""
        origin = self.snapshot()
        with self.timed():
            try:
                screening.climb(self.model, self.likelihood, self.x, self.y, self.options, lambda: self.stopped)
            except FloatingPointError:  # the run itself may do better with other data or samples
                self.load_state_dict(origin)
                self.screened = True
                return
            if self.stopped:
                return
            self.redraw_inducing()
            self.screened = True
            self.keeps_orbit = not self.likelihood.num_locals

    def _step_done(self) -> None:
        if self.after_step is not None:
            self.after_step(self)

    def _cool_down_if_level(self) -> None:
        """Let the rates fall from now on, if the bound has stopped rising and they have not begun to."""
        if self.fraction() < 0.5 and convergence.is_level([record["bound"] for record in self.history]):
            self.hold = self._spent()

    def _spent(self) -> float:
        by_time = 0.0 if self.options.max_seconds is None else self.seconds / self.options.max_seconds
        return max(self.steps / self.options.max_steps, by_time)

    def fraction(self) -> float:
        """How much of the run is over: of the budget, or of twice the time after which the bound had stopped rising."""
        return 1.0 if self.at_top else self._spent() / (2 * self.hold)

    def step(self) -> None:
        """One step: q(u) in closed form (natural), then a gradient step of everything else."""
        with self.timed():
            if self.natural and self.steps % self.options.posterior_every == 0:
                self.posterior.update(self.posterior.rho(schedule(self.fraction())))
            self.rates.set(self.fraction(), self.steps, self.keeps_orbit)
            rows = self.minibatches.take(min(self.options.batch_size, len(self.x)))
            self.bounds.append(self.gradient(rows).clone())
            prefetch(self.x, self.minibatches.upcoming(len(rows)))
            self._share_gradient()
            self.diagnostics.saw_gradient(self.model.orbit)
            self.optimizer.step()
            if not self.natural:
                with torch.no_grad():
                    self.model.q_sqrt.tril_()
            self.steps += 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time that this takes as training."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def _gradient(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, ""]:
        """The bound from fresh orbit samples of a minibatch; its gradient is left in the parameters."""
        self.optimizer.zero_grad()
        own = owned(self.x, rows)
        samples = self._sample(own, self.options.num_samples)
        local = self.local.at(own.rows)
        bound = elbo(self.model, self.likelihood, samples, self.y[own.rows], len(self.x), local, batch=len(rows))
        (-(bound + log_prior(self.model) * (processes.rank() == 0))).backward()
        return bound.detach()

    def _share_gradient(self) -> None:
        """Add bound, gradients and clocks over the processes; a run that one of them was asked to stop stops everywhere."""
        if processes.count() == 1:
            return
        learned = [p for group in self.optimizer.param_groups for p in group["params"]]
        for parameter in learned:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        clock = torch.tensor([self.seconds, float(self.stopped)], dtype=torch.float64, device=self.x.device)
        processes.add_([*(p.grad for p in learned if p.grad is not None), self.bounds[-1], clock])
        self.seconds, self.stopped = float(clock[0]) / processes.count(), bool(clock[1])

    def _is_small(self) -> bool:
        """Whether a GPU takes longer to launch the kernels of a step than to run them, and no part of the step waits for it."""
        samples = min(self.options.batch_size, len(self.x)) * self.model.samples_per_row(self.options.num_samples)
        small = samples * self.model.num_points <= _LAUNCH_BOUND
        plain = isinstance(self.model.covariance, Stationary) and not self.likelihood.num_locals
        return self.x.is_cuda and isinstance(self.x, Tensor) and small and plain

    def _replayed(self) -> Replayed[Float[Tensor, ""]]:
        """The gradient as a CUDA graph. It is recorded again when the jitter changes, or which parameters are learned."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]

        def version() -> object:
            return self.model.jitter, [p.requires_grad for p in parameters]

        return Replayed(self._gradient, version, [self.generator], parameters)

    def polish(self) -> None:
        """With all else fixed, q(u) from an average over passes over all data, or from many fixed draws after a climb.

        Where data are many, all passes together see at most a quarter as many data as the updates during training saw. Where
        that is less than one pass, it is a part of one for data on disk; others are all seen.
        """
        if self.draws is not None:
            draws = None if isinstance(self.model.orbit, FiniteOrbit) else POSTERIOR_DRAWS
            CollapsedGP(self.model, self._all_rows(), draws).set_posterior(self.likelihood, self.y)
        elif self.natural:
            seen = self.steps // self.options.posterior_every * self.posterior.size
            enough = seen // (4 * len(self.x)) if self.posterior.size < len(self.x) else self.options.polish_passes
            rows = min(len(self.x), max(self.posterior.size, seen // 4)) if on_disk(self.x) and not enough else len(self.x)
            self.posterior.polish(min(self.options.polish_passes, max(1, enough)), rows)

    def record(self) -> Record:
        """Append the state of the run to the history: bound (mean since the last record), ranges, hyperparameters."""
        with self.timed():  # here the host waits for a GPU
            bound = float(torch.stack(self.bounds).mean())
        self.bounds.clear()
        self._check_equal()
        if not math.isfinite(bound):
            raise FloatingPointError(
                f"the bound is {bound} after {self.steps} steps: lower the learning rate, raise jitter, or scale the inputs."
            )
        record: Record = {
            "step": self.steps,
            "seconds": self.seconds,
            "bound": bound,
            "blend": self.posterior.blend,
            "jitter": self.model.jitter,
            **self.diagnostics.report(),
            "orbit": self.model.orbit.describe().to_dict(),
            **hyperparameters(self.model.kernel, self.likelihood),
        }
        self.history.append(record)
        return record

    @torch.no_grad()
    def gather_local(self) -> None:
        """Bring the local parameters of all data to every process. Until then each knows those of its own."""
        values = getattr(self.local, "values", None)
        if processes.count() > 1 and values is not None:
            own = owned(self.x, torch.arange(len(self.x), device=self.x.device)).rows
            mine = torch.zeros_like(values).index_copy_(0, own, values[own])
            processes.add_([mine])
            values.copy_(mine)

    def _check_equal(self) -> None:
        """All processes must have come to the same parameters."""
        learned = [p for group in self.optimizer.param_groups for p in group["params"]]
        sums = processes.everyones([float(p.detach().double().sum()) for p in (*learned, self.model.q_mean)])
        if any(one != sums[0] for one in sums):
            raise RuntimeError(
                "the processes of this run have come to different parameters: run all on the same kind of machine."
            )

    def _parts(self) -> dict[str, Stateful]:
        """The parts of the run that change from step to step. Each owns its state."""
        return {
            "model": self.model,
            "likelihood": self.likelihood,
            "local": self.local,
            "optimizer": self.optimizer,
            "generator": GeneratorState(self.generator),
            "minibatches": self.minibatches,
            "posterior": self.posterior,
            "diagnostics": self.diagnostics,
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on. Its tensors are those of the run, not copies.

        A climb goes on from where it began, with the tops that its stages have found.
        """
        if self.climber is not None:
            return {**self._begin, "climb": self.climber.state_dict()}
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            **{name: getattr(self, name) for name in _PROGRESS},
            "bounds": torch.stack(self.bounds) if self.bounds else torch.empty(0),
            "climb": None,
        }

    def snapshot(self) -> dict[str, Any]:
        """A copy of the state, which stays as it is while the run continues."""
        return copied_to(self.x.device, self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same run, from any device. The state itself stays as it is."""
        state = copied_to(self.x.device, state)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        for name in _PROGRESS:
            setattr(self, name, state[name])
        self.bounds = list(state["bounds"])
        self._known_climb = state["climb"]
        if self._known_climb is not None:
            self.steps = self._known_climb["steps"]

    def _sample(self, own: Owned, num_samples: int | None) -> Samples:
        options, x = self.options, self.x[own.rows]
        return self.model.orbit.sample(x, num_samples, options.num_groups, options.sampler, self.generator, own.among)

    @torch.no_grad()
    def redraw_inducing(self) -> None:
        """Draw the inducing points again, from the orbit as it is now."""
        model = self.model
        size, method, averaged = len(model.inducing), self.options.inducing, model.inducing_samples
        model.inducing.copy_(initial_inducing(self.x, model.orbit, model.kernel, size, method, self.generator, averaged))
        self.optimizer.state.pop(model.inducing, None)
        self.posterior.forget()
        self.posterior.refresh_local()


_LAUNCH_BOUND = 2**26  # samples times inducing points of a step that an H200 computes as fast as its kernels are launched
# The trainer's own state, with the bounds and the climb:
_PROGRESS = ("steps", "seconds", "history", "screened", "hold", "keeps_orbit", "draws")
