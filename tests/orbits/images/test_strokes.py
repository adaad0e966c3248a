"""Strokes that move and grow, and other changes of the values of pixels: tangents, thickness, contrast, brightness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from experiments.infinimnist import TangentDeformation, tangents
from orbitgp.orbits import Affine, Brightness, Contrast, LocalDeformation, Orbit, Thickness
from orbitgp.orbits.images.strokes import dilated, eroded
from orbitgp.orbits.images.warps import Points

ORBITS = {
    "tangent": lambda: TangentDeformation(),
    "tangent without thickness": lambda: TangentDeformation(thickness=None),
    "thickness": lambda: Thickness(),
    "contrast": lambda: Contrast(),
    "ink": lambda: Contrast(pivot=0.0),
    "brightness": lambda: Brightness(),
    "all": lambda: Affine() * LocalDeformation() * Thickness() * Contrast() * Brightness(),
}


@pytest.mark.parametrize("shape", [(12, 12), (7, 10), (3, 8, 6)], ids=str)
@pytest.mark.parametrize("name", ORBITS)
def test_identity_is_exact_and_samples_are_finite(name: str, shape: tuple[int, ...]) -> None:
    orbit, x = ORBITS[name](), torch.rand(3, *shape)
    xa = orbit.transform(x, torch.full((3, 2, orbit.draws_for(x.shape[1:])), 0.5))
    assert torch.equal(xa, x[:, None].expand(3, 2, *shape))
    for image in (torch.zeros_like(x), torch.ones_like(x), x):
        orbit.zero_grad()
        samples = orbit.sample(image, 8).points
        samples.sum().backward()
        assert samples.shape == (3, 2, 4, *shape)
        assert samples.isfinite().all()
        assert all(p.grad.isfinite().all() for p in orbit.parameters())


def bell(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(x**2 + (y + 2) ** 2) / (2 * 4.0**2))


def blob() -> torch.Tensor:
    line = torch.arange(33.0) - 16
    return bell(line, line[:, None])[None]


def test_tangents_are_derivatives() -> None:
    x = torch.arange(9.0).expand(2, 3, 11, 9) * 0.5 + 2 * torch.arange(11.0)[:, None]
    tx, ty = tangents(x, 0.9)
    inside = (..., slice(4, -4), slice(4, -4))
    torch.testing.assert_close(tx[inside], torch.full_like(tx[inside], 0.5))
    torch.testing.assert_close(ty[inside], torch.full_like(ty[inside], 2.0))


def test_tangent_deformation_is_the_first_order_of_local_deformation() -> None:
    x = blob()
    grid = Points.pixels((33, 33))
    errors = []
    for amplitude in (0.4, 0.2):
        warp = LocalDeformation(amplitude, 6)
        u = torch.rand(1, 20, warp.draws_for(x.shape[1:]), generator=torch.Generator().manual_seed(0))
        p = warp.points(grid, u[:, :, None, None])
        change = bell(p.x, p.y) - x[:, None]  # without the error of bilinear interpolation
        first = TangentDeformation(amplitude, 6, thickness=None, blur=0.4).transform(x, u) - x[:, None]
        errors.append(((first - change).norm() / change.norm()).item())
    assert errors[0] < 0.1
    assert errors[1] < 0.65 * errors[0]  # second order in what remains


def test_the_tangent_term_of_thickness_moves_edges_outwards() -> None:
    orbit = TangentDeformation(1e-6, thickness=(0.5, 0.5), blur=0.5, frozen=("thickness",))
    x = blob()
    xa = orbit.transform(x, torch.rand(1, 1, orbit.draws_for(x.shape[1:])))[0, 0]
    # Along the row through the centre, the level 1/2 moves out by half a pixel at both sides.
    before, after = (x[0, 14] > 0.5).sum(), (xa[14] > 0.5).sum()
    assert after >= before
    slope = -x[0, 14].diff()[20]
    torch.testing.assert_close(xa[14, 20] - x[0, 14, 20], 0.5 * slope, atol=5e-3, rtol=0.1)


def test_the_blur_of_a_thickness_range_is_described_in_pixels() -> None:
    assert TangentDeformation(thickness=(-0.2, 0.6)).describe()["thickness"] == pytest.approx((-0.2, 0.6))
    assert Thickness((-0.5, 1)).describe()["thickness"] == pytest.approx((-0.5, 1.0))


def bar(width: int) -> torch.Tensor:
    """A vertical bar of that many pixels in an image of 9 x 21."""
    x = torch.zeros(1, 9, 21)
    start = 10 - width // 2
    x[..., start : start + width] = 1.0
    return x


@pytest.mark.parametrize("amount", [-2.0, -1.5, -0.4, 0.0, 0.3, 1.0, 2.25])
def test_thickness_moves_both_edges_by_that_many_pixels(amount: float) -> None:
    orbit = Thickness((amount, amount), learn=False)
    xa = orbit.transform(bar(7), torch.rand(1, 1, 1))[0, 0]
    assert xa[4].sum().item() == pytest.approx(7 + 2 * amount, abs=1e-5)
    assert xa.min() >= 0
    assert xa.max() <= 1 + 1e-6


def test_thickness_never_saturates() -> None:
    orbit = Thickness((-0.5, 4.5))  # half-width 0.25 in tens of pixels, tanh(skew) = 0.8
    x = bar(1)
    xa = orbit.transform(x, torch.tensor([0.6, 0.9]).view(1, 2, 1))  # 2.5 and 4 pixels
    xa[..., 4, :].sum().backward()
    two_edges = 2 * 10  # tens of pixels
    assert orbit.thickness.half_width.grad.item() == pytest.approx(two_edges * ((0.8 + 0.2) + (0.8 + 0.8)), rel=1e-4)
    assert orbit.thickness.skew.grad.item() == pytest.approx(two_edges * 2 * 0.25 * (1 - 0.8**2), rel=1e-4)


def test_dilation_and_erosion_undo_each_other_on_a_fat_square() -> None:
    x = torch.zeros(1, 2, 15, 15)
    x[..., 4:11, 4:11] = 0.7
    assert torch.equal(eroded(dilated(x, 1)[0], 1)[0], x)
    assert torch.equal(eroded(x, 2)[1][..., 6:9, 6:9], x[..., 6:9, 6:9])
    assert (dilated(x, 2)[1] >= dilated(x, 2)[0]).all()


def test_a_dot_grows_into_an_octagon() -> None:
    x = torch.zeros(1, 7, 7)
    x[0, 3, 3] = 1.0
    one, two = dilated(x, 2)
    assert one.sum() == 5  # a cross
    assert two.sum() == 21  # 5 x 5 without its corners


def test_a_flat_image_has_a_finite_gradient() -> None:
    x = torch.zeros(1, 6, 6, requires_grad=True)
    orbit = TangentDeformation()
    orbit.sample(x, 4).points.sum().backward()
    assert x.grad.isfinite().all()


def test_contrast_and_brightness_in_formulae() -> None:
    x = torch.rand(2, 3, 5, 4)
    u = torch.tensor([0.0, 1.0]).view(1, 2, 1).expand(2, 2, 1)
    mean = x.mean((1, 2, 3), keepdim=True)
    xa = Contrast((0.5, 1.5)).transform(x, u)
    torch.testing.assert_close(xa[:, 0], mean + 0.5 * (x - mean))
    torch.testing.assert_close(xa[:, 1], mean + 1.5 * (x - mean))
    torch.testing.assert_close(Contrast((0.5, 1.5), pivot=0).transform(x, u)[:, 0], 0.5 * x)
    xa = Brightness((-0.1, 0.3)).transform(x, u)
    torch.testing.assert_close(xa[:, 0], x - 0.1)
    torch.testing.assert_close(xa[:, 1], x + 0.3)
    assert Contrast((0.5, 1.5)).describe()["contrast"] == pytest.approx((0.5, 1.5))
    assert Brightness((-0.1, 0.3)).describe()["brightness"] == pytest.approx((-0.1, 0.3))


def test_brightness_works_on_vectors_too() -> None:
    assert Brightness().sample(torch.rand(4, 5), 6).points.shape == (4, 2, 3, 5)


@pytest.mark.parametrize("orbit", [Thickness(), TangentDeformation()], ids=lambda o: type(o).__name__)
def test_images_only(orbit: Orbit) -> None:
    with pytest.raises(ValueError, match="acts on images"):
        orbit.sample(torch.rand(2, 64), 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Thickness(0), "width zero"),
        (lambda: Contrast(0.2), "contrast must be a factor"),
        (lambda: Contrast(0), "contrast must be a factor"),
        (lambda: Brightness((1, 0)), "low <= high"),
        (lambda: TangentDeformation(blur=0), "blur must be a positive width"),
        (lambda: TangentDeformation(frozen=("blur",)), "no parameter 'blur'"),
    ],
)
def test_bad_input_in_one_sentence(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
