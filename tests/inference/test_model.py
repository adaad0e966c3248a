"""The model: its orbit means against closed forms and loops, its predictions against dense algebra, what it promises
users."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import IdentityMCObjective
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch.distributions import kl_divergence

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.prior import PriorMean, draw_normal
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Permutation, Rotation

LENGTHSCALE, VARIANCE = 0.8, 1.3
CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


pytestmark = pytest.mark.usefixtures("double")


def rbf_kernel(**kwargs: Any) -> Any:
    kernel = ScaleKernel(RBFKernel(**kwargs))
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    return kernel


def make_model(
    orbit: Orbit,
    inducing: torch.Tensor,
    latents: int = 2,
    mean: str = "linear",
    shared: bool = False,
    jitter: float = 1e-8,
    kernel: Callable[..., Any] | None = None,
) -> InvariantGP:
    """A model with a q(u) that is nothing special."""
    model = InvariantGP(kernel or rbf_kernel(), orbit.double(), inducing, latents, mean, shared, jitter)
    with torch.no_grad():
        model.q_mean.normal_()
        model.q_sqrt.copy_(torch.randn_like(model.q_sqrt).tril() * 0.5 + 0.3 * torch.eye(len(inducing)))
        if mean != "zero":
            model.prior_mean.bias.normal_()
        if mean == "linear":
            model.prior_mean.weight.normal_()
    return model


def rbf(a: Any, b: Any, width2: float = LENGTHSCALE**2, factor: float = 1.0) -> torch.Tensor:
    """The oracle's kernel, written out, between rows; ``width2`` may differ between features."""
    return VARIANCE * factor * torch.exp(-0.5 * ((a[:, None] - b).square() / width2).sum(-1))


def dense_posterior(model: Any, kfu: torch.Tensor, kff: Any, prior_mean: Any) -> tuple[Any, Any]:
    """Mean (N, L) and covariance (L, N, N) of f from its prior covariances with u and with itself, in u, not in v."""
    z = model.inducing.detach().flatten(1)
    kuu = rbf(z, z) + model.jitter * torch.eye(len(z))
    root = torch.linalg.cholesky(kuu)
    weights = torch.linalg.solve(kuu, kfu.mT).mT
    mean = prior_mean + weights @ root @ model.q_mean.detach()
    s = root @ (model.q_sqrt @ model.q_sqrt.mT).detach() @ root.mT
    covariance = kff - weights @ kfu.mT + weights @ s @ weights.mT
    return mean, covariance.expand(model.num_latents, -1, -1)


def linear_mean(model: Any, x: torch.Tensor) -> Any:
    prior = model.prior_mean
    return ((x - prior.centre) / prior.unit) @ prior.weight.detach() + prior.bias.detach()


def finite_posterior(model: Any, x: torch.Tensor, permutations: list[list[int]]) -> Any:
    """The same for a set of permutations, one pair of orbit elements at a time."""
    z = model.inducing.detach()
    elements = [x[:, p] for p in permutations]
    kfu = sum(rbf(e, z) for e in elements) / len(elements)
    kff = sum(rbf(a, b) for a in elements for b in elements) / len(elements) ** 2
    return dense_posterior(model, kfu, kff, sum(linear_mean(model, e) for e in elements) / len(elements))


# Orbit means


