"""k_g: the kernel of the function that is averaged over the orbit.

Any ``gpytorch.kernels.Kernel`` serves. The model asks it for three things only:

    gram(Z)           Kuu = k_g(Z, Z), or its means over pairs of sets of points, (M, M)
    sums(xa, Z)       Kfu, the mean of k_g(x_a, z) over each block of samples, (N, B, M)
                      and kff, the paired mean of k_g(x_a, x_a') over a datum's own samples, (N,)
    cross(xa, xb)     the mean of k_g over two sets of samples, for joint predictions

:func:`covariance` picks the implementation: RBF and Matérn kernels (in a ScaleKernel or not, ARD or not) take a hand-written
path, where one GEMM with two extra columns yields all squared distances, scaled, and its backward pass is two GEMMs whose
extra columns are the row and column sums that the gradient needs. Every other kernel goes through GPyTorch. Hyperparameters
stay in float64; the large products run in the dtype of the samples.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from orbitgp import native
from orbitgp.feature_maps import FeatureMapKernel
from orbitgp.gram import Gram, SetGram, set_means
from orbitgp.orbits import Pairing
from orbitgp.pairs import Blocks, pair_sides, pair_weights, two_groups
from orbitgp.tensor_cores import TensorCoreSums


def covariance(kernel: Kernel) -> Covariance:
    """The fastest implementation of what the model needs from this kernel."""
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    plain = all(k.active_dims is None and not k.batch_shape for k in (kernel, base))
    if plain and type(base) in (RBFKernel, MaternKernel):
        return Stationary(kernel)
    return OfFeatures(kernel) if type(kernel) is FeatureMapKernel else Covariance(kernel)


class Covariance(nn.Module):
    """The general implementation, through GPyTorch's own evaluation."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def see(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        """Inputs as the kernel ``of_vectors`` takes them. Who needs the same inputs twice can map them once."""
        return x

    @property
    def of_vectors(self) -> Covariance:
        """The kernel of what is seen."""
        return self

    def gram(
        self, z: Float[Tensor, "inducing *samples dim"], dtype: torch.dtype | None = None, jitter: float = 0.0
    ) -> Float[Tensor, "inducing inducing"]:
        """Kuu + jitter I, in the given precision, or else in that of z; of sets of points, the mean over pairs of two sets."""
        points = z.reshape(-1, z.shape[-1]).to(dtype or z.dtype)
        kuu = self._dense(points, points)
        kuu = kuu if z.ndim == 2 else set_means(kuu, z.shape[1])
        return kuu + jitter * torch.eye(len(kuu), dtype=kuu.dtype, device=kuu.device) if jitter else kuu

    def sums(
        self, xa: Blocks, z: Float[Tensor, "inducing dim"], pairing: Pairing
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]:
        """Kfu for each block and kff for each datum."""
        rows, blocks, size, dim = xa.shape
        kfu = self._dense(xa.reshape(-1, dim), z).reshape(rows, blocks, size, -1).mean(2)
        return kfu, (self._dense(*pair_sides(xa, pairing)) * pair_weights(xa, pairing)).sum((-2, -1))

    def cross(self, xa: Float[Tensor, "rows size dim"], xb: Float[Tensor, "others size dim"]) -> Float[Tensor, "rows others"]:
        """k_f between different data whose samples are finite orbits: the mean over all pairs of samples."""
        block = self.sums(xa[:, None], xb.flatten(0, 1), Pairing.exact())[0]
        return block.reshape(len(xa), len(xb), -1).mean(-1)

    def _dense(self, a: Tensor, b: Tensor) -> Tensor:
        # Hyperparameters are cast to the dtype of the inputs, inside the call, so that gradients reach them.
        tensors = {name: _cast(t, a.dtype) for name, t in (*self.named_parameters(), *self.named_buffers())}
        dense: Tensor = torch.func.functional_call(_Dense(self), {f"owner.{n}": t for n, t in tensors.items()}, (a, b))
        return dense


class _Dense(nn.Module):
    """kernel(a, b).to_dense() as one module call: GPyTorch evaluates lazily, which must happen while parameters are cast."""

    def __init__(self, owner: Covariance) -> None:
        super().__init__()
        self.owner = owner

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.owner.kernel(a, b).to_dense()


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


