"""How far the bound lies below the log evidence: never above it, on random problems, and at it where nothing is lost.

The exact log evidence is that of exact inference, which has oracles of its own (test_exact.py).
"""

from __future__ import annotations

import math
import random
from copy import deepcopy
from typing import NamedTuple

import jaxtyping
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.stick_breaking import StickBreaking
from orbitgp.inference.elbo import Batch, elbo, elbo_of_all
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.likelihoods import Dirichlet, Gaussian, GaussianIndicators, Likelihood
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Permutation, Rotate90, Rotation
from orbitgp.orbits.sampling import base_draws

pytestmark = pytest.mark.usefixtures("double")

PROBLEMS, BLOCKS = 96, 4
CYCLE = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]


class Problem(NamedTuple):
    model: InvariantGP
    exact: ExactGP
    likelihood: Likelihood
    x: Tensor
    y: Tensor
    num_samples: int | None


def random_kernel(choose: random.Random, unit: float) -> Kernel:
    base = choose.choice([RBFKernel(), *(MaternKernel(nu=nu) for nu in (0.5, 1.5, 2.5))])
    base.lengthscale = unit * 10 ** choose.uniform(-0.7, 0.7)
    scaled = ScaleKernel(base)
    scaled.outputscale = 10 ** choose.uniform(-1, 1)
    return scaled


def random_orbit(choose: random.Random, images: bool) -> tuple[Orbit, int | None]:
    """An orbit and the number of fixed draws: None for those that are enumerated."""
    if images:
        finite: list[Orbit] = [Flip(), Rotate90(), Flip() * Rotate90()]
        sampled: list[Orbit] = [Rotation(choose.uniform(5, 180)), Rotation(30.0) * Flip()]
    else:
        finite = [Identity(), Permutation(CYCLE), Permutation(CYCLE[:2])]
        sampled = [GaussianNoise(choose.uniform(0.1, 1.0))]
    if choose.random() < 0.5:
        orbit = choose.choice(finite)
        subset = orbit.size > 2 and choose.random() < 0.2  # fixed elements of a larger orbit
        return orbit, int(orbit.size) - 1 if subset else None
    return choose.choice(sampled), choose.randint(1, 6)


def random_likelihood(choose: random.Random, rows: int) -> tuple[Likelihood, Tensor]:
    kind, noise = choose.choice(["gaussian", "indicators", "dirichlet"]), 10 ** choose.uniform(-3, 0)
    if kind == "gaussian":
        latents = choose.randint(1, 2)
        return Gaussian(latents, noise), choose.choice([0.1, 1.0, 5.0]) * torch.randn(rows, latents)
    likelihood = GaussianIndicators(3, noise) if kind == "indicators" else Dirichlet(3, noise)
    return likelihood, likelihood.encode(torch.randint(3, (rows,)))


def random_problem(seed: int) -> Problem:
    choose = random.Random(seed)
    torch.manual_seed(seed)
    rows, inducing, images = choose.randint(3, 15), choose.randint(1, 10), choose.random() < 0.5
    side = choose.randint(3, 5)
    x = torch.rand(rows, side, side) if images else torch.randn(rows, 3)
    orbit, num_samples = random_orbit(choose, images)
    likelihood, y = random_likelihood(choose, rows)
    kernel = random_kernel(choose, 1.0)
    z = x[torch.randint(rows, (inducing,))] + choose.choice([0.01, 0.3]) * torch.randn(inducing, *x.shape[1:])
    model = InvariantGP(
        kernel,
        orbit.double(),
        z,
        likelihood.num_latents,
        "zero",
        likelihood.shares_curvature,
        jitter=choose.choice([1e-10, 1e-8, 1e-6]),
        inducing_samples=choose.choice([1, 2, num_samples or getattr(orbit, "size", 1)]),  # the last: all
    )
    if model.inducing_draws is not None and model.inducing_draws.shape[1] == num_samples and choose.random() < 0.5:
        # The draws of the data: then u = f(z), and at the data nothing is lost.
        model.inducing_draws = _draws_of_data(orbit, x, num_samples).expand(inducing, -1, -1).clone()
    exact = ExactGP(kernel, orbit, x, likelihood.num_latents, "zero", num_samples)
    return Problem(model, exact, likelihood, x, y, num_samples)