@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize(("draws", "groups"), [("iid", 8), ("qmc", 2)])
@torch.no_grad()
def test_kfu_and_kff_under_gaussian_noise_have_their_closed_form(per_feature: bool, draws: str, groups: int) -> None:
    orbit = GaussianNoise(0.6, num_features=2 if per_feature else None)
    if per_feature:
        orbit.scale.copy_(torch.tensor([0.3, 1.1]))
    model = make_model(orbit, torch.randn(4, 2))
    s2, l2 = orbit.scale.detach().expand(2) ** 2, LENGTHSCALE**2
    x = torch.tensor([[0.4, -0.7], [1.5, 0.2]])
    kfu = rbf(x, model.inducing, l2 + s2, (l2 / (l2 + s2)).sqrt().prod())
    kff = VARIANCE * (l2 / (l2 + 2 * s2)).sqrt().prod()
    repeats = 4000
    samples = orbit.sample(x.repeat(repeats, 1), 8, groups, draws, torch.Generator().manual_seed(0))
    means = model.whitened_means(samples)
    found = (means.a.mean(1) @ model.factor().mT).reshape(repeats, 2, -1)
    assert ((found.mean(0) - kfu).abs() < 4 * found.std(0) / repeats**0.5).all()
    found = means.kff.reshape(repeats, 2)
    assert ((found.mean(0) - kff).abs() < 4 * found.std(0) / repeats**0.5).all()


@torch.no_grad()
def test_prediction_under_gaussian_noise_approaches_its_closed_form() -> None:
    """With many draws the finite orbit of a prediction is as good as the infinite one."""
    model = make_model(GaussianNoise(0.6), torch.linspace(-2, 2, 6)[:, None])
    x = torch.tensor([[-0.9], [0.1], [1.3]])
    l2, s2 = LENGTHSCALE**2, 0.36
    kfu = rbf(x, model.inducing, l2 + s2, math.sqrt(l2 / (l2 + s2)))
    kff = rbf(x, x, l2 + 2 * s2, math.sqrt(l2 / (l2 + 2 * s2)))
    mean, covariance = dense_posterior(model, kfu, kff, linear_mean(model, x))
    for found, truth in zip(model.joint(x, 512), (mean, covariance), strict=True):
        torch.testing.assert_close(found, truth, rtol=0, atol=2e-3)
    for found, truth in zip(model.predict(x, 512), (mean, covariance.diagonal(dim1=1, dim2=2).mT), strict=True):
        torch.testing.assert_close(found, truth, rtol=0, atol=2e-3)


@pytest.mark.parametrize("permutations", [CYCLE, [[0, 1, 2], [1, 0, 2]], [[2, 1, 0]]])
@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_finite_orbits_equal_loops(permutations: list[list[int]], shared: bool) -> None:
    model = make_model(Permutation(permutations), torch.randn(5, 3), shared=shared)
    x = torch.randn(6, 3)
    mean, covariance = finite_posterior(model, x, permutations)
    torch.testing.assert_close(model.joint(x)[0], mean)
    torch.testing.assert_close(model.joint(x)[1].expand(2, -1, -1), covariance, rtol=1e-8, atol=1e-9)
    found = model.predict(x)
    torch.testing.assert_close(found[0], mean)
    torch.testing.assert_close(found[1], covariance.diagonal(dim1=1, dim2=2).mT, rtol=1e-8, atol=1e-9)
    moments = model.moments(model.whitened_means(model.orbit.sample(x, None)))
    torch.testing.assert_close(moments.mean, mean)
    torch.testing.assert_close(moments.second - mean.square(), found[1], rtol=1e-8, atol=1e-9)


@torch.no_grad()
def test_factor_is_the_cholesky_factor_of_kuu_with_jitter() -> None:
    model = make_model(Identity(), torch.randn(5, 2), jitter=1e-3)
    root = model.factor()
    torch.testing.assert_close(root @ root.mT, rbf(model.inducing, model.inducing) + 1e-3 * torch.eye(5))
    assert torch.equal(root, root.tril())


# The mean function


@torch.no_grad()
def test_a_linear_mean_is_averaged_over_the_orbit() -> None:
    model = make_model(Permutation.swap(0, 1), torch.randn(3, 2))
    model.q_mean.zero_()
    x = torch.randn(4, 2)
    both = 0.5 * (linear_mean(model, x) + linear_mean(model, x.flip(1)))
    torch.testing.assert_close(model.predict(x)[0], both)
    torch.testing.assert_close(model.predict(x.flip(1))[0], both)
    samples = model.orbit.sample(x, None)
    torch.testing.assert_close(model.moments(model.whitened_means(samples)).mean, both)


