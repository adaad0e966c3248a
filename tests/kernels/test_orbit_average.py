"""The single sum over a group against the double sum of all pairs, and where it may not be used."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.orbit_gram import gram
from orbitgp.kernels import FeatureMapKernel, InvariantKernel
from orbitgp.kernels.orbit_average import single_sum
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import FiniteOrbit, Flip, GaussianNoise, Identity, Permutation, Rotate90, SignChange, Weighted

pytestmark = pytest.mark.usefixtures("double")

LOPSIDED = Permutation([[0, 1, 2], [1, 0, 2], [2, 1, 0]])  # no group
SIGNS = SignChange(0) * SignChange(2)


def double_sum(kernel: Kernel, orbit: FiniteOrbit, x: torch.Tensor, y: Any) -> torch.Tensor:
    """The mean over all pairs of elements, which are written out."""
    a, b = orbit.elements(x), orbit.elements(y)
    pairs = kernel(a.flatten(0, 1).flatten(1), b.flatten(0, 1).flatten(1)).to_dense()
    return pairs.reshape(len(x), a.shape[1], len(y), b.shape[1]).mean((1, 3))


def ard(*lengthscales: Any) -> Any:
    kernel = RBFKernel(ard_num_dims=len(lengthscales))
    kernel.lengthscale = torch.tensor(lengthscales)
    return kernel


def is_single(kernel: Kernel, orbit: FiniteOrbit, *features: Any) -> bool:
    return not single_sum(kernel, orbit, torch.rand(1, *features)).obstacle


@pytest.mark.parametrize(
    ("kernel", "orbit", "single"),
    [
        (RBFKernel(), Permutation.all(3), True),
        (ScaleKernel(MaternKernel(1.5)) + LinearKernel(), Permutation.cyclic(3), True),
        (RQKernel() * PeriodicKernel(), Permutation.dihedral(3), True),
        (RBFKernel(), SIGNS, True),
        (ard(0.5, 1.0, 2.0), SIGNS, True),
        (ard(0.5, 1.0, 2.0), Permutation.swap(0, 1), False),
        (ard(1.0, 1.0, 1.0), Permutation.swap(0, 1), False),  # learning would make them differ
        (RBFKernel(active_dims=(0, 1)), Permutation.swap(0, 1), True),
        (RBFKernel(active_dims=(1, 2)), Permutation.swap(0, 1), False),
        (RBFKernel(), LOPSIDED, False),
        (RBFKernel(), Permutation.swap(0, 1) * SignChange(0), False),  # swap after sign is not among the elements
        (RBFKernel(), Permutation.swap(0, 1) * SignChange(2), True),
        (RBFKernel(), Permutation.swap(0, 1) * Permutation.swap(0, 1), True),  # each element twice
        (RBFKernel(), Permutation.all(3) * SignChange(0) * SignChange(1) * SignChange(2), True),
        (FeatureMapKernel(RBFKernel(), torch.nn.Linear(3, 2)), Permutation.all(3), False),
    ],
)
def test_one_sum_stands_for_two_where_it_may(kernel: Kernel, orbit: FiniteOrbit, single: bool) -> None:
    assert is_single(kernel, orbit, 3) == single
    x, y = torch.randn(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        truth, square = double_sum(kernel, orbit, x, y), double_sum(kernel, orbit, x, x)
        found = InvariantKernel(kernel, orbit)
        torch.testing.assert_close(found(x, y).to_dense(), truth)
        torch.testing.assert_close(found(x).to_dense(), square)
        torch.testing.assert_close(found(x, diag=True), square.diagonal())
        model = ExactGP(kernel, orbit, x)
        assert (model.vectors.pairs(orbit.size) == orbit.size) == single
        torch.testing.assert_close(model.gram(), square, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            model.vectors.cross(model.features(y), model.features(x)), truth.mT, rtol=1e-6, atol=1e-8
        )


def test_images_and_orbits_without_a_group() -> None:
    assert is_single(RBFKernel(), Flip(True, True) * Rotate90(), 5, 5)
    assert is_single(RBFKernel(lengthscale=1e-4), Rotate90(), 28, 28)
    assert not is_single(RBFKernel(), GaussianNoise(), 3)
    assert not is_single(RBFKernel(), Identity(), 3)


def test_gradients_are_those_of_the_double_sum() -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    kernel, orbit, likelihood = ScaleKernel(RBFKernel()), Permutation.all(3), Gaussian(1)
    model = ExactGP(kernel, orbit, x)
    value = model.evidence_with_gradient(likelihood, y).log_evidence
    found = [p.grad.clone() for p in kernel.parameters()]
    torch.autograd.gradcheck(lambda x: InvariantKernel(kernel, orbit)(x).to_dense(), x[:3].clone().requires_grad_())
    truth = double_sum(kernel, orbit, x, x) + likelihood.noise.detach() * torch.eye(8)
    one, residual = torch.ones(8, 1), y
    solved = torch.linalg.solve(truth, torch.cat([one, residual], 1))
    residual = y - (one.mT @ solved[:, 1:]) / (one.mT @ solved[:, :1])
    law = torch.distributions.MultivariateNormal(residual.detach()[:, 0] * 0, truth)
    expected = law.log_prob(residual[:, 0])
    assert value == pytest.approx(float(expected.detach()), abs=1e-8)
    for one_found, gradient in zip(found, torch.autograd.grad(expected, list(kernel.parameters())), strict=True):
        torch.testing.assert_close(one_found, gradient)


def test_a_false_claim_is_an_error_and_a_true_one_is_not() -> None:
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match="single_sum=True is not possible, because its elements are not a group"):
        InvariantKernel(RBFKernel(), LOPSIDED, single_sum=True)(x).to_dense()
    with pytest.raises(ValueError, match="because the kernel is not the same when an element acts on both"):
        InvariantKernel(ard(1.0, 2.0, 3.0), Permutation.all(3), single_sum=True)(x).to_dense()
    claimed, double = (InvariantKernel(RBFKernel(), Permutation.all(3), single_sum=one) for one in (True, False))
    torch.testing.assert_close(claimed(x).to_dense(), double(x).to_dense())


def test_a_group_of_ones_own_is_recognised() -> None:
    class Turns(FiniteOrbit):
        """The plane turned by thirds: a group, and no permutation of coordinates. Scaled, it is none."""

        size = 3

        def __init__(self, scale: float = 1.0) -> None:
            super().__init__()
            self.scale = scale

        def elements(self, x: Any) -> torch.Tensor:
            angles = torch.arange(3) * (2 * torch.pi / 3)
            turns = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).reshape(3, 2, 2)
            return torch.einsum("pij,nj->npi", turns.to(x) * self.scale, x)

    assert is_single(RBFKernel(), Turns(), 2)
    assert not is_single(ard(1.0, 2.0), Turns(), 2)
    assert not is_single(RBFKernel(), Turns(1.1), 2)


def test_s6_takes_one_sum() -> None:
    x = torch.rand(3, 6)
    orders = torch.tensor(list(permutations(range(6))))
    truth = torch.exp(-0.5 * (x[:, None, None] - x[:, orders][None]).square().sum(-1) / 0.25).mean(-1)
    kernel = RBFKernel()
    kernel.lengthscale = 0.5
    torch.testing.assert_close(InvariantKernel(kernel, Permutation.all(6))(x).to_dense().detach(), truth)
    model = ExactGP(kernel, Permutation.all(6), x)
    torch.testing.assert_close(gram(model.vectors, model.features(x)).detach(), truth)


def weighted_sum(
    kernel: Kernel, orbit: FiniteOrbit, weights: list[float], x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """The double sum of two orbits with these probabilities, one pair at a time."""
    a, b = orbit.elements(x).flatten(2), orbit.elements(y).flatten(2)
    pairs = [(i, j) for i in range(len(weights)) for j in range(len(weights))]
    return torch.stack([weights[i] * weights[j] * kernel(a[:, i], b[:, j]).to_dense() for i, j in pairs]).sum(0)


@pytest.mark.parametrize(
    ("kernel", "orbit", "weights"),
    [
        (RBFKernel(), Weighted(Permutation.swap(0, 1), 0.2), [0.8, 0.2]),
        (ard(0.5, 1.0, 2.0), Weighted(Permutation.swap(0, 1), 0.2), [0.8, 0.2]),  # a double sum
        (RBFKernel(), Weighted(Permutation.cyclic(3), each=True), None),
        (
            MaternKernel(2.5),
            Weighted(SignChange(0), 0.3) * Weighted(Permutation.swap(1, 2), 0.1),
            [0.63, 0.07, 0.27, 0.03],
        ),
        (RBFKernel(), Weighted(SignChange(0), 0.3) * SignChange(0), [0.35, 0.35, 0.15, 0.15]),  # elements occur twice
        (RBFKernel(), Weighted(LOPSIDED, each=True), None),
    ],
)
def test_weighted_pairs_are_those_of_loops(kernel: Kernel, orbit: FiniteOrbit, weights: list[float] | None) -> None:
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    with torch.no_grad():
        if weights is None:
            orbit.root_share.copy_(torch.tensor([0.3, 0.9]))
            weights = [1 / 1.9, 0.09 / 1.9, 0.81 / 1.9]
        truth, square = weighted_sum(kernel, orbit, weights, x, y), weighted_sum(kernel, orbit, weights, x, x)
        found = InvariantKernel(kernel, orbit)
        torch.testing.assert_close(found(x, y).to_dense(), truth)
        torch.testing.assert_close(found(x, diag=True), square.diagonal())
        model = ExactGP(kernel, orbit, x, mean="linear")
        torch.testing.assert_close(model.gram(), square, rtol=1e-6, atol=1e-8)
        model.prior_mean.weight.fill_(1.0)
        elements = sum(w * orbit.elements(x)[:, i] for i, w in enumerate(weights))
        expected = ((elements - model.prior_mean.centre) / model.prior_mean.unit).sum(1)
        torch.testing.assert_close(model.seen_and_means(x)[1][:, 0], expected + model.prior_mean.bias)


def test_the_formula_for_two_elements_and_its_gradient() -> None:
    x, y, w = torch.randn(6, 2), torch.randn(6, 1), 0.2
    kernel, orbit, likelihood = RBFKernel(), Weighted(Permutation.swap(0, 1), w), Gaussian(1)
    shared = 2 * w * (1 - w)
    expected = (1 - shared) * kernel(x).to_dense() + shared * kernel(x, x.flip(1)).to_dense()
    model = ExactGP(kernel, orbit, x)
    torch.testing.assert_close(model.gram(), expected.detach())
    model.evidence_with_gradient(likelihood, y)
    values = []
    for step in (1e-4, -1e-4):
        with torch.no_grad():
            orbit.root_share.add_(step)
        values.append(model.log_evidence(likelihood, y))
        with torch.no_grad():
            orbit.root_share.sub_(step)
    assert orbit.root_share.grad.item() == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-4)
    with pytest.raises(ValueError, match="weights need exact inference"):
        InvariantGP(kernel, orbit, x)


def test_corrected_draws_of_two_sets_by_hand() -> None:
    orbit, x = GaussianNoise(0.7), torch.randn(5, 2)
    model = ExactGP(ScaleKernel(RBFKernel()), orbit, x, num_samples=24).with_corrected_draws()
    seen = model.features(x)
    assert seen.shape == (5, 12, 2)
    sets, kernel = seen.split(6, 1), model.kernel

    def mean(a: Any, b: Any) -> torch.Tensor:
        return torch.stack([kernel(a[:, i], b[:, j]).to_dense() for i in range(6) for j in range(6)]).mean(0)

    k11, k12, k22 = mean(sets[0], sets[0]), mean(*sets), mean(sets[1], sets[1])
    whole, bias = (k11 + k12 + k12.mT + k22) / 4, (k11 - k12 - k12.mT + k22) / 4
    torch.testing.assert_close(model.gram(), whole - bias / 2)


def test_corrected_draws_halve_the_bias() -> None:
    x, kernel, scale = 2 * torch.randn(4, 2), RBFKernel(), 0.7
    truth = ExactGP(kernel, GaussianNoise(scale), x, num_samples=None).gram()

    def bias(corrected: bool, draws: int) -> float:
        models = [ExactGP(kernel, GaussianNoise(scale), x, num_samples=draws, seed=seed) for seed in range(200)]
        grams = [(model.with_corrected_draws() if corrected else model).gram() for model in models]
        return float((torch.stack(grams).mean(0) - truth).diagonal().mean())

    # Two sets of 4 draws: half of what one set of 4 adds would be left, and half of that is taken away.
    assert bias(True, 16) == pytest.approx(bias(False, 4) / 4, rel=0.15)


def test_corrected_draws_need_noise() -> None:
    x = torch.randn(30, 2)
    model = ExactGP(RBFKernel(), GaussianNoise(3.0), x, num_samples=8).with_corrected_draws()
    likelihood = Gaussian(noise=1e-5)
    with pytest.raises(FloatingPointError, match="covariance"):
        model.log_evidence(likelihood, torch.randn(30, 1))
