"""What is plausible, against profiles by fits with the range held fixed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.datasets import digits, rotate
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, LocalDeformation, Orbit, Permutation, Rotation, Scale, Translation
from orbitgp.planning.cost import workload
from orbitgp.planning.rungs import Rung
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.report.page import Content, page
from orbitgp.training.ladder import Ladder
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.objective import Objective
from orbitgp.training.plausible import plausible_ranges

ROWS = 24


def images(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """A dot somewhere around the middle; the target is its brightness."""
    place = torch.arange(7.0)
    across, down = torch.rand(2, rows, 1, 1) * 2 + 2
    bright = torch.rand(rows, 1, 1) + 0.5
    x = bright * torch.exp(-0.5 * ((place - across) ** 2 + (place[:, None] - down) ** 2))
    return x.double(), (bright[:, 0] + 0.01 * torch.randn(rows, 1)).double()


def climbed(kernel: Kernel | None = None) -> Ladder:
    x, y = images()
    orbit = Translation(0.7, None).double()
    model = ExactGP((kernel or ScaleKernel(RBFKernel())).double(), orbit, x, 1)
    climber = Ladder(model=model, likelihood=Gaussian(1, 0.3), x=x, y=y, rungs=[Rung(len(x), 16)], several=False)
    climber.run()
    return climber


@pytest.mark.slow
def test_the_run_is_left_as_it_was_and_the_best_is_plausible() -> None:
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
def test_a_flat_direction_of_the_kernel_says_nothing_of_the_orbit() -> None:
    """Of two factors, the data see the product alone."""
    found = []
    for kernel in (ScaleKernel(RBFKernel()), ScaleKernel(ScaleKernel(RBFKernel()))):
        torch.manual_seed(0)
        found += [end.value for end in plausible_ranges(climbed(kernel))["shift_x"]]
    np.testing.assert_allclose(found[2:], found[:2], rtol=0.1)


@pytest.mark.slow
def test_nothing_is_plausible_where_nothing_was_learned_of_the_orbit() -> None:
    x = torch.rand(12, 2, dtype=torch.float64)
    model = InvariantGPRegressor(Permutation.swap(0, 1), random_state=0, max_steps=20)
    model.fit(x.numpy(), x.sum(1).numpy())
    assert model.plausible_ == {}
    stopped = climbed()
    stopped.converged = False
    assert plausible_ranges(stopped) == {}


@pytest.mark.slow
def test_nothing_is_plausible_where_no_time_is_left() -> None:
    late = climbed()
    work = workload(late.model, late.likelihood, 16)
    late.limit = TimeLimit(late.seconds + 1e3, len(late.x), len(late.x), work)
    assert plausible_ranges(late)
    late.limit = TimeLimit(late.seconds, len(late.x), len(late.x), work)
    assert plausible_ranges(late) == {}


@pytest.mark.slow
def test_profiles_end_with_the_time(monkeypatch: pytest.MonkeyPatch, let_pass: Callable[[float], None]) -> None:
    """There seems to be time, but the first point alone takes longer."""
    late, asked = climbed(), list[Objective]()
    evaluate = Objective.__call__

    def slow(objective: Objective, vector: Vector) -> tuple[float, Vector]:
        asked.append(objective)
        let_pass(3)
        return evaluate(objective, vector)

    monkeypatch.setattr(Objective, "__call__", slow)
    late.limit = TimeLimit(late.seconds + 3, len(late.x), len(late.x), workload(late.model, late.likelihood, 16))
    assert plausible_ranges(late) == {}
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_where_the_top_is_flat_it_is_said(tmp_path: Path) -> None:
    """Noise on the inputs of an RBF kernel is a longer lengthscale, so that the data cannot tell the two apart."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = InvariantGPRegressor("noise(0.1)", random_state=0).fit(x, x.sum(1))
    assert model.plausible_ == {"scale": None}
    assert model.describe().rows()[0][1].endswith(" (not determined)")
    assert model.summary().startswith("Learned noise of standard deviation ")
    assert " (not determined); " in model.summary()
    assert "not determined</small>" in page(Content("sums", model, x, x.sum(1), GaussianNoise(0.1).describe()))
    model.save(tmp_path / "model")
    assert InvariantGPRegressor.load(tmp_path / "model").plausible_ == model.plausible_


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_it_agrees_with_the_profile() -> None:
    """Where the evidence with the range held fixed falls by 1.92 nats, half of the 95 % point of chi squared."""
    data = digits()
    x, y = rotate(data.x_train[:24], 30, seed=0)[0], data.y_train[:24]
    settings = {"likelihood": "gaussian", "num_samples": 8}
    model = InvariantGPClassifier(Rotation(30), **settings).fit(x, y)

    def below(degrees: float) -> float:
        held = InvariantGPClassifier(Rotation(degrees, learn=False), **settings).fit(x, y)
        return model.history_[-1]["bound"] - held.history_[-1]["bound"]  # with the same draws

    for end in model.describe().quantities["degrees"].plausible:
        assert below(end.value) == pytest.approx(1.92, abs=0.4)


