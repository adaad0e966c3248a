"""Exact inference, against GPyTorch's exact GP with an invariant kernel, brute force and finite differences."""

from __future__ import annotations

import contextlib
import math
from copy import deepcopy
from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.stick_breaking import StickBreaking
from orbitgp.inference import dense_posterior, exact, orbit_gram
from orbitgp.inference.dense_posterior import Posterior
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.inference.orbit_gram import gram
from orbitgp.kernels import FeatureMapKernel, InvariantKernel, MeanEmbedding, OrientedGradients, covariance
from orbitgp.kernels.covariance import Covariance, Stationary
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, Likelihood, StudentT
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Permutation, Rotation, Weighted

N, DIM = 20, 3


def kernel(lengthscale: float = 1.2, variance: float = 2.0) -> ScaleKernel:
    made = ScaleKernel(RBFKernel()).double()
    made.base_kernel.lengthscale, made.outputscale = lengthscale, variance
    return made


def brute(model: ExactGP, a: Tensor, b: Tensor) -> Tensor:
    """K_f as a double loop over the finite orbits."""
    left, right = model.samples(a), model.samples(b)
    pairs = model.kernel(left.flatten(0, 1).double(), right.flatten(0, 1).double()).to_dense()
    return pairs.reshape(len(a), left.shape[1], len(b), right.shape[1]).mean((1, 3)).detach()


