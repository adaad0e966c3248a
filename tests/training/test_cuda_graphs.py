"""A step as a CUDA graph: fresh draws in every replay, inputs copied, gradients where they were; and training with it."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Affine
from orbitgp.planning.options import TrainerSettings
from orbitgp.training import cuda_graphs as capture
from orbitgp.training.cuda_graphs import Captured, Replayed
from orbitgp.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def problem(orbit=None):
    torch.manual_seed(0)
    x, y = torch.rand(30, 8, 8, device="cuda"), torch.randn(30, 2, dtype=torch.float64, device="cuda")
    model = InvariantGP(ScaleKernel(RBFKernel()), orbit or Affine(), x[:10].cpu(), num_latents=2).cuda()
    return model, Gaussian(2).cuda(), x, y


def test_a_step_is_replayed():
    model, likelihood, x, y = problem()
    generator = torch.Generator("cuda").manual_seed(0)

    def step(x, y):
        for parameter in (*model.parameters(), *likelihood.parameters()):
            parameter.grad = None
        bound = elbo(model, likelihood, model.orbit.sample(x, 8, generator=generator), y, 30)
        bound.backward()
        return bound.detach()

    captured = Captured(step, (x, y), [generator])
    bounds = torch.stack([captured(x, y).clone() for _ in range(50)])
    assert len(bounds.unique()) > 40
    generator.manual_seed(0)
    torch.testing.assert_close(torch.stack([step(x, y) for _ in range(50)]), bounds, rtol=1e-6, atol=1e-4)
    assert (captured(x, 10 * y) - bounds.mean()).abs() > 100 * bounds.std()


def trained(steps, launched, **options):
    model, likelihood, x, y = problem()
    trainer = Trainer(model, likelihood, x, y, TrainerSettings(max_steps=steps, batch_size=20, num_samples=8, **options))
    assert isinstance(trainer.stochastic.gradient, Replayed)
    if launched:
        trainer.stochastic.gradient = trainer.stochastic._gradient
    trainer.run()
    assert launched or trainer.stochastic.gradient.replays >= steps
    return trainer


def test_training_ends_where_it_does_without_a_graph():
    replayed, launched = (trained(40, launched) for launched in (False, True))
    for a, b in zip(replayed.history, launched.history, strict=True):
        assert a["bound"] == pytest.approx(b["bound"], rel=1e-3)
        assert a["orbit"]["angle"] == pytest.approx(b["orbit"]["angle"], rel=1e-2)


def test_a_run_that_goes_on_ends_where_it_would_have():
    whole = trained(30, False, start_rows=0)
    model, likelihood, x, y = problem()
    first = Trainer(model, likelihood, x, y, whole.options)
    for _ in range(12):
        first.step()
    state = copy.deepcopy(first.state_dict())
    second = Trainer(*problem(), whole.options)
    second.load_state_dict(state)
    second.run()
    assert second.history[-1]["bound"] == pytest.approx(whole.history[-1]["bound"], rel=1e-3)


def test_another_jitter_is_recorded_anew():
    trainer = trained(4, False)
    trainer.step()
    first = trainer.stochastic.gradient.recorded
    trainer.step()
    assert trainer.stochastic.gradient.recorded is first
    trainer.model.jitter *= 10
    trainer.step()
    assert trainer.stochastic.gradient.recorded[1] is not first[1]


def test_gradients_that_were_put_away_come_back():
    trainer = trained(4, False)
    trainer.stochastic.optimizer.zero_grad()
    trainer.stochastic.gradient(trainer.stochastic.minibatches.take(20))
    assert trainer.model.inducing.grad is not None


class Waiting(Affine):
    """A user's orbit that asks the device for a number."""

    def transform(self, x, u):
        assert float(u.min()) > 0
        return super().transform(x, u)


def test_what_waits_for_the_device_is_launched():
    trainer = Trainer(*problem(Waiting()), TrainerSettings(max_steps=8, batch_size=20, num_samples=8))
    trainer.run()
    assert trainer.stochastic.gradient.replays == 0
    assert trainer.history[-1]["step"] == 8


@pytest.mark.parametrize("late", [False, True])
def test_a_generator_survives_a_recording_that_fails(late, monkeypatch):
    """Whether waiting is noticed before, or only while it is recorded."""
    if late:
        monkeypatch.setattr(capture, "_no_waiting", nullcontext)
    generator = torch.Generator("cuda").manual_seed(3)
    expected = torch.rand(4, generator=generator, device="cuda")
    generator.manual_seed(3)

    def draws_and_waits():
        return float(torch.rand(4, generator=generator, device="cuda").sum())

    with pytest.raises(RuntimeError):
        Captured(draws_and_waits, generators=[generator])
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.equal(torch.rand(4, generator=generator, device="cuda"), expected)