class OfFeatures(Covariance):
    """A kernel of mapped inputs: map once, then what is fastest for the kernel of the features."""

    def see(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        return self.kernel.map(x)

    @property
    def of_vectors(self) -> Covariance:
        return covariance(self.kernel.base_kernel)  # a new view of it: a part of this module would save it twice

    def gram(
        self, z: Float[Tensor, "inducing *samples dim"], dtype: torch.dtype | None = None, jitter: float = 0.0
    ) -> Float[Tensor, "inducing inducing"]:
        return self.of_vectors.gram(self.see(z), dtype, jitter)

    def sums(
        self, xa: Blocks, z: Float[Tensor, "inducing dim"], pairing: Pairing
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]:
        return self.of_vectors.sums(self.see(xa), self.see(z), pairing)


class Stationary(Covariance):
    """RBF and Matérn kernels of a scaled squared distance, k = variance * profile(kappa * gamma * |x - z|^2)."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
        self.profile: Profile = RBF() if isinstance(base, RBFKernel) else Matern(float(base.nu))

    def gram(
        self, z: Float[Tensor, "inducing *samples dim"], dtype: torch.dtype | None = None, jitter: float = 0.0
    ) -> Float[Tensor, "inducing inducing"]:
        centred = z - _mean(z.detach().reshape(-1, z.shape[-1]))
        z, gamma, variance = self._scaled(centred, dtype)
        kuu: Tensor = (Gram if z.ndim == 2 else SetGram).apply(z, gamma, variance, self.profile, jitter)
        return kuu

    def sums(
        self, xa: Blocks, z: Float[Tensor, "inducing dim"], pairing: Pairing
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]:
        # Centring costs one pass and wins a digit: squared distances cancel less.
        centre = _mean(z.detach())
        z, gamma, variance = self._scaled(z - centre)
        if self._ard():  # far from zero, x / lengthscale loses digits: centre first
            xa, centre = self._scaled(xa - centre)[0], torch.zeros_like(centre)
        learns = torch.is_grad_enabled() and any(t.requires_grad for t in (xa, z, gamma))
        function = TensorCoreSums if xa.is_cuda and xa.dtype == torch.float32 and self.profile.smooth else _Sums
        kfu, kff = function.apply(xa, z, centre, gamma, pairing, self.profile, learns)
        return variance * kfu, variance * kff

    def _scaled(self, x: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, 1/lengthscale^2 and variance. With ARD the inputs are scaled; one lengthscale is applied after the GEMM."""
        kernel, dtype = self.kernel, dtype or x.dtype
        base, variance = kernel, torch.ones((), dtype=dtype, device=x.device)
        if isinstance(kernel, ScaleKernel):
            base, variance = kernel.base_kernel, kernel.outputscale.to(dtype)
        lengthscale = base.lengthscale.reshape(-1)
        if self._ard():
            return x / lengthscale.to(x.dtype), variance.new_ones(()), variance
        return x, lengthscale[0].to(dtype).pow(-2), variance

    def _ard(self) -> bool:
        base = self.kernel.base_kernel if isinstance(self.kernel, ScaleKernel) else self.kernel
        return bool(base.raw_lengthscale.numel() > 1)


class Profile:
    """k as a function of h = kappa * d^2, and its slope, dk/dh = rate * slope.

    ``smooth``: the slope is bounded. Where it is not, a rounding error of a small distance becomes one of any size, and the
    products of TF32 will not do.
    """

    kappa: float = 1.0
    rate: float = 1.0
    smooth: bool = True

    def value(self, h: Tensor) -> Tensor:
        """Only k; may overwrite h."""
        raise NotImplementedError

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Both k and its slope, the slope in the memory of h."""
        raise NotImplementedError

    def value_means(
        self, h: Float[Tensor, "rows blocks size inducing"], out: Float[Tensor, "rows blocks inducing"], slope: bool
    ) -> None:
        """The means of k over each block, and, if asked for, the slope in the memory of h."""
        _block_means(self.value_and_slope(h)[0] if slope else self.value(h), out)


class RBF(Profile):
    """k = 2^h, h = -d^2 / (2 log 2): its own slope, so nothing more is kept. (2^h takes two thirds of the time of e^h.)"""

    kappa = -0.5 / math.log(2)
    rate = math.log(2)

    def value(self, h: Tensor) -> Tensor:
        return h.exp2_()

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        k = h.exp2_()
        return k, k

    def value_means(
        self, h: Float[Tensor, "rows blocks size inducing"], out: Float[Tensor, "rows blocks inducing"], slope: bool
    ) -> None:
        if native.serves(h, out):
            native.exp2_means(h.flatten(0, 1), out.flatten(0, 1))
        else:
            super().value_means(h, out, slope)


class Matern(Profile):
    """nu = 1/2, 3/2, 5/2 in s = sqrt(2 nu d^2), with GPyTorch's floor on s."""

    def __init__(self, nu: float) -> None:
        self.nu = nu
        self.smooth = nu > 0.5

    def value(self, h: Tensor) -> Tensor:
        s, e = self._root_and_decay(h)
        return e if self.nu == 0.5 else self._polynomial(s).mul_(e)

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        s, e = self._root_and_decay(h)
        if self.nu == 0.5:
            return e, s.reciprocal_().mul_(e).mul_(-0.5)
        k = self._polynomial(s).mul_(e)
        if self.nu == 1.5:
            return k, s.copy_(e).mul_(-1.5)
        return k, s.add_(1).mul_(e).mul_(-5 / 6)

    def _root_and_decay(self, h: Tensor) -> tuple[Tensor, Tensor]:
        s = h.mul_(2 * self.nu).clamp_min_(1e-15 if h.dtype == torch.float64 else 1e-12).sqrt_()
        return s, torch.neg(s).exp_()

    def _polynomial(self, s: Tensor) -> Tensor:
        return s + 1 if self.nu == 1.5 else (s / 3).add_(1).mul_(s).add_(1)


class _Sums(torch.autograd.Function):
    """Block means of k(xa, z) and weighted pair sums of k(xa, xa'), a few data at a time.

    With X = [x, |x|^2, 1] and Z = kappa gamma [-2 z, 1, |z|^2], X Z^T = kappa gamma |x - z|^2. Given W = dL/dh,
    W^T X = [.., .., colsum(W)], and
    dL/dx = 2 kappa gamma (x rowsum(W) - W z)   and   dL/dz = -2 kappa gamma ((W^T X)_x - z colsum(W)).

    What is kept for the backward pass is the slope, and that only if there is one to come. X is made again: while it lies in
    the cache, that costs less than to write it out and to read it back. All data go through the same few buffers: memory that
    is fresh from the system costs as much as a pass over it.
    """

    @staticmethod
    def forward(
        ctx: Any, xa: Tensor, z: Tensor, centre: Tensor, gamma: Tensor, pairing: Pairing, profile: Profile, learns: bool
    ) -> tuple[Tensor, Tensor]:
        rows, blocks, size, dim = xa.shape
        scale = profile.kappa * gamma
        towards, norms = z * (-2 * scale), torch.linalg.vecdot(z, z) * scale
        # The transpose once, and not in each product: OpenBLAS is a tenth slower with a transposed right side.
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

            h = _pair_distances(left, pairing)
            k, slope = profile.value_and_slope(h * scale)
            if not two_groups(pairing):
                # A sample with itself: rounding must not become a distance, which a kernel with a kink would take the root of.
                k.diagonal(dim1=-2, dim2=-1).fill_(1.0)
                h.diagonal(dim1=-2, dim2=-1).zero_()
                if slope is not k:
                    slope.diagonal(dim1=-2, dim2=-1).zero_()
            torch.sum(k * weights, (-2, -1), out=kff[part])
            pairs.append((h, slope))
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
    if native.serves(left):
        return native.pair_distances(left, two_groups(pairing))
    dim = left.shape[-1] - 2
    a, b = pair_sides(left, pairing)
    # Batches of small products with a transposed right side are 30 times slower on some CPUs than the copy.
    return torch.baddbmm(a[..., dim, None] + b[..., None, :, dim], a[..., :dim], b[..., :dim].mT.contiguous(), alpha=-2)


def _scale(
    slopes: Float[Tensor, "rows blocks size inducing"],
    grad: Float[Tensor, "rows blocks inducing"],
    out: Float[Tensor, "rows blocks size inducing"],
) -> Float[Tensor, "rows blocks size"]:
    """W = slopes * grad, and the sums of its rows."""
    if native.serves(slopes, grad):
        return native.scale(slopes.flatten(0, 1), grad.flatten(0, 1), out.flatten(0, 1)).view(out.shape[:3])
    return torch.mul(slopes, grad[:, :, None], out=out).sum(-1)


def _add_own_and_pairs(out: Tensor, left: Tensor, row_sums: Tensor, w_pairs: Tensor, scale: Tensor, pairing: Pairing) -> None:
    """What else dL/dx has beside W Z: x itself, with the sums of its weights, and through the pairs."""
    dim, apart = out.shape[-1], two_groups(pairing)
    row, col, between = w_pairs.sum(-1), w_pairs.sum(-2), w_pairs * (-2 * scale)
    # One set on both sides: x_i appears as row and as column.
    sums = torch.stack([row, col], 1) if apart else (row + col).view(left.shape[:3])
    own = (row_sums + sums).mul_(2 * scale)
    if native.serves(left):
        between = torch.stack([between, between.mT], 1) if apart else between + between.mT
        native.pair_gradients(left, own, between, out)
        return
    x = left[..., :dim]
    out.addcmul_(x, own[..., None])
    a, b = pair_sides(x, pairing)
    if apart:
        out[:, 0].baddbmm_(between, b)
        out[:, 1].baddbmm_(between.mT, a)
    else:
        out.flatten(1, 2).baddbmm_(between + between.mT, b)


def _wide(xa: Blocks, parts: list[slice]) -> Float[Tensor, "most blocks size wide"]:
    """Room for X of the largest part, its last column filled in."""
    _, blocks, size, dim = xa.shape
    wide = xa.new_empty(max((part.stop - part.start for part in parts), default=0), blocks, size, dim + 2)
    wide[..., dim + 1].fill_(1.0)
    return wide


def _augmented(xa: Blocks, centre: Float[Tensor, " dim"], wide: Tensor) -> Float[Tensor, "rows blocks size wide"]:
    """[x, |x|^2, 1], from the centre, in the memory of ``wide``."""
    dim, wide = xa.shape[-1], wide[: len(xa)]
    if native.serves(xa, centre):
        native.augment(xa.flatten(0, 2), centre, wide.flatten(0, 2))
        return wide
    x = torch.sub(xa, centre, out=wide[..., :dim])
    torch.linalg.vecdot(x, x, out=wide[..., dim])
    return wide


def _mean(points: Float[Tensor, "points dim"]) -> Float[Tensor, " dim"]:
    """The mean of all points, as a product: four times faster on a CPU than torch's own sums over columns."""
    return points.new_full((len(points),), 1 / max(1, len(points))) @ points


def _block_means(k: Float[Tensor, "rows blocks size inducing"], out: Float[Tensor, "rows blocks inducing"]) -> None:
    """The mean over each block. Where blocks are long, as a product: torch sums over long middle axes five times slower."""
    size, inducing = k.shape[2:]
    if k.device.type == "cpu" and size * inducing >= 2**15:
        weights = k.new_full((1, 1, size), 1 / size).expand(len(k) * k.shape[1], -1, -1)
        torch.bmm(weights, k.flatten(0, 1), out=out.view(-1, 1, inducing))
    else:
        torch.mean(k, 2, out=out)


def _chunks(xa: Blocks, inducing: int) -> list[slice]:
    """Slices of data: on a CPU a few thousand samples, enough for each product; on a GPU what bounds the memory."""
    rows, blocks, size, dim = xa.shape
    samples = 4096 if xa.device.type == "cpu" else 2**28 // max(inducing, dim)
    most = max(1, samples // max(1, blocks * size))
    step = -(-rows // -(-rows // most)) if rows else 1  # as many chunks as needed, all of a size
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
