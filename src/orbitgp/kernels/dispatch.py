"""Which implementation serves a kernel."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.covariance import Covariance, Expectations, Gram, Inducing, InducingSets
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.stationary import Stationary, unscaled
from orbitgp.orbits.sampling import Blocks, Pairing


def covariance(kernel: Kernel, tensor_cores: bool = True) -> Covariance:
    """The fastest implementation of what the model needs from this kernel.

    ``tensor_cores=False`` keeps the large products of a GPU in full single precision, which deterministic objectives need.
    """
    base = unscaled(kernel)
    plain = all(k.active_dims is None and not k.batch_shape for k in (kernel, base))
    if plain and type(base) in (RBFKernel, MaternKernel):
        return Stationary(kernel, tensor_cores)
    return FeatureMapCovariance(kernel, tensor_cores) if type(kernel) is FeatureMapKernel else Covariance(kernel)


class FeatureMapCovariance(Covariance):
    """A kernel behind a feature map: map the inputs once, then use the fastest implementation for the kernel of features."""

    def __init__(self, kernel: Kernel, tensor_cores: bool = True) -> None:
        super().__init__(kernel)
        self.tensor_cores = tensor_cores

    def features(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        return self.kernel.map(x)

    @property
    def of_features(self) -> Covariance:
        # Made anew: as a part of this module it would be saved twice.
        return covariance(self.kernel.base_kernel, self.tensor_cores)

    def gram(self, z: InducingSets, dtype: torch.dtype | None = None, jitter: float = 0.0) -> Gram:
        return self.of_features.gram(self.features(z), dtype, jitter)

    def expectations(self, xa: Blocks, z: Inducing, pairing: Pairing) -> Expectations:
        return self.of_features.expectations(self.features(xa), self.features(z), pairing)
