"""Image warps: x_a(p) = x(points(p)), interpolated once.

The hook of a warp is a map from output points to input points, ``points(p, u)``. Composed warps compose the points, so
an image is interpolated once for any number of warps::

    class Swirl(Warp):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(0.5))

        def points(self, p, u):  # p.x, p.y: pixels from the centre; u[..., i] broadcasts against them
            angle = self.strength * (2 * u[..., 0] - 1) * torch.exp(-(p.x**2 + p.y**2) / 50)
            return p.at(angle.cos() * p.x - angle.sin() * p.y, angle.sin() * p.x + angle.cos() * p.y)

Images are (H, W) or (C, H, W), square or not. Interpolation is bilinear. Outside the image lies its ``border``: zero,
its ``edge`` value, or its mirror image (``reflect``, about the last pixel). It is zero unless it is given, or chosen by
the data, as estimators do (:func:`border_of`). The identity is exact: images are padded with zeros to powers of
two, where the normalised coordinates of ``grid_sample`` are exact in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from inspect import signature
from math import prod
from typing import Literal, get_args

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
Basis = Float[Tensor, "*batch terms pixels"]
WarpDraws = Float[Tensor, "rows samples 1 1 dim"]
Border = Literal["zero", "edge", "reflect"]

_BRIGHT = 0.6  # a border above this share of the brightest pixel is no background of 0
_MOST = 0.4  # a side is bright if at most this share of its pixels is dark
_LEVEL = 0.05  # how far a uniform border may be from 0, as a share of the range of pixels
_DARK = 0.1  # a border pixel within this share of the range of pixels from 0 is background, with its noise
_EVEN = 0.02  # and within this share of the median of the borders of its image, even


class ImageOrbit(Orbit):
    """An orbit of images (H, W) or (C, H, W)."""

    def check(self, features: torch.Size) -> None:
        if len(features) not in (2, 3):
            name, shape = type(self).__name__, tuple(features)
            raise ValueError(f"{name} acts on images (H, W) or (C, H, W), not shape {shape}: set image_shape.")


def as_inputs(x: Float[Tensor, "*batch dim"], image_shape: tuple[int, ...] | None) -> Float[Tensor, "rows *features"]:
    """Flat rows as images of this shape, or the rows themselves where there is no shape."""
    shape = image_shape or x.shape[-1:]
    if prod(shape) != x.shape[-1]:
        raise ValueError(f"image_shape {tuple(shape)} has {prod(shape)} pixels, but the inputs have {x.shape[-1]}.")
    return x.reshape(-1, *shape)


def border_level(x: Shaped[np.ndarray, "rows *features"]) -> float | None:
    """The value of the border pixels where that is not 0: bright, or uniform and away from 0. None where it is 0.

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


def border_of(x: Shaped[np.ndarray, "rows *features"]) -> Border:
    """What goes on outside of these images: zero where most of their border is 0, the edge where each has an even one
    of another colour, and else, as in photographs, the mirror image."""
    long = [axis for axis in (-2, -1) if x.shape[axis] > 1] or [-1]
    sides = [x.take(end, axis) for axis in long for end in (0, -1)]
    frame, span = np.concatenate(sides, -1), np.ptp(x)
    if border_level(x) is None and np.mean(np.abs(frame) <= _DARK * span) > 0.5:
        return "zero"
    uneven = np.abs(frame - np.median(frame, -1, keepdims=True))
    return "edge" if np.mean(uneven <= _EVEN * span) > 0.5 else "reflect"


def set_border(orbit: Orbit, border: Border) -> None:
    """Give this border to the warps of a product that have none. Their constructors take it, so a file can hold it."""
    if isinstance(orbit, WarpProduct) and any(part.border for part in orbit.parts):
        border = orbit.outside
    if isinstance(orbit, Parts):
        for part in orbit.parts:
            set_border(part, border)
    elif isinstance(orbit, Warp) and orbit.border is None and "border" in signature(type(orbit)).parameters:
        orbit.border = border


