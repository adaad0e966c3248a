"""Local deformations: amplitude and smoothness mean what they say; few draws, the leading ones matter most."""

from __future__ import annotations

from math import exp

import pytest
import torch
from torch import Tensor

from orbitgp.orbits import Affine, LocalDeformation
from orbitgp.orbits.images.deformation import waves
from orbitgp.orbits.images.warps import Points
from orbitgp.orbits.sampling import base_draws

SIZES = [(28, 28), (8, 8), (20, 33)]


def displacements(orbit: LocalDeformation, size: tuple[int, int], samples: int = 4000) -> Tensor:
    """(samples, 2, H, W) draws of the field, as the warp itself uses it."""
    u = base_draws("iid", 1, 1, samples, orbit.draws_for(torch.Size(size)))[:, 0, :, None, None]
    grid = Points.pixels(size)
    with torch.no_grad():
        p = orbit.points(grid, u)
        return torch.stack([p.x - grid.x, p.y - grid.y], dim=2)[0]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("smoothness", [3, 6, 12])
def test_unit_amplitude_is_one_pixel_of_root_mean_square_displacement(size: tuple[int, int], smoothness: int) -> None:
    field = displacements(LocalDeformation(1.0, smoothness), size)
    squares = field.square().sum(1)  # squared lengths
    assert squares.mean().sqrt() == pytest.approx(1.0, abs=0.02)
    # The same everywhere in the image: no point moves more than another.
    assert squares.mean(0).sqrt().min() > 0.94
    assert squares.mean(0).sqrt().max() < 1.06


def test_amplitude_is_exact_by_construction() -> None:
    for smoothness in (2.0, 6.0):
        orbit = LocalDeformation(1.7, smoothness)
        orbit.field.log_smoothness.data += 0.3  # whatever was learned
        variance = orbit.field.deviations((28, 28)).square()
        total = 2 * (variance[0] + variance[1::2].sum())  # of both axes, with cos^2 + sin^2 = 1
        assert total.item() == pytest.approx(1.7**2, rel=1e-5)


@pytest.mark.parametrize("size", [(28, 28), (20, 33)], ids=str)
@pytest.mark.parametrize("smoothness", [3.0, 6.0, 9.0])
def test_measured_autocorrelation_matches_the_smoothness(size: tuple[int, int], smoothness: float) -> None:
    field = displacements(LocalDeformation(1.0, smoothness), size)
    centre = size[0] // 2
    for lag in range(1, min(14, int(2 * smoothness) + 1)):
        for start in (0, 3):
            along_x = torch.corrcoef(field[:, 0, centre, [start, start + lag]].T)[0, 1]
            along_y = torch.corrcoef(field[:, 1, [start, start + lag], 5].T)[0, 1]
            expected = exp(-(lag**2) / (2 * smoothness**2))
            assert along_x == pytest.approx(expected, abs=0.09)
            assert along_y == pytest.approx(expected, abs=0.09)


def test_the_learned_smoothness_is_the_one_that_is_measured() -> None:
    orbit = LocalDeformation(1.0, 5.0)
    orbit.field.log_smoothness.data.fill_(torch.tensor(8.0).log())
    assert orbit.describe()["smoothness"] == pytest.approx(8.0)
    field = displacements(orbit, (28, 28))
    measured = torch.corrcoef(field[:, 0, 14, [6, 14]].T)[0, 1]
    assert measured == pytest.approx(exp(-0.5), abs=0.05)


def test_both_displacements_are_independent_and_gaussian() -> None:
    field = displacements(LocalDeformation(), (12, 12))
    assert abs(torch.corrcoef(field[:, :, 6, 6].T)[0, 1]) < 4 / 4000**0.5
    z = field[:, 0, 3, 7] / field[:, 0, 3, 7].std()
    assert z.pow(4).mean() == pytest.approx(3.0, abs=0.35)


def test_a_field_at_moved_points_is_that_of_its_fourier_series() -> None:
    """Straight between the pixels, the error is an eighth of the second derivative: in most draws below 4 (3^1/2 / 6^2)
    / 8."""
    orbit, size = LocalDeformation(1.0, 6.0), (18, 14)
    u = torch.rand(2, 3, orbit.draws_for(torch.Size(size)), generator=torch.Generator().manual_seed(0))
    moved = Points.pixels(size).affine(((1.0, 0.0, 0.5), (0.0, 1.0, 0.25)))
    found = orbit.points(moved, u[:, :, None, None])
    k = waves(size, orbit.field.finest, orbit.field.coarsest, dtype=torch.float32)
    phase = k[:, 0, None, None] * moved.x[0] + k[:, 1, None, None] * moved.y[0]
    series = torch.cat([torch.ones(1, *size), torch.stack([phase.cos(), phase.sin()], 1).flatten(0, 1)])
    dx, dy = torch.einsum("nsat,tij->ansij", orbit.field.coefficients(u, size), series)
    for got, expected in ((found.x - moved.x, dx), (found.y - moved.y, dy)):
        torch.testing.assert_close(got[..., :-1, :-1], expected[..., :-1, :-1], rtol=0, atol=0.03)


def test_few_draws_and_the_leading_ones_matter_most() -> None:
    orbit = LocalDeformation()
    assert orbit.draws_for(torch.Size((28, 28))) == 50
    assert orbit.draws_for(torch.Size((3, 28, 28))) == 50
    deviations = orbit.field.deviations((28, 28))[1:]
    assert (deviations.diff() <= 1e-6).all()  # from the first wave on: long waves first
    assert LocalDeformation(smoothness=12).draws_for(torch.Size((28, 28))) < 30


def test_the_sign_of_the_amplitude_does_not_matter() -> None:
    orbit = LocalDeformation(2.0)
    orbit.field.amplitude.data *= -1
    assert orbit.describe()["amplitude"] == pytest.approx(2.0)
    assert (orbit.field.deviations((8, 8)) > 0).all()


def test_far_waves_do_not_make_nan() -> None:
    orbit = LocalDeformation(1.0, 5.0)
    orbit.field.log_smoothness.data.fill_(5.0)  # 148 px: the spectrum underflows
    orbit.sample(torch.rand(2, 28, 28), 4).points.sum().backward()
    assert all(p.grad.isfinite().all() for p in orbit.parameters())


def test_small_images_still_have_a_wave_along_each_axis() -> None:
    orbit = LocalDeformation(1.0, 20.0)
    assert orbit.draws_for(torch.Size((4, 4))) >= 10
    orbit.sample(torch.rand(3, 4, 4), 8).points.square().sum().backward()
    assert orbit.field.log_smoothness.grad.abs() > 0


def test_frozen_by_name() -> None:
    orbit = LocalDeformation(frozen=("smoothness",))
    assert [name for name, p in orbit.named_parameters() if p.requires_grad] == ["field.amplitude"]


def test_describes_itself_as_a_whole() -> None:
    text = str((Affine() * LocalDeformation(1.5, 7)).describe())
    assert text.splitlines()[0] == "Affine * LocalDeformation"
    assert text.splitlines()[-2].split() == ["amplitude", "1.5", "px"]
    assert text.splitlines()[-1].split() == ["smoothness", "7.0", "px"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"amplitude": 0}, "amplitude must be a positive"),
        ({"amplitude": float("nan")}, "amplitude must be a positive"),
        ({"smoothness": -1}, "smoothness must be a positive length"),
        ({"finest": 0}, "finest must be a positive length"),
        ({"frozen": ("width",)}, "no parameter 'width'"),
    ],
)
def test_bad_input_in_one_sentence(arguments: dict[str, tuple[str] | float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalDeformation(**arguments)
