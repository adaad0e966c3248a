"""The quadratic bound on the logistic likelihood against GPyTorch's SVGP, which integrates over f by quadrature.

Without an orbit, on small real data, with the same inducing points and everything else optimised to convergence:
kernel, constant mean and posterior. Three numbers for each problem: GPyTorch's optimum, the optimum of our bound (both
by L-BFGS on all parameters together), and what our training reaches. The first difference is what a quadratic costs,
and no training removes it: the quadratics used here are the sharpest that there are (de Leeuw and Lange 2009). The
second is what training leaves behind.

A second table has the loss of the bound for one datum, as it depends on the mean and the variance of q(f).

``python -m experiments logistic-bound`` takes about two minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn import datasets as sklearn_datasets
from torch import Tensor

from experiments import harness
from experiments.harness import Record, Records, Settings
from experiments.toy import maximise
from orbitgp.estimators.initialise import initial_kernel
from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Moments
from orbitgp.likelihoods.classification import normal_average
from orbitgp.orbits import Identity
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

JITTER = 1e-6
LOG_ODDS_VARIANCE = 10.0
ACCURACY: Settings = {"max_iter": 1000, "history_size": 50, "tolerance_change": 1e-11}


@dataclass(frozen=True)
class Problem:
    """Two classes of a data set that comes with scikit-learn; inputs are standardised."""

    data: str
    is_positive: Callable[[np.ndarray], np.ndarray]
    columns: tuple[int, ...] | None = None

    def load(self) -> tuple[Float[Tensor, "rows features"], Int[Tensor, " rows"]]:
        raw = getattr(sklearn_datasets, f"load_{self.data}")()
        x = raw.data if self.columns is None else raw.data[:, self.columns]
        return torch.tensor((x - x.mean(0)) / x.std(0)), torch.tensor(self.is_positive(raw.target)).long()


DIABETES = Problem("diabetes", lambda t: t > np.median(t), (2, 3, 8))
PROBLEMS = {
    "diabetes above the median, by bmi, bp, s5": DIABETES,
    "diabetes above the mean": Problem("diabetes", lambda t: t > t.mean()),
    "diabetes above the median": Problem("diabetes", lambda t: t > np.median(t)),
    "breast cancer": Problem("breast_cancer", lambda t: t == 1),
    "iris: versicolor or not": Problem("iris", lambda t: t == 1),
    "wine: the second or not": Problem("wine", lambda t: t == 1),
}


class Logistic(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    """Bernoulli with a logit; GPyTorch integrates over f by Gauss-Hermite quadrature."""

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Distribution:
        return torch.distributions.Bernoulli(logits=function_samples)


class SVGP(gpytorch.models.ApproximateGP):
    """GPyTorch's sparse variational GP, with a constant mean."""

    def __init__(self, inducing: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        strategy = gpytorch.variational.VariationalStrategy
        super().__init__(strategy(self, inducing, q, learn_inducing_locations=False, jitter_val=JITTER))
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@dataclass(frozen=True)
class Bounds:
    """The three bounds of one problem."""

    num_data: int
    svgp: float
    best: float
    trained: float


def bounds(problem: Problem, num_inducing: int = 60, max_steps: int = 300, seed: int = 0) -> Bounds:
    """GPyTorch's optimum, ours, and what training reaches, from the same start with the same inducing points."""
    x, labels = problem.load()
    y = Bernoulli().encode(labels)
    generator = torch.Generator().manual_seed(seed)
    inducing = x[torch.randperm(len(x), generator=generator)[:num_inducing]]

    svgp = SVGP(inducing.clone(), initial_kernel(None, x, LOG_ODDS_VARIANCE, generator)).double()
    objective = gpytorch.mlls.VariationalELBO(Logistic(), svgp, len(x))
    svgp(x)  # the first call sets q(u) to the prior
    with gpytorch.settings.num_gauss_hermite_locs(60):
        theirs = maximise(lambda: objective(svgp(x), labels.double()) * len(x), svgp.parameters(), **ACCURACY)

    def model() -> InvariantGP:
        gp = InvariantGP(initial_kernel(None, x, LOG_ODDS_VARIANCE, generator), Identity(), inducing, jitter=JITTER)
        gp.inducing.requires_grad_(False)
        return gp

    joint = model()
    samples = joint.orbit.sample(x, None)

    def best_bound(model: InvariantGP = joint) -> torch.Tensor:
        """With the best local parameters, at every step of the optimiser."""
        local = Bernoulli().local(y, model.moments(model.whitened_means(samples)))
        return elbo(model, Bernoulli(), samples, y, len(x), local)

    joint.q_sqrt.register_hook(torch.tril)  # the factor of a covariance is lower triangular
    best = maximise(best_bound, joint.parameters(), **ACCURACY)

    trainer = Trainer(
        model(), Bernoulli(), x, y, TrainerSettings(num_samples=None, max_steps=max_steps, batch_size=len(x), seed=seed)
    )
    trainer.run()
    with torch.no_grad():
        return Bounds(len(x), theirs, best, float(best_bound(trainer.model)))


class Gap(NamedTuple):
    """What the bound loses for one datum with y = +1 and q(f) = N(mean, variance)."""

    mean: float
    variance: float
    c: float  # the best local parameter
    exact: float  # E log sigma(f)
    bound: float
    gap: float  # exact - bound


def gap_table(
    means: Sequence[float] = (0.0, 1.0, 3.0, 6.0), variances: Sequence[float] = (0.01, 0.1, 1.0, 4.0, 16.0)
) -> list[Gap]:
    """The gap of the logistic bound at y = +1, for every mean and variance."""
    mean, variance = torch.cartesian_prod(torch.tensor(means), torch.tensor(variances)).double().T[..., None]
    likelihood, y = Bernoulli(), torch.ones_like(mean)
    moments = Moments(mean, mean.square() + variance)
    c = likelihood.local(y, moments)
    bound = likelihood.quadratic(y, c).expectation(moments)
    exact = normal_average(torch.nn.functional.logsigmoid, mean, variance)[:, 0]
    columns = (mean[:, 0], variance[:, 0], c[:, 0], exact, bound, exact - bound)
    return [Gap(*(float(v) for v in row)) for row in zip(*columns, strict=True)]


def gap_markdown(gaps: Sequence[Gap]) -> str:
    """E log sigma(f) and the gap behind it: a row for each variance, a column for each mean."""
    means, variances = (dict.fromkeys(values) for values in list(zip(*gaps, strict=True))[:2])
    cells = [[f"{v:g}", *(f"{gap.exact:.3f} ({gap.gap:.3f})" for gap in gaps if gap.variance == v)] for v in variances]
    return harness.markdown(["σ²", *(f"μ = {mean:g}" for mean in means)], cells)


@dataclass(frozen=True)
class LogisticBound(harness.Run):
    """The three bounds of one problem, by its name."""

    problem: str
    num_inducing: int = 60
    max_steps: int = 300
    seed: int = 0

    def name(self) -> str:
        return harness.slug(self.problem, self.seed)

    def measure(self, device: str) -> Record:
        begin = time.perf_counter()
        found = bounds(PROBLEMS[self.problem], self.num_inducing, self.max_steps, self.seed)
        return {"bounds": asdict(found), "seconds": {"fit": time.perf_counter() - begin}}


def table(records: Records) -> str:
    """Both tables: the gaps of one datum and the bounds of each problem."""
    return f"{gap_markdown(gap_table())}\n\n{bounds_table(records)}"


def bounds_table(records: Records) -> str:
    """The bounds of each problem, and the gaps relative to GPyTorch's."""
    cells = []
    for r in records:
        b = Bounds(**r["bounds"])
        gap, left = ((above - below) / abs(b.svgp) for above, below in ((b.svgp, b.best), (b.best, b.trained)))
        values = [f"{value:.2f}" for value in (b.svgp, b.best, b.trained)]
        cells.append([r["settings"]["problem"], str(b.num_data), *values, f"{gap:.2%}", f"{left:.2%}"])
    values = ["SVGP, quadrature", "our bound at its best", "trained", "below SVGP", "trained, below its best"]
    return harness.markdown(["data", "rows", *values], cells)


def plan(options: argparse.Namespace) -> list[LogisticBound]:
    """Every problem with every seed; with ``--quick`` the first, with fewer inducing points and steps."""
    names, settings = (list(PROBLEMS)[:1], (30, 150)) if options.quick else (list(PROBLEMS), (60, 300))
    return [LogisticBound(name, *settings, seed) for seed in range(options.seeds) for name in names]


EXPERIMENT = harness.Experiment("logistic_bound", __doc__, plan, table, seeds=1, on_gpu=False)
