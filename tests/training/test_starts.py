"""Where runs begin: richer families are not behind simpler ones, and units do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from orbitgp.datasets import digits, rotate
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.kernels import SmoothDerivative
from orbitgp.orbits import Affine, Flip, GaussianNoise, LocalDeformation, Orbit, Rotation, Translation
from orbitgp.planning.options import TrainingOptions
from orbitgp.training.starts import move_to, possible_starts


class Drawn(GaussianNoise):
    """Noise as any infinite orbit: k_f has no closed form, in which lengthscale and noise would be one."""


def signals(rows: int, moved: float = 4.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bumps of different width at different places, as images of one row."""
    rng = np.random.default_rng(seed)
    width, place = rng.uniform(1, 3, rows), rng.uniform(16 - moved, 16 + moved, rows)
    x = np.exp(-0.5 * ((np.arange(32) - place[:, None]) / width[:, None]) ** 2)
    return x[:, None].astype(np.float32), width + 0.05 * rng.normal(size=rows)


def turned_digits(rows: int) -> tuple[np.ndarray, np.ndarray]:
    data = digits(test_fraction=0.0)
    return rotate(data.x_train[:rows], 60.0)[0], data.y_train[:rows]


def reaches(orbit: Orbit) -> list[float]:
    return [float(reach.detach().abs().max()) for reach in orbit.reaches()]


def test_a_composition_contains_its_parts_and_affine_maps_contain_rotations() -> None:
    composition = Rotation(20) * Translation(1.0, 2.0)
    assert [len(family) for family in composition.simpler()] == [1, 2]
    affine = Affine()
    assert [len(family) for family in affine.simpler()] == [1, 3, 2]
    assert affine.simpler()[0][0] is affine.ranges["angle"].half_width
    assert Affine(frozen=["angle"]).simpler()[0][0] is not affine.ranges["angle"].half_width
    assert [len(f) for f in (affine * LocalDeformation(0.5)).simpler()] == [6, 1, 1, 3, 2]
    for alone in (Rotation(20), GaussianNoise(), Flip(), Flip() * Rotation(5), Translation(1.0, None)):
        assert alone.simpler() == []


def test_at_zero_reach_an_orbit_is_the_simpler_one() -> None:
    """With all reaches but the angle's at zero, affine maps are the rotations of the same draws."""
    x, u = torch.rand(2, 6, 6, dtype=torch.float64), torch.rand(1, 4, 6, dtype=torch.float64).expand(2, -1, -1)
    affine = Affine(30.0).double()
    kept = affine.simpler()[0]
    with torch.no_grad():
        for reach in affine.reaches():
            if all(reach is not other for other in kept):
                reach.zero_()
    expected = Rotation(30.0).double().transform(x, u[..., :1])
    assert torch.allclose(affine.transform(x, u), expected, atol=1e-12)


def test_starts_are_narrower_wider_and_simpler() -> None:
    x = turned_digits(40)[0]
    orbit = (Rotation(20) * Translation(1.0, None)).double()
    given = reaches(orbit)
    starts = possible_starts(orbit, torch.from_numpy(x).double())
    assert starts[0] == (1.0, 1.0)
    assert min(starts)[0] < 1.0 < max(starts)[0]
    far_turned = max(starts, key=lambda start: start[0] / start[1])
    far_moved = max(starts, key=lambda start: start[1] / start[0])
    for start, large, small in ((far_turned, 0, 1), (far_moved, 1, 0)):
        assert start[large] > 1.0
        assert start[small] < 0.3
    assert reaches(orbit) == given  # looking changes nothing
    move_to(far_turned, orbit)
    assert reaches(orbit) == pytest.approx([a * b for a, b in zip(given, far_turned, strict=True)])
    assert possible_starts(Flip(), torch.from_numpy(x)) == [(1.0, 1.0), (0.25, 1.0), (4.0, 1.0)]


