"""Where local parameters come from: every source trains, none is optimistic, and a run goes on from its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from experiments.stick_breaking import StickBreaking
from orbitgp import InvariantGPClassifier
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.local_parameters import LocalName, LocalParameters, RecognitionNetwork, Setting
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood
from orbitgp.orbits import GaussianNoise, Orbit
from orbitgp.planning.options import TrainerSettings, TrainingOptions
from orbitgp.training.trainer import Trainer
from tests.likelihoods.own import gaussian_moments

SOURCES: tuple[LocalName, ...] = get_args(LocalName)


def make_trainer(orbit: Orbit | None = None, **options: Any) -> Trainer:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, dtype=torch.float64, generator=generator)
    likelihood = Bernoulli()
    y = likelihood.encode((x[:, 0] > 0).long())
    orbit = GaussianNoise(0.3).double() if orbit is None else orbit
    kernel = ScaleKernel(RBFKernel()).double()
    model = InvariantGP(kernel, orbit, initial_inducing(x, orbit, kernel, 8, generator=generator))
    settings = {"max_steps": 12, "batch_size": 16, "num_samples": 4, "start_rows": 0}
    return Trainer(model, likelihood, x, y, TrainerSettings(**{**settings, **options}))


@pytest.mark.slow
@pytest.mark.parametrize("local", SOURCES)
def test_every_source_raises_the_bound(local: LocalName) -> None:
    trainer = make_trainer(local=local, max_steps=40)
    trainer.run()
    first, last = (
        np.mean([record["bound"] for record in part]) for part in (trainer.history[:5], trainer.history[-5:])
    )
    assert last > first + 1.0


def test_the_network_learns_with_everything_else() -> None:
    trainer = make_trainer(local="network")
    before = [p.detach().clone() for p in trainer.stochastic.local.parameters()]
    trainer.run()
    assert before
    for old, new in zip(before, trainer.stochastic.local.parameters(), strict=True):
        assert not torch.equal(old, new)


@pytest.mark.parametrize("local", SOURCES)
def test_a_run_that_goes_on_from_a_state_ends_in_the_same_place(local: LocalName) -> None:
    whole, first, second = (make_trainer(local=local) for _ in range(3))
    for _ in range(8):
        whole.stochastic.step()
    for _ in range(4):
        first.stochastic.step()
    second.load_state_dict(first.state_dict())
    for _ in range(4):
        second.stochastic.step()
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(
        whole.stochastic.local.state_dict().values(), second.stochastic.local.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


def test_kept_values_start_at_one_and_are_the_best_for_the_moments_of_their_last_refit() -> None:
    x, y = torch.zeros(5, 2, dtype=torch.float64), torch.ones(5, 1, dtype=torch.float64)
    model, likelihood = make_trainer().model, Bernoulli()
    kept = LocalParameters("kept", Setting(model, likelihood, x, y), seed=0)
    rows, moments = (
        torch.tensor([3, 1]),
        gaussian_moments(torch.tensor([[2.0], [-3.0]]).double(), torch.ones(2, 1).double()),
    )
    best = likelihood.local(y[rows], moments)
    assert kept.values is not None
    assert torch.equal(kept.refit(rows, moments), best)
    assert torch.equal(kept.at(torch.arange(5)), torch.ones(5, 1).double().index_copy(0, rows, best))
    without = LocalParameters("kept", Setting(model, Gaussian(), x, y), seed=0)
    assert without.at(rows) is None
    assert without.refit(rows, moments) is None
    assert without.values is None


def test_the_network_starts_from_the_seed_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, same, other = (make_trainer(local="network", seed=seed).stochastic.local.state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    weights = "network.body.0.weight"
    assert torch.equal(one[weights], same[weights])
    assert not torch.equal(one[weights], other[weights])


def test_no_source_is_optimistic() -> None:
    """On average over draws none lies above the bound with the best local parameters; those of the scored draws do."""
    trainer = make_trainer()
    for _ in range(5):
        trainer.stochastic.step()
    model, likelihood, x, y = trainer.stochastic.local.setting
    exact = model.moments(model.whitened_means(model.orbit.sample(x, 1024, 2, "qmc", trainer.stochastic.generator)))
    draws = 100
    setting = Setting(model, likelihood, x.repeat(draws, 1), y.repeat(draws, 1))
    rows = torch.arange(len(setting.x))
    samples = model.orbit.sample(setting.x, 4, 4, "iid", trainer.stochastic.generator)
    with torch.no_grad():
        moments = model.moments(model.whitened_means(samples))
        best = likelihood.quadratic(setting.y, likelihood.local(y, exact).repeat(draws, 1)).expectation(moments)
        same = likelihood.quadratic(setting.y, likelihood.local(setting.y, moments)).expectation(moments)
        scored = {"same": same}
        network = LocalParameters("network", setting, seed=0).at(rows)
        scored["network"] = likelihood.quadratic(setting.y, network).expectation(moments)
    for name, terms in scored.items():
        difference = (terms - best).reshape(draws, -1).sum(1)
        z = float(difference.mean() / difference.std()) * draws**0.5
        assert z > 4 if name == "same" else z < 4, (name, z)


@pytest.mark.slow
@pytest.mark.parametrize("local", SOURCES)
def test_estimators_take_it_and_predictions_need_it_no_more(local: LocalName, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y = np.where(x[:, 0] > 0, "right", "left")
    model = InvariantGPClassifier(
        GaussianNoise(0.2),
        num_inducing=10,
        num_samples=8,
        max_steps=6,
        random_state=0,
        training=TrainingOptions(local=local),
    ).fit(x, y)
    assert model.score(x, y) > 0.8
    model.save(tmp_path / "model.safetensors")
    again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))


@pytest.mark.parametrize("shape", [(5,), (8, 8), (7, 9), (3, 8, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_shapes_and_start(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    likelihood = StickBreaking(4)
    x, y = torch.rand(6, *shape, dtype=dtype), likelihood.encode(torch.tensor([0, 1, 2, 3, 0, 1]))
    local = RecognitionNetwork(likelihood, x, y)(x, y)
    assert local.dtype == torch.float64
    torch.testing.assert_close(local.detach(), torch.ones(6, 3, dtype=torch.float64))


def test_a_column_without_spread_does_no_harm() -> None:
    x, y = torch.ones(4, 2), torch.ones(4, 1)
    assert bool(torch.isfinite(RecognitionNetwork(Bernoulli(), x, y)(x, y)).all())


@pytest.mark.parametrize(("shape", "width"), [((3,), 3), ((8, 8), 32 * 2 * 2)], ids=["table", "images"])  # halved twice
def test_the_network_sees_inputs_in_any_units_and_starts_at_one(shape: tuple[int, ...], width: int) -> None:
    x, y = torch.randn(20, *shape, dtype=torch.float64), torch.ones(20, 1, dtype=torch.float64)
    seen = []
    for inputs in (x, 1000 * x + 50):
        torch.manual_seed(0)
        network = RecognitionNetwork(Bernoulli(), inputs, y)
        assert network.body[0].in_features == width + 1
        assert torch.equal(network(inputs, y), torch.ones_like(y))
        torch.nn.init.normal_(network.last.weight)
        seen.append(network(inputs, y))
    assert seen[0].std() > 0.01
    torch.testing.assert_close(*seen)


@pytest.mark.slow
def test_learns_the_best_local_parameters() -> None:
    """Moments that are a function of x: trained by the bound alone, the network comes close to the closed form's
    bound."""
    likelihood: Likelihood = Bernoulli()
    x = torch.linspace(-3, 3, 200, dtype=torch.float64)[:, None]
    y = torch.where(x > 0, 1.0, -1.0).double()
    moments = gaussian_moments(4 * torch.sin(x), 0.2 + x.square() / 4)
    network = RecognitionNetwork(likelihood, x, y)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def bound() -> torch.Tensor:
        return likelihood.quadratic(y, network(x, y)).expectation(moments).mean()

    best = likelihood.quadratic(y, likelihood.local(y, moments)).expectation(moments).mean().item()
    before = bound().item()
    for _ in range(300):
        optimizer.zero_grad()
        (-bound()).backward()
        optimizer.step()
    after = bound().item()
    assert after < best + 1e-12
    assert best - after < 0.05 * (best - before)
