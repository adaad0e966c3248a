"""q(u) in closed form: its statistics are unbiased, its guard holds, its fixed point is the optimum."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import (
    Statistics,
    _paired_outer,
    _paired_outers,
    set_posterior,
    statistics,
)
from orbitgp.likelihoods import Gaussian, Quadratic
from orbitgp.orbits import GaussianNoise, Identity, Pairing, Permutation

LENGTHSCALE, VARIANCE, SCALE = 0.8, 1.3, 0.7


pytestmark = pytest.mark.usefixtures("double")


def make_model(
    orbit: Identity | Permutation | GaussianNoise,
    inducing: torch.Tensor,
    latents: int,
    shared: bool,
    mean: str = "linear",
) -> InvariantGP:
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    model = InvariantGP(kernel, orbit.double(), inducing, latents, mean, shared, jitter=1e-8)
    with torch.no_grad():
        model.q_mean.normal_()
        if mean == "linear":
            model.prior_mean.weight.normal_()
            model.prior_mean.bias.normal_()
    return model


def rbf(a: Any, b: Any, width2: float = LENGTHSCALE**2, factor: float = 1.0) -> torch.Tensor:
    return VARIANCE * factor * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / width2)


def dense_statistics(model: Any, a: Any, p: float, quadratic: Any, latents: int) -> tuple[torch.Tensor, torch.Tensor]:
    """sum_n lam_n a_n a_n^T (L, M, M) and the linear term (M, L), written out datum by datum; a, p are orbit means."""
    size = a.shape[1]
    second, linear = torch.zeros(latents, size, size), torch.zeros(size, latents)
    for n, k in itertools.product(range(len(a)), range(latents)):
        lam = quadratic.lam[n]
        full = lam if lam.ndim == 2 else torch.diag(lam)
        second[k] += full[k, k] * torch.outer(a[n], a[n])
        mean = p[n] + a[n] @ model.q_mean.detach()
        # What the bound's slope in f_k is at f_k = 0, with the others at their means, less the part of the prior mean.
        others = sum(full[k, j] * mean[j] for j in range(latents) if j != k)
        linear[:, k] += (quadratic.eta[n, k] - full[k, k] * p[n, k] - others) * a[n]
    return second, linear


def whiten(model: Any, kfu: torch.Tensor) -> torch.Tensor:
    z = model.inducing.detach()
    root = torch.linalg.cholesky(rbf(z, z) + model.jitter * torch.eye(len(z)))
    return torch.linalg.solve_triangular(root, kfu.mT, upper=False).mT


def linear_mean(model: Any, x: torch.Tensor) -> Any:
    prior = model.prior_mean
    return ((x - prior.centre) / prior.unit) @ prior.weight.detach() + prior.bias.detach()


def setting(finite: bool, shared: bool) -> Any:
    latents = 2
    if finite:
        permutations = list(itertools.permutations(range(3)))
        x = torch.randn(3, 3)
        model = make_model(Permutation(permutations), torch.randn(4, 3), latents, shared)
        elements = [x[:, list(p)] for p in permutations]
        a = whiten(model, torch.stack([rbf(e, model.inducing.detach()) for e in elements]).mean(0))
        p = sum(linear_mean(model, e) for e in elements) / 6
    else:
        x = torch.randn(3, 1)
        model = make_model(GaussianNoise(SCALE), torch.tensor([[-1.5], [-0.4], [0.6], [1.7]]), latents, shared)
        l2, s2 = LENGTHSCALE**2, SCALE**2
        a = whiten(model, rbf(x, model.inducing.detach(), l2 + s2, (l2 / (l2 + s2)) ** 0.5))
        p = linear_mean(model, x)
    lam = 2 * torch.rand(3, 1).expand(3, latents) if shared else 2 * torch.rand(3, latents)
    quadratic = Quadratic(torch.zeros(3), torch.randn(3, latents), lam)
    return model, x, quadratic, dense_statistics(model, a, p, quadratic, latents)


def unbiased(estimates: torch.Tensor, truth: Any) -> bool:
    error = estimates.mean(0) - truth
    return bool((error.abs() < 4 * estimates.std(0) / len(estimates) ** 0.5).all())


SAMPLING = {
    "all pairs": (False, 4, 4, "iid"),
    "grouped iid": (False, 6, 2, "iid"),
    "three groups": (False, 6, 3, "iid"),
    "grouped qmc": (False, 8, 2, "qmc"),
    "2 of 6": (True, 2, 2, "iid"),
    "4 of 6": (True, 4, 2, "iid"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared", "separate"])
@pytest.mark.parametrize("name", SAMPLING)
@torch.no_grad()
def test_statistics_are_unbiased_and_the_positive_ones_are_not(name: str, kind: str) -> None:
    finite, num_samples, num_groups, draws = SAMPLING[name]
    model, x, quadratic, (second, linear) = setting(finite, kind == "shared")
    generator = torch.Generator().manual_seed(0)
    repeats, copies = 30, 60
    many = Quadratic(*(t.repeat(copies, *[1] * (t.ndim - 1)) for t in quadratic))
    found = []
    for _ in range(repeats):
        samples = model.orbit.sample(x.repeat(copies, 1), num_samples, num_groups, draws, generator)
        found.append(statistics(model, model.whitened_means(samples), many, num_data=3))
    second = second[: len(found[0].unbiased)]
    assert unbiased(torch.stack([f.unbiased for f in found]), second)
    assert unbiased(torch.stack([f.linear for f in found]), linear)
    assert not unbiased(torch.stack([f.positive for f in found]), second)
    for f in found:
        torch.testing.assert_close(f.unbiased, f.unbiased.mT)
        assert torch.linalg.eigvalsh(f.positive).min() > -1e-10


@pytest.mark.parametrize("kind", ["shared", "separate"])
@torch.no_grad()
def test_enumerated_orbits_have_exact_statistics(kind: str) -> None:
    model, x, quadratic, (second, linear) = setting(True, kind == "shared")
    stats = statistics(model, model.whitened_means(model.orbit.sample(x, None)), quadratic, num_data=6)
    torch.testing.assert_close(stats.unbiased, 2 * second[: len(stats.unbiased)])  # 6 data, of which 3 are seen
    torch.testing.assert_close(stats.linear, 2 * linear)
    assert torch.equal(stats.unbiased, stats.positive)
    assert set_posterior(model, stats) == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@torch.no_grad()
def test_targets_may_be_single(dtype: torch.dtype) -> None:
    model = make_model(Identity(), torch.randn(4, 2), 2, True)
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    means = model.whitened_means(model.orbit.sample(x, None))
    stats = statistics(model, means, Gaussian(2).quadratic(y.to(dtype)), 5)
    truth = statistics(model, means, Gaussian(2).quadratic(y), 5)
    assert all(term.dtype == torch.float64 for term in stats)
    torch.testing.assert_close(tuple(stats), tuple(truth), rtol=1e-5, atol=1e-5)


# From statistics to q(u)


@pytest.mark.parametrize("pairing", [Pairing.groups(2), Pairing.groups(3), Pairing.exact()], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_weights_that_mostly_agree_take_a_short_cut(pairing: Pairing, share: float) -> None:
    a = torch.randn(40, pairing.blocks, 4)
    weights = torch.tensor([0.5, 2.0, 3.0]).repeat(40, 1)
    weights = torch.where(torch.rand_like(weights) < share, torch.rand_like(weights), weights)
    plain = torch.stack([_paired_outer(a, w, pairing) for w in weights.unbind(1)])
    torch.testing.assert_close(_paired_outers(a, weights, pairing), plain)


def random_statistics(size: int = 5, latents: int = 2, covariances: int = 2) -> Any:
    roots = torch.randn(covariances, size, size)
    second = roots @ roots.mT
    return Statistics(second, second, torch.randn(size, latents))


@pytest.mark.parametrize("shared", [True, False])
def test_posterior_is_that_of_its_natural_parameters(shared: bool) -> None:
    model = make_model(Identity(), torch.randn(5, 2), 2, shared)
    stats = random_statistics(covariances=1 if shared else 2)
    assert set_posterior(model, stats) == 0.0
    roots = model.q_sqrt.detach()
    torch.testing.assert_close(torch.linalg.inv(roots @ roots.mT), torch.eye(5) + stats.unbiased)
    assert torch.equal(roots, roots.tril())
    assert (roots.diagonal(dim1=1, dim2=2) > 0).all()
    for k in range(2):
        precision = torch.eye(5) + stats.unbiased[0 if shared else k]
        torch.testing.assert_close(precision @ model.q_mean[:, k].detach(), stats.linear[:, k])


def natural_parameters(model: Any) -> tuple[Any, torch.Tensor]:
    precision = torch.linalg.inv((model.q_sqrt @ model.q_sqrt.mT).detach())
    return precision, torch.einsum("lmk,kl->lm", precision, model.q_mean.detach())


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_a_damped_step_mixes_natural_parameters(rho: float) -> None:
    model = make_model(Identity(), torch.randn(5, 2), 2, False)
    old, new = random_statistics(), random_statistics()
    both = []
    for stats in (old, new):
        set_posterior(model, stats)
        both.append(natural_parameters(model))
    set_posterior(model, old.mix(new, rho))
    for found, before, after in zip(natural_parameters(model), *both, strict=True):
        torch.testing.assert_close(found, (1 - rho) * before + rho * after)


@pytest.mark.parametrize("worst", [-0.49, -0.51, -0.6, -3.0, -1e6])
def test_the_guard_keeps_the_precision_above_a_half_with_as_little_blend_as_it_takes(worst: float) -> None:
    model = make_model(Identity(), torch.randn(5, 2), 1, True)
    basis = torch.linalg.qr(torch.randn(5, 5)).Q
    estimate = basis @ torch.diag(torch.tensor([worst, 1.0, 2.0, 3.0, 4.0])) @ basis.mT
    positive = basis @ torch.diag(torch.tensor([0.5, 1.5, 2.5, 3.5, 4.5])) @ basis.mT
    blend = set_posterior(model, Statistics(estimate[None], positive[None], torch.randn(5, 1)))
    needed = [b for b in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0) if (1 - b) * worst + b * 0.5 > -0.5]
    assert blend == needed[0]
    assert (blend > 0) == (worst < -0.5)
    precision, _ = natural_parameters(model)
    assert torch.linalg.eigvalsh(precision).min() > 0.5 - 1e-9
    assert torch.isfinite(model.q_mean).all()
    assert torch.isfinite(model.kl())


def test_one_bad_output_is_enough_for_the_guard() -> None:
    model = make_model(Identity(), torch.randn(5, 2), 2, False)
    good, bad = torch.eye(5), -torch.eye(5)
    stats = Statistics(torch.stack([good, bad]), torch.stack([good, good]), torch.randn(5, 2))
    assert set_posterior(model, stats) == 0.4  # -1 + 0.4 * 2 = -0.2
    assert torch.linalg.eigvalsh(natural_parameters(model)[0]).min() > 0.5


@torch.no_grad()
def test_the_guard_on_real_estimates_with_too_few_samples() -> None:
    """Two samples of a wide orbit and little noise: the unbiased estimate is far from positive."""
    model = make_model(GaussianNoise(1.5), torch.linspace(-3, 3, 8)[:, None], 1, True, mean="zero")
    x = torch.randn(20, 1)
    y = torch.sin(x)
    likelihood = Gaussian(1, noise=1e-3)
    samples = model.orbit.sample(x, 2, 2, "iid", torch.Generator().manual_seed(0))
    stats = statistics(model, model.whitened_means(samples), likelihood.quadratic(y), 20)
    assert torch.linalg.eigvalsh(stats.unbiased).min() < -1
    assert set_posterior(model, stats) > 0
    assert torch.linalg.eigvalsh(natural_parameters(model)[0]).min() > 0.5 - 1e-6
    fresh = model.orbit.sample(x, 64, 2, "qmc", torch.Generator().manual_seed(1))
    assert torch.isfinite(elbo(model, likelihood, fresh, y, 20))