class Evidence:
    """A log evidence in closed form, of an orbit's parameters and of the number of rows and draws."""

    def __init__(self, climber: Ladder, value: Callable[[Tensor, int | None], Tensor], rung: Rung) -> None:
        self.learned, self.of, self.draws, self.share = climber.learned, value, rung.draws, rung.rows / len(climber.x)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        self.learned.set(vector)
        parameters = torch.tensor(vector, requires_grad=True)
        value = -self.of(parameters, self.draws) * self.share
        return value.item(), torch.autograd.grad(value, parameters)[0].numpy()


def at_top(orbit: Orbit, best: list[float], value: Callable[[Tensor, int | None], Tensor], rows: int = 10) -> Ladder:
    """A run that has learned these parameters of an orbit, and nothing else."""
    orbit = orbit.double()
    climber: Any = Ladder.__new__(Ladder)
    climber.x, climber.converged, climber.limit, climber.seconds = torch.zeros(rows, 1), True, TimeLimit(None), 0.0
    climber.model = SimpleNamespace(orbit=orbit, num_samples=64, prior_mean=SimpleNamespace(bias=torch.zeros(1)))
    climber.learned = LearnedVector.__new__(LearnedVector)
    climber.learned.parameters = [p for p in orbit.parameters() if p.requires_grad]
    widest = {id(r): end for r, end in zip(orbit.reaches(), orbit.widest_reaches(), strict=True)}
    climber.learned.units = np.ones(len(best))
    climber.learned.is_reach = np.array([id(p) in widest for p in climber.learned.parameters])
    climber.learned.widest = np.array([widest.get(id(p), inf) for p in climber.learned.parameters])
    climber.learned.set(np.array(best))
    climber.objective = lambda rung: Evidence(climber, value, rung)
    return climber


def around(*centres: float, sd: float = 0.1) -> Callable[[Tensor, int | None], Tensor]:
    """A Gaussian in the size of each parameter."""
    return lambda vector, _: -0.5 * (((vector.abs() - torch.tensor(centres)) / sd) ** 2).sum()


def ends(climber: Ladder) -> list[list[float | tuple[float, float]] | None]:
    return [None if found is None else [end.value for end in found] for found in plausible_ranges(climber).values()]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("best", "low", "high"), [(0.6, 0.404, 0.796), (0.1, 0.0, 0.296), (3.1, 2.904, pi)])
def test_a_reach_ends_at_zero_and_where_it_is_widest(sign: int, best: float, low: float, high: float) -> None:
    (found,) = ends(at_top(Rotation(), [sign * best], around(best)))
    np.testing.assert_allclose(np.radians(found), [low, high], atol=0.005)


def test_a_reach_that_is_reflected() -> None:
    (found,) = ends(at_top(Rotation(), [2 * pi - 3.0], lambda v, _: -0.5 * ((2 * pi - 3.0 - v[0]) / 0.1) ** 2))
    np.testing.assert_allclose(np.radians(found), [2.804, pi], atol=0.005)


def test_where_nothing_limits_a_reach_the_widest_is_infinite() -> None:
    def flat_above(vector: Tensor, _: int | None) -> Tensor:
        return -0.5 * ((0.5 - vector.abs()).clip(0) / 0.1).square().sum()

    (found,) = ends(at_top(Translation(1.0, None), [0.6], flat_above))
    np.testing.assert_allclose(found, [(-3.04, 3.04), (-inf, inf)], rtol=0.02)
    (found,) = ends(at_top(Scale(1.2), [0.6], flat_above))
    np.testing.assert_allclose(found, [(np.exp(-0.304), np.exp(0.304)), (0.0, inf)], rtol=0.02)
    assert ends(at_top(Scale(1.2), [0.6], lambda vector, _: 0.0 * vector.sum())) == [None]


def test_parameters_that_are_no_reach_have_profiles_too() -> None:
    """The amplitude of a deformation, in tens of pixels, and the logarithm of its smoothness."""
    amplitude, smoothness = ends(at_top(LocalDeformation(), [0.5, 2.0], around(0.5, 2.0)))
    np.testing.assert_allclose(amplitude, [3.04, 6.96], rtol=0.01)
    np.testing.assert_allclose(np.log(smoothness), [1.804, 2.196], rtol=0.01)
    low, high = ends(at_top(Translation((-1, 3), None), [0.2, 0.5], around(0.2, 0.5, sd=0.01)))[0]
    seen = [(2.0, 0.5), (1.804, 0.5), (2.196, 0.5), (2.0, 0.4804), (2.0, 0.5196)]  # pixels, and the skew
    lows, highs = np.array([(h * (np.tanh(t) - 1), h * (np.tanh(t) + 1)) for h, t in seen]).T
    np.testing.assert_allclose([low, high], [(lows.max(), highs.min()), (lows.min(), highs.max())], rtol=0.01)


def test_some_rows_and_few_draws_stand_for_all() -> None:
    """The top of 16 draws lies elsewhere. What is plausible lies around the one that was learned."""

    def moved(vector: Tensor, draws: int | None) -> Tensor:
        return -0.5 * ((vector[0] - 0.6 - 1 / draws) / 0.1) ** 2

    (found,) = ends(at_top(Rotation(), [0.6], moved, rows=1600))
    np.testing.assert_allclose(np.radians(found), [0.404, 0.796], atol=0.005)


def test_nothing_is_said_of_many_parameters() -> None:
    best = [0.1] * 30
    assert plausible_ranges(at_top(GaussianNoise(0.1, 30), best, around(*best))) == {}
