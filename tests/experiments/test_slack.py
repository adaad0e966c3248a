"""The study of slack: its bound against a Gaussian density on a grid, and exactness where nothing is lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from experiments import slack


@pytest.mark.slow
def test_the_best_bound_is_the_top_of_the_log_density(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.float64)
    targets = root @ torch.randn(12, 2, dtype=torch.float64) / 12**0.5 + 0.2 * torch.randn(12, 2, dtype=torch.float64)
    gram = root @ root.mT / 12
    values, vectors = torch.linalg.eigh(gram)
    best = slack.best(values, (vectors.mT @ targets).square().sum(1), targets, 0.0)

    def log_density(variance: float, noise: float) -> float:
        law = torch.distributions.MultivariateNormal(torch.zeros(12).double(), variance * gram + noise * torch.eye(12))
        return float(law.log_prob(targets.mT).sum())

    grid = torch.logspace(-2, 1, 41).tolist()
    top = max(log_density(variance, noise) for variance in grid for noise in grid)
    assert top - 1e-9 <= best <= top + 0.1
    monkeypatch.setattr(slack, "MOST_EIGENVALUES", 11)
    assert slack.exact_evidence(gram, targets) == pytest.approx(best, abs=1e-4)
    # A trace that is lost costs, and never gains.
    assert slack.best(values, (vectors.mT @ targets).square().sum(1), targets, 3.0) < best


@pytest.mark.parametrize("orbit", [slack.SHIFTS, "rotation(60)"])
def test_averages_over_the_draws_of_the_data_lose_nothing(orbit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slack, "learned_lengthscale", lambda *_: 1.5)
    run = slack.Slack(
        orbit, num_data=30, num_samples=4, inducing=(10, 30), variables=((1, "random"), (2, "greedy"), (0, "greedy"))
    )
    record = {
        "settings": {"orbit": orbit, "num_data": 30, "num_samples": 4, "inducing": (10, 30)},
        **run.measure("cpu"),
    }
    lost = {(b["samples"], b["inducing"]): slack.lost(record, b) for b in record["bounds"]}
    most = max(samples for samples, _ in lost)
    assert all(value > -1e-3 for value in lost.values())
    assert lost[most, 30] < 1.0
    assert lost[most, 10] < lost[1, 10]
    assert lost[1, 30] > 10
    assert slack.table([record]).count("P = all, greedy") == 1


def test_plans() -> None:
    sizes = {
        name: {
            (run.dataset, run.num_data)
            for run in slack.plan(SimpleNamespace(mnist=name == "mnist", quick=name == "quick"))
        }
        for name in ("digits", "mnist", "quick")
    }
    assert sizes["digits"] == {("digits", 1347)}
    assert sizes["mnist"] == {("digits", 1347), ("mnist", 60_000)}
    assert sizes["quick"] == {("digits", 200)}
