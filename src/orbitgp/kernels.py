"""k_g: the kernel of the function that is averaged over the orbit.

Any ``gpytorch.kernels.Kernel`` serves. The model asks it for three things only:

    gram(Z)           Kuu = k_g(Z, Z)                                       (M, M)
    sums(xa, Z)       Kfu, the mean of k_g(x_a, z) over each block of samples, (N, B, M)
                      and kff, the paired mean of k_g(x_a, x_a') over a datum's own samples, (N,)
    cross(xa, xb)     the mean of k_g over two sets of samples, for joint predictions

:func:`covariance` picks the implementation: RBF and Matérn kernels (in a ScaleKernel or not, ARD or not) take a hand-written
path, where one GEMM with two extra columns yields all squared distances, scaled, and its backward pass is two GEMMs whose
extra columns are the row and column sums that the gradient needs. Every other kernel goes through GPyTorch. Hyperparameters
stay in float64; the large products run in the dtype of the samples.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from orbitgp.orbits import Pairing

Blocks = Float[Tensor, "rows blocks size dim"]


def covariance(kernel: Kernel) -> Covariance:
    """The fastest implementation of what the model needs from this kernel."""
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    plain = all(k.active_dims is None and not k.batch_shape for k in (kernel, base))
    if plain and type(base) in (RBFKernel, MaternKernel):
        return Stationary(kernel)
    return Covariance(kernel)


class Covariance(nn.Module):
    """The general implementation, through GPyTorch's own evaluation."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def gram(self, z: Float[Tensor, "inducing dim"]) -> Float[Tensor, "inducing inducing"]:
        """Kuu, in the precision of z."""
        return self._dense(z, z)

    def sums(
        self, xa: Blocks, z: Float[Tensor, "inducing dim"], pairing: Pairing
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]:
        """Kfu for each block and kff for each datum."""
        rows, blocks, size, dim = xa.shape
        kfu = self._dense(xa.reshape(-1, dim), z).reshape(rows, blocks, size, -1).mean(2)
        left, right, weights = _pair_sides(xa, pairing)
        return kfu, (self._dense(left, right) * weights).sum((-2, -1))

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


def _pair_sides(xa: Blocks, pairing: Pairing) -> tuple[Tensor, Tensor, Tensor]:
    """Left and right samples (N, a, D), (N, b, D) and pair weights (a, b) that sum to one, for the mean of k_g over pairs."""
    _, blocks, size, _ = xa.shape
    if blocks == 2 and pairing.diag == 0.0:
        # Only pairs across the two groups count, and k is symmetric: half the pairs, twice the weight.
        weights = xa.new_full((size, size), 2 * pairing.off / size**2)
        return xa[:, 0], xa[:, 1], weights
    between = torch.full((blocks, blocks), pairing.off, dtype=torch.float64)
    between.fill_diagonal_(pairing.diag)
    weights = (between / size**2).repeat_interleave(size, 0).repeat_interleave(size, 1)
    flat = xa.flatten(1, 2)
    return flat, flat, weights.to(xa)


class Stationary(Covariance):
    """RBF and Matérn kernels of a scaled squared distance, k = variance * profile(kappa * gamma * |x - z|^2)."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
        self.profile: Profile = RBF() if isinstance(base, RBFKernel) else Matern(float(base.nu))

    def gram(self, z: Float[Tensor, "inducing dim"]) -> Float[Tensor, "inducing inducing"]:
        z, gamma, variance = self._scaled(z)
        kuu: Tensor = _Gram.apply(z - z.detach().mean(0), gamma, self.profile)
        return variance * kuu

    def sums(
        self, xa: Blocks, z: Float[Tensor, "inducing dim"], pairing: Pairing
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]:
        xa, gamma, variance = self._scaled(xa)
        z, _, _ = self._scaled(z)
        # Centring costs one pass and wins a digit: squared distances cancel less.
        centre = z.detach().mean(0)
        kfu, kff = _Sums.apply(xa, z - centre, centre, gamma, pairing, self.profile)
        return variance * kfu, variance * kff

    def _scaled(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, 1/lengthscale^2 and variance. With ARD the inputs are scaled; one lengthscale is applied after the GEMM."""
        kernel = self.kernel
        base, variance = kernel, torch.ones((), dtype=x.dtype, device=x.device)
        if isinstance(kernel, ScaleKernel):
            base, variance = kernel.base_kernel, kernel.outputscale.to(x.dtype)
        lengthscale = base.lengthscale.to(x.dtype).reshape(-1)
        if lengthscale.numel() > 1:
            return x / lengthscale, variance.new_ones(()), variance
        return x, lengthscale[0].pow(-2), variance


