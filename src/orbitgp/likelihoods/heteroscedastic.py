"""Gaussian noise that is not the same everywhere: its variance is a function of the inputs.

The log of the variance is a second, small Gaussian process h, with an RBF kernel k of unit variance:

    y = f(x) + e,    e ~ N(0, noise exp h(x)),    h(x) = k(x, Z) L^-T w,    L L^T = k(Z, Z),    w ~ N(0, I)

Z are some of the training inputs, and the lengthscale is the median distance between them. So h is smooth, and falls to zero
far from all data, where the noise is a typical one. The weights w are learned with all else, by the evidence and their prior.
Given them the likelihood is Gaussian, and inference is as exact as with one noise.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.cholesky import cholesky
from orbitgp.likelihoods.base import Latents
from orbitgp.likelihoods.gaussian import Gaussian
from orbitgp.likelihoods.predictive import ScaleMixture

_MOST_CENTRES = 16


class HeteroscedasticGaussian(Gaussian):
    """y = f + e, e ~ N(0, noise exp h + min_noise), with h a linear function of what is known of each row (:meth:`features`).

    These features stand in the last columns of y, behind the weight and the known variance that a :class:`Gaussian` reads.
    Several outputs share one noise. An orbit acts on f alone: the noise is that at the input itself.
    """

    centres: Tensor

    def __init__(
        self,
        num_latents: int = 1,
        noise: float = 0.1,
        min_noise: float = 1e-6,
        centres: Float[Tensor, "centres dim"] | None = None,
        lengthscale: float = 1.0,
    ) -> None:
        super().__init__(num_latents, noise, min_noise)
        self.register_buffer("centres", torch.empty(0, 1, dtype=torch.float64) if centres is None else centres)
        self.lengthscale = lengthscale
        self.weights = nn.Parameter(torch.zeros(len(self.centres), dtype=torch.float64))

    def prepare(self, x: Float[Tensor, "rows *features"]) -> None:
        """Place the centres among these inputs, unless they are given."""
        if not len(self.centres):
            some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_MOST_CENTRES]
            self.centres = x.detach()[some].cpu().flatten(1).double()
            apart = torch.pdist(self.centres)
            self.lengthscale = float(apart[apart > 0].median()) if apart.any() else 1.0
            self.weights = nn.Parameter(torch.zeros(len(some), dtype=torch.float64))

    @torch.no_grad()
    def features(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows centres"]:
        """What h is linear in: L^-1 k(Z, x)."""
        centres = self.centres.cpu()

        def k(a: Float[Tensor, "n dim"]) -> Float[Tensor, "centres n"]:
            distances = torch.cdist(centres, a, compute_mode="donot_use_mm_for_euclid_dist")
            return torch.exp(-0.5 * (distances / self.lengthscale).square())

        return torch.linalg.solve_triangular(cholesky(k(centres)).lower, k(x.cpu().flatten(1).double()), upper=False).mT

    def noise_at(self, features: Float[Tensor, "rows centres"]) -> Float[Tensor, "rows 1"]:
        return (self.log_noise + features.double() @ self.weights).exp()[:, None] + self.min_noise

    def log_prior(self) -> Float[Tensor, ""]:
        return -0.5 * self.weights.square().sum()

    @torch.no_grad()
    def predictive(
        self, mean: Latents, variance: Latents, features: Float[Tensor, "rows centres"] | None = None
    ) -> ScaleMixture:
        """The distribution of a new y, by the features of its row; without them, with the typical noise."""
        if features is None:
            return super().predictive(mean, variance)
        return ScaleMixture(mean, variance, torch.ones(1), self.noise_at(features)[:, None])

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "centres": self.centres, "lengthscale": self.lengthscale}
