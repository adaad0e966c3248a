"""The sums of a stationary kernel on a GPU: the large products on its tensor cores, in TF32.

TF32 keeps eleven bits of each factor, which is far too few for a squared distance that is computed as one product, norms and
all: the bound moves by tens of nats. But of |x|^2 + |z|^2 - 2 x.z only the last term needs the tensor cores, and its error is a
small part of a distance that the norms, in float32, carry. Then the bound moves by less than a tenth of a nat in thousands,
below its own Monte-Carlo noise, and the products take a sixth of their time (``benchmarks`` measures both).

The mathematics is that of :class:`orbitgp.kernels.Stationary`'s own sums, which is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.orbits import Pairing
from orbitgp.pairs import pair_sides, pair_weights

if TYPE_CHECKING:
    from orbitgp.kernels import Profile


class TensorCoreSums(torch.autograd.Function):
    """Block means of k(xa, z) and weighted pair sums of k(xa, xa'), for h = kappa gamma |x - z|^2.

    With W = dL/dh, dL/dx = 2 kappa gamma (x rowsum(W) - W z) and dL/dz = 2 kappa gamma (z colsum(W) - W^T x).
    """

    @staticmethod
    def forward(
        ctx: Any, xa: Tensor, z: Tensor, centre: Tensor, gamma: Tensor, pairing: Pairing, profile: Profile, learns: bool
    ) -> tuple[Tensor, Tensor]:
        rows, blocks, size, dim = xa.shape
        x = xa - centre
        scale = profile.kappa * gamma
        squares = torch.linalg.vecdot(x, x)
        with tensor_cores():
            # The bias of each column is added while the product is written out.
            h = torch.addmm(scale * torch.linalg.vecdot(z, z), x.view(-1, dim), (z * (-2 * scale)).mT)
        h.add_(scale * squares.view(-1, 1))
        k, slopes = profile.value_and_slope(h) if learns else (profile.value(h), None)
        kfu = k.view(rows, blocks, size, -1).mean(2)

        a, b, squares_a, squares_b, weights = _pairs(x, squares, pairing)
        with tensor_cores():
            distances = torch.baddbmm(squares_a[..., None] + squares_b[:, None, :], a, b.mT, alpha=-2)
        k, slopes_pairs = profile.value_and_slope(distances * scale)
        if (
            a is b
        ):  # a sample with itself: rounding must not become a distance, which a kernel with a kink would take the root of
            k.diagonal(dim1=-2, dim2=-1).fill_(1.0)
            distances.diagonal(dim1=-2, dim2=-1).zero_()
            if slopes_pairs is not k:
                slopes_pairs.diagonal(dim1=-2, dim2=-1).zero_()
        kff = (k * weights).sum((-2, -1))
        if slopes is not None:
            ctx.save_for_backward(x, z, gamma, squares, slopes, weights, distances, slopes_pairs)
            ctx.pairing, ctx.profile = pairing, profile
        return kfu, kff

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kfu: Tensor, grad_kff: Tensor) -> tuple[Tensor | None, ...]:
        x, z, gamma, squares, slopes, weights, distances, slopes_pairs = ctx.saved_tensors
        rows, blocks, size, dim = x.shape
        kappa, rate = ctx.profile.kappa, ctx.profile.rate
        need_x, need_z, need_gamma = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        grad_means = grad_kfu[:, :, None] * (rate / size)
        w = (slopes.view(rows, blocks, size, -1) * grad_means).view(rows * blocks * size, -1)
        w_pairs = slopes_pairs * (grad_kff[:, None, None] * (rate * weights))
        flat, twice = x.view(-1, dim), 2 * kappa * gamma
        row, column = w.sum(1), w.sum(0)
        to_x = to_z = grad_x = grad_z = grad_gamma = None
        with tensor_cores():
            if need_z:
                to_z = w.mT @ flat
                grad_z = (z * column[:, None] - to_z) * twice
            if need_x or need_gamma:
                to_x = w @ z
        if need_gamma:
            # sum(W * d^2) / gamma for both kinds of pairs, d^2 = |x|^2 + |z|^2 - 2 x.z
            assert to_x is not None
            between = row @ squares.view(-1) + column @ torch.linalg.vecdot(z, z) - 2 * torch.linalg.vecdot(to_x, flat).sum()
            grad_gamma = kappa * (between + torch.linalg.vecdot(w_pairs.flatten(), distances.flatten()))
        if need_x:
            assert to_x is not None
            grad_x = (flat * row[:, None] - to_x).mul_(twice).view_as(x)
            _add_pairs(grad_x, x, w_pairs * twice, ctx.pairing)
        return grad_x, grad_z, None, grad_gamma, None, None, None


def _pairs(x: Tensor, squares: Tensor, pairing: Pairing) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Both sides of the pairs that count, their squared norms and the weights of the pairs."""
    a, b = pair_sides(x, pairing)
    squares_a, squares_b = pair_sides(squares[..., None], pairing)
    return a, b, squares_a[..., 0], squares_b[..., 0], pair_weights(x, pairing)


def _add_pairs(grad: Tensor, x: Tensor, w: Tensor, pairing: Pairing) -> None:
    """Add the gradient through |a - b|^2 of the pairs: a rowsum(w) - w b for the left side, likewise for the right."""
    a, b = pair_sides(x, pairing)
    row, column = w.sum(-1)[..., None], w.sum(-2)[..., None]
    with tensor_cores():
        if a is b:
            grad += (a * (row + column) - (w + w.mT) @ b).view_as(grad)
        else:
            grad[:, 0] += a * row - w @ b
            grad[:, 1] += b * column - w.mT @ a


@contextmanager
def tensor_cores(use: bool = True) -> Iterator[None]:
    """Products of float32 matrices in TF32, in here."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if use else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
