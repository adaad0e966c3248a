"""Warps: exact at the identity, interpolated once, composed in the right order, on any image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orbitgp.datasets import digits
from orbitgp.orbits import Affine, LocalDeformation, Orbit, Rotation, Scale, Shear, Translation, Warp, WarpProduct
from orbitgp.orbits.images.warps import border_level

SHAPES = [(28, 28), (8, 8), (7, 12), (3, 9, 5), (1, 6, 6), (1, 1), (2, 1, 4)]
WARPS = {
    "rotation": lambda: Rotation(70),
    "affine": lambda: Affine(),
    "translation": lambda: Translation(),
    "scale": lambda: Scale(),
    "shear": lambda: Shear(),
    "deformation": lambda: LocalDeformation(),
    "affine * deformation": lambda: Affine() * LocalDeformation(),
    "deformation * affine": lambda: LocalDeformation() * Affine(),
    "four": lambda: Rotation() * Scale() * LocalDeformation(0.5, 4) * Translation(),
}


def centre(orbit: Orbit, rows: int, samples: int, features: torch.Size) -> torch.Tensor:
    """The draws in the middle of every range: nothing happens."""
    return torch.full((rows, samples, orbit.draws_for(features)), 0.5)


def shift(x: float, y: float) -> Translation:
    """A translation by just that many pixels."""
    return Translation((x, x), (y, y), frozen=("shift_x", "shift_y"))


def turn(degrees: float) -> Affine:
    others = ("scale_x", "scale_y", "shear", "shift_x", "shift_y")
    return Affine(angle=(degrees, degrees), frozen=("angle",), **dict.fromkeys(others))


def apply(orbit: Orbit, x: torch.Tensor) -> torch.Tensor:
    """The only element of an orbit whose ranges have no width."""
    return orbit.transform(x, torch.rand(len(x), 1, orbit.draws_for(x.shape[1:]), dtype=x.dtype))[:, 0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WARPS)
def test_identity_is_exact(name: str, shape: tuple[int, ...]) -> None:
    warp, x = WARPS[name](), torch.randn(4, *shape)
    xa = warp.transform(x, centre(warp, 4, 3, x.shape[1:]))
    assert xa.shape == (4, 3, *shape)
    assert torch.equal(xa, x[:, None].expand_as(xa))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WARPS)
def test_samples_and_gradients_are_finite_on_images_that_touch_the_border(name: str, shape: tuple[int, ...]) -> None:
    warp, x = WARPS[name](), torch.ones(3, *shape)
    samples = warp.sample(x, 8, num_groups=2)
    assert samples.points.shape == (3, 2, 4, *shape)
    assert samples.points.isfinite().all()
    assert samples.points.min() >= 0
    assert samples.points.max() <= 1 + 1e-6
    samples.points.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in warp.parameters())


def test_bilinear_interpolation_by_hand() -> None:
    x = torch.rand(1, 5, 6)
    got = apply(shift(0.25, -0.5), x)[0]
    # 0.25 to the right: a quarter of the left neighbour; half a pixel up: the mean with the one below.
    padded = F.pad(x[0], (1, 0, 0, 1))
    want = 0.5 * (0.75 * padded[:-1, 1:] + 0.25 * padded[:-1, :-1]) + 0.5 * (
        0.75 * padded[1:, 1:] + 0.25 * padded[1:, :-1]
    )
    torch.testing.assert_close(got, want)


def test_channels_move_alike() -> None:
    x = torch.rand(3, 4, 9, 7)
    warp = Affine() * LocalDeformation()
    u = torch.rand(3, 5, warp.draws_for(x.shape[1:]))
    together = warp.transform(x, u)
    for channel in range(4):
        torch.testing.assert_close(together[:, :, channel], warp.transform(x[:, channel], u))


def test_rows_do_not_see_each_other() -> None:
    x, warp = torch.rand(5, 8, 8), Affine()
    u = torch.rand(5, 4, 6)
    torch.testing.assert_close(warp.transform(x, u)[2:3], warp.transform(x[2:3], u[2:3]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_composition_is_one_interpolation(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    calls, grid_sample = [], F.grid_sample
    monkeypatch.setattr(F, "grid_sample", lambda *args, **kwargs: calls.append(args) or grid_sample(*args, **kwargs))
    warp = Rotation() * Scale() * Affine() * LocalDeformation()
    assert isinstance(warp, WarpProduct)
    assert [type(part) for part in warp.parts] == [Rotation, Scale, Affine, LocalDeformation]
    warp = warp.to(dtype)
    for learns_images in (False, True):
        warp.sample(torch.rand(2, 28, 28, dtype=dtype, requires_grad=learns_images), 4)
    assert len(calls) == 2


def test_composition_nests_flat() -> None:
    left, right = (Rotation() * Scale()) * Shear(), Rotation() * (Scale() * Shear())
    assert [type(part) for part in left.parts] == [type(part) for part in right.parts] == [Rotation, Scale, Shear]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (shift(2, 0), turn(90)),
        (turn(90), shift(2, 0)),
        (turn(90), turn(180)),
        (shift(1, -2), shift(-3, 1)),
    ],
)
def test_composition_equals_one_after_the_other_where_both_are_exact(a: Warp, b: Warp) -> None:
    x = F.pad(torch.rand(3, 5, 5, dtype=torch.float64), (5, 5, 5, 5))
    torch.testing.assert_close(apply(a * b, x), apply(b, apply(a, x)), rtol=0, atol=1e-6)


def test_the_first_factor_acts_first() -> None:
    x = torch.zeros(1, 11, 11)
    x[0, 5, 5] = 1.0  # the centre
    moved_then_turned = apply(shift(3, 0) * turn(90), x)[0]
    turned_then_moved = apply(turn(90) * shift(3, 0), x)[0]
    assert moved_then_turned[2, 5] > 0.999  # to the right, then counter-clockwise: above the centre
    assert turned_then_moved[5, 8] > 0.999  # the turn leaves the centre, then to the right


def test_deformation_first_is_evaluated_where_the_later_warp_looks() -> None:
    x = F.pad(torch.rand(2, 10, 10), (9, 9, 9, 9))
    deform, move = LocalDeformation(0.8, 4), shift(3, -2)
    u = torch.rand(2, 4, deform.draws_for(x.shape[1:]))
    both = torch.cat([u, torch.rand(2, 4, 2)], dim=-1)
    deformed = deform.transform(x, u)
    explicit = torch.stack([apply(move, sample) for sample in deformed])
    torch.testing.assert_close((deform * move).transform(x, both), explicit, rtol=0, atol=1e-5)


def test_composed_parameters_are_learned_jointly_and_any_part_can_be_frozen() -> None:
    x = torch.rand(4, 12, 12)
    warp = Affine(frozen=("shear",)) * LocalDeformation().requires_grad_(False) * Rotation()
    warp.sample(x, 8).points.square().sum().backward()
    learned = {name for name, p in warp.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert "parts.2.angle" in learned
    assert {f"parts.0.ranges.{n}.half_width" for n in ("angle", "scale_x", "scale_y", "shift_x", "shift_y")} <= learned
    assert not any("shear" in name or "parts.1" in name for name in learned)


def test_prediction_draws_are_the_same_for_every_row() -> None:
    x = torch.rand(1, 8, 8).expand(5, 8, 8)
    points = (Affine() * LocalDeformation()).shared_samples(x, 16).points
    assert torch.equal(points[:1].expand_as(points), points)


def test_images_only() -> None:
    for warp in (Rotation(), Affine() * Rotation(), LocalDeformation(), Affine() * LocalDeformation()):
        with pytest.raises(ValueError, match=r"acts on images .* shape \(64,\): set image_shape"):
            warp.sample(torch.rand(2, 64), 4)


def test_a_warp_without_points_says_so() -> None:
    with pytest.raises(NotImplementedError, match="must define points"):
        Warp().transform(torch.rand(1, 4, 4), torch.rand(1, 1, 0))


def test_the_level_of_a_border() -> None:
    rng = np.random.default_rng(0)
    ink = np.zeros((12, 6, 5))
    ink[:, 1:5, 1:4] = rng.uniform(size=(12, 4, 3))
    assert border_level(ink) is None
    assert border_level(255 * ink) is None
    assert border_level(1 - ink) == 1
    assert border_level(255 * (1 - ink)) == 255
    barred = 1 - ink
    barred[:, [0, -1]] = 0  # a wide picture in a square, with bars above and below
    assert border_level(barred) == 1
    assert border_level(digits().x_train) is None
    assert border_level(rng.uniform(0.7, 1.0, size=(5, 9, 9))) > 0.7  # a photograph before a bright wall