def _draws_of_data(orbit: Orbit, x: Tensor, num_samples: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return base_draws("qmc", 1, 1, num_samples, orbit.draws_for(x.shape[1:]), generator=generator, dtype=x.dtype)[0]


@torch.no_grad()
def collapsed(problem: Problem) -> float:
    """The lower bound at the best q(u) for the fixed draws."""
    model, _, likelihood, x, y, num_samples = problem
    samples = model.orbit.shared_samples(x, num_samples)
    set_posterior(model, statistics(model, model.whitened_means(samples), likelihood.quadratic(y, None), len(x)))
    return elbo(model, likelihood, samples, y, len(x)).item()


def log_evidence(problem: Problem) -> float:
    return problem.exact.condition(problem.likelihood, problem.y).log_evidence


def rounding(value: float) -> float:
    return 1e-7 * (1 + abs(value))


@pytest.mark.parametrize("block", [pytest.param(b, marks=[pytest.mark.slow] if b > 1 else []) for b in range(BLOCKS)])
def test_the_bound_lies_below_the_log_evidence(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if block:  # shapes were checked on the first block; checks take half of the time
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for seed in range(block, PROBLEMS, BLOCKS):
        problem = random_problem(seed)
        exact = log_evidence(problem)
        assert collapsed(problem) <= exact + rounding(exact), seed


def in_single_precision(problem: Problem) -> Problem:
    """Inputs, orbit and inducing points of half as many digits."""
    model = deepcopy(problem.model)
    model.orbit.float()
    model.inducing = torch.nn.Parameter(model.inducing.detach().float())
    model.inducing_draws = None if model.inducing_draws is None else model.inducing_draws.float()
    return problem._replace(model=model, x=problem.x.float())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_does_not_lift_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound at its best q(u) lies above the exact log evidence in double precision by
    no more than single precision moves it on a CPU."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    lifted = {}
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        exact = deepcopy(problem.exact)
        exact.x = problem.x.float().double()
        truth = log_evidence(problem._replace(exact=exact))
        single = in_single_precision(problem)
        moved = abs(collapsed(single) - collapsed(problem))
        model, likelihood = single.model.to("cuda"), deepcopy(problem.likelihood).to("cuda")
        on_gpu = single._replace(model=model, likelihood=likelihood, x=single.x.to("cuda"), y=problem.y.to("cuda"))
        above = collapsed(on_gpu) - truth
        if above > 0.01 + 1e-5 * abs(truth) + moved:
            lifted[seed] = above
    assert not lifted


def dense(problem: Problem) -> tuple[Tensor, Tensor]:
    """K_f and Q as matrices."""
    with torch.no_grad():
        a = problem.model.whitened_means(problem.model.orbit.shared_samples(problem.x, problem.num_samples)).a[:, 0]
    return problem.exact.gram(), a @ a.mT


def dense_bound(problem: Problem, in_determinant: Tensor, in_fit: Tensor) -> float:
    """sum const + 1/2 sum (eta^2 / lam + log 2 pi / lam) + sum log N(eta / lam; 0, .), with these matrices for K_f."""
    with torch.no_grad():
        const, eta, lam = problem.likelihood.quadratic(problem.y, None)
    value = const.sum() + 0.5 * (eta.square() / lam).sum()
    for e, p in zip(eta.unbind(1), lam.unbind(1), strict=True):
        value -= 0.5 * torch.logdet(torch.eye(len(p)) + p * in_determinant)
        value -= 0.5 * (e / p) @ torch.linalg.solve(in_fit + torch.diag(1 / p), e / p)
    return float(value)


SOME = range(16)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_dense_formula_is_the_log_evidence(seed: int) -> None:
    problem = random_problem(seed)
    k, _ = dense(problem)
    assert dense_bound(problem, k, k) == pytest.approx(log_evidence(problem), abs=1e-7)


def test_a_broken_bound_is_found() -> None:
    """With Q <= K_f in both terms, and without the slack, many of these bounds would lie above."""
    above = 0
    for seed in SOME:
        problem = random_problem(seed)
        _, q = dense(problem)
        above += dense_bound(problem, q, q) > log_evidence(problem) + 1e-3
    assert above > 2


@pytest.mark.parametrize("likelihood", [Gaussian(2, 0.05), GaussianIndicators(3, 0.1), Dirichlet(3, 1e-3)])
@pytest.mark.parametrize(("orbit", "num_samples"), [(Permutation(CYCLE), None), (GaussianNoise(0.4), 5)])
def test_with_values_of_f_at_the_data_nothing_is_lost(
    likelihood: Likelihood, orbit: Orbit, num_samples: int | None
) -> None:
    """u = f(X) on the draws of the data."""
    x, kernel, orbit = torch.randn(12, 3), ScaleKernel(RBFKernel()).double(), orbit.double()
    y = torch.randn(12, 2) if isinstance(likelihood, Gaussian) else likelihood.encode(torch.randint(3, (12,)))
    latents, shared = likelihood.num_latents, likelihood.shares_curvature
    model = InvariantGP(kernel, orbit, x, latents, "zero", shared, jitter=1e-11, inducing_samples=num_samples or 3)
    if num_samples:
        generator = torch.Generator().manual_seed(0)
        draws = base_draws("qmc", 1, 1, num_samples, orbit.draws_for(x.shape[1:]), generator=generator, dtype=x.dtype)
        model.inducing_draws = draws[0].expand(12, -1, -1)
    problem = Problem(model, ExactGP(kernel, orbit, x, latents, "zero", num_samples), likelihood, x, y, num_samples)
    exact = log_evidence(problem)
    assert collapsed(problem) == pytest.approx(exact, abs=1e-6)


def batches(problem: Problem, local: Tensor | None = None) -> list[Batch]:
    """In two parts, as where data are streamed."""
    model, _, _, x, y, num_samples = problem
    parts = [slice(0, 2), slice(2, len(x))]
    return [(model.orbit.shared_samples(x[p], num_samples), y[p], None if local is None else local[p]) for p in parts]


class TestSlack:
    def test_it_is_the_weighted_trace(self) -> None:
        for seed in SOME:
            problem = random_problem(seed)
            (k, q), lam = dense(problem), problem.likelihood.quadratic(problem.y, None).lam.detach()
            expected = 0.5 * float((lam * (k - q).diagonal()[:, None]).sum())
            assert elbo_of_all(problem.model, problem.likelihood, batches(problem)).slack == pytest.approx(
                expected, abs=1e-6
            )

    def test_it_covers_the_determinant_and_the_trace(self) -> None:
        """evidence - collapsed = slack - 1/2 log|I + X| + 1/2 h.(P^-1 - B^-1) h."""
        problem = random_problem(next(s for s in SOME if isinstance(random_problem(s).likelihood, Dirichlet)))
        (k, q), lower = dense(problem), collapsed(problem)
        determinant = dense_bound(problem, q, k) - dense_bound(problem, k, k)
        fit = dense_bound(problem, k, k) - dense_bound(problem, k, q)
        expected = elbo_of_all(problem.model, problem.likelihood, batches(problem)).slack - determinant + fit
        assert log_evidence(problem) - lower == pytest.approx(expected, abs=1e-6)

    def test_fresh_draws_estimate_the_variance_without_bias(self) -> None:
        """GaussianNoise under an RBF kernel in one dimension: k_ff and k_fu are RBFs again."""
        x, z, width, reach = torch.randn(6, 1), torch.randn(3, 1), 1.0, 0.6
        kernel = ScaleKernel(RBFKernel()).double()
        kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, width
        model = InvariantGP(kernel, GaussianNoise(reach).double(), z, 1, "zero", jitter=1e-10)
        likelihood, y = Gaussian(1, 0.5), torch.randn(6, 1)

        def rbf(a: Tensor, b: Tensor, times: int) -> Tensor:
            wide = width**2 + times * reach**2
            return math.sqrt(width**2 / wide) * torch.exp(-0.5 * (a - b.mT).square() / wide)

        kfu = rbf(x, z, 1)
        q = (kfu @ torch.linalg.solve(rbf(z, z, 0), kfu.mT)).diagonal()
        expected = 0.5 / 0.5 * float((rbf(x, x, 2).diagonal() - q).sum())
        many, targets = x.repeat(20, 1), y.repeat(20, 1)
        draws = [model.orbit.sample(many, 8, 4, "iid") for _ in range(30)]
        values = torch.tensor(
            [elbo_of_all(model, likelihood, [(samples, targets, None)]).slack / 20 for samples in draws]
        )
        assert abs(values.mean().item() - expected) < 4 * values.std().item() / math.sqrt(len(values))

    def test_a_likelihood_with_local_parameters(self) -> None:
        problem = random_problem(3)
        likelihood = StickBreaking(3)
        x, y = problem.x, likelihood.encode(torch.randint(3, (len(problem.x),)))
        model = InvariantGP(problem.model.kernel, problem.model.orbit, x[:2], likelihood.num_latents, "zero", False)
        changed = problem._replace(model=model, likelihood=likelihood, y=y)
        local = torch.rand(len(x), likelihood.num_locals) + 0.5
        quadratic = likelihood.quadratic(y, local)
        k, q = dense(changed)
        expected = 0.5 * float((quadratic.lam * (k - q).diagonal()[:, None]).sum())
        assert elbo_of_all(model, likelihood, batches(changed, local)).slack == pytest.approx(expected, abs=1e-6)