@torch.no_grad()
def test_mean_functions_and_their_units() -> None:
    x = torch.randn(3, 1, 1, 2) * 50 + 1000
    inducing = torch.randn(20, 2) * 50 + 1000
    zero, constant, linear = (PriorMean(name, inducing, 2) for name in ("zero", "constant", "linear"))
    assert not zero.bias.requires_grad
    assert constant.bias.requires_grad
    constant.bias.copy_(torch.tensor([1.0, -2.0]))
    assert torch.equal(constant(x), torch.tensor([1.0, -2.0]).expand(3, 1, 2))
    linear.weight.fill_(1.0)
    assert linear(x).abs().max() < 10  # in units of the inputs, not 1000
    difference = linear(x[:1]) - linear(x[1:2])
    torch.testing.assert_close(difference[0, 0], ((x[0] - x[1]).sum() / linear.unit).expand(2))
    assert torch.isfinite(PriorMean("linear", inducing[:1], 1)(x)).all()  # one inducing point has no spread


def test_the_zero_mean_stays_zero() -> None:
    model = InvariantGP(rbf_kernel(), Identity(), torch.randn(3, 2), mean="zero")
    model.predict(torch.randn(2, 2))
    assert not model.prior_mean.bias.requires_grad
    assert torch.equal(model.predict(torch.randn(2, 2))[0], torch.zeros(2, 1))


# q(u)


@pytest.mark.parametrize("shared", [True, False])
def test_kl_is_that_of_torch(shared: bool) -> None:
    model = make_model(Identity(), torch.randn(5, 2), latents=3, shared=shared)
    roots = model.q_sqrt.expand(3, -1, -1)
    prior = torch.distributions.MultivariateNormal(torch.zeros(5), torch.eye(5))
    truth = sum(
        kl_divergence(torch.distributions.MultivariateNormal(m, r @ r.mT), prior)
        for m, r in zip(model.q_mean.mT, roots, strict=True)
    )
    torch.testing.assert_close(model.kl(), truth)
    torch.testing.assert_close(torch.autograd.grad(model.kl(), model.q_mean), torch.autograd.grad(truth, model.q_mean))
    flipped = model.kl().item()
    with torch.no_grad():
        model.q_sqrt.neg_()  # the sign of the root does not matter
    assert model.kl().item() == pytest.approx(flipped)


def test_kl_of_the_prior_is_zero() -> None:
    assert InvariantGP(rbf_kernel(), Identity(), torch.randn(4, 2), 3).kl().item() == 0.0


@pytest.mark.parametrize("orbit", [Permutation(CYCLE), GaussianNoise(0.5)])
@torch.no_grad()
def test_shared_and_separate_covariances_agree_where_they_are_equal(orbit: Orbit) -> None:
    shared = make_model(orbit, torch.randn(5, 3), latents=3, shared=True)
    separate = InvariantGP(shared.kernel, orbit, shared.inducing, 3, "linear", False, shared.jitter)
    state = {**shared.state_dict(), "q_sqrt": shared.q_sqrt.repeat(3, 1, 1)}
    separate.load_state_dict(state)
    x = torch.randn(4, 3)
    samples = orbit.sample(x, 4, 2, "iid")
    torch.testing.assert_close(*(tuple(model.moments(model.whitened_means(samples))) for model in (shared, separate)))
    torch.testing.assert_close(shared.kl(), separate.kl())
    torch.testing.assert_close(shared.predict(x), separate.predict(x))
    assert shared.joint(x)[1].shape == (1, 4, 4)
    torch.testing.assert_close(shared.joint(x)[1].expand(3, -1, -1), separate.joint(x)[1])


# Prediction


ORBITS = {
    "identity": Identity,
    "cycle": lambda: Permutation(CYCLE),
    "noise": lambda: GaussianNoise(0.7),
    "cycle and noise": lambda: Permutation(CYCLE) * GaussianNoise(0.4),
}