class TestAgainstGPyTorch:
    """The same model as a gpytorch.models.ExactGP: evidence and predictions."""

    @staticmethod
    def reference(x: Tensor, y: Tensor, orbit: Orbit, noise: float, mean: float) -> gpytorch.models.ExactGP:
        class Reference(gpytorch.models.ExactGP):
            def __init__(self, likelihood: Tensor) -> None:
                super().__init__(x, y, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = InvariantKernel(kernel(), orbit)

            def forward(self, x: Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Reference(likelihood).double()
        likelihood.noise, model.mean_module.constant = noise, mean
        return model

    def test_evidence_and_predictions(self) -> None:
        x, new = torch.randn(N, DIM, dtype=torch.float64), torch.randn(7, DIM, dtype=torch.float64)
        y = (x.sum(1) + 0.1 * torch.randn(N))[:, None].double()
        orbit = Permutation([(0, 1, 2), (1, 2, 0), (2, 0, 1)])
        model, likelihood = ExactGP(kernel(), orbit, x), Gaussian(1, 0.05)
        evidence = model.condition(likelihood, y).log_evidence
        bias, noise = model.prior_mean.bias.item(), likelihood.noise.item()
        oracle = self.reference(x, y[:, 0], orbit, noise, bias)
        with gpytorch.settings.max_cholesky_size(1000):
            law = oracle.likelihood(oracle.forward(x))
            torch.testing.assert_close(evidence, law.log_prob(y[:, 0]).item(), rtol=1e-8, atol=1e-6)
            oracle.eval()
            expected = oracle(new)
        mean, variance = model.predict(new)
        torch.testing.assert_close(model.predict_mean(new), mean)
        torch.testing.assert_close(mean[:, 0], expected.mean.detach(), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(variance[:, 0], expected.variance.detach(), rtol=1e-5, atol=1e-7)
        joint_mean, joint = model.joint(new)
        torch.testing.assert_close(joint_mean, mean)
        torch.testing.assert_close(joint[0], expected.covariance_matrix.detach(), rtol=1e-5, atol=1e-7)

    def test_the_constant_mean_is_at_its_best(self) -> None:
        x, y = torch.randn(N, DIM).double(), torch.randn(N, 1).double() + 3
        model, likelihood = ExactGP(kernel(), Identity(), x), Gaussian(1, 0.05)
        top = model.condition(likelihood, y).log_evidence
        best = model.prior_mean.bias.item()
        for other in (best - 0.1, best + 0.1):
            law = self.reference(x, y[:, 0], Identity(), likelihood.noise.item(), other)
            assert law.likelihood(law.forward(x)).log_prob(y[:, 0]).item() < top


LIKELIHOODS: dict[str, Likelihood] = {
    "gaussian": Gaussian(2, 0.1),
    "dirichlet": Dirichlet(3, 0.01),
    "bernoulli": Bernoulli(),
    "stick-breaking": StickBreaking(3),
    "student-t": StudentT(1),
}


def problem(name: str) -> tuple[ExactGP, Likelihood, Tensor]:
    likelihood: Any = LIKELIHOODS[name]
    likelihood.zero_grad()
    x = torch.rand(N, 5, 5, dtype=torch.float64)
    if hasattr(likelihood, "num_classes"):
        y = likelihood.encode(torch.randint(likelihood.num_classes, (N,)))
    else:
        y = torch.randn(N, likelihood.num_latents, dtype=torch.float64)
    return ExactGP(kernel(), Rotation(30).double(), x, likelihood.num_latents, num_samples=4), likelihood, y


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_evidence_is_that_of_the_gaussian_observations(name: str) -> None:
    """sum const + log of the integral of exp(eta f - lam f^2 / 2) N(f; m, K), by the normal density of eta / lam."""
    model, likelihood, y = problem(name)
    solution = model.condition(likelihood, y)
    quadratic = dense_posterior.quadratic_at(likelihood, y, solution.local, by_bound=False)
    eta, lam = quadratic.eta.detach(), quadratic.lam.detach().clamp_min(1e-9)
    expected = quadratic.const.sum().item() + float(0.5 * (eta.square() / lam + torch.log(2 * torch.pi / lam)).sum())
    k = brute(model, model.x, model.x)
    for latent in range(likelihood.num_latents):
        mean = model.prior_mean.bias[latent].detach().expand(N)
        law = torch.distributions.MultivariateNormal(mean, k + torch.diag(1 / lam[:, latent]))
        expected += float(law.log_prob(eta[:, latent] / lam[:, latent]))
    assert solution.log_evidence == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", [name for name, likelihood in LIKELIHOODS.items() if likelihood.num_locals])
@pytest.mark.usefixtures("fully_settled")
def test_extrapolated_turns_end_where_plain_turns_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain turns of local parameters and posterior raise the bound each time; extrapolated ones end there in fewer
    turns."""
    model, likelihood, y = problem(name)
    model.kernel.outputscale = 100.0  # large values of f take many turns
    turns, solve = [], dense_posterior.posterior
    monkeypatch.setattr(dense_posterior, "posterior", lambda *args: turns.append(1) or solve(*args))
    found = model.condition(likelihood, y)
    extrapolated = len(turns)
    monkeypatch.setattr("orbitgp.inference.fixed_point.AndersonMixing.next", lambda self, point, image: image)
    plain = model.condition(likelihood, y)
    assert found.log_evidence == pytest.approx(plain.log_evidence, abs=1e-6)
    assert extrapolated < len(turns) - extrapolated


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.usefixtures("fully_settled")
def test_gradients_equal_finite_differences(name: str) -> None:
    model, likelihood, y = problem(name)
    solution = model.evidence_with_gradient(likelihood, y)
    bias = model.prior_mean.bias
    learned = [p for p in (*model.parameters(), *likelihood.parameters()) if p.requires_grad and p is not bias]
    assert len(learned) >= 3  # lengthscale, variance, angle
    for parameter in learned:
        flat, ends = parameter.detach().view(-1), []
        for step in (1e-4, -2e-4):
            flat[0] += step
            ends.append(model.condition(likelihood, y, solution.local).log_evidence)
        flat[0] += 1e-4
        assert parameter.grad.view(-1)[0].item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=5e-3, abs=2e-4)


def test_a_bound_at_exact_f_lies_below_the_evidence() -> None:
    """Bernoulli with two data: the evidence by quadrature in two dimensions."""
    x, likelihood = torch.tensor([[0.0], [0.4]]).double(), Bernoulli()
    y = likelihood.encode(torch.tensor([0, 1]))
    model = ExactGP(kernel(), Identity(), x, mean="zero")
    propagated = model.condition(likelihood, y).log_evidence
    model.by_bound = True
    bound = model.condition(likelihood, y).log_evidence
    grid = torch.linspace(-12, 12, 601, dtype=torch.float64)
    f = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    prior = torch.distributions.MultivariateNormal(torch.zeros(2).double(), brute(model, x, x)).log_prob(f)
    data = sum(likelihood.log_prob(y[n : n + 1], f[:, n, None, None])[:, 0] for n in range(2))
    truth = torch.logsumexp(prior + data, 0).item() + 2 * (grid[1] - grid[0]).log().item()
    assert bound <= truth
    assert truth - bound < 0.1
    assert abs(propagated - truth) < 0.3 * (truth - bound)


ORBITS = {
    "none": Identity,
    "flip": Flip,
    "rotation": lambda: Rotation(40),
    "rotation of quarters": lambda: Rotation(40) * Flip(),
}


@pytest.mark.parametrize("elements", [1, 40, 2**24])
@pytest.mark.parametrize("name", ORBITS)
def test_gram_in_blocks_is_the_double_mean(name: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitgp.inference.orbit_gram.chunk_elements", lambda device: elements)
    x = torch.rand(9, 6, 6, dtype=torch.float64)
    model = ExactGP(kernel(), ORBITS[name]().double(), x, num_samples=None if name in ("none", "flip") else 3)
    torch.testing.assert_close(model.gram(), brute(model, x, x))


def test_gram_of_an_orbit_with_weights_is_the_weighted_double_sum() -> None:
    """Of a group, and of a set that is none."""
    x = torch.randn(7, DIM, dtype=torch.float64)
    for orbit in (Weighted(Permutation.cyclic(3), 0.1), Weighted(Permutation([(0, 1, 2), (0, 2, 1), (1, 2, 0)]), 0.2)):
        model, weights = ExactGP(kernel(), orbit, x), orbit.weights()
        pairs = model.kernel(orbit.elements(x).flatten(0, 1)).to_dense().reshape(7, 3, 7, 3)
        torch.testing.assert_close(model.gram(), torch.einsum("i,nimj,j->nm", weights, pairs, weights).detach())


@pytest.mark.parametrize("elements", [1, 70, 2**24])
def test_gradient_of_a_weighted_sum(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitgp.inference.orbit_gram.chunk_elements", lambda device: elements)
    k = covariance(kernel())
    seen = torch.randn(6, 2, DIM, dtype=torch.float64)
    weights = torch.randn(6, 6, dtype=torch.float64)
    leaf = seen.clone().requires_grad_()
    (weights * gram(k, leaf)).sum().backward()
    found = leaf.grad
    dense = k.kernel(leaf.flatten(0, 1)).to_dense().reshape(6, 2, 6, 2).mean((1, 3))
    expected = torch.autograd.grad((weights * dense).sum(), [leaf, *k.kernel.parameters()])
    torch.testing.assert_close(found, expected[0])
    for parameter, gradient in zip(k.kernel.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("name", ORBITS)
def test_blocks_that_are_kept_give_the_same_gradient_as_those_made_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stationary, "sums_in_cache", Covariance.sums_in_cache)
    x = torch.rand(9, 6, 6, dtype=torch.float64)
    model = ExactGP(kernel(), ORBITS[name]().double(), x, num_samples=None if name in ("none", "flip") else 3)
    likelihood, y, found = Gaussian(1, 0.1), torch.randn(9, 1, dtype=torch.float64), []
    made = []
    strip = orbit_gram._strip
    monkeypatch.setattr(orbit_gram, "_strip", lambda *args: made.append(0) or strip(*args))
    for kept in (4, 0):
        monkeypatch.setattr(orbit_gram, "_KEPT_CHUNKS", kept)
        model.zero_grad()
        made.clear()
        solution = model.evidence_with_gradient(likelihood, y)
        found.append((solution.log_evidence, [p.grad for p in model.parameters() if p.grad is not None], len(made)))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=0)
    assert 2 * found[0][2] == found[1][2]


def test_single_precision_keeps_the_diagonal_of_a_kernel_with_a_kink() -> None:
    """|x - x|^2 = 1e-6 by rounding would take a thousandth off k(x, x) of Matérn 1/2."""
    seen = 100 + torch.randn(50, 1, 30)
    diagonal = gram(covariance(MaternKernel(nu=0.5).double()), seen).diagonal()
    torch.testing.assert_close(diagonal, torch.ones(50), rtol=1e-6, atol=1e-6)


def test_a_feature_map_is_learned_too() -> None:
    x = torch.rand(12, 8, 8, dtype=torch.float64)
    mapped = FeatureMapKernel(kernel(0.5), OrientedGradients(orientations=4), (8, 8)).double()
    model, likelihood = ExactGP(mapped, Rotation(20).double(), x, num_samples=2), Gaussian(1, 0.1)
    y = torch.randn(12, 1, dtype=torch.float64)
    model.evidence_with_gradient(likelihood, y)
    window = mapped.feature_map.raw_window
    ends = []
    for step in (1e-4, -2e-4):
        window.data.add_(step)
        ends.append(model.condition(likelihood, y).log_evidence)
    assert window.grad.item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3)


def test_rows_are_predicted_alone_as_together(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(N, DIM).double(), torch.randn(N, 1).double()
    model, likelihood = ExactGP(kernel(), GaussianNoise(0.3).double(), x, num_samples=8), Gaussian(1, 0.1)
    model.condition(likelihood, y)
    new = torch.randn(5, DIM).double()
    together = model.predict(new)
    for row in range(5):
        for one, all_ in zip(model.predict(new[row : row + 1]), together, strict=True):
            torch.testing.assert_close(one[0], all_[row])
    model.forget_posterior()  # as after loading: made again
    for again, before in zip(model.predict(new), together, strict=True):
        torch.testing.assert_close(again, before)


def test_a_copy_shares_what_was_inverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions on a GPU are made by a copy of the model: the data are factorised once for all of them."""
    x, y = torch.randn(N, DIM).double(), torch.randn(N, 1).double()
    model, likelihood = ExactGP(kernel(), Identity(), x), Gaussian(1, 0.1)
    model.condition(likelihood, y)
    before = model.predict(x[:3])
    model.forget_posterior()
    model.copied_to(x.device).predict(x[:3])  # inverts again
    monkeypatch.setattr("orbitgp.inference.exact_predictions.NoisyCovariance", None)
    for again, first in zip(model.predict(x[:3]), before, strict=True):
        torch.testing.assert_close(again, first)
    assert deepcopy(model)._inverted == {}


def test_parameters_that_cannot_be_evaluated_leave_nothing_behind() -> None:
    x, y = torch.rand(9, 2, dtype=torch.float64), torch.rand(9, 1, dtype=torch.float64)
    model, likelihood = ExactGP(ScaleKernel(RBFKernel()).double(), Identity(), x), Gaussian(1, 0.1)
    before = model.evidence_with_gradient(likelihood, y).log_evidence
    raw = model.kernel.raw_outputscale
    kept = raw.detach().clone()
    with torch.no_grad():
        raw.fill_(math.inf)
    with contextlib.suppress(FloatingPointError):
        assert not math.isfinite(model.evidence_with_gradient(likelihood, y).log_evidence)
    with torch.no_grad():
        raw.copy_(kept)
    assert model.evidence_with_gradient(likelihood, y).log_evidence == pytest.approx(before)


@pytest.mark.parametrize(("noise", "dtype"), [(1e-2, torch.float32), (1e-7, torch.float64)])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_known_noise_says_in_which_precision_covariances_are_made(
    noise: float, dtype: torch.dtype, with_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single precision rounds to 6e-8 of the variance, 1. K_f is made once, and the evidence is that of brute force."""
    torch.manual_seed(0)
    x = torch.rand(N, 5, 5)
    y = x.sum((1, 2))[:, None].double()
    model, likelihood = ExactGP(kernel(), Rotation(30), x, num_samples=4), Gaussian(1, noise=noise, min_noise=1e-8)
    made = []
    monkeypatch.setattr(orbit_gram, "gram", lambda kernel, seen: made.append(seen.dtype) or gram(kernel, seen))
    found = (model.evidence_with_gradient if with_gradient else model.condition)(likelihood, y)
    assert made == [dtype]
    assert found.bias is not None
    law = torch.distributions.MultivariateNormal(found.bias.expand(N), brute(model, x, x) + noise * torch.eye(N))
    assert found.log_evidence == pytest.approx(float(law.log_prob(y[:, 0])), rel=1e-4)


def test_what_fails_in_single_precision_is_done_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(N, DIM), torch.randn(N, 1).double()
    single, double = (ExactGP(kernel(), Identity(), rows, 1) for rows in (x, x.double()))
    expected, seen = double.log_evidence(StudentT(), y), []

    def solve(gram: Any, *args: Any, **named: Any) -> Posterior[NoisyCovariance]:
        seen.append(gram.dtype)
        if gram.dtype == torch.float32:
            raise FloatingPointError("the kernel has no factor.")
        return dense_posterior.solve(gram, *args, **named)

    monkeypatch.setattr(exact, "solve", solve)
    assert single.log_evidence(StudentT(), y) == pytest.approx(expected, abs=1e-3)
    assert seen == [torch.float32, torch.float64]
    monkeypatch.setattr(exact, "solve", lambda gram, *args, **named: solve(gram.float()))
    with pytest.raises(FloatingPointError, match="no factor"):
        double.log_evidence(StudentT(), y)


@pytest.mark.parametrize("noise", [0.5, 1e-3])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_climbs_round_double_precision_where_the_noise_allows(noise: float, far: float) -> None:
    """Pairs take half as long in single precision, and the evidence is the same. A posterior has every digit."""
    x, y, likelihood = far + torch.randn(N, DIM).double(), torch.randn(N, 1).double(), Gaussian(1, noise)
    model = ExactGP(kernel(), GaussianNoise(0.3).double(), x, num_samples=8)
    view = model.restricted(x, 8)
    view.climbs = True
    (seen,) = view.precise(likelihood.noise, view.features(x))
    assert seen.dtype == (torch.float32 if noise > 0.1 else torch.float64)
    evidence = model.log_evidence(likelihood, y)
    assert view.log_evidence(likelihood, y) == pytest.approx(evidence, abs=1e-3)
    slopes = []
    for each in (model, view):
        each.orbit.zero_grad()
        each.evidence_with_gradient(likelihood, y)
        slopes.append(torch.cat([p.grad.flatten() for p in each.orbit.parameters() if p.grad is not None]))
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)
    assert view.condition(likelihood, y).log_evidence == model.condition(likelihood, y).log_evidence
    torch.testing.assert_close(view.predict(x)[0], model.predict(x)[0], rtol=0, atol=0)


def test_corrected_draws_are_two_different_sets_of_a_quarter_each() -> None:
    x = torch.randn(5, DIM, dtype=torch.float64)
    model = ExactGP(kernel(), GaussianNoise(0.5).double(), x, num_samples=24)
    samples = model.with_corrected_draws().samples(x)
    assert samples.shape == (5, 12, DIM)
    assert not torch.isclose(*samples.split(6, dim=1)).any()


@pytest.mark.parametrize(
    ("base", "orbit", "gains"),
    [
        (MaternKernel(), GaussianNoise(0.5), True),
        (RBFKernel(), GaussianNoise(0.5), False),  # in closed form
        (MaternKernel(), Permutation.cyclic(3), False),
        (FeatureMapKernel(MaternKernel(), MeanEmbedding(torch.nn.Identity()), (3,)), GaussianNoise(0.5), False),
    ],
)
def test_draws_of_more_than_two_dimensions_are_worth_a_correction(base: Kernel, orbit: Orbit, gains: bool) -> None:
    x = torch.randn(4, 3, dtype=torch.float64)
    assert ExactGP(base, orbit.double(), x, num_samples=8).gains_by_correction == gains
    if gains:
        assert not ExactGP(base, orbit, x[:, :2], num_samples=8).gains_by_correction


@pytest.mark.parametrize("in_cache", [False, True])
@pytest.mark.parametrize(("rows", "samples", "dim"), [(12, 6, 200), (40, 6, 2)])
def test_what_is_kept_for_a_gradient_is_counted(
    rows: int, samples: int, dim: int, in_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the tensors that autograd keeps: each as often as it has a storage of its own.

    What stays in the cache keeps points alone, of either side of a pair and of each datum, and copies with two columns.
    """
    if not in_cache:
        monkeypatch.setattr(Stationary, "sums_in_cache", Covariance.sums_in_cache)
    of, seen = covariance(kernel()), torch.randn(rows, samples, dim, dtype=torch.float64, requires_grad=True)
    kept: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.setdefault(one.data_ptr(), one), lambda one: one):
        gram(of, seen)
    numbers = sum(one.numel() for one in kept.values())
    if in_cache:
        assert numbers < 6 * rows * samples * (dim + 2) + 2 * rows * (rows + samples**2)
        return
    share = orbit_gram.kept_elements(rows, samples, dim, samples**2, seen.device) / numbers
    assert 0.35 < share < 1.1
