"""Labels that no variance changes, against class probabilities by brute-force Monte Carlo at many variances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from experiments.stick_breaking import StickBreaking
from orbitgp.likelihoods import Bernoulli, Classification, Dirichlet, GaussianIndicators
from orbitgp.likelihoods.tilted import logistic_mean

ROWS, DRAWS = 100, 4_000


def winners(likelihood: Classification, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable class by plain Monte Carlo, and by how much it leads, in standard errors."""
    f = mean + variance.sqrt() * torch.randn(DRAWS, *mean.shape, dtype=mean.dtype)
    probs = likelihood.log_probs(f).exp()
    best, second = probs.mean(0).topk(2, -1)[1].unbind(-1)
    lead = (
        probs.gather(-1, best.expand(DRAWS, -1)[..., None]) - probs.gather(-1, second.expand(DRAWS, -1)[..., None])
    )[..., 0]
    return best, lead.mean(0) / (lead.std(0) / DRAWS**0.5)


@pytest.mark.parametrize(("likelihood", "latents"), [(Bernoulli(), 1), (Dirichlet(4), 4), (StickBreaking(4), 3)])
def test_a_sure_label_is_that_of_every_variance(likelihood: Classification, latents: int) -> None:
    mean = 3 * torch.randn(ROWS, latents, dtype=torch.float64)
    most = 4 * torch.rand(ROWS, latents, dtype=torch.float64)
    sure, at_mean = likelihood.is_sure(mean, most), likelihood.log_probs(mean).argmax(-1)
    assert sure.double().mean() > 0.2
    for share in (torch.rand_like(most), (torch.rand_like(most) > 0.5).double(), torch.ones_like(most)):
        best, lead = winners(likelihood, mean, share * most)
        assert torch.equal(best[sure & (lead > 5)], at_mean[sure & (lead > 5)])


def test_a_label_that_depends_on_the_variance_is_not_sure() -> None:
    """The first of ten classes has the largest mean, but one of the others, which are wide, is nearly always above
    it."""
    mean, most = torch.full((1, 10), -3.5).double(), torch.full((1, 10), 100.0).double()
    mean[0, 0], mean[0, 1], most[0, 0] = 0.0, -3.0, 0.0
    assert winners(Dirichlet(10), mean, most)[0] != 0
    assert not Dirichlet(10).is_sure(mean, most)
    assert Dirichlet(10).is_sure(mean, 0.01 * most)
    steps = StickBreaking(3)
    mean = torch.tensor([[-0.3, -0.9]], dtype=torch.float64)  # a wide first decision takes more of the stick
    assert not steps.is_sure(mean, torch.full_like(mean, 100.0))
    labels = [int(steps.predict_proba(mean, v * torch.tensor([[1.0, 0.0]]).double()).argmax()) for v in (0.0, 100.0)]
    assert labels == [2, 0]


@pytest.mark.parametrize(
    ("likelihood", "latents"), [(Bernoulli(), 1), (Dirichlet(5), 5), (StickBreaking(5), 4), (GaussianIndicators(5), 5)]
)
def test_labels_are_those_of_the_probabilities(likelihood: Classification, latents: int) -> None:
    mean = torch.randn(ROWS, latents, dtype=torch.float64)
    variance = torch.rand(ROWS, latents, dtype=torch.float64)
    if isinstance(likelihood, GaussianIndicators):
        variance = variance[:, :1].expand_as(variance)  # one covariance for all
    expected = likelihood.predict_proba(mean, variance).argmax(-1)
    assert torch.equal(likelihood.most_probable(mean, variance), expected)


@pytest.mark.parametrize(
    ("likelihood", "latents"), [(Bernoulli(), 1), (Dirichlet(4), 4), (StickBreaking(4), 3), (GaussianIndicators(4), 4)]
)
def test_a_label_that_is_sure_within_an_error_is_that_of_every_mean_there(
    likelihood: Classification, latents: int
) -> None:
    """At random means within the error, and at all of its corners; with variances up to the bound."""
    mean, error = 3 * torch.randn(ROWS, latents, dtype=torch.float64), 0.4
    most = torch.rand(ROWS, 1, dtype=torch.float64).expand_as(mean)
    sure, label = likelihood.is_sure(mean, most, error), likelihood.log_probs(mean).argmax(-1)
    assert 0.2 < sure.double().mean() < likelihood.is_sure(mean, most).double().mean()
    corners = 2 * torch.cartesian_prod(*[torch.arange(2.0).double()] * latents).reshape(-1, 1, latents) - 1
    within = torch.cat([corners.expand(-1, ROWS, -1), 2 * torch.rand(20, ROWS, latents, dtype=torch.float64) - 1])
    for moved in mean + error * within:
        for variance in (1e-6 * most, most):
            assert torch.equal(likelihood.predict_proba(moved, variance).argmax(-1)[sure], label[sure])


def test_the_mean_of_a_sigmoid() -> None:
    mean, variance = torch.linspace(-6, 6, 13, dtype=torch.float64), torch.linspace(0, 12, 13, dtype=torch.float64)
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    weights = torch.softmax(-0.5 * z.square(), 0)
    expected = torch.sigmoid(mean[:, None] + variance.sqrt()[:, None] * z) @ weights
    torch.testing.assert_close(logistic_mean(mean, variance), expected, rtol=1e-6, atol=1e-8)
