"""Initial inducing points: orbit samples, not data; greedy ones are the pivots of a naive pivoted Cholesky."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch._C import Generator

from orbitgp.inference.inducing_points import initial_inducing, points_are_best
from orbitgp.orbits import FiniteOrbit, Flip, GaussianNoise, Identity, Orbit, Permutation, Rotate90

METHODS = pytest.mark.parametrize("method", ["random", "greedy"])
CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


pytestmark = pytest.mark.usefixtures("double")


def generator(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


class Shift(Orbit):
    """x + 100 + u: what comes out is told from what went in."""

    num_draws = 1

    def transform(self, x: Any, u: Any) -> Any:
        return x[:, None] + 100 + u


@METHODS
@pytest.mark.parametrize("features", [(3,), (4, 4), (2, 4, 4)])
@pytest.mark.parametrize("size", [1, 5, 12, 30])  # fewer and more than the data
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_precision(method: str, features: tuple[int, ...], size: int, dtype: torch.dtype) -> None:
    x = torch.randn(12, *features, dtype=dtype)
    z = initial_inducing(x, GaussianNoise(0.5).to(dtype), RBFKernel(), size, method, generator())
    assert z.shape == (size, *features)
    assert z.dtype == dtype
    assert torch.isfinite(z).all()
    assert not z.requires_grad


@METHODS
def test_they_are_orbit_samples_not_data(method: str) -> None:
    x = torch.rand(10, 2)
    z = initial_inducing(x, Shift(), RBFKernel(), 6, method, generator())
    assert (z > 99).all()
    assert len(z.unique(dim=0)) == 6


@METHODS
def test_the_seed_decides_and_no_other_generator_is_touched(method: str) -> None:
    x = torch.randn(20, 2)
    state = torch.get_rng_state()
    first = initial_inducing(x, GaussianNoise(0.5), RBFKernel(), 6, method, generator(1))
    again = initial_inducing(x, GaussianNoise(0.5), RBFKernel(), 6, method, generator(1))
    other = initial_inducing(x, GaussianNoise(0.5), RBFKernel(), 6, method, generator(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    for orbit in (GaussianNoise(0.5), Identity()):
        assert initial_inducing(x, orbit, RBFKernel(), 6, method).shape == (6, 2)


def test_random_uses_every_datum_before_any_twice() -> None:
    x = torch.arange(10.0)[:, None] * 1000
    for size, uses in ((7, {0, 1}), (10, {1}), (25, {2, 3})):
        z = initial_inducing(x, Shift(), RBFKernel(), size, "random", generator())
        owner = ((z - 100) / 1000).floor().long()[:, 0]
        assert set(torch.bincount(owner, minlength=10).tolist()) == uses


@pytest.mark.parametrize(("orbit", "size"), [(Permutation(CYCLE), 3), (Flip(), 2), (Rotate90(), 4), (Identity(), 1)])
def test_as_many_points_as_there_are_elements_are_all_of_them(orbit: FiniteOrbit, size: int) -> None:
    features = (3,) if isinstance(orbit, Permutation) else (3, 3)
    x = torch.randn(5, *features)
    z = initial_inducing(x, orbit, RBFKernel(), 5 * size, "random", generator())
    elements = orbit.elements(x).flatten(0, 1).flatten(1)
    assert torch.equal(z.flatten(1).unique(dim=0), elements.unique(dim=0))


def test_elements_of_a_finite_orbit_are_chosen_at_random() -> None:
    x = torch.arange(3.0).repeat(3000, 1)
    z = initial_inducing(x, Permutation(CYCLE), RBFKernel(), 3000, "random", generator())
    counts = torch.bincount(z[:, 0].long())
    assert (counts - 1000).abs().max() < 120  # more than four standard deviations


def test_finite_times_infinite() -> None:
    x = torch.randn(6, 3)
    orbit = Permutation(CYCLE) * GaussianNoise(1e-6)
    z = initial_inducing(x, orbit, RBFKernel(), 18, "random", generator())
    elements = x[:, CYCLE].flatten(0, 1)
    nearest = torch.cdist(z, elements)
    assert nearest.min(1).values.max() < 1e-4
    assert len(nearest.argmin(1).unique()) == 18


# Greedy: pivoted Cholesky


def naive_pivots(gram: Any, size: int) -> list[int]:
    """Each pivot has the largest prior variance given those before: from the definition, with dense solves."""
    chosen: list[Any] = []
    for _ in range(size):
        variance = gram.diagonal().clone()
        if chosen:
            k = gram[chosen]
            variance -= (k * torch.linalg.solve(gram[chosen][:, chosen], k)).sum(0)
        variance[chosen] = -1
        chosen.append(int(variance.argmax()))
    return chosen


class Stretched(Kernel):
    """Not stationary, though it has a lengthscale: g(x) = |x| h(x)."""

    has_lengthscale = True

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> Any:
        size = x1.norm(dim=-1), x2.norm(dim=-1)
        if diag:
            return size[0] * size[1] * torch.exp(-0.5 * ((x1 - x2) / self.lengthscale).square().sum(-1))
        distance = torch.cdist(x1 / self.lengthscale, x2 / self.lengthscale).square()
        return size[0][..., :, None] * size[1][..., None, :] * torch.exp(-0.5 * distance)


KERNELS = {
    "rbf": RBFKernel,
    "matern": lambda: ScaleKernel(MaternKernel(1.5)),
    "any": lambda: ScaleKernel(RQKernel()),
    "not stationary": lambda: AdditiveKernel(LinearKernel(), RBFKernel()),
    "not stationary with a lengthscale": Stretched,
}


@pytest.mark.parametrize("name", KERNELS)
def test_greedy_points_are_the_pivots(name: str) -> None:
    kernel = KERNELS[name]().double()
    x = torch.randn(40, 2)
    size = 8
    z = initial_inducing(x, GaussianNoise(0.3).double(), kernel, size, "greedy", generator(3))
    # The same candidates, from the same draws: 40 orbit samples of 40 data.
    candidates = initial_inducing(x, GaussianNoise(0.3).double(), kernel, 40, "random", generator(3))
    gram = kernel(candidates).to_dense().detach()
    assert torch.equal(z, candidates[naive_pivots(gram, size)])


def test_greedy_averages_are_the_pivots_of_f() -> None:
    """Where inducing variables average over the orbit, points are data, and the variance left is that of f, not of
    g."""
    kernel, orbit, x = RBFKernel().double(), Permutation(CYCLE), torch.randn(24, 3)
    z = initial_inducing(x, orbit, kernel, 6, None, generator(3), inducing_samples=3)
    candidates = x[torch.randperm(24, generator=generator(3))]  # every datum once
    elements = orbit.elements(candidates)
    gram = kernel(elements.flatten(0, 1)).to_dense().detach().view(24, 3, 24, 3).mean((1, 3))
    assert torch.equal(z, candidates[naive_pivots(gram, 6)])
    of_g = kernel(candidates).to_dense().detach()
    assert not torch.equal(z, candidates[naive_pivots(of_g, 6)])


def test_as_many_averages_as_data_are_the_data() -> None:
    x = torch.randn(7, 2)
    z = initial_inducing(x, GaussianNoise(0.5), RBFKernel(), 7, None, generator(), inducing_samples=4)
    assert torch.equal(z.sort(0).values, x.sort(0).values)


def test_greedy_spreads_where_random_does_not() -> None:
    """Nearly all data in one place: greedy finds the few that are elsewhere."""
    x = torch.cat([0.01 * torch.randn(91, 1), torch.tensor([[5.0], [10.0], [15.0], [20.0], [25.0]])])
    z = initial_inducing(x, Identity(), RBFKernel(), 6, "greedy", generator())
    assert sorted(z[:, 0].round().abs().int().tolist()) == [0, 5, 10, 15, 20, 25]


def test_greedy_never_takes_a_candidate_twice() -> None:
    x = torch.randn(4, 1)  # sixteen candidates, at four places
    z = initial_inducing(x, Identity(), RBFKernel(), 4, "greedy", generator())
    assert torch.equal(z.sort(0).values, x.sort(0).values)


def test_a_kernel_is_left_as_it_was() -> None:
    kernel = RBFKernel().float()
    initial_inducing(torch.randn(10, 2, dtype=torch.float32), Identity(), kernel, 3, "greedy", generator())
    assert kernel.raw_lengthscale.dtype == torch.float32


@pytest.mark.parametrize(
    ("orbit", "size", "averaged", "method"),
    [
        (Identity(), 10, 1, "greedy"),
        (Identity(), 9, 1, "random"),
        (GaussianNoise(0.5), 10, 1, "random"),
        (GaussianNoise(0.5), 10, 2, "greedy"),
        (GaussianNoise(0.5), 9, 2, "random"),
    ],
)
def test_by_default_a_quarter_of_variables_like_f_are_greedy(
    orbit: Orbit, size: int, averaged: int, method: str
) -> None:
    x = torch.randn(40, 2, generator=generator())
    default, given = (
        initial_inducing(x, orbit, RBFKernel(), size, how, generator(1), averaged) for how in (None, method)
    )
    assert torch.equal(default, given)


def test_a_point_at_each_datum_is_the_best_there_is_without_an_orbit() -> None:
    found = [points_are_best(*given) for given in ((Identity(), 5, 5), (Identity(), 4, 5), (Flip(), 5, 5))]
    assert found == [True, False, False]
