"""What the two estimators share: checked input, one training run, and predictions with fixed draws.

A fit copies the orbit and the kernel, places inducing points on orbit samples of the data, trains everything together
(:mod:`orbitgp.training`), and measures the evidence on fresh draws. If it fails, the estimator is as before.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from orbitgp.estimators import initialise, validation
from orbitgp.estimators.compact import Compacts
from orbitgp.estimators.data import ChecksData, check_images, parts
from orbitgp.estimators.evidence import exact_evidence, sparse_evidence
from orbitgp.estimators.export import Exports
from orbitgp.estimators.initialise import Fit, Problem, Seeds
from orbitgp.estimators.presentation import Presents
from orbitgp.estimators.saving import load_estimator, save_estimator
from orbitgp.estimators.session import Session, StrPath
from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.evidence import Evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.exact_predictions import NeedsVariance
from orbitgp.inference.prior import MeanName, Means
from orbitgp.inference.rows import AllInputs, first
from orbitgp.kernels.covariance import show_values
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.parse import make_orbit
from orbitgp.planning.options import TrainingOptions
from orbitgp.planning.plan import InferenceName, Plan, duration
from orbitgp.planning.rungs import CHECKED_ROWS, MOST_DRAWS
from orbitgp.report.finding import nats_needed
from orbitgp.report.summary import typical_rows
from orbitgp.training.ladder import Ladder
from orbitgp.training.plausible import Plausible, plausible_ranges
from orbitgp.training.records import Callback, make_record
from orbitgp.training.run import Engine
from orbitgp.training.trainer import Trainer

PREDICT_ELEMENTS = 8 * MOST_DRAWS  # of the largest finite orbit that is enumerated at prediction

logger = logging.getLogger("orbitgp")

Estimator = TypeVar("Estimator", bound="InvariantEstimator")


@dataclass(eq=False, repr=False)
class InvariantEstimator(Presents, Compacts, Exports, ChecksData):
    """The arguments, ``fit`` and the latent predictions of both estimators."""

    orbit: Orbit | str | None = None
    kernel: Kernel | None = None
    _: KW_ONLY
    likelihood: str | Likelihood = "auto"
    mean: MeanName = "constant"
    feature_map: nn.Module | None = None
    num_inducing: int | None = None
    num_samples: int | None = None
    max_steps: int | None = None
    max_seconds: float | None = None
    batch_size: int | None = None
    image_shape: tuple[int, ...] | None = None
    device: str | torch.device = "cpu"
    random_state: int | np.random.RandomState | None = None
    verbose: bool | int | None = None
    inference: InferenceName = "auto"
    training: TrainingOptions | None = None
    ard: bool | Literal["auto"] = False

    # A constructor of scikit-learn takes anything, and ``fit`` complains. So shape checkers leave it alone.
    __no_type_check__ = True

    def fit(
        self: Estimator,
        X: Any,
        y: Any,
        *,
        callback: Callback | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_every: float = 60.0,
        resume: bool | StrPath = False,
    ) -> Estimator:
        """Learn the posterior, the kernel, the noise and the orbit, all from the marginal likelihood.

        Args:
            X: (N, D), images (N, H, W), (N, C, H, W) or (N, H, W, 3), flat images (N, D) with ``image_shape``, or
                signals (N, T) or (N, C, T).
            y: the targets.
            callback: a function of each record of the history (:mod:`orbitgp.training.records`).
            checkpoint: a file for the state of the run, replaced every ``checkpoint_every`` seconds.
            resume: True to go on from the checkpoint if there is one, with equal data and settings; or its path. On
                the CPU, a run that was killed and goes on ends with the same model, bit for bit, as one that was not.

        Ctrl-C ends the run early, keeps the model so far, and warns.
        """
        return self._fitted(X, y, Session(callback, checkpoint, checkpoint_every, resume))

    def _fitted(self: Estimator, X: Any, y: Any, run: Session) -> Estimator:
        """Fit, or leave the estimator as it was."""
        before = dict(vars(self))
        if isinstance(before.get("model_"), ExactGP):
            before["model_"].forget_posterior()  # the next one needs the memory
        try:
            self._fit(X, y, run)
        except BaseException:
            self.__dict__ = before
            raise
        if run.warning is not None:
            warnings.warn(run.warning)
        return self

    def plan(self, X: Any, y: Any) -> Plan:
        """What ``fit`` would do with these data, and about how long it would take. Nothing is learned."""
        run, planned = Session(), clone(self)
        run.only_plans = True
        with warnings.catch_warnings(action="ignore"):  # fit gives them
            planned._fit(X, y, run)
        seconds = run.fits * (planned.plan_.seconds or 0.0)
        return replace(planned.plan_, seconds=min(seconds, self.max_seconds or inf))

    def save(self, path: StrPath) -> None:
        """Write all that was learned, and the arguments, into one safetensors file, whole or not at all."""
        check_is_fitted(self)
        save_estimator(self, Path(path))

    @classmethod
    def load(
        cls: type[Estimator],
        path: StrPath,
        orbit: Orbit | None = None,
        kernel: Kernel | None = None,
        likelihood: Likelihood | None = None,
        feature_map: nn.Module | None = None,
    ) -> Estimator:
        """The estimator that was saved in this file.

        ``orbit``, ``kernel``, ``likelihood`` and ``feature_map`` are for objects of your own classes, which a file
        cannot rebuild: hand in one that was built like the one that was fitted; its parameters are taken from the file.
        """
        handed_in = {"orbit": orbit, "kernel": kernel, "likelihood": likelihood, "feature_map": feature_map}
        return load_estimator(cls, Path(path), handed_in)

    def set_params(self: Estimator, **params: Any) -> Estimator:
        """Set arguments by name. ``training__jitter=1e-5`` replaces the training options by a copy with that jitter."""
        changed = {key.removeprefix("training__"): params.pop(key) for key in [*params] if key.startswith("training__")}
        super().set_params(**params)
        if changed:
            self.training = validation.training_options(self.training).set_params(**changed)
        return self

    def _fit(self, X: Any, y: Any, run: Session, ard: bool = False) -> None:
        arguments = validation.check_arguments(self.get_params(deep=False))
        device = validation.usable_device(self.device)
        x, targets = self._training_data(X, y, device)
        asked = validation.ard_for(arguments, x)
        self.ard_, self.ard_gain_ = ard or asked is True, cast(float | None, None)
        if asked == "auto" and arguments["max_seconds"] is not None:
            arguments["max_seconds"] /= 2  # of two fits
        drawn = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=3).tolist()
        seeds = Seeds(*processes.broadcast(run.seeds(drawn, self.random_state)))
        at_start = torch.Generator(device).manual_seed(seeds.start)
        orbit = self._orbit_for(x)
        settings = validation.trainer_settings(arguments, orbit, seeds.training)
        validation.check_orbit(orbit, x)
        # A first sample says whether orbit, samples and groups fit together, before any work is done.
        orbit.sample(first(x, 1), settings.num_samples, 2, settings.sampler, at_start)
        problem = self._problem(x, targets, run.sample_weight).to(device)
        kernel = initialise.initial_kernel(self.kernel, x, problem.variance, at_start, self.feature_map, self.ard_)
        if self.kernel is None and self.feature_map is None and isinstance(x, Tensor) and not asked:
            validation.warn_of_scales(x)
        fit = Fit(x, orbit, kernel, problem, arguments, settings, run, seeds)
        exact, self.plan_ = initialise.exact_model_and_plan(fit)
        run.fits = 2 if asked == "auto" else 1
        if exact is not None and self.plan_.inference == "exact":
            if run.only_plans:  # an engine takes time to make
                return
            engine: Ladder | Trainer = initialise.exact_engine(exact, fit, self.plan_)
        else:
            validation.check_sparse_memory(x, orbit, arguments["num_inducing"], settings)
            free, model = arguments["max_steps"] is None, initialise.sparse_model(fit, at_start)
            given = problem.likelihood, x, problem.y, settings
            engine = Trainer(model, *given, free_steps=free, seconds=time.perf_counter() - run.begun)
            steps = {"max_steps": engine.options.max_steps, "batch_size": engine.options.batch_size}
            how: Any = steps if engine.last_rung is None else {"ladder": (engine.last_rung,)}
            self.plan_ = replace(self.plan_, num_inducing=len(model.inducing), seconds=engine.planned, **how)
        if run.only_plans:
            return
        self._learn(engine, fit)
        self.inference_, self.interrupted_ = self.plan_.inference, run.interrupted
        some, labels = first(x, CHECKED_ROWS).cpu().numpy(), np.asarray(targets)[:CHECKED_ROWS]
        self.examples_ = some[shown := typical_rows(some, labels)], labels[shown]
        if asked == "auto" and not (ard or run.interrupted):
            self._prefer_ard(X, y, run)

    def _prefer_ard(self, X: Any, y: Any, run: Session) -> None:
        """Fit with a lengthscale for each column, and keep that if its evidence is better by more than chance gives."""
        shared, second = dict(vars(self)), Session(run.callback, sample_weight=run.sample_weight)
        second.begun = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # the first fit gave them
            self._fit(X, y, second, ard=True)
        gain = self.ard_gain_ = self.evidence_.value - shared["evidence_"].value
        if second.interrupted:
            self.__dict__ = {**shared, "interrupted_": True}
            run.interrupted, run.warning = True, second.warning
        elif gain <= nats_needed(len(self.kernel_.base_kernel.lengthscale[0]) - 1):
            self.__dict__ = {**shared, "ard_gain_": gain}

    def _learn(self, engine: Ladder | Trainer, fit: Fit) -> None:
        """Learn as was planned, and measure the evidence on fresh draws."""
        plausible: Plausible = {}
        plan = self.plan_
        took = duration(plan.seconds or 0.0)
        logger.info("%s inference: %s; about %s on a free machine.", plan.inference, plan.reason, took)
        try:
            with fit.run.around(engine, list(fit.seeds), fit.problem.shift, self.verbose):
                if isinstance(engine, Ladder):
                    evidence = exact_evidence(engine, engine.run())
                    plausible = plausible_ranges(engine)
                else:
                    engine.run()
                    generator = torch.Generator(fit.x.device).manual_seed(fit.seeds.evidence)
                    evidence = engine.in_time(lambda: sparse_evidence(engine, generator))
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            problem = f"not positive definite with jitter={fit.settings.jitter:g}: raise jitter."
            raise FloatingPointError(f"the covariance of the inducing points is {problem}") from error
        self._keep(engine, evidence, fit.problem)
        self.plausible_ = {name: ends and (ends[0].value, ends[1].value) for name, ends in plausible.items()}

    def _orbit_for(self, x: AllInputs) -> Orbit:
        """A copy of the user's orbit, checked, where the data are."""
        orbit = make_orbit(deepcopy(self.orbit), x.shape[1:], list(getattr(self, "feature_names_in_", ())))
        orbit = orbit.to(device=x.device, dtype=x.dtype)
        if x.ndim > 2:
            check_images(first(x, CHECKED_ROWS).cpu().numpy(), orbit)
        initialise.spare_indicators(orbit, x)
        return orbit

    def _problem(self, x: AllInputs, targets: np.ndarray, sample_weight: Any) -> Problem:
        """Targets and likelihood for these data."""
        raise NotImplementedError

    def _keep(self, engine: Engine, evidence: Evidence, problem: Problem) -> None:
        """The fitted attributes; on the CPU, so that a pickle opens anywhere, and in the units that y came in."""
        model, likelihood = engine.model, engine.likelihood
        self.__dict__.pop("compact_change_", None)  # of another fit
        assert not isinstance(model, CollapsedGP)
        for module in (model, likelihood):
            module.cpu().zero_grad()
        self.model_, self.likelihood_ = model, likelihood
        self.orbit_, self.kernel_ = model.orbit, show_values(model.kernel)
        self.evidence_ = evidence.shifted(-problem.log_scale * evidence.num_data)
        history = engine.history or [make_record(model.kernel, model.orbit, likelihood, evidence.value)]
        self.history_ = [{**record, "bound": record["bound"] - problem.shift} for record in history]
        self.converged_, self.diagnostics_ = engine.converged, engine.summary()

    def _latent(self, X: Any, needs_variance: NeedsVariance | None = None) -> tuple[Means, Means]:
        """Mean and variance of f at X, each row on its own; upper bounds of variances that are not needed."""
        asked = {"needs_variance": needs_variance}
        found = self._for_parts(X, lambda model, *given: [values.cpu() for values in model.predict(*given, **asked)])
        means, variances = zip(*found, strict=True)
        return torch.cat(means), torch.cat(variances)

    def _for_parts(self, X: Any, predict: Callable[..., Any]) -> list[Any]:
        """What the model predicts for X, part by part, as ``predict`` of the model, inputs and number of draws.

        All predictions have the same base draws, so that they can be compared.
        """
        check_is_fitted(self)
        device, model = validation.usable_device(self.device), self.model_
        if device.type != "cpu":
            model = model.copied_to(device) if isinstance(model, ExactGP) else deepcopy(model).to(device)
        samples = self._num_predict_samples()
        inputs = (self._tensor(self._new_inputs(part), device) for part in parts(X))
        return [predict(model, x, samples) for x in inputs]

    def _num_predict_samples(self) -> int | None:
        """The number of draws of a prediction, or None where a finite orbit is enumerated."""
        asked = validation.training_options(self.training).num_predict_samples
        whole = isinstance(self.orbit_, FiniteOrbit) and self.orbit_.size <= (asked or PREDICT_ELEMENTS)
        return None if whole else asked or MOST_DRAWS
