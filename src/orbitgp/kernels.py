"""k_g: the kernel of the function that is averaged over the orbit.

Any ``gpytorch.kernels.Kernel`` serves. The model asks it for three things only:

    gram(Z)           Kuu = k_g(Z, Z), or its means over pairs of sets of points, (M, M)
    sums(xa, Z)       Kfu, the mean of k_g(x_a, z) over each block of samples, (N, B, M)
                      and kff, the paired mean of k_g(x_a, x_a') over a datum's own samples, (N,)
    cross(xa, xb)     the mean of k_g over two sets of samples, for joint predictions

:func:`covariance` picks the implementation: RBF and Matérn kernels (in a ScaleKernel or not, ARD or not) take a hand-written
path (:mod:`orbitgp.sums`, :mod:`orbitgp.gram`), where one GEMM with two extra columns yields all squared distances, scaled, and
its backward pass is two GEMMs, beside the row and column sums that the gradient needs. Any other kernel goes through GPyTorch.
Hyperparameters stay in float64; the large products run in the dtype of the samples.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.feature_maps import FeatureMapKernel
from orbitgp.gram import Gram, SetGram, set_means
from orbitgp.orbits import Pairing
from orbitgp.orbits.sampling import Blocks, pair_sides, pair_weights
from orbitgp.profiles import RBF, Matern, Profile
from orbitgp.sums import Sums
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
        function = TensorCoreSums if xa.is_cuda and xa.dtype == torch.float32 and self.profile.smooth else Sums
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


def _mean(points: Float[Tensor, "points dim"]) -> Float[Tensor, " dim"]:
    """The mean of all points, as a product: four times faster on a CPU than torch's own sums over columns."""
    return points.new_full((len(points),), 1 / max(1, len(points))) @ points
