"""The collapsed bound, against the bound at its best q(u), the exact evidence, a dense oracle and finite
differences."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.stick_breaking import StickBreaking
from orbitgp.inference import model as sparse_model
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.elbo import elbo
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, Likelihood, StudentT
from orbitgp.likelihoods.classification import Classification
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation

N, DIM, POINTS, DRAWS = 14, 3, 6, 5
CYCLE = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]


def kernel(base: type = RBFKernel) -> ScaleKernel:
    made = ScaleKernel(base()).double()
    made.base_kernel.lengthscale, made.outputscale = 1.3, 2.0
    return made


def data(likelihood: Likelihood, rows: int = N) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.randn(rows, DIM, dtype=torch.float64)
    if isinstance(likelihood, Classification):
        return x, likelihood.encode(torch.arange(rows) % likelihood.num_classes)
    return x, torch.sin(x[:, :1]) + 2.0 + torch.randn(rows, likelihood.num_latents, dtype=torch.float64) / 5


def made(
    orbit: Orbit, likelihood: Likelihood, x: Tensor, averaged: int = 1, base: type = RBFKernel, **settings: object
) -> CollapsedGP:
    settings |= {"shared_covariance": likelihood.shares_curvature, "inducing_samples": averaged}
    model = InvariantGP(kernel(base), orbit, x[:POINTS] + 0.1, likelihood.num_latents, **settings)
    return CollapsedGP(model, x, None if isinstance(orbit, Permutation | Identity) else DRAWS)


LIKELIHOODS = {
    "one": lambda: Gaussian(1, 0.05),
    "two": lambda: Gaussian(2, 0.05),
    "dirichlet": lambda: Dirichlet(3, 0.01),
    "bernoulli": Bernoulli,
    "stick-breaking": lambda: StickBreaking(3),
    "student-t": lambda: StudentT(1),
}
ORBITS = {
    "none": Identity,
    "finite": lambda: Permutation(CYCLE),
    "infinite": lambda: GaussianNoise(0.4).double(),
}


@pytest.mark.parametrize(
    ("name", "mean", "averaged"),
    [*((name, "linear", 3) for name in LIKELIHOODS), ("one", "constant", 1), ("bernoulli", "zero", 1)],
)
@pytest.mark.parametrize("orbit", ORBITS)
@pytest.mark.usefixtures("fully_settled")
def test_it_is_the_bound_at_the_best_posterior(name: str, orbit: str, mean: str, averaged: int) -> None:
    likelihood = LIKELIHOODS[name]()
    x, y = data(likelihood)
    collapsed = made(ORBITS[orbit](), likelihood, x, averaged, mean=mean)
    solution = collapsed.condition(likelihood, y)
    value, local = solution.log_evidence, solution.local
    collapsed.set_posterior(likelihood, y, local)
    samples = collapsed.orbit.shared_samples(x, collapsed.num_samples)
    assert elbo(collapsed.sparse, likelihood, samples, y, N, local).item() == pytest.approx(value, abs=1e-7)
    # Other local parameters have less, and so has any other q(u).
    if local is not None:
        assert elbo(collapsed.sparse, likelihood, samples, y, N, 1.1 * local).item() < value
        assert elbo(collapsed.sparse, likelihood, samples, y, N, 0.9 * local).item() < value
    with torch.no_grad():
        collapsed.sparse.q_mean.add_(0.1)
    assert elbo(collapsed.sparse, likelihood, samples, y, N, local).item() < value


def test_against_dense_matrices() -> None:
    likelihood = Gaussian(1, 0.05)
    x, y = data(likelihood)
    collapsed = made(Identity(), likelihood, x, jitter=0.0, mean="zero")
    k, z = kernel(), collapsed.sparse.inducing
    kfu, kuu = k(x, z).to_dense(), k(z).to_dense()
    q = kfu @ torch.linalg.solve(kuu, kfu.mT)
    noise = likelihood.noise.item()
    law = torch.distributions.MultivariateNormal(torch.zeros(N).double(), q + noise * torch.eye(N).double())
    slack = 0.5 * (k(x).to_dense().diagonal() - q.diagonal()).sum() / noise
    assert float(collapsed.condition(likelihood, y).slack) == pytest.approx(slack.item(), abs=1e-6)
    expected = law.log_prob(y[:, 0]) - slack
    assert collapsed.condition(likelihood, y).log_evidence == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("orbit", ORBITS)
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.usefixtures("fully_settled")
def test_it_is_the_exact_evidence_where_points_determine_f_and_never_above(name: str, orbit: str) -> None:
    likelihood = LIKELIHOODS[name]()
    x, y = data(likelihood)
    few = made(ORBITS[orbit](), likelihood, x)
    exact = ExactGP(kernel(), few.orbit, x, likelihood.num_latents, num_samples=few.num_samples, by_bound=True)
    evidence = exact.condition(likelihood, y).log_evidence
    assert few.condition(likelihood, y).log_evidence < evidence
    # All points at which g is averaged are inducing points.
    points = few.orbit.shared_samples(x, few.num_samples).points[:, 0].flatten(0, 1).detach()
    shared = likelihood.shares_curvature
    model = InvariantGP(kernel(), few.orbit, points, likelihood.num_latents, shared_covariance=shared, jitter=1e-10)
    whole = CollapsedGP(model, x, few.num_samples).condition(likelihood, y).log_evidence
    assert whole == pytest.approx(evidence, abs=1e-3)
    assert whole <= evidence + 1e-6


@pytest.mark.parametrize(
    "orbit", [GaussianNoise(0.4).double(), Permutation(list(permutations(range(DIM))))], ids=["infinite", "finite"]
)
def test_more_averages_than_data_are_tighter_where_they_are_not_f(orbit: Orbit) -> None:
    likelihood = Gaussian(1, 0.05)
    x, y = data(likelihood)
    draws = orbit.size if isinstance(orbit, Permutation) else 32
    exact = ExactGP(kernel(), orbit, x, num_samples=draws).condition(likelihood, y).log_evidence

    def bound(size: int) -> float:
        points = initial_inducing(
            x, orbit, kernel(), size, generator=torch.Generator().manual_seed(0), inducing_samples=2
        )
        return (
            CollapsedGP(InvariantGP(kernel(), orbit, points, inducing_samples=2), x, draws)
            .condition(likelihood, y)
            .log_evidence
        )

    bounds = [bound(size) for size in (N, 2 * N, 4 * N)]
    assert bounds[0] + 1 < bounds[1] < bounds[2] < exact + 1e-6
    assert exact - bounds[2] < 0.5 * (exact - bounds[0])
    if isinstance(orbit, Permutation):  # one for each element determines f
        assert bound(orbit.size * N) == pytest.approx(exact, abs=5e-3)


def values(collapsed: CollapsedGP, likelihood: Likelihood) -> list[torch.nn.Parameter]:
    bias = collapsed.prior_mean.bias
    learned = (*collapsed.parameters(), *likelihood.parameters())
    return [p for p in learned if p.requires_grad and p is not bias and p is not collapsed.sparse.q_mean]


@pytest.mark.parametrize(
    ("name", "base", "chunk"),
    [
        *((name, RBFKernel, 3 * DRAWS * POINTS * 2) for name in LIKELIHOODS),
        *((name, MaternKernel, 2**24) for name in ("one", "stick-breaking")),
    ],
)
@pytest.mark.usefixtures("fully_settled")
def test_its_gradient_is_that_of_finite_differences(
    name: str, base: type, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all data at once, and a few at a time."""
    monkeypatch.setattr(sparse_model, "chunk_elements", lambda device: chunk)
    likelihood = LIKELIHOODS[name]()
    x, y = data(likelihood)
    collapsed = made(GaussianNoise(0.4).double(), likelihood, x, averaged=2, base=base, mean="linear")
    collapsed.sparse.q_mean.requires_grad_(False)
    collapsed.sparse.q_sqrt.requires_grad_(False)
    assert (len(collapsed._parts()) > 1) == (chunk < 2**24)
    value = collapsed.evidence_with_gradient(likelihood, y).log_evidence
    assert value == pytest.approx(collapsed.condition(likelihood, y).log_evidence, abs=1e-8)
    for parameter in values(collapsed, likelihood):
        assert parameter.grad is not None
        at, gradient = parameter.data.flatten(), parameter.grad.flatten()
        for i in range(min(2, len(at))):
            ends = []
            for step in (1e-5, -2e-5):
                at[i] += step
                ends.append(collapsed.condition(likelihood, y).log_evidence)
            at[i] += 1e-5
            assert gradient[i].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-4)