class Points:
    """Where in an input image each output pixel p looks, for images of ``size`` (H, W): x = sum_j c_j phi_j(p); so y.

    ``x``, to the right, and ``y``, down, are pixels from the centre of the image, and broadcast to (N, S, H, W). The
    functions phi begin with 1, p_x, p_y, the same for all samples, or with 1, x, y for points of any kind. Affine maps
    act on the coefficients, so any number of them costs one matrix product, and another for the gradient. (Where
    float32 products may run in TF32, points have its error: a thousandth of their distance from the centre.)
    """

    def __init__(self, basis: Basis, size: Size, c: tuple[Coefficients, Coefficients] | None = None) -> None:
        self.basis, self.size, self.unmoved = basis, size, c is None and basis.ndim == 2
        self.cx, self.cy = c or torch.eye(3, dtype=basis.dtype, device=basis.device)[1:, None, None].unbind()

    @classmethod
    def pixels(cls, size: Size, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Points:
        """The output pixels themselves, at which every warp starts."""
        return cls(pixels(size, dtype=dtype, device=device), size)

    @cached_property
    def x(self) -> Float[Tensor, "#rows #samples height width"]:
        return (self.cx[..., None, :] @ self.basis).unflatten(-1, self.size).squeeze(2)

    @cached_property
    def y(self) -> Float[Tensor, "#rows #samples height width"]:
        return (self.cy[..., None, :] @ self.basis).unflatten(-1, self.size).squeeze(2)

    def at(self, x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"]) -> Points:
        """Other points for the same image. The hook of a warp returns these."""
        planes = torch.stack(torch.broadcast_tensors(torch.ones_like(x), x, y), dim=-3)
        return Points(planes.flatten(-2), self.size)

    def displaced(self, dx: Coefficients, dy: Coefficients, basis: Float[Tensor, "terms pixels"]) -> Points:
        """The output pixels moved by ``sum_j d_j phi_j(p)`` for further functions of the pixel."""
        cx, cy = (torch.cat([c.expand(*d.shape[:2], -1), d], dim=-1) for c, d in ((self.cx, dx), (self.cy, dy)))
        return Points(torch.cat([self.basis, basis]), self.size, (cx, cy))

    def affine(self, matrix: tuple[Row, Row]) -> Points:
        """(x, y) -> (a x + b y + s, c x + d y + t) for ``((a, b, s), (c, d, t))``, entries (N, S, 1, 1) or numbers."""
        full = partial(self.cx.new_full, (1, 1, 1))
        entries = [[e.squeeze(-1) if isinstance(e, Tensor) else full(e) for e in row] for row in matrix]

        def coefficients(a: Tensor, b: Tensor, s: Tensor) -> Coefficients:
            if self.unmoved:  # they are 1, p_x and p_y
                return torch.cat(torch.broadcast_tensors(s, a, b), -1)
            one = self.cx.new_zeros(self.cx.shape[-1])
            one[0].fill_(1.0)  # fill_, because assigning a number copies it from the host
            return a * self.cx + b * self.cy + s * one

        return Points(self.basis, self.size, (coefficients(*entries[0]), coefficients(*entries[1])))

    def sample(
        self, images: Float[Tensor, "rows channels down across"], samples: int, border: Border = "zero"
    ) -> Float[Tensor, "rows channels tall width"]:
        """Images at these points: all samples of a row as one tall image, so that no image is copied for each of them.

        Images are padded at the right and the bottom to powers of two. With ``align_corners=False`` pixel i of an axis
        of P lies at (2 i + 1) / P - 1, and i = x + (n - 1) / 2 for an axis of n: all exact in floating point.
        """
        height, width = self.size
        down, across = (1 << (n - 1).bit_length() for n in self.size)  # the next powers of two
        c = torch.stack(torch.broadcast_tensors(self.cx, self.cy), dim=1)
        scale, shift = _normalised(self.size, (down, across), c.shape[-1], dtype=c.dtype, device=c.device)
        basis = self.basis if self.basis.ndim == 2 else self.basis[:, None]
        planes = torch.addcmul(shift, scale, c)[..., None, :] @ basis
        if border != "zero":
            axes = zip(planes.unbind(1), (width, height), (across, down), strict=True)
            planes = torch.stack([_inside(place, n, outer, border) for place, n, outer in axes], dim=1)
        full = planes.expand(images.shape[0], -1, samples, -1, -1)
        padded = F.pad(images, (0, across - width, 0, down - height))
        grid = full.reshape(images.shape[0], 2, samples * height, width).permute(0, 2, 3, 1)
        return F.grid_sample(padded, grid, align_corners=False)

    def each_in(self, images: Float[Tensor, "rows samples channels height width"], border: Border = "zero") -> Tensor:
        """The images of each row and sample, of the same size, at its own points."""
        full = (*images.shape[:2], *self.size)
        own = self.at(self.x.expand(full).flatten(0, 1)[:, None], self.y.expand(full).flatten(0, 1)[:, None])
        return own.sample(images.flatten(0, 1), 1, border).view_as(images)


def _inside(place: Float[Tensor, "*shape"], n: int, padded: int, border: Border) -> Float[Tensor, "*shape"]:
    """The places on an axis of n pixels, in coordinates of the padded image, whose pixels stand for those outside."""
    i = ((place + 1) * padded - 1) / 2  # pixels from the first one
    if border == "reflect" and n > 1:
        period = 2 * (n - 1)
        i = i.abs() % period
        i = torch.minimum(i, period - i)
    return (2 * i.clamp(0, n - 1) + 1) / padded - 1


@constant
def pixels(size: Size) -> Float[Tensor, "3 pixels"]:
    """1, x and y at the pixels, from the centre."""
    y, x = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in size)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([torch.ones_like(rows), columns, rows]).flatten(1)


@constant
def _normalised(size: Size, padded: Size, terms: int) -> Float[Tensor, "2 2 1 terms"]:
    """What coefficients of x and y are multiplied by, and what is added, for the coordinates of a padded image."""
    inner, outer = torch.tensor([size, padded], dtype=torch.float64).flip(1)[:, :, None]
    first = torch.zeros(terms, dtype=torch.float64)
    first[0] = 1.0
    return torch.stack([(2 / outer).expand(2, terms), (inner / outer - 1) * first])[:, :, None]


class Warp(ImageOrbit):
    """An orbit of images that moves points. Subclasses set ``num_draws`` and write ``points``.

    The data choose the border where the constructor has an argument ``border`` and hands it on, and it is None.
    """

    border: Border | None = None  # also of warps that were pickled by earlier versions

    def __init__(self, border: Border | None = None) -> None:
        super().__init__()
        if border not in (None, *get_args(Border)):
            raise ValueError(f"border must be one of {', '.join(get_args(Border))}, or None, got {border!r}.")
        self.border = border

    @property
    def outside(self) -> Border:
        """The border, which is zero where none was given or chosen."""
        return self.border or "zero"

    def points(self, p: Points, u: WarpDraws) -> Points:
        """The input points that the output points p look at; ``u[..., i]`` broadcasts against ``p.x`` and ``p.y``."""
        raise NotImplementedError(f"{type(self).__name__} must define points(p, u).")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        rows, samples, _ = u.shape
        height, width = x.shape[-2:]
        if rows > 1 and u.stride(0) == 0:  # predictions use one set of draws for all images: one set of points
            u = u[:1]
        p = self.points(Points.pixels((height, width), x.dtype, x.device), u[:, :, None, None])
        images = x.reshape(rows, x.shape[1:-2].numel(), height, width)
        tall = p.sample(images, samples, self.outside)
        return tall.view(*images.shape[:2], samples, height, width).transpose(1, 2).reshape(rows, samples, *x.shape[1:])

    def merge(self, other: Orbit) -> Orbit | None:
        if not isinstance(other, Warp):
            return None
        given = {part.border for part in (*self.modules(), *other.modules()) if isinstance(part, Warp)} - {None}
        return WarpProduct([self, other]) if len(given) < 2 else None


class WarpProduct(Parts, Warp):
    """Warps that act one after the other, interpolated once: for ``a * b``, x_ab(p) = x(a(b(p))).

    They have one border, that of those to which one was given; warps with different ones do not merge.
    """

    parts: Sequence[Warp]

    @property
    def outside(self) -> Border:
        return next((part.outside for part in self.parts if part.border), "zero")

    def points(self, p: Points, u: WarpDraws) -> Points:
        for part, piece in reversed(self.pieces(u, torch.Size(p.size))):  # output points meet the last to act first
            p = part.points(p, piece)
        return p
