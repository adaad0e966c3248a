"""The two sums of a stationary kernel over orbit samples, with their gradients: block means of k_fu, and the pairs of k_ff."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.kernels._radial import Distances, Means, Profile
from orbitgp.orbits import Pairing
from orbitgp.orbits.sampling import Blocks, pair_sides, pair_weights


class Sums(torch.autograd.Function):
    """Block means of k(xa, z) and weighted pair sums of k(xa, xa'), a few data at a time.

    With X = [x, |x|^2, 1] and Z = kappa gamma [-2 z, 1, |z|^2], X Z^T = kappa gamma |x - z|^2. Given W = dL/dh,
    W^T X = [.., .., colsum(W)], and
    dL/dx = 2 kappa gamma (x rowsum(W) - W z)   and   dL/dz = -2 kappa gamma ((W^T X)_x - z colsum(W)).

    The backward pass needs the slopes, which are kept only where a gradient will be asked for. It computes X again, in the
    cache, which costs less than writing X to memory and reading it back. All data share the same few buffers, because fresh
    memory from the system costs as much as a pass over it.
    """

    @staticmethod
    def forward(
        ctx: Any, xa: Tensor, z: Tensor, centre: Tensor, gamma: Tensor, pairing: Pairing, profile: Profile, learns: bool
    ) -> tuple[Tensor, Tensor]:
        rows, blocks, size, dim = xa.shape
        scale = profile.kappa * gamma
        towards, norms = z * (-2 * scale), torch.linalg.vecdot(z, z) * scale
        # Transpose once, not in each product: OpenBLAS is a tenth slower with a transposed right side.
        right = z.new_empty(dim + 2, len(z))
        right[:dim], right[dim], right[dim + 1] = towards.mT, scale, norms
        weights = pair_weights(xa, pairing)
        kfu, kff = xa.new_empty(rows, blocks, len(z)), xa.new_empty(rows)
        pairs: list[tuple[Tensor, Tensor]] = []
        parts = _chunks(xa, len(z))
        wide = _wide(xa, parts)
        slopes = xa.new_empty(rows if learns else len(wide), blocks * size, len(z))
        for part in parts:
            left = _augmented(xa[part], centre, wide)
            h = slopes[part] if learns else slopes[: len(left)]
            torch.mm(left.flatten(0, 2), right, out=h.flatten(0, 1))
            profile.value_means(h.view(-1, blocks, size, len(z)), kfu[part], slope=learns)

            d2 = _pair_distances(left, pairing)
            kff[part], slope = profile.pair_sums(d2, scale, weights, with_itself=not pairing.two_groups)
            pairs.append((d2, slope))
        if learns:
            distances, slopes_pairs = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            ctx.save_for_backward(xa, centre, towards, norms, z, gamma, weights, slopes, distances, slopes_pairs)
            ctx.pairing, ctx.profile = pairing, profile
        return kfu, kff

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kfu: Tensor, grad_kff: Tensor) -> tuple[Tensor | None, ...]:
        xa, centre, towards, norms, z, gamma, weights, slopes, distances, slopes_pairs = ctx.saved_tensors
        _, blocks, size, dim = xa.shape
        kappa, rate = ctx.profile.kappa, ctx.profile.rate
        need_x, need_z, need_gamma = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        grad_means = grad_kfu * (rate / size)
        w_pairs = slopes_pairs * (grad_kff[:, None, None] * (rate * weights))
        grad_x = torch.empty_like(xa, memory_format=torch.contiguous_format) if need_x else None
        grad_z, to_z = None, z.new_zeros(len(z), dim + 2)
        grad_gamma = kappa * torch.linalg.vecdot(w_pairs.flatten(), distances.flatten()) if need_gamma else None
        parts = _chunks(xa, len(z))
        wide = _wide(xa, parts)
        all_w = xa.new_empty(len(wide), blocks, size, len(z))
        for part in parts:
            left = _augmented(xa[part], centre, wide)
            w = all_w[: len(left)]
            row_sums = _scale(slopes[part].view(w.shape), grad_means[part], w)
            if need_z or need_gamma:
                to_z.addmm_(w.flatten(0, 2).mT, left.flatten(0, 2))
            if grad_x is not None:
                torch.mm(w.flatten(0, 2), towards, out=grad_x[part].flatten(0, 2))
                _add_own_and_pairs(grad_x[part], left, row_sums, w_pairs[part], kappa * gamma, ctx.pairing)
        if need_z:
            scale = -2 * kappa * gamma
            grad_z = (to_z[:, :dim] * scale).addcmul_(z, to_z[:, dim + 1 :] * -scale)
        if grad_gamma is not None:
            # h = X Z^T is linear in gamma, and sum(W * h) = sum((W^T X) * Z).
            along = torch.linalg.vecdot(to_z[:, :dim], towards).sum() + torch.linalg.vecdot(to_z[:, dim + 1], norms)
            grad_gamma = grad_gamma + along / gamma + kappa * to_z[:, dim].sum()
        return grad_x, grad_z, None, grad_gamma, None, None, None


def _pair_distances(left: Float[Tensor, "rows blocks size wide"], pairing: Pairing) -> Float[Tensor, "rows left right"]:
    """|x - x'|^2 for the pairs that count, from [x, |x|^2, 1]."""
    dim = left.shape[-1] - 2
    a, b = pair_sides(left, pairing)
    # On some CPUs, batches of small products with a transposed right side take 30 times longer than the copy.
    return torch.baddbmm(a[..., dim, None] + b[..., None, :, dim], a[..., :dim], b[..., :dim].mT.contiguous(), alpha=-2)


def _scale(slopes: Distances, grad: Means, out: Distances) -> Float[Tensor, "rows blocks size"]:
    """W = slopes * grad, and the sums of its rows."""
    return torch.mul(slopes, grad[:, :, None], out=out).sum(-1)


def _add_own_and_pairs(out: Tensor, left: Tensor, row_sums: Tensor, w_pairs: Tensor, scale: Tensor, pairing: Pairing) -> None:
    """Add the other terms of dL/dx: x times the row sums of W, and the gradient through the pairs."""
    dim, apart = out.shape[-1], pairing.two_groups
    row, col, between = w_pairs.sum(-1), w_pairs.sum(-2), w_pairs * (-2 * scale)
    # With one set on both sides, x_i appears as row and as column.
    sums = torch.stack([row, col], 1) if apart else (row + col).view(left.shape[:3])
    own = (row_sums + sums).mul_(2 * scale)
    x = left[..., :dim]
    out.addcmul_(x, own[..., None])
    a, b = pair_sides(x, pairing)
    if apart:
        out[:, 0].baddbmm_(between, b)
        out[:, 1].baddbmm_(between.mT, a)
    else:
        out.flatten(1, 2).baddbmm_(between + between.mT, b)


def _wide(xa: Blocks, parts: list[slice]) -> Float[Tensor, "most blocks size wide"]:
    """A buffer for X of the largest part, with its last column filled."""
    _, blocks, size, dim = xa.shape
    wide = xa.new_empty(max((part.stop - part.start for part in parts), default=0), blocks, size, dim + 2)
    wide[..., dim + 1].fill_(1.0)
    return wide


def _augmented(xa: Blocks, centre: Float[Tensor, " dim"], wide: Tensor) -> Float[Tensor, "rows blocks size wide"]:
    """[x, |x|^2, 1], from the centre, in the memory of ``wide``."""
    dim, wide = xa.shape[-1], wide[: len(xa)]
    x = torch.sub(xa, centre, out=wide[..., :dim])
    torch.linalg.vecdot(x, x, out=wide[..., dim])
    return wide


def _chunks(xa: Blocks, inducing: int) -> list[slice]:
    """Slices of data: on a CPU a few thousand samples, enough for a fast product; on a GPU as many as memory allows."""
    rows, blocks, size, dim = xa.shape
    samples = 4096 if xa.device.type == "cpu" else 2**28 // max(inducing, dim)
    most = max(1, samples // max(1, blocks * size))
    step = -(-rows // -(-rows // most)) if rows else 1  # as few chunks as needed, of equal size
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
