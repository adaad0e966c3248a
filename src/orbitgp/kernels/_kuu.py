"""Kuu of a stationary kernel, symmetric, with its gradient: between points, and between the means over sets of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.kernels._expectations_cuda import tensor_cores, with_columns

if TYPE_CHECKING:
    from orbitgp.kernels._radial import Profile


class PointGram(torch.autograd.Function):
    """variance * k(z, z) + jitter I, symmetric: half a GEMM forward, and one backward, in the dtype of z.

    Kuu needs more digits than its gradient. The gradient loses fewer of them here (3e-6 at M = 1200) than before it gets here.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, gamma: Tensor, variance: Tensor, profile: Profile, jitter: float) -> Tensor:
        d2 = _squared_distances(z.to(gamma.dtype))
        k, slope = profile.value_and_slope(d2 * (profile.kappa * gamma))
        k.fill_diagonal_(1.0)
        ctx.save_for_backward(z, gamma, variance, d2, k, slope)
        ctx.profile = profile
        return _with_jitter(variance * k, jitter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, gamma, variance, d2, k, slope = ctx.saved_tensors
        need_z, need_gamma, need_variance = ctx.needs_input_grad[:3]
        grad_z = grad_gamma = None
        grad_variance = torch.linalg.vecdot(grad.flatten(), k.flatten()) if need_variance else None
        w = (grad * slope).fill_diagonal_(0.0)
        scale = ctx.profile.kappa * ctx.profile.rate * variance
        if need_gamma:
            grad_gamma = torch.linalg.vecdot(w.flatten(), d2.flatten()) * scale
        if need_z:
            w = w.to(z.dtype)
            w = (w + w.mT).mul_((2 * scale * gamma).to(z.dtype))
            grad_z = torch.addmm(z * w.sum(1, keepdim=True), w, z, alpha=-1)
        return grad_z, grad_gamma, grad_variance, None, None


class SetGram(torch.autograd.Function):
    """The mean of variance * k over the pairs of two sets of points: (M, P, D) to (M, M).

    The (MP)^2 / 2 different pairs are computed a few sets at a time and not kept. The backward pass computes them again, in the
    dtype of z. One product of X = [x, |x|^2, 1] and Z = kappa gamma [-2 x, 1, |x|^2] yields all h = kappa gamma |x - x'|^2.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, gamma: Tensor, variance: Tensor, profile: Profile, jitter: float) -> Tensor:
        size, samples, dim = z.shape
        points = z.reshape(-1, dim).to(gamma.dtype)
        wide, scaled = _factors_of_distances(points, profile.kappa * gamma)
        means = points.new_empty(size, size)
        for sets in _strips(z):
            rows, columns = slice(sets.start * samples, sets.stop * samples), slice(sets.stop * samples)
            k = profile.value(wide[rows, : dim + 2] @ scaled[:, columns])
            k.diagonal(rows.start).fill_(1.0)  # a point with itself
            block = set_means(k, samples)
            means[sets, : sets.stop] = block
            means[: sets.start, sets] = block[:, : sets.start].mT
        ctx.save_for_backward(z, gamma, variance, means)
        ctx.profile = profile
        return _with_jitter(variance * means, jitter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, gamma, variance, means = ctx.saved_tensors
        _, samples, dim = z.shape
        grad_variance = torch.linalg.vecdot(grad.flatten(), means.flatten()) if ctx.needs_input_grad[2] else None
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, grad_variance, None, None
        # Each pair of points counts twice, once from either side: W = dL/dh for both.
        scale = ctx.profile.rate * variance / samples**2
        pairs = ((grad + grad.mT) * scale).to(z.dtype)
        points = z.reshape(-1, dim)
        kappa_gamma = (ctx.profile.kappa * gamma).to(z.dtype)
        wide, scaled = _factors_of_distances(points, kappa_gamma)
        sums = torch.zeros_like(wide)  # W X: its last column is the sum of each row of W, with the rounding of the product
        use_tensor_cores = points.is_cuda and ctx.profile.smooth
        for sets in _strips(z):
            rows, columns = slice(sets.start * samples, sets.stop * samples), slice(sets.stop * samples)
            slopes = ctx.profile.value_and_slope(wide[rows, : dim + 2] @ scaled[:, columns])[1]
            slopes = slopes.view(-1, samples, sets.stop, samples)
            w = slopes.mul_(pairs[sets, None, : sets.stop, None]).view(-1, columns.stop)
            w.diagonal(rows.start).zero_()
            with tensor_cores(use_tensor_cores):
                sums[rows] += w @ wide[columns]
                sums[: rows.start] += w[:, : rows.start].mT @ wide[rows]  # the same pairs from the other side
        towards, row, norms = sums[:, :dim], sums[:, dim + 1], wide[:, dim]
        # sum(W * d^2) with d^2 = |x|^2 + |z|^2 - 2 x.z, and W symmetric
        total = (row * norms - torch.linalg.vecdot(towards, points)).sum(dtype=gamma.dtype)
        grad_z = (points * row[:, None] - towards).mul_(2 * kappa_gamma)
        return grad_z.view_as(z), ctx.profile.kappa * total, grad_variance, None, None


def _factors_of_distances(
    x: Float[Tensor, "points dim"], scale: Float[Tensor, ""]
) -> tuple[Float[Tensor, "points wide"], Float[Tensor, "columns points"]]:
    """[x, |x|^2, 1] (with zeros behind), and the transpose of scale [-2 x, 1, |x|^2]: their product is scale |x - x'|^2."""
    dim, norms = x.shape[1], torch.linalg.vecdot(x, x)
    wide, scaled = with_columns(x, dim), x.new_empty(dim + 2, len(x))
    wide[:, :dim], wide[:, dim], wide[:, dim + 1] = x, norms, 1.0
    scaled[:dim], scaled[dim], scaled[dim + 1] = (x * (-2 * scale)).mT, scale, norms * scale
    return wide, scaled


def _with_jitter(kuu: Float[Tensor, "size size"], jitter: float) -> Float[Tensor, "size size"]:
    kuu.diagonal().add_(jitter)
    return kuu


def set_means(k: Float[Tensor, "points others"], samples: int) -> Float[Tensor, "sets othersets"]:
    """Means over the pairs of two sets of consecutive points."""
    return k.unflatten(1, (-1, samples)).mean(-1).unflatten(0, (-1, samples)).mean(1)


def _strips(z: Float[Tensor, "inducing samples dim"]) -> list[slice]:
    """Slices of sets: small enough for the cache of a CPU, and for the memory of a GPU."""
    size, samples, _ = z.shape
    step = max(1, (2**18 if z.device.type == "cpu" else 2**26) // (size * samples**2))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _squared_distances(z: Float[Tensor, "inducing dim"]) -> Float[Tensor, "inducing inducing"]:
    """|z_i - z_j|^2; on a CPU only its lower triangle is computed, a few rows at a time, and mirrored."""
    size = len(z)
    step = 128 if z.device.type == "cpu" else max(1, size)
    norms = torch.linalg.vecdot(z, z)
    d2 = z.new_empty(size, size)
    for start in range(0, size, step):
        end = start + step
        block = torch.addmm(norms[start:end, None] + norms[:end], z[start:end], z[:end].mT, alpha=-2)
        d2[start:end, :end] = block
        d2[:start, start:end] = block[:, :start].mT
    return d2.fill_diagonal_(0.0)
