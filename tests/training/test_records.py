"""What a run tells of itself."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.records import headline
from orbitgp.training.trainer import Trainer


def make_trainer(inducing, **options):
    x = torch.linspace(-2, 2, 20)[:, None]
    model = InvariantGP(RBFKernel(), GaussianNoise(0.3), inducing, jitter=1e-12)
    return Trainer(
        model, Gaussian(1, 0.1), x, x.sin().double(), TrainerSettings(max_steps=40, num_samples=8, start_rows=0, **options)
    )


def test_where_there_is_no_factor_the_jitter_grows():
    trainer = make_trainer(torch.zeros(5, 1))  # all points are one
    with torch.no_grad():
        variance = float(trainer.model.kernel(torch.zeros(1, 1, dtype=torch.float64)).to_dense())
        trainer.model.jitter = -1e-8 * variance  # takes more from the diagonal than there is
        trainer.stochastic.posterior.update(1.0)
    assert 1e-10 < trainer.model.jitter / variance < 1e-6


def test_a_record_without_the_orbit_says_so():
    record = {"orbit": {"degrees": 5.0}, "bound": -3.2, "climb": 1, "without_orbit": True, "exact": True}
    assert headline(record, {"degrees": "°"}) == "climb 2, evidence -3, without the orbit"
    assert headline({**record, "exact": False}, {"degrees": "°"}) == "climb 2, bound -3, without the orbit"
    assert headline({"orbit": {"degrees": 5.0}, "bound": -3.2}, {"degrees": "°"}) == "bound -3, degrees ±5.0°"