class Profile:
    """k as a function of h = kappa * d^2, and dk/dh; both from one pass over the matrix."""

    kappa: float = 1.0

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """(k, dk/dh); may overwrite h."""
        raise NotImplementedError


class RBF(Profile):
    """k = exp(h), h = -d^2 / 2: its own derivative, so nothing more is kept."""

    kappa = -0.5

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        k = h.exp_()
        return k, k


class Matern(Profile):
    """nu = 1/2, 3/2, 5/2 in r = sqrt(d^2), with GPyTorch's floor on r."""

    def __init__(self, nu: float) -> None:
        self.nu = nu

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        s = h.mul_(2 * self.nu).clamp_min_(1e-15 if h.dtype == torch.float64 else 1e-12).sqrt_()  # sqrt(2 nu) r
        e = torch.exp(-s)
        if self.nu == 0.5:
            return e, -0.5 * e / s
        if self.nu == 1.5:
            return (1 + s) * e, -1.5 * e
        return (1 + s + s.square() / 3) * e, (-5 / 6) * (1 + s) * e


class _Sums(torch.autograd.Function):
    """Block means of k(xa, z) and weighted pair sums of k(xa, xa'), sharing one centred copy of the samples.

    With X = [x, |x|^2, 1] and Z = kappa gamma [-2 z, 1, |z|^2], X Z^T = kappa gamma |x - z|^2. Given W = dL/dh,
    W Z = [.., kappa gamma rowsum(W), ..] and W^T X = [.., .., colsum(W)], so that
    dL/dx = (W Z)_x + 2 x (W Z)_1   and   dL/dz = -2 kappa gamma ((W^T X)_x - z colsum(W)).
    """

    @staticmethod
    def forward(
        ctx: Any, xa: Tensor, z: Tensor, centre: Tensor, gamma: Tensor, pairing: Pairing, profile: Profile
    ) -> tuple[Tensor, Tensor]:
        rows, blocks, size, dim = xa.shape
        scale = profile.kappa * gamma
        left = xa.new_empty(rows * blocks * size, dim + 2)
        torch.sub(xa.reshape(-1, dim), centre, out=left[:, :dim])
        norms = torch.linalg.vecdot(left[:, :dim], left[:, :dim])
        left[:, dim] = norms
        left[:, dim + 1] = 1.0
        right = torch.cat([-2 * z, z.new_ones(len(z), 1), z.square().sum(1, keepdim=True)], dim=1) * scale
        k, slope = profile(left @ right.mT)
        kfu = k.view(rows * blocks, size, -1).mean(1)

        a, b, weights = _pair_sides(left[:, :dim].view(rows, blocks, size, dim), pairing)
        na, nb, _ = _pair_sides(norms.view(rows, blocks, size, 1), pairing)
        # Batches of small products with a transposed right side are 30 times slower on some CPUs than the copy.
        h = scale * (na + nb.mT - 2 * (a @ b.mT.contiguous()))
        kff_pairs, slope_pairs = profile(h)
        if a is b:
            # A sample with itself: rounding must not become a distance, which a kernel with a kink would take the root of.
            kff_pairs.diagonal(dim1=-2, dim2=-1).fill_(1.0)
            if slope_pairs is not kff_pairs:
                slope_pairs.diagonal(dim1=-2, dim2=-1).zero_()
        kff = (kff_pairs * weights).sum((-2, -1))
        ctx.save_for_backward(left, right, slope, slope_pairs, z, gamma, weights)
        ctx.shape, ctx.pairing, ctx.kappa = xa.shape, pairing, profile.kappa
        return kfu.view(rows, blocks, -1), kff

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kfu: Tensor, grad_kff: Tensor) -> tuple[Tensor | None, ...]:
        left, right, slope, slope_pairs, z, gamma, weights = ctx.saved_tensors
        rows, blocks, size, dim = ctx.shape
        scale = ctx.kappa * gamma
        need_x, need_z, need_gamma = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        w = (slope.view(rows * blocks, size, -1) * (grad_kfu.reshape(rows * blocks, 1, -1) / size)).view(len(left), -1)
        w_pairs = slope_pairs * (grad_kff[:, None, None] * weights)
        grad_x = grad_z = grad_gamma = None
        x = left[:, :dim]
        if need_x or (need_gamma and not need_z):
            to_x = w @ right
            if need_gamma:
                grad_gamma = torch.linalg.vecdot(to_x, left).sum() / gamma
        if need_z:
            to_z = w.mT @ left
            grad_z = -2 * scale * (to_z[:, :dim] - z * to_z[:, dim + 1 :])
            if need_gamma and grad_gamma is None:
                grad_gamma = (to_z * right).sum() / gamma
        if need_gamma or need_x:
            samples = x.view(rows, blocks, size, dim)
            a, b, _ = _pair_sides(samples, ctx.pairing)
            row, col = w_pairs.sum(-1), w_pairs.sum(-2)
        if need_gamma:
            norms = left[:, dim].view(rows, blocks, size, 1)
            na, nb, _ = _pair_sides(norms, ctx.pairing)
            inner = torch.linalg.vecdot((w_pairs @ b).flatten(1), a.flatten(1)).sum()
            pairs = (row * na[..., 0]).sum() + (col * nb[..., 0]).sum() - 2 * inner
            grad_gamma = grad_gamma + ctx.kappa * pairs
        if need_x:
            grad_x = to_x[:, :dim].view(rows, blocks, size, dim)
            own = to_x[:, dim].view(rows, blocks, size) * 2
            w_pairs = w_pairs * (-2 * scale)
            ga, gb, _ = _pair_sides(grad_x, ctx.pairing)
            oa, ob, _ = _pair_sides(own[..., None], ctx.pairing)
            if a.data_ptr() == b.data_ptr():
                # One set on both sides: x_i appears as row and as column.
                ga = ga + (w_pairs + w_pairs.mT) @ b
                oa = oa[..., 0] + 2 * scale * (row + col)
                grad_x = torch.addcmul(ga, a, oa[..., None])
            else:
                ga = torch.addcmul(torch.baddbmm(ga, w_pairs, b), a, oa + (2 * scale * row)[..., None])
                gb = torch.addcmul(torch.baddbmm(gb, w_pairs.mT.contiguous(), a), b, ob + (2 * scale * col)[..., None])
                grad_x = torch.stack([ga, gb], dim=1)
            grad_x = grad_x.view(rows, blocks, size, dim)
        return grad_x, grad_z, None, grad_gamma, None, None


class _Gram(torch.autograd.Function):
    """k(z, z): symmetric, so its backward pass is one GEMM."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, gamma: Tensor, profile: Profile) -> Tensor:
        norms = z.square().sum(1)
        d2 = torch.addmm(norms[:, None] + norms, z, z.mT, alpha=-2)
        d2.fill_diagonal_(0.0)
        k, slope = profile(d2 * (profile.kappa * gamma))
        k = k.clone() if k is slope else k
        k.fill_diagonal_(1.0)
        ctx.save_for_backward(z, gamma, d2, slope)
        ctx.kappa = profile.kappa
        return k

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, gamma, d2, slope = ctx.saved_tensors
        w = grad * slope
        w.fill_diagonal_(0.0)
        grad_gamma = ctx.kappa * torch.linalg.vecdot(w.flatten(), d2.flatten()) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, grad_gamma, None
        w = w + w.mT
        grad_z = (2 * ctx.kappa * gamma) * (z * w.sum(1, keepdim=True) - w @ z)
        return grad_z, grad_gamma, None
