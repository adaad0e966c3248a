"""Which implementation serves a kernel, and which orbits have a closed form.

Where the expectation over the orbit is an integral that is known, no draws are needed, and the evidence is that of the infinite
orbit. A closed form is a :class:`Covariance` of the inputs themselves: the model takes it for k_g, and the orbit for one with a
single element.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.covariance import Covariance, Expectations, Gram, Inducing, InducingSets
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.stationary import Stationary, unscaled
from orbitgp.orbits import GaussianNoise, Orbit, Pairing
from orbitgp.orbits.sampling import Blocks


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

    def features(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        return self.kernel.map(x)

    @property
    def of_features(self) -> Covariance:
        # Made anew: as a part of this module it would be saved twice.
        return covariance(self.kernel.base_kernel, self.tensor_cores)

    def gram(self, z: InducingSets) -> Gram:
        return self.of_features.gram(self.features(z))

    def expectations(self, xa: Blocks, z: Inducing, pairing: Pairing) -> Expectations:
        return self.of_features.expectations(self.features(xa), self.features(z), pairing)


def closed_form(kernel: Kernel, orbit: Orbit) -> Covariance | None:
    """k_f of this k_g and this orbit as a function of the inputs; None where it is not known."""
    if type(orbit) is GaussianNoise and type(unscaled(kernel)) is RBFKernel and isinstance(covariance(kernel), Stationary):
        return NoisyRBF(kernel, orbit)
    return None


class NoisyRBF(Stationary):
    """An RBF kernel of inputs with Gaussian noise is an RBF kernel again, wider and lower:

        k_f(x, x') = v prod_d (l_d^2 / w_d^2)^(1/2) exp(-1/2 sum_d (x_d - x'_d)^2 / w_d^2),   w_d^2 = l_d^2 + 2 s_d^2

    with lengthscales l, variance v and scales s of the noise. Each input has noise of its own, also where x = x': hence the 2.
    """

    def __init__(self, kernel: Kernel, noise: GaussianNoise) -> None:
        super().__init__(kernel, tensor_cores=False)
        self.noise = noise

    def hyperparameters(self, dim: int) -> tuple[Float[Tensor, " lengthscales"], Float[Tensor, ""]]:
        lengthscales, variance = super().hyperparameters(dim)
        growth = 1 + 2 * (self.noise.scales(dim) / lengthscales).square()  # w^2 / l^2
        return lengthscales * growth.sqrt(), variance * torch.exp(-0.5 * growth.log().expand(dim).sum())