def bumps_on_waves(rows: int = 40, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Signals of 60 samples: a wave that says nothing, and a bump that is narrow or wide."""
    rng, time = np.random.default_rng(seed), np.arange(60)
    y = rng.integers(0, 2, rows)
    wave = np.cos(2 * np.pi * (time / 40 + rng.uniform(0, 1, (rows, 1)))) * rng.uniform(1, 3, (rows, 1))
    bump = np.exp(-0.5 * ((time - rng.uniform(20, 40, (rows, 1))) / (3 + 3 * y[:, None])) ** 2)
    return wave + bump + 0.05 * rng.normal(size=(rows, 60)), y


def test_the_constants_of_a_feature_map_are_found_from_far() -> None:
    """From a smoothing that is far too narrow, the same top as from one that is nearly right."""
    x, y = bumps_on_waves()
    found = {}
    for width in (0.7, 4.0):
        model = InvariantGPClassifier(feature_map=SmoothDerivative(2, width), likelihood="gaussian", random_state=0)
        found[width] = model.fit(x, y).evidence_.value
    assert found[0.7] == pytest.approx(max(found.values()), abs=0.3)


def test_rotations_start_from_little_to_the_whole_circle_whatever_is_given() -> None:
    x = torch.from_numpy(turned_digits(40)[0])
    for degrees in (2.0, 45.0, 170.0):
        angles = sorted(degrees * start[0] for start in possible_starts(Rotation(degrees), x))
        assert angles[0] < 12
        assert angles[-1] == pytest.approx(180)
        assert any(12 <= angle <= 60 for angle in angles)


def test_starts_of_large_images_need_few_of_them() -> None:
    """How far rotations move images is known after a few: 60 small ones, or 8 of many values, with the same starts."""
    seen = []

    class Watched(Rotation):
        def shared_samples(self, x: Any, *arguments: Any, **options: Any) -> Any:
            seen.append(tuple(x.shape))
            return super().shared_samples(x, *arguments, **options)

    small = torch.as_tensor(turned_digits(80)[0])
    starts = possible_starts(Watched(20), small)
    assert set(seen) == {(60, 8, 8)}
    seen.clear()
    assert possible_starts(Watched(20), small[:, None].expand(-1, 200, -1, -1).contiguous()) == starts
    assert set(seen) == {(8, 200, 8, 8)}


def test_affine_maps_start_from_rotations_by_any_angle() -> None:
    x = torch.from_numpy(turned_digits(40)[0])
    for degrees in (5.0, 45.0, 120.0):
        starts = possible_starts(Affine(angle=degrees), x)
        assert any(degrees * start[0] == pytest.approx(180) and max(start[1:]) < start[0] for start in starts)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_noise_starts_in_the_unit_of_the_inputs(unit: float) -> None:
    x = torch.rand(30, 3, dtype=torch.float64)
    orbit = GaussianNoise(0.1).double()
    scales = [0.1 * start[0] / unit for start in possible_starts(orbit, unit * x)[1:]]
    assert any(0.02 < scale < 0.1 for scale in scales)
    assert any(0.1 < scale < 1 for scale in scales)


@pytest.mark.slow
def test_units_of_inputs_and_targets_do_not_matter() -> None:
    """The orbit is given as 0.1 whatever the unit. The evidence is a density, and so has the unit of the targets."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (20, 2))
    y = np.sin(6 * (x[:, 0] + 0.1 * rng.normal(size=20))) + 0.1 * rng.normal(size=20)
    found = []
    for unit in (1e-6, 1e6):
        model = InvariantGPRegressor(Drawn(0.1), num_samples=4, random_state=0).fit(unit * x, unit * y)
        evidence = model.evidence_.value + len(y) * np.log(unit)
        found.append((evidence, model.predict(unit * x) / unit))
    for evidence, mean in found[1:]:
        assert evidence == pytest.approx(found[0][0], abs=0.2)
        assert mean == pytest.approx(found[0][1], abs=0.2 * y.std())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the pixels of X")
def test_units_of_pixels_do_not_matter() -> None:
    x, y = turned_digits(10)
    found = []
    for unit in (1e-6, 1e6):
        # In single precision, other units are rounded otherwise, and a flat top is left half a nat earlier or later.
        options = TrainingOptions(dtype="float64")
        model = InvariantGPClassifier(
            Rotation(10), likelihood="gaussian", num_samples=8, random_state=0, training=options
        )
        model.fit(unit * x, y)
        found.append((model.evidence_.value, model.predict_proba(unit * x)))
    for evidence, probs in found[1:]:
        assert evidence == pytest.approx(found[0][0], abs=0.2)
        assert probs == pytest.approx(found[0][1], abs=0.02)


@pytest.mark.slow
def test_shifts_and_scales_are_not_behind_shifts() -> None:
    """By more than one nat, as far as their draws tell."""
    x, y = signals(16)
    part, whole = (
        InvariantGPRegressor(orbit, num_samples=4, random_state=0).fit(x, y).evidence_
        for orbit in (Translation(6.0, None), Affine(None, 1.5, None, None, 0.5, None))
    )
    assert whole.interval[1] >= part.interval[0] - 1.0


@pytest.mark.slow
def test_affine_maps_are_not_behind_the_rotations_among_them() -> None:
    """By more than one nat, as far as their draws tell."""
    x, y = turned_digits(12)
    part, whole = (
        InvariantGPClassifier(orbit, likelihood="gaussian", num_samples=4, random_state=0).fit(x, y).evidence_
        for orbit in (Rotation(8.6), Affine(8.6, 1.16, None, 0.15, None, None))
    )
    assert whole.interval[1] >= part.interval[0] - 1.0


def test_a_scale_for_each_feature_finds_the_one_that_matters() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    y = np.sin(2 * x[:, 0])
    model = InvariantGPRegressor(GaussianNoise(0.2, num_features=2), num_samples=4, random_state=0).fit(x, y)
    # The noise makes the kernel wider: how wide is all that the data can tell.
    first, second = (
        (model.kernel_.base_kernel.lengthscale.square() + 2 * model.orbit_.scale.square()).sqrt()[0].tolist()
    )
    assert 0.5 < first < 2.0
    assert second > 5 * first
    plain = InvariantGPRegressor(random_state=0).fit(x, y)
    assert model.evidence_.value > plain.evidence_.value + 5
