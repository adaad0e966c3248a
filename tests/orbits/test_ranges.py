"""Learned ranges contain the value that changes nothing: symmetric by default, two-sided if given so."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from math import atanh, radians
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from experiments.infinimnist import TangentDeformation
from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.orbits import (
    Affine,
    Brightness,
    Contrast,
    Orbit,
    Scale,
    Shear,
    Thickness,
    Translation,
)
from orbitgp.orbits.ranges import DEGREES, Range, drawn

SYMMETRIC = {
    "affine": lambda: Affine(angle=(-9, 9), scale_x=(0.8, 1.25)),
    "translation": lambda: Translation(1, (-2, 2)),
    "scale": lambda: Scale(),
    "shear": lambda: Shear((-0.1, 0.1)),
    "thickness": lambda: Thickness(),
    "tangent": lambda: TangentDeformation(),
    "contrast": lambda: Contrast((0.5, 2)),
    "brightness": lambda: Brightness(),
}
TWO_SIDED = {
    "affine": lambda: Affine((-3, 12), (0.9, 1.3), (0.7, 1.1), (-0.2, 0.1), (-1, 2), (-3, 0.5)),
    "translation": lambda: Translation((-1, 2), (-3, 0.5)),
    "scale": lambda: Scale((0.9, 1.3)),
    "shear": lambda: Shear((-0.2, 0.1)),
    "thickness": lambda: Thickness((-0.1, 0.8)),
    "tangent": lambda: TangentDeformation(thickness=(-0.1, 0.8)),
    "contrast": lambda: Contrast((0.9, 1.5)),
    "brightness": lambda: Brightness((-0.3, 0.1)),
}
EVERY = [*(("symmetric", name) for name in SYMMETRIC), *(("two-sided", name) for name in TWO_SIDED)]


def make(kind: str, name: str) -> Orbit:
    return (SYMMETRIC if kind == "symmetric" else TWO_SIDED)[name]()


def ranges_of(orbit: Orbit) -> Iterator[Range]:
    return (part for part in orbit.modules() if isinstance(part, Range))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_learned_range_contains_no_change(kind: str, name: str, dtype: torch.dtype) -> None:
    """Whatever the optimiser does to the raw parameters, in what is described and in what is drawn."""
    generator = torch.Generator().manual_seed(0)
    orbit = make(kind, name).to(dtype)
    for size in (0.1, 1.0, 30.0):
        for _ in range(20):
            for parameter in orbit.parameters():
                parameter.data = size * torch.randn(parameter.shape, generator=generator, dtype=dtype)
            for interval in ranges_of(orbit):
                low, high = interval.ends()
                assert low <= 0 <= high
                first, last = sorted(interval(torch.tensor([0.0, 1.0], dtype=dtype)).tolist())
                assert (first, last) == pytest.approx((low, high), rel=1e-4, abs=1e-4 * (high - low))
            for key, quantity in orbit.describe().quantities.items():
                if isinstance(quantity.value, tuple):
                    assert quantity.value[0] <= quantity.neutral <= quantity.value[1], key


@pytest.mark.parametrize("name", SYMMETRIC)
def test_numbers_and_symmetric_pairs_learn_their_width_alone(name: str) -> None:
    orbit = SYMMETRIC[name]()
    assert not [key for key, _ in orbit.named_parameters() if key.endswith(("centre", "skew"))]
    assert all(interval.ends()[0] == -interval.ends()[1] for interval in ranges_of(orbit))


@pytest.mark.parametrize("name", TWO_SIDED)
def test_other_pairs_learn_both_sides_and_start_where_they_were_put(name: str) -> None:
    orbit = TWO_SIDED[name]()
    assert all(interval.skew.requires_grad for interval in ranges_of(orbit))
    again = type(orbit)(
        **{key: value for key, value in orbit.describe().items() if key not in ("amplitude", "smoothness")}
    )
    assert all(
        a.ends() == pytest.approx(b.ends(), rel=1e-4) for a, b in zip(ranges_of(orbit), ranges_of(again), strict=True)
    )


def test_half_width_and_skew_in_formulae() -> None:
    interval = Range((-0.3, 0.9)).double()
    assert interval.half_width.item() == pytest.approx(0.6)
    assert interval.skew.item() == pytest.approx(atanh(0.5))
    torch.testing.assert_close(
        interval(torch.tensor([0.0, 0.25, 1.0]).double()), torch.tensor([-0.3, 0.0, 0.9]).double(), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(("half_width", "skew"), [(0.3, 0.0), (0.3, 2.0), (-0.3, 2.0), (-2.0, -3.0)])
def test_gradcheck(half_width: float, skew: float) -> None:
    interval = Range((-1, 2)).double()
    interval.half_width.data.fill_(half_width)
    interval.skew.data.fill_(skew)
    u = torch.rand(7, dtype=torch.float64)
    parameters = tuple(interval.parameters())
    assert gradcheck(lambda *_: interval(u), parameters)
    assert all(grad != 0 for grad in torch.autograd.grad(interval(u).sum(), parameters))


def test_values_of_several_ranges_are_those_of_each() -> None:
    ranges = [Range((-0.3, 0.9)), Range(4.0, DEGREES), Range((0.1, 0.4), learn=False), Range((0, 2))]
    u = torch.rand(5, 3, len(ranges), dtype=torch.float64)
    for found, one, own in zip(drawn(ranges, u), ranges, u.unbind(-1), strict=True):
        torch.testing.assert_close(found, one(own))


def test_a_negative_half_width_mirrors_the_range() -> None:
    orbit = Translation((-1, 2), 3)
    for interval in ranges_of(orbit):
        interval.half_width.data *= -1
    assert orbit.describe()["shift_x"] == pytest.approx((-2, 1))
    assert orbit.describe()["shift_y"] == pytest.approx((-3, 3))


def test_starts_multiply_the_width_and_keep_the_side() -> None:
    orbit = Translation((-1, 2), 2)
    for reach in orbit.reaches():
        reach.data *= 3
    assert orbit.describe()["shift_x"] == pytest.approx((-3, 6))
    assert orbit.describe()["shift_y"] == pytest.approx((-6, 6))


def test_a_pair_that_ends_at_no_change_stays_one_sided() -> None:
    for orbit, key in ((Brightness((0, 0.3)), "brightness"), (Thickness((-0.4, 0)), "thickness")):
        (interval,) = ranges_of(orbit)
        assert [name for name, p in interval.named_parameters() if p.requires_grad] == ["half_width"]
        interval.half_width.data *= 2
        low, high = orbit.describe()[key]
        assert (low, high) == (pytest.approx((0, 0.6)) if key == "brightness" else pytest.approx((-0.8, 0)))
        assert orbit.double().describe()[key][0 if key == "brightness" else 1] == 0
    assert str(Brightness((0, 0.3)).describe()).split()[2:] == ["0", "…", "0.30"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Affine(angle=(11.7, 12.0)),
        lambda: Translation(shift_y=(-3, -1)),
        lambda: Scale((1.2, 1.24)),
        lambda: Shear((0.01, 0.2)),
        lambda: Thickness((0.7, 0.9)),
        lambda: TangentDeformation(thickness=(0.7, 0.9)),
        lambda: Contrast((0.5, 0.9)),
        lambda: Brightness((0.1, 0.3)),
    ],
)
def test_a_learned_range_without_no_change_is_refused(build: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="must contain the value that changes nothing") as error:
        build()
    assert "\n" not in str(error.value)
    assert "transform the data beforehand" in str(error.value)


def test_a_fixed_range_may_lie_anywhere() -> None:
    assert Affine(angle=(11, 12), frozen=("angle",)).describe()["angle"] == pytest.approx((11, 12))
    assert Scale((1.2, 1.24), frozen=("scale",)).describe()["scale"] == pytest.approx((1.2, 1.24))
    orbit = Brightness((0.1, 0.3), learn=False)
    assert orbit.describe()["brightness"] == pytest.approx((0.1, 0.3))
    assert not any(p.requires_grad for p in orbit.parameters())


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_pickles_and_copies(kind: str, name: str) -> None:
    orbit = make(kind, name)
    for again in (pickle.loads(pickle.dumps(orbit)), copy.deepcopy(orbit)):
        assert again.describe().to_dict() == orbit.describe().to_dict()
        assert [(n, p.requires_grad) for n, p in again.named_parameters()] == [
            (n, p.requires_grad) for n, p in orbit.named_parameters()
        ]
    assert pickle.dumps(pickle.loads(pickle.dumps(orbit))) == pickle.dumps(orbit)


def climb(orbit: Orbit, x: torch.Tensor, planted: torch.Tensor) -> None:
    """Make the mean and the second moment of the orbit's samples those of what was planted."""
    u = (torch.arange(32) + 0.5).div(32).to(x.dtype).view(1, 32, 1).expand(len(x), -1, -1)
    optimiser = torch.optim.LBFGS(orbit.parameters(), max_iter=100, tolerance_change=0.0, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        xa = orbit.transform(x, u)
        moments = (xa.mean(1) - planted.mean(1), xa.square().mean(1) - planted.square().mean(1))
        value = 100 * torch.stack([moment.square().mean() for moment in moments]).sum()
        value.backward()
        return value

    optimiser.step(loss)


@pytest.mark.parametrize("start", [(-0.3, 0.05), (-0.1, 0.05), (-0.05, 0.1), (-0.02, 0.9)])
def test_brightness_that_is_mostly_added_moves_the_range(start: tuple[float, float]) -> None:
    """From either side: a range that leans to the wrong one must not get stuck at width zero on its way."""
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)).double()
    planted = x[:, None] + torch.linspace(-0.05, 0.35, 101, dtype=x.dtype)[:, None]
    orbit = Brightness(start).double()
    climb(orbit, x, planted)
    assert orbit.describe()["brightness"] == pytest.approx((-0.05, 0.35), abs=0.01)


