"""The sums of a stationary kernel on a GPU: the large products on its tensor cores, in TF32.

TF32 keeps eleven bits of each factor. That is too few for a squared distance that is one product, norms included: the bound
moves by tens of nats. But of |x|^2 + |z|^2 - 2 x.z only the last term needs the tensor cores, and its error is small against
the norms, which stay in float32. Then the bound moves by less than a tenth of a nat in thousands, below its own Monte-Carlo
noise, and the products take a sixth of their time (``benchmarks`` measures both).

Every pass over the kernel matrix costs as much as a product. So the products do some of that work too: |x|^2 becomes three more
columns of x, each with so few digits that TF32 keeps them all. A column of ones on either side yields the sums over rows and
columns that the gradient needs.

The mathematics is that of :class:`orbitgp.kernels._expectations_cpu.Sums`, which is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.orbits import Pairing
from orbitgp.orbits.sampling import pair_sides, pair_weights

if TYPE_CHECKING:
    from orbitgp.kernels._radial import Profile


_TF32 = ~0x1FFF  # the bits of a float32 that a TF32 keeps: sign, exponent and ten of the mantissa


class TensorCoreSums(torch.autograd.Function):
    """Block means of k(xa, z) and weighted pair sums of k(xa, xa'), for h = kappa gamma |x - z|^2.

    With W = dL/dh, dL/dx = 2 kappa gamma (x rowsum(W) - W z) and dL/dz = 2 kappa gamma (z colsum(W) - W^T x).
    """

    @staticmethod
    def forward(
        ctx: Any, xa: Tensor, z: Tensor, centre: Tensor, gamma: Tensor, pairing: Pairing, profile: Profile, learns: bool
    ) -> tuple[Tensor, Tensor]:
        rows, blocks, size, dim = xa.shape
        scale = profile.kappa * gamma
        wide = with_columns(xa, dim)
        x = torch.sub(xa, centre, out=wide[..., :dim])
        squares = torch.linalg.vecdot(x, x)
        wide[..., dim : dim + 3] = _in_three(squares * scale)
        wide[..., dim + 3] = 1.0
        right = with_columns(z, dim)
        torch.mul(z, -2 * scale, out=right[:, :dim])
        right[:, dim : dim + 3] = 1.0
        with tensor_cores():
            # addmm adds the norm of each column while it writes the product.
            h = torch.addmm(scale * torch.linalg.vecdot(z, z), wide.flatten(0, 2), right.mT)
        k, slopes = profile.value_and_slope(h) if learns else (profile.value(h), None)
        kfu = k.view(rows, blocks, size, -1).mean(2)

        (a, b), weights = pair_sides(x, pairing), pair_weights(x, pairing)
        squares_a, squares_b = pair_sides(squares[..., None], pairing)
        with tensor_cores():
            distances = torch.baddbmm(squares_a + squares_b.mT, a, b.mT, alpha=-2)
        kff, slopes_pairs = profile.pair_sums(distances, scale, weights, with_itself=a is b)
        if slopes is not None:
            ctx.save_for_backward(wide, z, gamma, squares, slopes, weights, distances, slopes_pairs)
            ctx.pairing, ctx.profile = pairing, profile
        return kfu, kff

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kfu: Tensor, grad_kff: Tensor) -> tuple[Tensor | None, ...]:
        wide, z, gamma, squares, slopes, weights, distances, slopes_pairs = ctx.saved_tensors
        dim = z.shape[1]
        x = wide[..., :dim]
        rows, blocks, size, _ = x.shape
        kappa, rate = ctx.profile.kappa, ctx.profile.rate
        need_x, need_z, need_gamma = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        grad_means = grad_kfu[:, :, None] * (rate / size)
        w = (slopes.view(rows, blocks, size, -1) * grad_means).view(rows * blocks * size, -1)
        w_pairs = slopes_pairs * (grad_kff[:, None, None] * (rate * weights))
        flat, twice = x.flatten(0, 2), 2 * kappa * gamma
        grad_x = grad_z = grad_gamma = None
        right = with_columns(z, dim)
        right[:, :dim], right[:, dim] = z, 1.0
        with tensor_cores():
            if need_z or need_gamma:
                to_z = w.mT @ wide.flatten(0, 2)
            if need_x or need_gamma:
                to_x = w @ right
        if need_z:
            grad_z = (z * to_z[:, dim + 3, None] - to_z[:, :dim]).mul_(twice)
        if need_gamma:
            # sum(W * d^2) / gamma for both kinds of pairs, d^2 = |x|^2 + |z|^2 - 2 x.z
            row, column = to_x[:, dim], to_z[:, dim + 3]
            products = torch.linalg.vecdot(to_x[:, :dim], flat).sum()
            between = row @ squares.view(-1) + column @ torch.linalg.vecdot(z, z) - 2 * products
            grad_gamma = kappa * (between + torch.linalg.vecdot(w_pairs.flatten(), distances.flatten()))
        if need_x:
            grad_x = (flat * to_x[:, dim, None] - to_x[:, :dim]).mul_(twice).view(x.shape)
            _add_pairs(grad_x, x, w_pairs * twice, ctx.pairing)
        return grad_x, grad_z, None, grad_gamma, None, None, None


def with_columns(x: Tensor, dim: int) -> Tensor:
    """A buffer for x and at least four more columns of zeros, so that rows fill whole 16 bytes, as TF32 needs."""
    wide = x.new_empty(*x.shape[:-1], 4 * (dim // 4) + (8 if dim % 4 else 4))
    wide[..., dim:].zero_()
    return wide


def _in_three(values: Tensor) -> Tensor:
    """Split numbers into sums of three, each with no more digits than TF32 keeps."""
    if values.dtype != torch.float32:  # then there is no TF32 either
        zero = torch.zeros_like(values)
        return torch.stack([values, zero, zero], -1)
    high = (values.view(torch.int32) & _TF32).view(torch.float32)
    rest = values - high
    middle = (rest.view(torch.int32) & _TF32).view(torch.float32)
    return torch.stack([high, middle, rest - middle], -1)


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
    """Run products of float32 matrices in TF32 within this context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if use else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
