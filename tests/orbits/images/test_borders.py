"""What lies outside an image: as NumPy pads it, and which of them the data choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from orbitgp.datasets import digits
from orbitgp.orbits import Affine, Composition, Flip, LocalDeformation, Rotation, Scale, Shear, Translation, WarpProduct
from orbitgp.orbits.images.warps import Points, border_of
from orbitgp.orbits.parse import make_orbit

MODES: dict[str, Any] = {"zero": "constant", "edge": "edge", "reflect": "reflect"}
SHAPES = [(8, 8), (7, 12), (3, 9, 5), (1, 6, 6), (1, 1), (2, 1, 4)]
WARPS: dict[str, Any] = {
    "rotation": lambda border: Rotation(100, border=border),
    "affine": lambda border: Affine(90, 2.0, 2.0, 0.5, 9.0, 9.0, border=border),  # several images beyond the edge
    "translation": lambda border: Translation(30.0, 30.0, border=border),
    "scale": lambda border: Scale(3.0, border=border),
    "shear": lambda border: Shear(1.0, border=border),
    "deformation": lambda border: LocalDeformation(3.0, border=border),
    "product": lambda border: Affine(border=border) * LocalDeformation(3.0, border=border),
}


def padded(image: np.ndarray, pad: int, border: str) -> np.ndarray:
    """NumPy does not mirror an axis of one pixel: there its edge goes on."""
    for axis in (-2, -1):
        widths = [(0, 0)] * image.ndim
        widths[axis] = (pad, pad)
        mode = "edge" if border == "reflect" and image.shape[axis] == 1 else MODES[border]
        image = np.pad(image, widths, mode=mode)
    return image


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WARPS)
def test_borders_are_those_of_numpy(name: str, shape: tuple[int, ...], border: str) -> None:
    """The padded image, with bilinear interpolation between its four pixels around each point."""
    torch.manual_seed(0)
    warp, (height, width), pad = WARPS[name](border).double(), shape[-2:], 80
    x = torch.rand(2, *shape, dtype=torch.float64)
    u = torch.rand(2, 3, warp.draws_for(x.shape[1:]), dtype=torch.float64)
    p = warp.points(Points.pixels((height, width), x.dtype), u[:, :, None, None])
    full = (2, 3, height, width)
    column, row = (v.detach().expand(full).numpy() + (n - 1) / 2 + pad for v, n in ((p.x, width), (p.y, height)))
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    right, down = column - left, row - top
    found = warp.transform(x, u).detach().numpy()
    for i, image in enumerate(x.numpy()):
        large = padded(image, pad, border)
        for s in range(3):
            at, over = (top[i, s], left[i, s]), (down[i, s], right[i, s])
            corner = [large[..., at[0] + a, at[1] + b] for a in (0, 1) for b in (0, 1)]
            above = corner[0] * (1 - over[1]) + corner[1] * over[1]
            below = corner[2] * (1 - over[1]) + corner[3] * over[1]
            np.testing.assert_allclose(found[i, s], above * (1 - over[0]) + below * over[0], atol=1e-9)


@pytest.mark.parametrize("border", ["edge", "reflect"])
@pytest.mark.parametrize("name", WARPS)
def test_gradients_go_through_the_range(name: str, border: str) -> None:
    warp = WARPS[name](border).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    u = torch.rand(2, 3, warp.draws_for(x.shape[1:]), generator=generator, dtype=torch.float64)
    parameters = tuple(warp.parameters())
    assert gradcheck(lambda x, *_: warp.transform(x, u), (x, *parameters), fast_mode=True)
    for gradient in torch.autograd.grad(warp.transform(x, u).square().sum(), parameters):
        assert gradient != 0


@pytest.mark.parametrize("border", ["edge", "reflect"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WARPS)
def test_the_identity_is_exact(name: str, shape: tuple[int, ...], border: str) -> None:
    warp, x = WARPS[name](border), torch.randn(3, *shape)
    xa = warp.transform(x, torch.full((3, 2, warp.draws_for(x.shape[1:])), 0.5))
    assert torch.equal(xa, x[:, None].expand_as(xa))


@pytest.mark.parametrize("border", ["edge", "reflect"])
def test_images_of_one_colour_stay_as_they_are(border: str) -> None:
    for name in WARPS:
        warp = WARPS[name](border)
        xa = warp.transform(torch.full((2, 6, 5), 0.7), torch.rand(2, 4, warp.draws_for(torch.Size((6, 5)))))
        torch.testing.assert_close(xa, torch.full_like(xa, 0.7))


@pytest.mark.parametrize("border", ["edge", "reflect"])
def test_far_away_and_nowhere(border: str) -> None:
    far = Translation((1e6, 2e6), (-3e9, 1e6), frozen=("shift_x",), border=border)
    assert (far.transform(torch.ones(2, 5, 5), torch.rand(2, 3, 2)) - 1).abs().max() < 1e-3
    warp = Rotation(30, border=border)
    with torch.no_grad():
        warp.angle.fill_(float("nan"))
    assert warp.transform(torch.rand(2, 5, 5), torch.rand(2, 3, 1)).shape == (2, 3, 5, 5)


def test_a_deformed_image_that_is_moved_then_shows_no_seam() -> None:
    """A shift that each pixel takes alike: the displacement goes on outside, where the later warp looks."""
    field = LocalDeformation(1.0, 1000.0, border="edge")
    move = Translation((3, 3), (0, 0), frozen=("shift_x", "shift_y"), border="edge")
    ramp = torch.arange(12.0).expand(1, 12, 12)
    u = torch.rand(1, 1, (field * move).draws_for(ramp.shape[1:]), generator=torch.Generator().manual_seed(0))
    p = (field * move).points(Points.pixels((12, 12)), u[:, :, None, None])
    steps = p.x.diff(dim=-1)
    torch.testing.assert_close(steps, torch.ones_like(steps), atol=0.01, rtol=0)


def test_warps_of_one_border_merge() -> None:
    one = Rotation(border="reflect") * Scale() * Shear(border="reflect")
    assert isinstance(one, WarpProduct)
    assert one.outside == (Scale() * Rotation(border="reflect")).outside == "reflect"
    assert (Scale() * Rotation()).outside == Rotation().outside == "zero"
    for two in (Rotation(border="edge") * Scale(border="zero"), one * Scale(border="edge")):
        assert isinstance(two, Composition)


def test_in_words() -> None:
    assert make_orbit("rotation(30, border='edge')", (8, 8)).outside == "edge"
    assert make_orbit("affine(border='reflect')*deformation", (8, 8)).outside == "reflect"
    with pytest.raises(ValueError, match=r"border must be one of zero, edge, reflect, or None, got 'wrap'"):
        make_orbit("rotation(border='wrap')")


def test_the_data_choose() -> None:
    rng = np.random.default_rng(0)
    ink = np.zeros((12, 3, 8, 8))
    ink[..., 2:6, 2:6] = rng.uniform(size=(12, 3, 4, 4))
    grain = 0.05 * rng.normal(size=ink.shape)
    sky = np.array([0.9, 0.7, 0.8])[:, None, None] - 0.1 * rng.uniform(size=(12, 1, 1, 1))  # each image its own
    smooth = np.cumsum(np.cumsum(rng.normal(size=(12, 3, 8, 8)), -1), -2)
    smooth = (smooth - smooth.min((1, 2, 3), keepdims=True)) / np.ptp(smooth, (1, 2, 3), keepdims=True)
    cases = {"zero": [ink, 255 * ink, -ink, ink + grain], "edge": [1 - ink, 2 * ink - 1, sky - 0.5 * ink]}
    cases["reflect"] = [smooth, rng.uniform(size=ink.shape), sky - 0.5 * ink + grain]
    for border, images in cases.items():
        assert [border_of(x) for x in images] == [border] * len(images)
    assert border_of(digits().x_train) == "zero"
    assert border_of(digits().x_train - digits().x_train.mean()) == "edge"
    line = np.exp(-((np.arange(24) - rng.uniform(8, 16, (20, 1, 1))) ** 2) / 8)  # images of one row
    assert border_of(line) == "zero"
    assert border_of(line.swapaxes(1, 2)) == "zero"
    assert border_of(rng.uniform(0.2, 1, (20, 1, 1))) == "edge"


def test_digits_are_as_they_were_without_a_border() -> None:
    x, u = torch.from_numpy(digits().x_train[:5]), torch.rand(5, 4, 6)
    chosen, plain = Affine(border="zero"), Affine()
    assert torch.equal(chosen.transform(x, u), plain.transform(x, u))
    assert not hasattr(Flip(), "border")
