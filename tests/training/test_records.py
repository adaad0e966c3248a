"""What a run tells of its own diagnostics."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.records import Diagnostics, headline
from orbitgp.training.trainer import Trainer


def test_signal_to_noise_of_the_orbits_gradient():
    orbit, diagnostics = torch.nn.Linear(2, 1, bias=False), Diagnostics()
    assert "orbit_snr" not in diagnostics.report()
    for i in range(100):
        orbit.weight.grad = torch.tensor([[100.0 - i, 1.0 + (-1) ** i]])
        diagnostics.saw_gradient(orbit)
    last = torch.arange(1.0, 31.0)
    # Of the two, torch takes the lower one for the median: that of 0 and 2 in turns.
    assert last.mean() / last.std() > 1.5
    assert diagnostics.report()["orbit_snr"] == pytest.approx(1 / torch.tensor([0.0, 2.0] * 15).std().item())
    assert len(diagnostics.gradients) == 30


def test_shares_and_counts_begin_anew_with_every_report():
    diagnostics = Diagnostics()
    for blend in (0.0, 0.1, 0.05, 0.0):
        diagnostics.saw_update(blend)
    diagnostics.failed_factors += 2
    assert diagnostics.report() == {"cone_exits": 0.5, "failed_factors": 2}
    assert diagnostics.report() == {"failed_factors": 0}


def make_trainer(inducing, **options):
    x = torch.linspace(-2, 2, 20)[:, None]
    model = InvariantGP(RBFKernel(), GaussianNoise(0.3), inducing, jitter=1e-12)
    return Trainer(
        model, Gaussian(1, 0.1), x, x.sin().double(), TrainerSettings(max_steps=40, num_samples=8, start_rows=0, **options)
    )


def test_the_history_has_it():
    trainer = make_trainer(torch.linspace(-2, 2, 5)[:, None])
    for _ in range(30):
        trainer.stochastic.step()
    record = trainer.stochastic.record()
    assert record["orbit_snr"] > 0
    assert 0 <= record["cone_exits"] <= 1
    assert record["failed_factors"] == 0
    assert record["jitter"] == trainer.model.jitter


def test_where_there_is_no_factor_the_jitter_grows():
    trainer = make_trainer(torch.zeros(5, 1))  # all points are one
    with torch.no_grad():
        variance = float(trainer.model.kernel(torch.zeros(1, 1, dtype=torch.float64)).to_dense())
        trainer.model.jitter = -1e-8 * variance  # takes more from the diagonal than there is
        trainer.stochastic.posterior.update(1.0)
    assert 1e-10 < trainer.model.jitter / variance < 1e-6
    assert trainer.stochastic.diagnostics.report()["failed_factors"] == 1


def test_a_record_without_the_orbit_says_so():
    words = headline({"orbit": {"degrees": 5.0}, "bound": -3.2, "climb": 1, "without_orbit": True}, {"degrees": "°"})
    assert words == "climb 2, evidence -3, without the orbit"
    assert headline({"orbit": {"degrees": 5.0}, "bound": -3.2}, {"degrees": "°"}) == "bound -3, degrees ±5.0°"
