"""The fast path for RBF and Matérn kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.covariance import Covariance, Expectations, Inducing, loses_digits
from orbitgp.kernels.radial import BlockSums, Exponents
from orbitgp.orbits.sampling import Blocks, Pairing, pair_sides, pair_weights

_AT_ONCE = {False: 2**22, True: 2**28}  # values of k_g: few on a CPU, where fresh memory costs as much as a pass over it

# k_g / variance between points and others (None: the same points), summed over blocks of as many points
Evaluate = Callable[[Tensor, Tensor | None, int], Tensor]


class Stationary(Covariance):
    """RBF and Matérn kernels, k = variance * profile(|x - z|^2 / lengthscale^2)."""

    def __init__(self, kernel: Kernel, tensor_cores: bool = True) -> None:
        super().__init__(kernel, tensor_cores)
        base = unscaled(kernel)
        self.nu = None if isinstance(base, RBFKernel) else float(base.nu)
        self.smooth = self.nu != 0.5  # else its slope has no bound: TF32 does not know the distance of points that are close

    def expectations(self, xa: Blocks, z: Inducing, pairing: Pairing) -> Expectations:
        blocks, size = xa.shape[1:3]
        (x, points), evaluate, variance = self._prepared(z.detach().mean(0), xa, z)
        parts = x.split(max(1, _AT_ONCE[x.is_cuda] // max(1, blocks * size * len(z))))
        kfu = torch.cat([evaluate(part.flatten(0, 2), points, size) for part in parts]).unflatten(0, (-1, blocks))
        left, right = pair_sides(x, pairing)
        kff = evaluate(left, None if left is right else right, 1) * pair_weights(x, pairing)
        return (kfu * (variance / size)).to(xa.dtype), (kff.sum((-2, -1)) * variance).to(xa.dtype)

    def _prepared(
        self, centre: Float[Tensor, " dim"], *points: Tensor
    ) -> tuple[tuple[Tensor, ...], Evaluate, Float[Tensor, ""]]:
        """Points, the function that evaluates the kernel between them in their precision, and the variance.

        Distances come from products, or from differences where products cancel: these are slower, and in double precision. With
        ARD the points are scaled. One lengthscale is applied in the product.
        """
        (lengthscales, variance), dtype = self.hyperparameters(len(centre)), centre.dtype
        gamma, scaled, origin = lengthscales[0].pow(-2).to(dtype), points, centre
        if len(lengthscales) > 1:  # far from zero, x / lengthscale loses digits: centre first
            scaled = tuple((x - centre) / lengthscales.to(x.dtype) for x in points)
            gamma, origin = torch.ones_like(gamma), torch.zeros_like(centre)
        cancels = any(loses_digits(x, gamma, origin, self.smooth) for x in scaled)
        if cancels and dtype != torch.float64:
            return self._prepared(centre.double(), *(x.double() for x in points))
        tensor_cores = self.tensor_cores and self.smooth and centre.is_cuda and centre.dtype == torch.float32

        def evaluate(a: Tensor, b: Tensor | None, size: int) -> Tensor:
            if cancels:
                squares = torch.cdist(a, a if b is None else b, compute_mode="donot_use_mm_for_euclid_dist").square()
                h = squares * (-0.5 * gamma)
            else:  # a datum's own samples make small products, which gain nothing from tensor cores
                h = Exponents.apply(a, b, origin, gamma, tensor_cores and a.ndim == 2)
            return BlockSums.apply(h, self.nu, size)

        return scaled, evaluate, variance.to(dtype)

    def hyperparameters(self, dim: int) -> tuple[Float[Tensor, " lengthscales"], Float[Tensor, ""]]:
        """The lengthscale of all of these features, or one for each of them, and the variance."""
        lengthscales = unscaled(self.kernel).lengthscale.reshape(-1)
        variance = self.kernel.outputscale if isinstance(self.kernel, ScaleKernel) else lengthscales.new_ones(())
        return lengthscales, variance


def unscaled(kernel: Kernel) -> Kernel:
    """The kernel inside a ScaleKernel, or the kernel itself."""
    return kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
