"""What a run tells of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.records import headline, in_words, is_level, rise
from orbitgp.training.trainer import Trainer


def make_trainer(inducing: torch.Tensor, **options: Any) -> Trainer:
    x = torch.linspace(-2, 2, 20)[:, None]
    model = InvariantGP(RBFKernel(), GaussianNoise(0.3), inducing, jitter=1e-12)
    return Trainer(
        model,
        Gaussian(1, 0.1),
        x,
        x.sin().double(),
        TrainerSettings(max_steps=40, num_samples=8, start_rows=0, **options),
    )


def test_where_there_is_no_factor_the_jitter_grows() -> None:
    trainer = make_trainer(torch.zeros(5, 1))  # all points are one
    with torch.no_grad():
        variance = float(trainer.model.kernel(torch.zeros(1, 1, dtype=torch.float64)).to_dense())
        trainer.model.jitter = -1e-8 * variance  # takes more from the diagonal than there is
        trainer.stochastic.posterior.update(1.0)
    assert 1e-10 < trainer.model.jitter / variance < 1e-6


def test_a_record_without_the_orbit_says_so() -> None:
    record = {"orbit": {"degrees": 5.0}, "bound": -3.2, "climb": 1, "without_orbit": True, "exact": True}
    assert headline(record, {"degrees": "°"}) == "climb 2, evidence -3, without the orbit"
    assert headline({**record, "exact": False}, {"degrees": "°"}) == "climb 2, bound -3, without the orbit"
    assert headline({"orbit": {"degrees": 5.0}, "bound": -3.2}, {"degrees": "°"}) == "bound -3, degrees ±5.0°"


# When stochastic steps are over


def curve(left: float, noise: float, records: int = 80) -> list[float]:
    """A bound that rises by 1,000 nats, of which so many are left at the end."""
    rng, time = np.random.default_rng(0), np.linspace(0, 1, records)
    return list(1000 * (1 - np.exp(time * np.log(left / 1000))) + noise * rng.normal(size=records))


def test_a_curve_that_has_come_to_its_end_is_level_and_a_rising_one_is_not() -> None:
    assert is_level(curve(left=1e-4, noise=0.5))
    assert not is_level(curve(left=100, noise=0.5))
    assert not is_level(curve(left=1e-4, noise=0.5)[:10])  # too few to say


def test_noise_that_could_hide_a_rise_is_no_level() -> None:
    assert not is_level(curve(left=1e-4, noise=50.0))


def test_the_error_is_that_of_the_gain() -> None:
    """Over many curves without a trend, gains scatter as their standard errors say."""
    rng = np.random.default_rng(0)
    found = [rise(list(3.0 * rng.normal(size=200))) for _ in range(400)]
    assert np.std([r.gain for r in found]) == pytest.approx(np.mean([r.stderr for r in found]), rel=0.15)


def test_words_say_which_end_it_was() -> None:
    assert "stopped rising" in in_words(100, True, False, rise(curve(1e-4, 0.5)))
    assert "was stopped" in in_words(100, False, True, None)
    assert "while the bound was rising" in in_words(100, False, False, rise(curve(200, 0.5)))
    assert "no more than its noise" in in_words(100, False, False, rise(curve(1e-4, 50.0)))
    assert "too few" in in_words(3, False, False, None)
