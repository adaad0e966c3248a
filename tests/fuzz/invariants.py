"""What must hold of every problem, whatever its data: the list of what does not.

Every problem: predictions and evidence are finite, probabilities sum to one, standard deviations are not negative,
predictions at the data stay within ten ranges of the targets, a row alone is predicted as among others, a saved model
loads equal, and the evidence lies below the exact log marginal likelihood where brute force can compute that (and
equals it after exact inference). One more, drawn from the seed: rows permuted, classes renamed, or targets scaled. The
evidence at the same parameters must be the same up to rounding. So must another fit be where it can: a climb that a
limit on its steps stops half-way ends where rounding has led it, so both fits must have converged. Sparse fits take the
same steps, unless Adam divides by a gradient that is zero but for rounding, or a network sees the labels.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp.inference.dense_posterior import Solution
from orbitgp.inference.evidence import Evidence, measure_evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels.covariance import LOST
from orbitgp.likelihoods import Bernoulli, Likelihood
from orbitgp.orbits import FiniteOrbit
from tests.fuzz.problems import Problem, random_problem

LONGEST_SENTENCE = 600
MOST_POINTS = 80  # of all orbits together, for brute force over their pairs
SCALE = 2.0**10  # targets scaled by a power of two are normalised to the same numbers, bit for bit


def bad(seed: int) -> list[str]:
    """What is wrong with the problem of this seed, in sentences; nothing, where all is well."""
    problem = random_problem(seed)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wrong = list(_checked(problem))
    except (ValueError, TypeError) as error:
        return [] if is_sentence(str(error)) else [f"{type(error).__name__} is not one sentence: {error}"]
    except Exception as error:  # whatever else is raised is what we look for
        return [f"{type(error).__name__}: {error}"]
    noise = [w for w in caught if issubclass(w.category, RuntimeWarning)]
    return wrong + [f"{w.category.__name__}: {w.message}" for w in noise]


def refusal(seed: int) -> str | None:
    """Why the library refuses the problem of this seed, if it does."""
    problem = random_problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.estimator().fit(problem.X, problem.y)
        except (ValueError, TypeError) as error:
            return str(error)
    return None


def is_sentence(text: str) -> bool:
    """One line that ends as a sentence does. It may name several problems of a file: each of them is as short as
    one."""
    longest = max(map(len, re.split(r"; \(\d+\) ", text)))
    return "\n" not in text.strip() and text.rstrip().endswith((".", "?", "…")) and longest < LONGEST_SENTENCE


def _checked(problem: Problem) -> list[str]:
    estimator = problem.estimator().fit(problem.X, problem.y)
    wrong: list[str] = []
    evidence = estimator.evidence_
    if not (np.isfinite(evidence.value) and np.isfinite(evidence.stderr)):
        wrong.append(f"the evidence is {evidence.value} ± {evidence.stderr}")
    if evidence.upper is not None and not evidence.upper >= evidence.value:
        wrong.append(f"the upper bound {evidence.upper} lies below {evidence.value}")
    if any(not np.isfinite(record["bound"]) for record in estimator.history_):
        wrong.append("a bound of the history is not finite")
    said = _said(problem, estimator, problem.X)
    wrong += _predictions(problem, said)
    alone = np.concatenate([_said(problem, estimator, problem.X[i : i + 1]) for i in range(2)])
    x, _ = _data(problem, estimator)
    # A variance is the difference of two that may be much larger, in double precision at best.
    rounding = 8 * np.sqrt(np.finfo(float).eps * prior_variance(estimator.kernel_, x))
    rounding *= 0.0 if problem.classifies else estimator.target_scale_.max()
    tolerance = 1e-6 if estimator.model_.dtype == torch.float64 else 1e-2
    wrong += _differ("rows alone and together", said[:2], alone, tolerance, problem, rounding)
    wrong += _saved(problem, estimator, said)
    wrong += _below_brute_force(problem, estimator)
    again = _second_fits(problem)
    return wrong + again[problem.seed % len(again)](problem, estimator)


def _said(problem: Problem, estimator: Any, X: np.ndarray) -> np.ndarray:
    """Everything that is predicted, as columns."""
    if problem.classifies:
        return np.asarray(estimator.predict_proba(X))
    mean, std = estimator.predict(X, return_std=True)
    return np.concatenate([mean.reshape(len(X), -1), std.reshape(len(X), -1)], 1)


def _predictions(problem: Problem, said: np.ndarray) -> list[str]:
    if not np.isfinite(said).all():
        return ["a prediction is not finite"]
    if problem.classifies:
        sums = np.abs(said.sum(1) - 1).max()
        return ([f"probabilities sum to 1 ± {sums:.1g}"] if sums > 1e-8 else []) + (
            ["a probability < 0"] if (said < 0).any() else []
        )
    wrong = []
    y = problem.y.reshape(len(problem.y), -1).astype(np.float64)
    mean, std = np.split(said, 2, axis=1)
    if (std < 0).any():
        wrong.append("a standard deviation is negative")
    # Without normalising, the prior is centred at zero, however far the targets are from there.
    # A kernel that the user gives has its units too: what its few steps have not learned yet, it is unsure of.
    span = _span(y)
    if not problem.arguments.get("normalize_y", True):
        span = np.maximum(span, np.abs(y).max(0))
        span = span if problem.arguments["kernel"] is None else np.maximum(span, std)
    beyond = (np.abs(mean - y.mean(0)) / span).max()
    if beyond > 10:
        wrong.append(f"a prediction at the data lies {beyond:.3g} ranges of the targets away")
    return wrong


def _saved(problem: Problem, estimator: Any, said: np.ndarray) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        estimator.save(path)
        loaded = type(estimator).load(path)
    if loaded.evidence_ != estimator.evidence_:
        return ["the evidence changed on its way through a file"]
    return _differ("saved and loaded", said, _said(problem, loaded, problem.X), 1e-6, problem)


def _differ(
    what: str, one: np.ndarray, other: np.ndarray, tolerance: float, problem: Problem, rounding: float = 0.0
) -> list[str]:
    """In units of the spread of the targets or of a prediction, whichever is wider; or of probabilities."""
    unit: Any = 1.0
    if not problem.classifies:
        std = np.split(one, 2, axis=1)[1]
        unit = np.maximum(_span(problem.y.reshape(len(problem.y), -1)).max(), np.tile(std, 2))
    gap = float((np.maximum(np.abs(one - other) - rounding, 0.0) / unit).max())
    return [f"{what} differ by {gap:.2g}"] if not gap <= tolerance else []


def brute_force(estimator: Any, X: np.ndarray, y: np.ndarray) -> float | None:
    """log N(targets; mean, K_f + noise) of the fitted model, from GPyTorch's kernel and every pair of orbit elements.

    None where the orbit is infinite or the likelihood is not Gaussian in f. The bias of the mean is that of the fit.
    """
    model, likelihood = estimator.model_, estimator.likelihood_
    if likelihood.num_locals or not isinstance(model.orbit, FiniteOrbit):
        return None
    if len(X) * model.orbit.size > MOST_POINTS:
        return None
    x = estimator._tensor(estimator._new_inputs(X), torch.device("cpu"))
    with torch.no_grad():
        points = model.orbit.elements(x)
        size = points.shape[1]
        flat = points.flatten(2).flatten(0, 1).double()
        # Pair by pair, GPyTorch computes distances from differences, which do not cancel.
        pairs = model.kernel(flat.repeat_interleave(len(flat), 0), flat.repeat(len(flat), 1), diag=True)
        k = pairs.reshape(len(x), size, len(x), size).mean((1, 3))
        if isinstance(
            model, ExactGP
        ):  # jitter, where it takes any, is a part of the model, and the history tells of it
            k = k + estimator.history_[-1]["jitter"] * torch.diag(k.diagonal())
        mean = model.prior_mean(points.flatten(2)[:, None])[:, 0].double()
        targets = _targets(estimator, y)
        const, eta, lam = (term.double() for term in likelihood.quadratic(targets, None))
        total = float(const.sum())
        # const + eta f - lam f^2 / 2 is a Gaussian observation eta / lam of f with noise 1 / lam.
        for column in range(mean.shape[1]):
            precision, linear = lam[:, column], eta[:, column]
            total += float(0.5 * (linear**2 / precision + np.log(2 * np.pi) - precision.log()).sum())
            values, vectors = torch.linalg.eigh(k + torch.diag(1 / precision))
            values = values.clamp_min(1e-14 * float(values.max()))
            r = vectors.mT @ (linear / precision - mean[:, column])
            total -= 0.5 * float((r**2 / values + values.log() + np.log(2 * np.pi)).sum())
    shift = 0.0 if not hasattr(estimator, "target_scale_") else len(x) * float(np.log(estimator.target_scale_).sum())
    return total - shift


def _targets(estimator: Any, y: np.ndarray) -> torch.Tensor:
    if hasattr(estimator, "classes_"):
        return estimator.likelihood_.encode(torch.tensor(np.searchsorted(estimator.classes_, y)))
    return torch.tensor((y.reshape(len(y), -1).astype(np.float64) - estimator.target_mean_) / estimator.target_scale_)


def _below_brute_force(problem: Problem, estimator: Any) -> list[str]:
    truth = brute_force(estimator, problem.X, problem.y)
    if truth is None:
        return []
    value, error = estimator.evidence_.value, estimator.evidence_.stderr
    # Single precision of the kernel, and jitter, both of which the noise divides.
    allowed = (
        6 * error
        + (1e-3 if estimator.model_.dtype == torch.float64 else 0.1) * (1 + 1e-2 * abs(truth))
        + 0.01 * len(problem.X)
    )
    if value > truth + allowed:
        return [f"the evidence {value:.6g} lies above the exact {truth:.6g}"]
    if isinstance(estimator.model_, ExactGP) and abs(value - truth) > allowed:
        return [f"the exact evidence {value:.6g} is not {truth:.6g}"]
    return []


def _second_fits(problem: Problem) -> list[Callable[[Problem, Any], list[str]]]:
    """The invariants that this problem has, each of which takes another fit."""
    if problem.classifies:
        return [_rows_permuted, _classes_renamed]
    return [_rows_permuted, _targets_scaled] if problem.arguments.get("normalize_y", True) else [_rows_permuted]


def _span(y: np.ndarray) -> np.ndarray:
    """The range of each target; of one that does not vary, its size."""
    span, size = np.ptp(y, axis=0), np.abs(y).max(0)
    return np.where(span > 1e-6 * size, span, np.where(size > 0, size, 1.0))


def _rows_permuted(problem: Problem, estimator: Any) -> list[str]:
    order = torch.from_numpy(np.random.default_rng(problem.seed).permutation(len(problem.X)))
    x, y = _data(problem, estimator)
    one, other = (_measured(problem, estimator, estimator.model_, *data) for data in ((x, y), (x[order], y[order])))
    wrong = _close(problem, estimator, one, other, "at the same parameters with rows permuted")
    if isinstance(estimator.model_, ExactGP) and estimator.converged_:
        again = problem.estimator().fit(problem.X[order], problem.y[order])
        wrong += _like(problem, estimator, again, "with rows permuted", 0.0)
    return wrong


def _classes_renamed(problem: Problem, estimator: Any) -> list[str]:
    """Classes in the reverse order."""
    x, y = _data(problem, estimator)
    renamed, signs = deepcopy(estimator.model_), isinstance(estimator.likelihood_, Bernoulli)
    with torch.no_grad():
        for name in ("q_mean", "prior_mean.bias", "prior_mean.weight", "q_sqrt"):
            values = dict(renamed.named_parameters()).get(name)
            if values is not None and (not signs or name != "q_sqrt"):
                values.copy_(-values if signs else values.flip(0 if name == "q_sqrt" else -1))
    one = _measured(problem, estimator, estimator.model_, x, y)
    other = _measured(problem, estimator, renamed, x, -y if signs else y.flip(-1))
    wrong = _close(problem, estimator, one, other, "at the same parameters with classes renamed")
    options = problem.arguments["training"]
    exact = isinstance(estimator.model_, ExactGP)
    if estimator.converged_ if exact else options.local != "network":
        names = np.unique(problem.y)
        named = {name: f"z{len(names) - i}" for i, name in enumerate(names)}
        again = problem.estimator().fit(problem.X, np.array([named[name] for name in problem.y]))
        wrong += _like(problem, estimator, again, "with classes renamed", 0.0)
    return wrong


def _data(problem: Problem, estimator: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = estimator._tensor(estimator._new_inputs(problem.X), torch.device("cpu"))
    return x, _targets(estimator, problem.y)


def _measured(problem: Problem, estimator: Any, model: Any, x: torch.Tensor, y: torch.Tensor) -> Evidence:
    """The evidence of a model for these data, with the same draws whatever the data."""
    likelihood, options, samples = (
        estimator.likelihood_,
        problem.arguments["training"],
        problem.arguments["num_samples"],
    )
    if isinstance(model, ExactGP):
        return Evidence(
            _conditioned(model, likelihood, x, y).log_evidence, 0.0, len(x), None, type(likelihood).__name__
        )
    size = getattr(estimator.orbit_, "size", None)
    samples = None if size is not None and samples >= size else samples
    generator = torch.Generator().manual_seed(problem.seed)
    return measure_evidence(model, likelihood, x, y, samples, passes=8, sampler=options.sampler, generator=generator)


@torch.no_grad()
def prior_variance(kernel: Any, x: torch.Tensor) -> float:
    """The prior variance of g, averaged over the first data."""
    return float(kernel(x[:16].flatten(1).double(), diag=True).mean())


def _conditioned(model: ExactGP, likelihood: Likelihood, x: torch.Tensor, y: torch.Tensor) -> Solution:
    model = deepcopy(model)
    model.x = x
    return model.condition(likelihood, y)


def _close(problem: Problem, estimator: Any, one: Evidence, other: Evidence, what: str) -> list[str]:
    """The same up to rounding and, of draws, six errors of the difference (one in some 30,000 differ by more)."""
    likelihood = estimator.likelihood_
    gap = abs(one.value - other.value)
    # Local parameters and the posterior take turns until one gains less than a thousandth of a nat.
    turns = 1e-3 if likelihood.num_locals else 0.0
    allowed = (
        6 * np.hypot(one.stderr, other.stderr) + 1e-6 * (1 + abs(one.value)) + _rounding(problem, estimator) + turns
    )
    return [f"the evidence changes by {gap:.3g} {what}"] if not gap <= allowed else []


@torch.no_grad()
def _rounding(problem: Problem, estimator: Any) -> float:
    """Nats that the rounding of the kernel may cause: six standard deviations for exact inference, or else a bound."""
    model, likelihood, (x, y) = estimator.model_, estimator.likelihood_, _data(problem, estimator)
    entry = torch.finfo(model.dtype).eps * prior_variance(estimator.kernel_, x) * _magnified(model, x)
    if not isinstance(model, ExactGP):
        # Each entry is multiplied by the precision of its datum.
        local = torch.ones(len(y), likelihood.num_locals, dtype=torch.float64) if likelihood.num_locals else None
        return 4 * entry * float(likelihood.quadratic(y, local).lam.sum())
    # The slope of the evidence by K is (alpha alpha^T - C^-1) / 2. Entries are rounded in K, and again by the
    # factorisation.
    entry += torch.finfo(torch.float64).eps * len(x) * prior_variance(estimator.kernel_, x)
    solution, eye = _conditioned(model, likelihood, x, y), torch.eye(len(x), dtype=torch.float64)
    inverses = solution.system.solve(eye[:, None].repeat(1, solution.system.noise.shape[1], 1)).unbind(1)
    slopes = [weights[:, None] * weights - inverses[i % len(inverses)] for i, weights in enumerate(solution.weights.mT)]
    return 3 * entry * sum(float(slope.norm()) for slope in slopes)


def _magnified(model: Any, x: torch.Tensor) -> float:
    """How many times its rounding a kernel is off: inputs are rounded in units of their size, and count in
    lengthscales.

    Squared distances from products are off by the rounding of squares, up to where they are taken from differences.
    """
    sharpness = model.covariance.of_features.sharpness()
    if sharpness is None:
        return 1.0
    far = float(model.covariance.features(x.flatten(1)).double().abs().max() * sharpness.sqrt())
    return max(1.0, far, min(far**2, LOST[model.dtype] / torch.finfo(model.dtype).eps))


def _targets_scaled(problem: Problem, estimator: Any) -> list[str]:
    again = problem.estimator().fit(problem.X, problem.y.astype(np.float64) * SCALE)
    numbers = problem.y.size
    return _like(problem, estimator, again, "with targets scaled", -numbers * float(np.log(SCALE)))


def _like(problem: Problem, one: Any, other: Any, what: str, shift: float) -> list[str]:
    """Both fits have the same evidence and predictions, up to what rounding does to a few steps of an optimiser.

    Starts are judged by some of the rows, and climbs end when an iteration gains little: with them, ends differ by as
    much.
    """
    if one.converged_ != other.converged_:
        return []  # by a step more or less, at the limit
    gap = abs(other.evidence_.value - one.evidence_.value - shift)
    single, starts = one.model_.dtype == torch.float32, problem.arguments["training"].start_rows > 0
    rough = single or starts or (one.converged_ and isinstance(one.model_, ExactGP))
    allowed = (0.1 if rough else 1e-2) * (1 + 0.01 * abs(one.evidence_.value)) + 6 * np.hypot(
        one.evidence_.stderr, other.evidence_.stderr
    )
    return [f"the evidence changes by {gap:.3g} {what}"] if not gap <= allowed else []
