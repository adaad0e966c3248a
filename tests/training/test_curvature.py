"""What is plausible: the curvature of the evidence against differences of its values, and against a profile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.datasets import digits, rotate
from orbitgp.inference.exact import ExactGP, workload
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, Permutation, Rotation, Translation
from orbitgp.report.page import Content, page
from orbitgp.training.curvature import plausible_ranges, precision
from orbitgp.training.options import TrainerSettings
from orbitgp.training.quasi_newton import QuasiNewton
from orbitgp.training.time_limit import TimeLimit

ROWS = 24


def images(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """A dot somewhere around the middle; the target is its brightness."""
    place = torch.arange(7.0)
    across, down = torch.rand(2, rows, 1, 1) * 2 + 2
    bright = torch.rand(rows, 1, 1) + 0.5
    x = bright * torch.exp(-0.5 * ((place - across) ** 2 + (place[:, None] - down) ** 2))
    return x.double(), (bright[:, 0] + 0.01 * torch.randn(rows, 1)).double()


def climbed(kernel: Kernel | None = None) -> QuasiNewton:
    x, y = images()
    orbit = Translation(0.7, None).double()
    model = ExactGP((kernel or ScaleKernel(RBFKernel())).double(), orbit, x, 1)
    climber = QuasiNewton(model, Gaussian(1, 0.3), x, y, TrainerSettings(start_rows=0), num_samples=16)
    climber.run()
    return climber


def test_the_precision_is_the_second_difference_of_the_evidence():
    x = torch.rand(15, 2, dtype=torch.float64) * 4
    model = ExactGP(ScaleKernel(RBFKernel()).double(), GaussianNoise(0.4).double(), x, 1)
    climber = QuasiNewton(model, Gaussian(1, 0.3), x, torch.sin(x[:, :1]) + 0.1, TrainerSettings(start_rows=0), num_samples=8)
    climber.run()
    best = climber.learned.get()
    found = precision(climber, np.full(len(best), 0.01))

    def evidence(vector: np.ndarray) -> float:
        climber.learned.set(vector)
        return climber.model.log_evidence(climber.likelihood, climber.y)

    h, size = 0.01, len(best)
    expected = np.zeros((size, size))
    for i, a in enumerate(np.eye(size) * h):
        for j, b in enumerate(np.eye(size) * h):
            corners = [evidence(best + s * a + t * b) * s * t for s in (1, -1) for t in (1, -1)]
            expected[i, j] = -sum(corners) / (4 * h * h)
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.01 * np.abs(expected).max())


@pytest.mark.slow
def test_the_run_is_left_as_it_was_and_the_best_is_plausible():
    climber = climbed()
    before, bias = climber.learned.get(), climber.model.prior_mean.bias.clone()
    ((name, (narrow, wide)),) = plausible_ranges(climber).items()
    assert name == "shift_x"
    np.testing.assert_array_equal(climber.learned.get(), before)
    assert torch.equal(climber.model.prior_mean.bias, bias)
    assert climber.model.num_samples == 16
    best = climber.model.orbit.describe()["shift_x"]
    assert narrow.value[1] < best[1] < wide.value[1]
    assert wide.value[0] < best[0] < narrow.value[0]


@pytest.mark.slow
def test_a_flat_direction_of_the_kernel_says_nothing_of_the_orbit():
    """Of two factors, the data see the product alone."""
    found = []
    for kernel in (ScaleKernel(RBFKernel()), ScaleKernel(ScaleKernel(RBFKernel()))):
        torch.manual_seed(0)
        found += [end.value for end in plausible_ranges(climbed(kernel))["shift_x"]]
    np.testing.assert_allclose(found[2:], found[:2], rtol=0.1)


@pytest.mark.slow
def test_nothing_is_plausible_where_nothing_was_learned_of_the_orbit():
    x = torch.rand(12, 2, dtype=torch.float64)
    model = InvariantGPRegressor(Permutation.swap(0, 1), random_state=0).fit(x.numpy(), x.sum(1).numpy())
    assert model.plausible_ == {}
    stopped = climbed()
    stopped.converged = False
    assert plausible_ranges(stopped) == {}


@pytest.mark.slow
def test_nothing_is_plausible_where_no_time_is_left():
    late = climbed()
    work = workload(late.model, late.likelihood, 16)
    late.limit = TimeLimit(late.seconds + 1e3, len(late.x), len(late.x), work)
    assert plausible_ranges(late)
    late.limit = TimeLimit(late.seconds, len(late.x), len(late.x), work)
    assert plausible_ranges(late) == {}


@pytest.mark.slow
def test_where_the_top_is_flat_it_is_said(tmp_path):
    """Noise on the inputs of an RBF kernel is a longer lengthscale, so that the data cannot tell the two apart."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = InvariantGPRegressor("noise(0.1)", random_state=0).fit(x, x.sum(1))
    assert model.plausible_ == {"scale": None}
    assert model.describe().quantities["scale"].plausible is None
    assert "plausible: the data do not determine scale" in model.summary()
    shown = page(Content("sums", model, x, x.sum(1), GaussianNoise(0.1).describe()))
    assert "The data do not determine noise: standard deviation." in shown
    model.save(tmp_path / "model")
    assert InvariantGPRegressor.load(tmp_path / "model").plausible_ == model.plausible_


@pytest.mark.slow
def test_it_agrees_with_the_profile():
    """Where the evidence with the range held fixed falls by 1.92 nats, half of the 95 % point of chi squared."""
    data = digits()
    x, y = rotate(data.x_train[:40], 30, seed=0)[0], data.y_train[:40]
    settings = {"likelihood": "gaussian", "num_samples": 16}
    model = InvariantGPClassifier(Rotation(30), **settings).fit(x, y)
    best = model.describe()["degrees"]

    def below(degrees: float) -> float:
        held = InvariantGPClassifier(Rotation(degrees, learn=False), **settings).fit(x, y)
        return model.evidence_.value - held.evidence_.value

    for end in model.describe().quantities["degrees"].plausible:
        assert below(best + 0.5 * (end.value - best)) < 1.92 < below(best + 1.8 * (end.value - best))


def test_a_step_to_where_there_is_no_gradient_says_nothing(monkeypatch):
    """As where a deformation would become as rough as it can be."""
    climber = climbed()
    whole, best, reach = climber.objective.gradient_at, climber.learned.get(), climber.learned.is_reach

    def gradient(vector: np.ndarray) -> np.ndarray:
        return whole(vector) * (np.nan if (vector < best)[reach].any() else 1.0)

    monkeypatch.setattr(climber.objective, "gradient_at", gradient)
    assert plausible_ranges(climber) == {"shift_x": None}
