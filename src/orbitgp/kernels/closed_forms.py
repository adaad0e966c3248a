"""k_f in closed form: orbits and kernels for which the expectation over the orbit is an integral that is known.

No draws are needed there, and the evidence is that of the infinite orbit. A closed form is a :class:`Covariance` of the inputs
themselves: the model takes it for k_g, and the orbit for one that has a single element.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, RBFKernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.covariance import Covariance
from orbitgp.kernels.dispatch import covariance
from orbitgp.kernels.stationary import Stationary, unscaled
from orbitgp.orbits import GaussianNoise, Orbit


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
        growth = 1 + 2 * (self.noise.scale / lengthscales).square()  # w^2 / l^2
        return lengthscales * growth.sqrt(), variance * torch.exp(-0.5 * growth.log().expand(dim).sum())
