"""Sums of an RBF or Matérn kernel over blocks of pairs, on the tensor cores of a GPU, without writing its values.

    K(n, m) = sum over a < s, b < t of k(x_na, z_mb),  k = profile(h),  h = -1/2 |x - z|^2 = x.z - 1/2 |x|^2 - 1/2 |z|^2

Tensor cores multiply numbers of half precision and add up in single precision, ten times as fast as a GPU multiplies
such numbers. Such a number is the sum of two of half precision, to 22 of its 24 bits, so three products give x.z:

    x = x1 + x2,    x.z = x1.z1 + x1.z2 + x2.z1 + O(2^-22)

Points that are numbers of half precision, x2 = z2 = 0, take one product.

Tensor cores round each sum toward zero. Over 240,000 features that takes a thousandth of x.z, so sums of ``_EXACT``
features are added up with correct rounding. What is left differs with the centre of the points, which all blocks of a
matrix must share: where they do, it is a factor for each point, and the matrix stays positive definite.

Each tile of h is turned into values of k, and these into sums, while it is in registers. For the gradient it is
computed again: with G = dL/dK and W = G(n, m) dk/dh,

    dL/dx = W z - x rowsum(W),    dL/dz = W^T x - z colsum(W)

are products of halves, too. A column of ones, which changes no distance, yields the sums of W.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_LARGEST = 8  # the binary exponent of the largest entry of W, so that halves reach far below it
_VALUES = 2**29  # of W, at a time
_SUMMED = 8  # at most as many rows and columns are summed in registers
_DEPTH = 32  # features at a time
_EXACT = 512  # features that a tensor core adds up in wide sums: 240,000 are off by 7e-7, by 1e-3 without parts
_WIDE = 2048  # features; sums of fewer are in one part, as parts take a third of the speed
# Points at a time, and how they are shared out: on an H200, 475 TFLOP/s for sums. Six others took up to a third longer.
_OF_SUMS = {"ROWS": 128, "COLUMNS": 256, "DEPTH": _DEPTH, "num_warps": 8, "num_stages": 3}
_OF_WIDE_SUMS = _OF_SUMS | {"COLUMNS": 128}  # there is room in registers for two sums
_OF_SLOPES = {"ROWS": 128, "COLUMNS": 128, "DEPTH": _DEPTH, "num_warps": 8, "num_stages": 4}


class Halves(NamedTuple):
    """Points and a column of ones as sums of two matrices of half precision, and -1/2 |x|^2."""

    high: Float[Tensor, "points wide"]
    low: Float[Tensor, "points wide"]
    norms: Float[Tensor, " points"]

    @classmethod
    def of(cls, points: Float[Tensor, "points dim"]) -> Halves:
        multiple = _DEPTH if points.shape[1] < _WIDE else _EXACT
        wide = points.new_zeros(len(points), -(-(points.shape[1] + 1) // multiple) * multiple)
        wide[:, : points.shape[1]] = points
        wide[:, points.shape[1]] = 1.0
        high = wide.half()
        return cls(high, (wide - high).half(), -0.5 * torch.linalg.vecdot(wide, wide))

    @property
    def is_rounded(self) -> bool:
        """Whether one half is all there is."""
        return not self.low.any()

    def between(self, start: int, stop: int) -> Halves:
        """Some of the points."""
        return Halves(*(part[start:stop] for part in self))


class PairSums(torch.autograd.Function):
    """The sums over blocks of ``s`` points of x and ``t`` points of z. Distances are in lengthscales."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, nu: float | None, s: int, t: int) -> Tensor:
        left, right = Halves.of(x), Halves.of(z)
        ctx.save_for_backward(x, z)
        ctx.settings = nu, s, t
        few, many = gcd(s, _SUMMED), gcd(t, _SUMMED)
        sums = x.new_empty(len(x) // few, len(z) // many)
        summed = {"ROWS_SUMMED": few, "COLUMNS_SUMMED": many, "LOW": not (left.is_rounded and right.is_rounded)}
        tiles = _OF_SUMS if left.high.shape[1] <= _WIDE else _OF_WIDE_SUMS
        _launch(_sums, left, right, sums, len(z) // many, **summed, **tiles, **_profile(nu))
        return sums.unflatten(1, (-1, t // many)).sum(-1).unflatten(0, (-1, s // few)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, z), (nu, s, t) = ctx.saved_tensors, ctx.settings
        left, right, dim = Halves.of(x), Halves.of(z), x.shape[1]
        least, most = grad.aminmax()
        exponent = torch.frexp(torch.maximum(-least, most)).exponent - _LARGEST
        scaled = torch.ldexp(grad, -exponent).contiguous()
        needs_x, needs_z, *_ = ctx.needs_input_grad
        to_x = x.new_empty(left.high.shape)
        to_z = torch.zeros_like(right.high, dtype=x.dtype)
        step = max(s, _VALUES // len(z) // s * s)
        for start in range(0, len(x), step):
            some = left.between(start, start + step)
            high, low = (torch.empty(len(some.high), len(z), dtype=torch.half, device=x.device) for _ in range(2))
            places = high, len(z), low, scaled[start // s :], grad.shape[1], s, t
            _launch(_slopes, some, right, *places, LOW=True, **_OF_SLOPES, **_profile(nu))
            if needs_x:
                to_x[start : start + step] = _product(high, low, right)
            if needs_z:
                to_z += _product(high.mT, low.mT, some)

        def gradient(products: Tensor, points: Tensor) -> Tensor:
            return torch.addcmul(products[:, :dim], products[:, dim, None], points, value=-1).ldexp_(exponent)

        return gradient(to_x, x) if needs_x else None, gradient(to_z, z) if needs_z else None, None, None, None


def _product(high: Tensor, low: Tensor, points: Halves) -> Tensor:
    """W times points, in three products of halves."""
    first, second = _multiplied(high, torch.cat((points.high, points.low), 1)).chunk(2, 1)
    return (first + second).add_(_multiplied(low, points.high))


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _profile(nu: float | None) -> dict[str, int]:
    """Twice the smoothness of a Matérn kernel, which is a whole number; zero for the RBF."""
    return {"TWICE_NU": 0 if nu is None else round(2 * nu)}


def _launch(kernel: Any, left: Halves, right: Halves, *given: Any, **constants: int) -> None:
    """One program for each tile."""
    rows, columns, wide = len(left.high), *right.high.shape
    grid = (triton.cdiv(rows, constants["ROWS"]) * triton.cdiv(columns, constants["COLUMNS"]),)
    kernel[grid](*left, *right, rows, columns, *given, WIDE=wide, EXACT=wide if wide <= _WIDE else _EXACT, **constants)


@triton.jit
def _tile(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which points this program sees. Programs that run together share columns, which lie in the cache then."""
    down = tl.cdiv(rows, ROWS)
    number = tl.program_id(0)
    i = (number % down) * ROWS + tl.arange(0, ROWS)
    j = (number // down) * COLUMNS + tl.arange(0, COLUMNS)
    return i, j


@triton.jit
def _products(x1, x2, z1, z2, rows, columns, i, j, first, WIDE: tl.constexpr, EXACT: tl.constexpr, LOW: tl.constexpr,
              ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    """x.z of a tile, of some features."""
    left = i.to(tl.int64)[:, None] * WIDE + first + tl.arange(0, DEPTH)[None, :]
    right = j.to(tl.int64)[None, :] * WIDE + first + tl.arange(0, DEPTH)[:, None]
    h = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, EXACT, DEPTH):
        a1 = tl.load(x1 + left + k, mask=i[:, None] < rows, other=0.0)
        b1 = tl.load(z1 + right + k, mask=j[None, :] < columns, other=0.0)
        h = tl.dot(a1, b1, h)
        if LOW:
            b2 = tl.load(z2 + right + k, mask=j[None, :] < columns, other=0.0)
            a2 = tl.load(x2 + left + k, mask=i[:, None] < rows, other=0.0)
            h = tl.dot(a1, b2, h)
            h = tl.dot(a2, b1, h)
    return h


@triton.jit
def _exponents(x1, x2, xn, z1, z2, zn, rows, columns, i, j, WIDE: tl.constexpr, EXACT: tl.constexpr, LOW: tl.constexpr,
               ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    """H of a tile."""
    h = _products(x1, x2, z1, z2, rows, columns, i, j, 0, WIDE, EXACT, LOW, ROWS, COLUMNS, DEPTH)
    for first in range(EXACT, WIDE, EXACT):
        h += _products(x1, x2, z1, z2, rows, columns, i, j, first, WIDE, EXACT, LOW, ROWS, COLUMNS, DEPTH)
    h += tl.load(xn + i, mask=i < rows, other=0.0)[:, None] + tl.load(zn + j, mask=j < columns, other=0.0)[None, :]
    return tl.minimum(h, 0.0)


@triton.jit
def _sums(x1, x2, xn, z1, z2, zn, rows, columns, sums, stride,
          WIDE: tl.constexpr, EXACT: tl.constexpr, LOW: tl.constexpr, ROWS_SUMMED: tl.constexpr,
          COLUMNS_SUMMED: tl.constexpr, TWICE_NU: tl.constexpr,
          ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    """Sums of k over small blocks."""
    i, j = _tile(rows, columns, ROWS, COLUMNS)
    h = _exponents(x1, x2, xn, z1, z2, zn, rows, columns, i, j, WIDE, EXACT, LOW, ROWS, COLUMNS, DEPTH)
    if TWICE_NU == 0:
        k = tl.exp(h)
    else:
        s = tl.sqrt(-2.0 * TWICE_NU * h)
        k = (s + 1.0) * tl.exp(-s) if TWICE_NU == 3 else (s * (s / 3.0 + 1.0) + 1.0) * tl.exp(-s)
    k = tl.reshape(k, (ROWS // ROWS_SUMMED, ROWS_SUMMED, COLUMNS // COLUMNS_SUMMED, COLUMNS_SUMMED))
    k = tl.sum(tl.sum(k, 3), 1)
    down = (tl.min(i, 0) + tl.arange(0, ROWS // ROWS_SUMMED) * ROWS_SUMMED)[:, None]
    across = (tl.min(j, 0) + tl.arange(0, COLUMNS // COLUMNS_SUMMED) * COLUMNS_SUMMED)[None, :]
    place = sums + (down // ROWS_SUMMED).to(tl.int64) * stride + across // COLUMNS_SUMMED
    tl.store(place, k, mask=(down < rows) & (across < columns))


@triton.jit
def _slopes(x1, x2, xn, z1, z2, zn, rows, columns, high, stride, low, grad, grad_stride, s, t,
            WIDE: tl.constexpr, EXACT: tl.constexpr, LOW: tl.constexpr, TWICE_NU: tl.constexpr,
            ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    """W in halves."""
    i, j = _tile(rows, columns, ROWS, COLUMNS)
    h = _exponents(x1, x2, xn, z1, z2, zn, rows, columns, i, j, WIDE, EXACT, LOW, ROWS, COLUMNS, DEPTH)
    if TWICE_NU == 0:
        slope = tl.exp(h)
    else:
        root = tl.sqrt(-2.0 * TWICE_NU * h)
        slope = 3.0 * tl.exp(-root) if TWICE_NU == 3 else (root + 1.0) * tl.exp(-root) * (5.0 / 3.0)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    w = slope * tl.load(grad + (i // s).to(tl.int64)[:, None] * grad_stride + (j // t)[None, :], mask=inside, other=0.0)
    place = i.to(tl.int64)[:, None] * stride + j[None, :]
    half = w.to(tl.float16)
    tl.store(high + place, half, mask=inside)
    tl.store(low + place, (w - half.to(tl.float32)).to(tl.float16), mask=inside)