@pytest.mark.parametrize("start", [(-15, 5), (-5, 15)])
def test_rotations_to_one_side_move_the_range(start: tuple[int, int]) -> None:
    others = ("scale_x", "scale_y", "shear", "shift_x", "shift_y")
    line = torch.arange(13.0).double() - 6
    x = torch.exp(-((line - 3) ** 2 + (line[:, None] / 4) ** 2))[None]
    planted = Affine(angle=(-3, 30), frozen=("angle",), **dict.fromkeys(others)).double()
    orbit = Affine(angle=start, **dict.fromkeys(others)).double()
    climb(orbit, x, planted.transform(x, torch.linspace(0, 1, 101).double().view(1, 101, 1)).detach())
    assert orbit.describe()["angle"] == pytest.approx((-3, 30), abs=1)


def test_a_symmetric_range_stays_symmetric_where_one_side_would_be_better() -> None:
    x = torch.rand(4, 6)
    orbit = Brightness(0.1)
    climb(orbit, x, x[:, None] + torch.linspace(-0.05, 0.35, 101)[:, None])
    low, high = orbit.describe()["brightness"]
    assert low == -high
    assert high != pytest.approx(0.1)


@pytest.mark.slow
def test_symmetric_ranges_stay_symmetric_in_training() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(24, 6, 6, generator=generator).numpy(), (torch.arange(24) % 2).numpy()
    start = Affine() * Brightness()
    quick = TrainingOptions(num_predict_samples=8)
    fitted = InvariantGPClassifier(
        start, max_steps=8, num_inducing=8, num_samples=8, training=quick, random_state=0
    ).fit(x, y)
    learned = list(ranges_of(fitted.orbit_))
    assert len(learned) == 7
    assert all(interval.ends()[0] == -interval.ends()[1] for interval in learned)
    assert any(a.ends() != b.ends() for a, b in zip(learned, ranges_of(start), strict=True))


def test_words() -> None:
    lines = str(Affine((-3, 12), scale_x=None, scale_y=None).describe()).splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "angle −3° … +12°",
        "shear ±0.15",
        "shift_x ±1.0 px",
        "shift_y ±1.0 px",
    ]


def test_an_angle_is_reflected_at_the_whole_turn() -> None:
    """A range of ±200 degrees would cover some angles twice. It is what ±160 is, and its width may go on either way."""
    interval = Range(150.0, DEGREES, "angle")
    with torch.no_grad():
        interval.half_width.add_(radians(50))
    assert interval.quantity().value == pytest.approx((-160, 160))
    draws = interval(torch.tensor([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(draws.detach().rad2deg(), [-160, 0, 160], atol=1e-4)
    draws[2].backward()
    assert interval.half_width.grad == -1.0


def test_an_angle_that_is_given_wider_is_the_whole_turn() -> None:
    assert Affine(angle=270.0).describe()["angle"] == pytest.approx((-180, 180))
    assert Affine(angle=270.0, frozen=["angle"]).describe()["angle"] == pytest.approx((-180, 180))
    assert Affine(angle=(-90, 360)).describe()["angle"][1] == pytest.approx(288)  # the same share of it on each side
