"""The estimators of E f and E f^2: against loops, against exact expectations, and against the biased ones they
replace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import estimate, pair_product
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits import GaussianNoise, Orbit, Pairing, Permutation, Samples

LENGTHSCALE, VARIANCE, SCALE = 0.8, 1.3, 0.9
REPEATS = 12_000
PAIRINGS = [
    Pairing.groups(2),
    Pairing.groups(3),
    Pairing.groups(6),
    Pairing.without_replacement(2, 5),
    Pairing.without_replacement(4, 5),
    Pairing.exact(),
]


pytestmark = pytest.mark.usefixtures("double")


# The rule, pair by pair


@pytest.mark.parametrize("pairing", PAIRINGS, ids=repr)
def test_pair_product_is_the_double_loop(pairing: Pairing) -> None:
    a, b = torch.randn(3, pairing.blocks, 2, 2), torch.randn(3, pairing.blocks, 2, 2)
    truth = torch.zeros(3, 2, 2)
    for i, j in itertools.product(range(pairing.blocks), repeat=2):
        truth += (pairing.diag if i == j else pairing.off) * a[:, i] * b[:, j]
    torch.testing.assert_close(pair_product(a, b, pairing), truth)


@pytest.mark.parametrize("pairing", PAIRINGS, ids=repr)
def test_the_weights_of_all_pairs_sum_to_one(pairing: Pairing) -> None:
    ones = torch.ones(1, pairing.blocks)
    torch.testing.assert_close(pair_product(ones, ones, pairing), torch.ones(1))


@pytest.mark.parametrize(("drawn", "size"), [(2, 3), (2, 6), (4, 6), (5, 6)])
def test_without_replacement_is_exact_on_average_over_all_subsets(drawn: int, size: int) -> None:
    """No statistics: every subset is equally likely, so the expectation is the mean over all of them."""
    a, b = torch.randn(size), torch.randn(size)
    pairing = Pairing.without_replacement(drawn, size)
    estimates = [
        pair_product(a[list(s)][None], b[list(s)][None], pairing) for s in itertools.combinations(range(size), drawn)
    ]
    torch.testing.assert_close(torch.cat(estimates).mean(), a.mean() * b.mean())


def test_all_pairs_is_the_estimator_of_the_paper() -> None:
    h = torch.randn(1, 5, 1)
    loop = sum(h[0, i, 0] * h[0, j, 0] for i in range(5) for j in range(5) if i != j) / 20
    moments = estimate(h, torch.zeros(1, 1), Pairing.groups(5))
    torch.testing.assert_close(moments.second[0, 0], loop)
    torch.testing.assert_close(moments.mean[0, 0], h.mean())


@pytest.mark.parametrize("bad", [lambda: Pairing.groups(1), lambda: Pairing.without_replacement(1, 5)])
def test_one_sample_cannot_estimate_a_square(bad: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="2"):
        bad()


# Unbiasedness of the whole: draws, kernel, means, moments


def make_model(
    orbit: Orbit | Permutation | GaussianNoise, inducing: torch.Tensor, shared: bool, latents: int = 2
) -> InvariantGP:
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    model = InvariantGP(kernel, orbit.double(), inducing, latents, "linear", shared, jitter=0.0)
    with torch.no_grad():
        model.q_mean.normal_().mul_(2.0)
        model.q_sqrt.copy_(torch.randn_like(model.q_sqrt).tril() * 0.7)
        model.prior_mean.weight.normal_()
        model.prior_mean.bias.normal_()
    return model


def rbf(a: Any, b: Any, width2: float, factor: float = 1.0) -> torch.Tensor:
    return VARIANCE * factor * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / width2)


def exact_moments(model: Any, kfu: float | torch.Tensor, kff: torch.Tensor, prior_mean: Any) -> Any:
    """E f and E f^2 from the orbit means of k_u, k_g and m_g, by dense algebra in u, without whitening."""
    z = model.inducing.detach()
    kuu = rbf(z, z, LENGTHSCALE**2)
    root = torch.linalg.cholesky(kuu)
    weights = torch.linalg.solve(kuu, kfu.mT)  # (M, N)
    mean = prior_mean + weights.mT @ (root @ model.q_mean.detach())
    variances = []
    for r in model.q_sqrt.detach().expand(mean.shape[1], -1, -1):
        s = root @ r @ r.mT @ root.mT
        variances.append(kff - (weights * kfu.mT).sum(0) + (weights * (s @ weights)).sum(0))
    variance = torch.stack(variances, 1)
    return Moments(mean, variance + mean.square())


def linear_mean(model: Any, x: torch.Tensor) -> Any:
    prior = model.prior_mean
    return ((x - prior.centre) / prior.unit) @ prior.weight.detach() + prior.bias.detach()


def noise_truth(model: Any, x: torch.Tensor) -> Any:
    """RBF under Gaussian noise is again an RBF, wider and lower."""
    dim, z, l2, s2 = x.shape[1], model.inducing.detach(), LENGTHSCALE**2, SCALE**2
    kfu = rbf(x, z, l2 + s2, (l2 / (l2 + s2)) ** (dim / 2))
    kff = torch.full((len(x),), VARIANCE * (l2 / (l2 + 2 * s2)) ** (dim / 2))
    return exact_moments(model, kfu, kff, linear_mean(model, x))


def finite_truth(model: Any, x: torch.Tensor) -> Any:
    """One pair of orbit elements at a time."""
    z = model.inducing.detach()
    orbits = [[row[list(p)] for p in PERMUTATIONS] for row in x]
    kfu = torch.cat([sum(rbf(e[None], z, LENGTHSCALE**2) for e in orbit) / len(orbit) for orbit in orbits])
    pairs = [[rbf(a[None], b[None], LENGTHSCALE**2) for a in orbit for b in orbit] for orbit in orbits]
    kff = torch.stack([sum(p).squeeze() / len(p) for p in pairs])
    mean = torch.stack([sum(linear_mean(model, e[None])[0] for e in orbit) / len(orbit) for orbit in orbits])
    return exact_moments(model, kfu, kff, mean)


PERMUTATIONS = list(itertools.permutations(range(3)))  # six elements
# name: (finite, num_samples, num_groups, draws)
ESTIMATORS = {
    "all pairs": (False, 4, 4, "iid"),
    "grouped iid": (False, 6, 2, "iid"),
    "three groups iid": (False, 6, 3, "iid"),
    "grouped qmc": (False, 8, 2, "qmc"),
    "three groups qmc": (False, 9, 3, "qmc"),
    "2 of 6": (True, 2, 2, "iid"),
    "4 of 6": (True, 4, 2, "iid"),
}


def setting(finite: bool, shared: bool) -> tuple[Any, torch.Tensor, Any]:
    if finite:
        x = torch.tensor([[0.3, -0.8, 1.2], [1.0, 0.9, -0.4]])
        model = make_model(Permutation(PERMUTATIONS), torch.randn(4, 3), shared)
        return model, x, finite_truth(model, x)
    x = torch.tensor([[0.2], [-1.1]])
    model = make_model(GaussianNoise(SCALE), torch.tensor([[-1.5], [-0.4], [0.6], [1.7]]), shared)
    return model, x, noise_truth(model, x)


def unbiased(estimates: Any, truth: Any) -> bool:
    """Whether the mean over independent repeats (R, …) lies within four standard errors of the truth, everywhere."""
    error = estimates.mean(0) - truth
    return bool((error.abs() < 4 * estimates.std(0) / len(estimates) ** 0.5).all())


def repeated(x: Any, name: str, model: Any) -> Any:
    """Independent samples of each datum, many times over."""
    _, num_samples, num_groups, draws = ESTIMATORS[name]
    many = x.repeat(REPEATS, 1)
    return model.orbit.sample(many, num_samples, num_groups, draws, torch.Generator().manual_seed(1))


def by_repeat(t: Any, rows: int) -> Any:
    return t.reshape(REPEATS, rows, *t.shape[1:])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", ESTIMATORS)
@torch.no_grad()
def test_unbiased_and_the_naive_estimator_is_not(name: str, shared: bool) -> None:
    model, x, truth = setting(ESTIMATORS[name][0], shared)
    samples = repeated(x, name, model)
    moments = model.moments(model.whitened_means(samples))
    mean, second = (by_repeat(m, len(x)) for m in moments)
    assert unbiased(mean, truth.mean)
    assert unbiased(second, truth.second)
    # Squaring the averaged mean: each sample is paired with itself, as often as with any other.
    naive = Samples(samples.points.flatten(1, 2)[:, None], Pairing.exact())
    squared = model.moments(model.whitened_means(naive))
    assert unbiased(by_repeat(squared.mean, len(x)), truth.mean)
    assert not unbiased(by_repeat(squared.second, len(x)), truth.second)


@pytest.mark.parametrize("name", ["all pairs", "grouped iid", "grouped qmc", "2 of 6"])
@torch.no_grad()
def test_clamping_at_zero_is_biased(name: str) -> None:
    model, x, truth = setting(ESTIMATORS[name][0], True)
    # A posterior that swings between samples and is about zero on average: there estimates of E f^2 are often negative.
    model.q_mean.copy_(torch.tensor([[1.0, -1.0], [-2.0, 2.0], [2.0, -2.0], [-2.0, 2.0]]))
    model.prior_mean.weight.zero_()
    model.prior_mean.bias.zero_()
    truth = (finite_truth if ESTIMATORS[name][0] else noise_truth)(model, x)
    second = by_repeat(model.moments(model.whitened_means(repeated(x, name, model))).second, len(x))
    assert (second < 0).double().mean() > 0.02
    assert unbiased(second, truth.second)
    assert not unbiased(second.clamp_min(0.0), truth.second)


@torch.no_grad()
def test_draws_shared_by_the_groups_are_biased() -> None:
    """Groups must be independent: the same low-discrepancy set in both of them is one group."""
    model, x, truth = setting(False, True)
    samples = repeated(x, "grouped qmc", model)
    twice = samples.points[:, :1].expand(-1, 2, -1, -1).contiguous()
    second = model.moments(model.whitened_means(Samples(twice, samples.pairing))).second
    assert not unbiased(by_repeat(second, len(x)), truth.second)


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_enumeration_has_no_error_at_all(shared: bool) -> None:
    model, x, truth = setting(True, shared)
    moments = model.moments(model.whitened_means(model.orbit.sample(x, None)))
    torch.testing.assert_close(tuple(moments), tuple(truth), rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_finite_times_infinite_is_unbiased() -> None:
    """swap * noise: the finite part is enumerated inside each group."""
    orbit = Permutation.swap(0, 1) * GaussianNoise(SCALE)
    model = make_model(orbit, torch.randn(4, 2), True)
    x = torch.tensor([[0.3, -0.8], [1.0, 0.4]])
    z, l2, s2 = model.inducing.detach(), LENGTHSCALE**2, SCALE**2
    both = (x, x.flip(1))
    kfu = sum(rbf(p, z, l2 + s2, l2 / (l2 + s2)) for p in both) / 2
    # Independent noise on both sides of a pair, whichever elements they are.
    kff = sum(rbf(p, q, l2 + 2 * s2, l2 / (l2 + 2 * s2)).diagonal() for p in both for q in both) / 4
    truth = exact_moments(model, kfu, kff, sum(linear_mean(model, p) for p in both) / 2)
    samples = orbit.sample(x.repeat(REPEATS, 1), 4, 2, "qmc", torch.Generator().manual_seed(2))
    assert samples.points.shape[1:3] == (2, 4)
    moments = model.moments(model.whitened_means(samples))
    assert unbiased(by_repeat(moments.mean, 2), truth.mean)
    assert unbiased(by_repeat(moments.second, 2), truth.second)


@torch.no_grad()
def test_groups_of_qmc_have_less_variance_than_iid() -> None:
    model, x, _ = setting(False, True)
    variances = {}
    for draws in ("iid", "qmc"):
        samples = model.orbit.sample(x[:1].repeat(2000, 1), 16, 2, draws, torch.Generator().manual_seed(3))
        variances[draws] = model.moments(model.whitened_means(samples)).second.var(0)
    assert (variances["qmc"] < 0.5 * variances["iid"]).all()
