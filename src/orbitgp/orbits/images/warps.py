"""Image warps: x_a(p) = x(points(p)), interpolated once.

The hook of a warp is a map from output points to input points, ``points(p, u)``. Composed warps compose the points, so an image
is interpolated once for any number of warps::

    class Swirl(Warp):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(0.5))

        def points(self, p, u):  # p.x, p.y: pixels from the centre; u[..., i] broadcasts against them
            angle = self.strength * (2 * u[..., 0] - 1) * torch.exp(-(p.x**2 + p.y**2) / 50)
            return p.at(angle.cos() * p.x - angle.sin() * p.y, angle.sin() * p.x + angle.cos() * p.y)

Images are (H, W) or (C, H, W), square or not. Interpolation is bilinear, and zero outside the image. That is right where the
background is 0, so do not standardise pixels first. The identity is exact: images are padded with zeros to powers of two, where
the normalised coordinates of ``grid_sample`` are exact in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from orbitgp.machine import constant
from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.sampling import Draws, Inputs, Transformed

Scalar = Tensor | float
Row = tuple[Scalar, Scalar, Scalar]  # of an affine map
Size = tuple[int, int]
Coefficients = Float[Tensor, "#rows #samples terms"]
Basis = Float[Tensor, "terms pixels"]
WarpDraws = Float[Tensor, "rows samples 1 1 dim"]

_BRIGHT = 0.6  # of the brightest pixel: a border above is no background of 0
_MOST = 0.4  # of the pixels of a side: it is bright if no more than these are dark
_LEVEL = 0.05  # of the range of pixels: how far a uniform border may be from 0


class ImageOrbit(Orbit):
    """An orbit of images (H, W) or (C, H, W)."""

    def check(self, features: torch.Size) -> None:
        if len(features) not in (2, 3):
            name, shape = type(self).__name__, tuple(features)
            raise ValueError(f"{name} acts on images (H, W) or (C, H, W), but the inputs have shape {shape}: set image_shape.")


def as_inputs(x: Float[Tensor, "*batch dim"], image_shape: tuple[int, ...] | None) -> Float[Tensor, "rows *features"]:
    """Flat rows as images of this shape, or the rows themselves where there is no shape."""
    shape = image_shape or x.shape[-1:]
    if prod(shape) != x.shape[-1]:
        raise ValueError(f"image_shape {tuple(shape)} has {prod(shape)} pixels, but the inputs have {x.shape[-1]}.")
    return x.reshape(-1, *shape)


def border_level(x: Shaped[np.ndarray, "rows *features"]) -> float | None:
    """The value of the pixels at the border where that is not 0: bright, or uniform and away from 0. None where it is 0.

    Two opposite sides are enough to be bright: the other two may be bars that keep the aspect ratio of a picture.
    """
    sides = [side.ravel() for side in (x[..., 0, :], x[..., -1, :], x[..., :, 0], x[..., :, -1])]
    frame = np.concatenate(sides)
    level, top, span = float(np.median(frame)), float(x.max()), float(np.ptp(x))
    lows = [float(np.quantile(side, _MOST)) for side in sides]
    bright = max(level, min(lows[:2]), min(lows[2:]))
    if bright > _BRIGHT * top:
        return bright
    uniform = float(np.mean(np.abs(frame - level) <= 0.01 * span)) > 0.5
    return level if uniform and abs(level) > _LEVEL * span else None


class Points:
    """Where in the input image each output pixel looks, for images of ``size`` (H, W).

    ``x``, to the right, and ``y``, down, are pixels from the centre of the image, and broadcast to (N, S, H, W).
    """

    def __init__(self, x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"], size: Size) -> None:
        self.x, self.y, self.size = x, y, size

    def at(self, x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"]) -> Points:
        """Other points for the same image. The hook of a warp returns these."""
        return Points(x, y, self.size)

    def affine(self, matrix: tuple[Row, Row]) -> Points:
        """(x, y) -> (a x + b y + s, c x + d y + t) for ``matrix = ((a, b, s), (c, d, t))``, entries (N, S, 1, 1) or numbers."""
        (a, b, s), (c, d, t) = matrix
        return self.at(a * self.x + b * self.y + s, c * self.x + d * self.y + t)

    def grid(self, rows: int, samples: int, padded: Size) -> Float[Tensor, "rows tall width 2"]:
        """The grid for ``grid_sample`` on images padded at the right and the bottom: all samples of a row as one tall image.

        With ``align_corners=False`` pixel i of an axis of P lies at (2 i + 1) / P - 1, and i = x + (n - 1) / 2 for an axis of n
        pixels. Where P is a power of two, all of this is exact in floating point.
        """
        (height, width), (down, across) = self.size, padded
        scaled = self.affine(((2 / across, 0.0, width / across - 1), (0.0, 2 / down, height / down - 1)))
        return scaled.planes(rows, samples).flatten(2, 3).permute(0, 2, 3, 1)  # a view of the two planes, without a copy

    def planes(self, rows: int, samples: int) -> Float[Tensor, "rows 2 samples height width"]:
        """The coordinates x and y of all rows and samples."""
        full = (rows, samples, *self.size)
        return torch.stack([self.x.expand(full), self.y.expand(full)], dim=1)


class Expansion(Points):
    """Points as coefficients over fixed functions of the output pixel, x = sum_j c_j phi_j(p), that begin with 1, p_x, p_y.

    Affine maps act on the coefficients. So any number of composed warps costs one matrix product, and another for the gradient.
    A warp that is not linear in its points reads ``p.x`` and ``p.y``. (Where float32 products may run in TF32, points have its
    error: a thousandth of their distance from the centre.)
    """

    def __init__(self, cx: Coefficients, cy: Coefficients, basis: Basis, size: Size) -> None:
        self.cx, self.cy, self.basis, self.size = cx, cy, basis, size

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        return (self.cx @ self.basis).view(*self.cx.shape[:2], *self.size)

    @cached_property
    def y(self) -> Tensor:  # type: ignore[override]
        return (self.cy @ self.basis).view(*self.cy.shape[:2], *self.size)

    def affine(self, matrix: tuple[Row, Row]) -> Points:
        entries = ([e.squeeze(-1) if isinstance(e, Tensor) and e.ndim else e for e in row] for row in matrix)
        (a, b, s), (c, d, t) = entries
        one = torch.zeros_like(self.basis[:, 0])
        one[0].fill_(1.0)  # fill_, because assigning a number copies it from the host
        return Expansion(a * self.cx + b * self.cy + s * one, c * self.cx + d * self.cy + t * one, self.basis, self.size)

    def planes(self, rows: int, samples: int) -> Float[Tensor, "rows 2 samples height width"]:
        full = (rows, samples, len(self.basis))
        coefficients = torch.stack([self.cx.expand(full), self.cy.expand(full)], dim=1)
        # One product for all rows, samples and both coordinates.
        return (coefficients.reshape(-1, full[-1]) @ self.basis).view(rows, 2, samples, *self.size)


class Grid(Expansion):
    """The output pixels themselves, at which every warp starts. Warps may add functions of the pixel to these."""

    def __init__(self, size: Size, dtype: torch.dtype, device: torch.device) -> None:
        basis = pixels(size, dtype=dtype, device=device)
        eye = torch.eye(3, dtype=dtype, device=device)
        super().__init__(eye[1].view(1, 1, 3), eye[2].view(1, 1, 3), basis, size)

    def displaced(self, dx: Coefficients, dy: Coefficients, basis: Basis) -> Expansion:
        """The pixels moved by ``sum_j d_j phi_j(p)`` for further functions of the pixel."""
        cx = torch.cat([self.cx.expand(*dx.shape[:2], -1), dx], dim=-1)
        cy = torch.cat([self.cy.expand(*dy.shape[:2], -1), dy], dim=-1)
        return Expansion(cx, cy, torch.cat([self.basis, basis]), self.size)


@constant
def pixels(size: Size) -> Float[Tensor, "3 pixels"]:
    """1, x and y at the pixels, from the centre."""
    y, x = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in size)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([torch.ones_like(rows), columns, rows]).flatten(1)


class Warp(ImageOrbit):
    """An orbit of images that moves points. Subclasses set ``num_draws`` and write ``points``."""

    def points(self, p: Points, u: WarpDraws) -> Points:
        """The input points that the output points p look at; ``u[..., i]`` broadcasts against ``p.x`` and ``p.y``."""
        raise NotImplementedError(f"{type(self).__name__} must define points(p, u).")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        rows, samples, _ = u.shape
        height, width = x.shape[-2:]
        if rows > 1 and u.stride(0) == 0:  # predictions use one set of draws for all images: one set of points
            u = u[:1]
        p = self.points(Grid((height, width), x.dtype, x.device), u[:, :, None, None])
        images = x.reshape(rows, x.shape[1:-2].numel(), height, width)
        padded = 1 << (height - 1).bit_length(), 1 << (width - 1).bit_length()  # the next powers of two
        images = F.pad(images, (0, padded[1] - width, 0, padded[0] - height))
        # The samples of one image are one tall output (N, C, S*H, W), so no image is copied S times.
        tall = F.grid_sample(images, p.grid(rows, samples, padded), align_corners=False)
        return tall.view(rows, images.shape[1], samples, height, width).transpose(1, 2).reshape(rows, samples, *x.shape[1:])

    def merge(self, other: Orbit) -> Orbit | None:
        return WarpProduct([self, other]) if isinstance(other, Warp) else None


class WarpProduct(Parts, Warp):
    """Warps that act one after the other, interpolated once: for ``a * b``, x_ab(p) = x(a(b(p)))."""

    parts: Sequence[Warp]

    def points(self, p: Points, u: WarpDraws) -> Points:
        for part, piece in reversed(self.pieces(u, torch.Size(p.size))):  # the last to act is the first that output points meet
            p = part.points(p, piece)
        return p