@pytest.mark.parametrize("name", ORBITS)
@torch.no_grad()
def test_a_row_does_not_depend_on_its_company(name: str) -> None:
    model = make_model(ORBITS[name](), torch.randn(5, 3))
    x = torch.randn(7, 3)
    mean, variance = model.predict(x, 16)
    for i in range(7):
        torch.testing.assert_close(
            model.predict(x[i : i + 1], 16), (mean[i : i + 1], variance[i : i + 1]), rtol=0, atol=1e-12
        )
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    torch.testing.assert_close(model.predict(x[order], 16), (mean[order], variance[order]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ORBITS)
@torch.no_grad()
def test_streaming_rows_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(ORBITS[name](), torch.randn(5, 3))
    x = torch.randn(11, 3)
    whole = model.predict(x, 8)
    for elements in (1, 100, 500):
        monkeypatch.setattr("orbitgp.inference.model.chunk_elements", lambda device, elements=elements: elements)
        torch.testing.assert_close(model.predict(x, 8), whole, rtol=0, atol=1e-12)


@torch.no_grad()
def test_streaming_keeps_intermediates_small(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(GaussianNoise(0.3), torch.randn(5, 3))
    sizes = []
    whitened = model.whitened_means
    monkeypatch.setattr(model, "whitened_means", lambda s, f: sizes.append(s.points.numel() // 3 * 5) or whitened(s, f))
    monkeypatch.setattr("orbitgp.inference.model.chunk_elements", lambda device: 200)
    model.predict(torch.randn(50, 3), 4)
    assert max(sizes) <= 200
    assert len(sizes) == 5


@torch.no_grad()
def test_the_draws_of_a_prediction_are_fixed_by_the_seed() -> None:
    model = make_model(GaussianNoise(0.7), torch.randn(5, 3))
    x = torch.randn(4, 3)
    first = model.predict(x, 8, seed=1)
    torch.randn(10)
    assert all(torch.equal(a, b) for a, b in zip(first, model.predict(x, 8, seed=1), strict=True))
    assert not torch.equal(first[0], model.predict(x, 8, seed=2)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ORBITS)
@torch.no_grad()
def test_variances_are_never_negative_and_clamping_is_only_for_rounding(name: str, dtype: torch.dtype) -> None:
    """A q(u) that is nearly certain, data on the inducing points, few draws: as little variance as there can be."""
    z = torch.randn(8, 3, dtype=dtype)
    model = InvariantGP(rbf_kernel(), ORBITS[name]().to(dtype), z, 2, shared_covariance=False, jitter=1e-10)
    model.q_sqrt.copy_(1e-6 * torch.eye(8))
    x = torch.cat([z, 0.1 * torch.randn(20, 3, dtype=dtype)])
    for seed in range(5):
        _, variance = model.predict(x, 4, seed=seed)
        assert (variance >= 0).all()
        joint = model.joint(x, 4, seed=seed)[1].diagonal(dim1=1, dim2=2)
        assert joint.min() > -(1e-8 if dtype == torch.float64 else 1e-5)
        assert (variance > 1e-3).any()  # not clamped away


@pytest.mark.parametrize("name", ORBITS)
@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_the_diagonal_of_the_joint_is_the_variance(name: str, shared: bool) -> None:
    model = make_model(ORBITS[name](), torch.randn(5, 3), shared=shared)
    x = torch.randn(20, 3)
    mean, covariance = model.joint(x, 16)
    predicted = model.predict(x, 16)
    torch.testing.assert_close(mean, predicted[0])
    diagonal = covariance.diagonal(dim1=1, dim2=2).mT.expand(-1, 2)
    torch.testing.assert_close(diagonal, predicted[1], rtol=1e-9, atol=1e-10)
    assert torch.equal(covariance, covariance.mT)
    assert torch.linalg.eigvalsh(covariance).min() > -1e-9


@torch.no_grad()
def test_predictions_of_a_group_are_invariant() -> None:
    model = make_model(Permutation(CYCLE), torch.randn(5, 3))
    x = torch.randn(4, 3)
    torch.testing.assert_close(model.predict(x[:, [1, 2, 0]]), model.predict(x))
    lopsided = make_model(Permutation([[0, 1, 2], [1, 0, 2]]), torch.randn(5, 3))
    assert (lopsided.predict(x[:, [1, 2, 0]])[0] - lopsided.predict(x)[0]).abs().max() > 0.01


@torch.no_grad()
def test_fewer_draws_than_elements_are_a_smaller_orbit() -> None:
    permutations = list(itertools.permutations(range(3)))
    model = make_model(Permutation(permutations), torch.randn(5, 3))
    x = torch.randn(4, 3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(3))[:2].tolist()
    mean, covariance = finite_posterior(model, x, [list(permutations[i]) for i in order])
    found = model.predict(x, 2, seed=3)
    torch.testing.assert_close(found[0], mean)
    torch.testing.assert_close(found[1], covariance.diagonal(dim1=1, dim2=2).mT, rtol=1e-8, atol=1e-9)


def test_an_infinite_orbit_says_that_it_needs_draws() -> None:
    model = make_model(GaussianNoise(0.3), torch.randn(5, 3))
    for call in (model.predict, model.joint):
        with pytest.raises(ValueError, match="infinite orbit needs a positive number of samples"):
            call(torch.randn(2, 3), None)


# Function samples and BoTorch


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_function_samples_have_the_moments_of_the_joint(shared: bool) -> None:
    model = make_model(GaussianNoise(0.5), torch.randn(5, 2), shared=shared)
    x = torch.randn(3, 2)
    mean, covariance = model.joint(x)
    count = 40_000
    draws = draw_normal(*model.joint(x), count, torch.Generator().manual_seed(0))
    assert draws.shape == (count, 3, 2)
    error = (draws.mean(0) - mean).abs()
    assert (error < 4 * draws.std(0) / count**0.5).all()
    centred = draws - mean
    products = centred[:, :, None, :] * centred[:, None, :, :]
    assert ((products.mean(0) - covariance.permute(1, 2, 0)).abs() < 4 * products.std(0) / count**0.5).all()
    # Latent functions are independent of each other given q(u).
    between = centred[:, :, 0] * centred[:, :, 1]
    assert (between.mean(0).abs() < 4 * between.std(0) / count**0.5).all()


@torch.no_grad()
def test_function_samples_are_invariant_functions_and_reproducible() -> None:
    model = make_model(Permutation(CYCLE), torch.randn(5, 3))
    x = torch.randn(2, 3)
    both = torch.cat([x, x[:, [1, 2, 0]]])  # a singular covariance
    draws = draw_normal(*model.joint(both), 10, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws[:, :2], draws[:, 2:], rtol=0, atol=1e-6)
    assert draws.std(0).min() > 0.01
    assert torch.equal(draws, draw_normal(*model.joint(both), 10, torch.Generator().manual_seed(0)))


def test_a_botorch_posterior_of_one_output() -> None:
    model = make_model(GaussianNoise(0.3), torch.randn(6, 2), latents=1)
    x = torch.randn(4, 2)
    mean, covariance = model.joint(x)
    posterior = GPyTorchPosterior(MultivariateNormal(mean[:, 0], covariance[0]))
    predicted = model.predict(x)
    torch.testing.assert_close(posterior.mean, predicted[0])
    torch.testing.assert_close(posterior.variance, predicted[1], rtol=1e-6, atol=1e-6)
    samples = posterior.rsample(torch.Size([4000]))
    assert samples.shape == (4000, 4, 1)
    assert ((samples.mean(0) - mean).abs() < 5 * samples.std(0) / 4000**0.5).all()
    assert IdentityMCObjective()(samples).shape == (4000, 4)


@pytest.mark.parametrize("shared", [True, False])
def test_a_botorch_posterior_of_several_outputs(shared: bool) -> None:
    model = make_model(Permutation(CYCLE), torch.randn(6, 3), latents=2, shared=shared)
    x = torch.randn(4, 3)
    mean, covariance = model.joint(x)
    parts = [MultivariateNormal(m, c) for m, c in zip(mean.mT, covariance.expand(2, -1, -1), strict=True)]
    posterior = GPyTorchPosterior(MultitaskMultivariateNormal.from_independent_mvns(parts))
    torch.testing.assert_close(posterior.mean, mean)
    torch.testing.assert_close(posterior.variance, model.predict(x)[1], rtol=1e-6, atol=1e-6)
    assert posterior.rsample(torch.Size([3])).shape == (3, 4, 2)


# Shapes, precision, being a module


@pytest.mark.parametrize("orbit", [Flip, lambda: Rotation(init_degrees=30.0)])
@pytest.mark.parametrize("features", [(5, 4), (2, 5, 4)])
def test_images_keep_their_shape(orbit: Callable[..., Any] | type[Flip], features: tuple[int, ...]) -> None:
    orbit = orbit()
    z = torch.rand(3, *features, dtype=torch.float32)
    model = InvariantGP(rbf_kernel(), orbit.float(), z, num_latents=2)
    x = torch.rand(4, *features, dtype=torch.float32)
    mean, variance = model.predict(x, 4)
    assert mean.shape == variance.shape == (4, 2)
    assert mean.dtype == variance.dtype == torch.float64
    assert model.joint(x, 4)[1].shape == (1, 4, 4)
    moments = model.moments(model.whitened_means(orbit.sample(x, 4)))
    (moments.second.sum() + moments.mean.sum()).backward()
    assert model.inducing.grad.shape == z.shape
    assert model.inducing.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "kernel", [rbf_kernel, lambda: ScaleKernel(MaternKernel(1.5)), lambda: ScaleKernel(RQKernel())]
)
@torch.no_grad()
def test_single_data_agree_with_double_ones(kernel: Callable[..., Any]) -> None:
    z, x = torch.randn(5, 3), torch.randn(6, 3)
    wide = make_model(Permutation(CYCLE), z, kernel=kernel(), jitter=1e-4)
    narrow = InvariantGP(kernel(), Permutation(CYCLE), z.float(), 2, "linear", False, 1e-4)
    narrow.load_state_dict(wide.state_dict())
    assert narrow.inducing.dtype == torch.float32
    for single, double in zip(narrow.predict(x.float()), wide.predict(x), strict=True):
        torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-4)


def test_the_model_owns_its_inducing_points_and_pickles() -> None:
    z = torch.randn(5, 3)
    model = make_model(GaussianNoise(0.3), z, kernel=ScaleKernel(RBFKernel(ard_num_dims=3)))
    x = torch.randn(4, 3)
    before = model.predict(x, 8)
    z.zero_()
    twin = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(twin.predict(x, 8), before)
    assert model.kernel is model.covariance.kernel


def test_fixed_draws_are_those_of_every_prediction() -> None:
    """A prediction from what q(u) was fitted to, whatever is asked for."""
    model, x = make_model(GaussianNoise(0.7), torch.randn(4, 2)), torch.randn(5, 2)
    calls = (model.predict, model.joint, lambda *given: (model.predict_mean(*given),))
    for fixed in ((6, 3), (7, None), (6, None)):
        model.fixed_draws = None
        expected = [call(x, fixed[0], fixed[1] or 0) for call in calls]
        model.fixed_draws = fixed
        for call, those in zip(calls, expected, strict=True):
            for given in ((), (9, 1)):
                assert all(map(torch.equal, call(x, *given), those))


def test_means_marginals_and_joint_distributions_have_the_same_draws() -> None:
    model, x = make_model(GaussianNoise(0.7), torch.randn(4, 2)), torch.randn(5, 2)
    mean, variance = model.predict(x)
    torch.testing.assert_close(model.predict_mean(x), mean)
    torch.testing.assert_close(model.joint(x)[0], mean)
    torch.testing.assert_close(model.joint(x)[1].diagonal(dim1=1, dim2=2).mT, variance)