def test_single_precision_is_no_noise() -> None:
    """Inputs in single precision have a bound in double precision: a line search sees no rounding."""
    likelihood = Gaussian(1, 1e-4)
    x, y = data(likelihood)
    model = InvariantGP(kernel(), Identity(), x.float()[:POINTS], mean="zero")
    single = CollapsedGP(model, x.float())
    wide = CollapsedGP(InvariantGP(kernel(), Identity(), x.float()[:POINTS].double(), mean="zero"), x.float().double())
    assert single.condition(likelihood, y).log_evidence == pytest.approx(
        wide.condition(likelihood, y).log_evidence, rel=1e-9
    )


def test_other_draws_leave_the_model_as_it_is() -> None:
    likelihood = Gaussian(1, 0.05)
    x, y = data(likelihood)
    collapsed = made(GaussianNoise(0.4).double(), likelihood, x)
    value, bias = collapsed.condition(likelihood, y).log_evidence, collapsed.prior_mean.bias.item()
    same, other = (collapsed.restricted(x, collapsed.num_samples, seed=seed) for seed in (0, 1))
    assert same.log_evidence(likelihood, y) == pytest.approx(value, abs=1e-9)
    assert abs(other.log_evidence(likelihood, y) - value) > 1e-3
    assert collapsed.prior_mean.bias.item() == bias
