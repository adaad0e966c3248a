"""Points: where in the input image each output pixel looks.

A warp maps output points to input points, x_a(p) = x(points(p)). Coordinates are pixels from the centre of the image, x to the
right and y down, and broadcast to (N, S, H, W). Two forms:

- ``Points``: any two tensors x and y.
- ``Expansion``: x and y as short coefficient vectors over fixed functions of the output pixel, ``x = sum_j c_j phi_j(p)``, that
  begin with 1, p_x, p_y. Affine maps act on the coefficients. So any number of composed warps costs one matrix product, and
  another for the gradient. A warp that is not linear in its points reads ``p.x`` and ``p.y``. (Where float32 products may run
  in TF32, points have its error: a thousandth of their distance from the centre.)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.constants import constant

Scalar = Tensor | float
Row = tuple[Scalar, Scalar, Scalar]  # of an affine map
Size = tuple[int, int]
Coefficients = Float[Tensor, "#rows #samples terms"]
Basis = Float[Tensor, "terms pixels"]


class Points:
    """Input points of a warp for images of ``size`` (H, W); ``x`` and ``y`` broadcast to (N, S, H, W)."""

    def __init__(self, x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"], size: Size) -> None:
        self._x, self._y, self.size = x, y, size

    @property
    def x(self) -> Tensor:
        return self._x

    @property
    def y(self) -> Tensor:
        return self._y

    def at(self, x: Float[Tensor, "*#shape"], y: Float[Tensor, "*#shape"]) -> Points:
        """Other points for the same image. The hook of a warp returns these."""
        return Points(x, y, self.size)

    def affine(self, matrix: tuple[Row, Row]) -> Points:
        """(x, y) -> (a x + b y + s, c x + d y + t) for ``matrix = ((a, b, s), (c, d, t))``, entries (N, S, 1, 1) or numbers."""
        (a, b, s), (c, d, t) = matrix
        return self.at(a * self.x + b * self.y + s, c * self.x + d * self.y + t)

    def grid(self, rows: int, samples: int, padded: Size) -> Float[Tensor, "rows tall width 2"]:
        """The grid for ``grid_sample`` on images padded at the right and the bottom: all samples of a row as one tall image."""
        (sx, ox), (sy, oy) = _normalisation(self.size, padded)
        full = (rows, samples, *self.size)
        planes = torch.stack([(sx * self.x + ox).expand(full), (sy * self.y + oy).expand(full)], dim=1)
        return _interleave(planes)


class Expansion(Points):
    """Points as coefficients (N, S, J) over functions (J, H*W) of the output pixel; the first three are 1, x and y."""

    def __init__(self, cx: Coefficients, cy: Coefficients, basis: Basis, size: Size) -> None:
        self.cx, self.cy, self.basis, self.size = cx, cy, basis, size

    @property
    def x(self) -> Tensor:
        return (self.cx @ self.basis).view(*self.cx.shape[:2], *self.size)

    @property
    def y(self) -> Tensor:
        return (self.cy @ self.basis).view(*self.cy.shape[:2], *self.size)

    def affine(self, matrix: tuple[Row, Row]) -> Points:
        (a, b, s), (c, d, t) = ([_drop(entry) for entry in row] for row in matrix)
        one = _unit(self.cx.shape[-1], self.cx)
        return Expansion(a * self.cx + b * self.cy + s * one, c * self.cx + d * self.cy + t * one, self.basis, self.size)

    def grid(self, rows: int, samples: int, padded: Size) -> Float[Tensor, "rows tall width 2"]:
        (sx, ox), (sy, oy) = _normalisation(self.size, padded)
        one = _unit(self.cx.shape[-1], self.cx)
        shape = (rows, samples, self.cx.shape[-1])
        coefficients = torch.stack([(sx * self.cx + ox * one).expand(shape), (sy * self.cy + oy * one).expand(shape)], dim=1)
        planes = coefficients.reshape(-1, shape[-1]) @ self.basis  # one product for all rows, samples and both coordinates
        return _interleave(planes.view(rows, 2, samples, *self.size))


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


def _interleave(planes: Float[Tensor, "rows 2 samples height width"]) -> Tensor:
    # A view: grid_sample reads the two planes without a copy.
    return planes.flatten(2, 3).permute(0, 2, 3, 1)


def _drop(entry: Scalar) -> Scalar:
    return entry.squeeze(-1) if isinstance(entry, Tensor) and entry.ndim else entry


def _unit(terms: int, like: Tensor) -> Tensor:
    one = torch.zeros(terms, dtype=like.dtype, device=like.device)
    one[0].fill_(1.0)  # fill_, because assigning a number copies it from the host
    return one


def _normalisation(size: Size, padded: Size) -> tuple[tuple[float, float], tuple[float, float]]:
    """Scale and offset from centred pixels to grid_sample's coordinates, for x and y.

    With ``align_corners=False`` pixel i of an axis of P lies at (2 i + 1) / P - 1, and i = x + (n - 1) / 2 for an axis of n
    pixels. Where P is a power of two, all of this is exact in floating point.
    """
    (height, width), (rows, columns) = size, padded
    return (2 / columns, width / columns - 1), (2 / rows, height / rows - 1)


@constant
def pixels(size: Size) -> Float[Tensor, "3 pixels"]:
    """1, x and y at the pixels, from the centre."""
    height, width = size
    y = torch.arange(height, dtype=torch.float64) - (height - 1) / 2
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([torch.ones_like(rows), columns, rows]).flatten(1)
