"""Classes as regression targets: the Gaussian likelihood that the paper uses for many classes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.likelihoods.base import Quadratic
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.gaussian import Gaussian


class GaussianIndicators(Classification):
    """y = f + e, e ~ N(0, noise I), where class k is the target t_k = e_k - 1/K (centred, as the prior of f is).

    Fast and exact, but a density over R^K that knows nothing of classes, so its evidence compares with no other likelihood's.
    Class probabilities are those of the K possible targets given that y is one of them: p(k) ~ N(t_k; mean, variance + noise).
    """

    shares_curvature = True

    def __init__(self, num_classes: int, noise: float = 0.1) -> None:
        super().__init__(num_classes, num_latents=num_classes)
        self.gaussian = Gaussian(num_classes, noise)

    @property
    def noise(self) -> Tensor:
        return self.gaussian.noise

    def encode(self, labels: Int[Tensor, " rows"], dtype: torch.dtype = torch.float64) -> Float[Tensor, "rows outputs"]:
        """The centred indicator of each class."""
        return super().encode(labels, dtype) - 1 / self.num_classes

    def start(self, y: Float[Tensor, "rows classes"]) -> tuple[float, Float[Tensor, " classes"]]:
        """The variance and the mean of the targets."""
        return float(y.var(0, correction=0).mean()), y.mean(0)

    def quadratic(self, y: Float[Tensor, "rows classes"], local: Float[Tensor, "rows *params"] | None = None) -> Quadratic:
        return self.gaussian.quadratic(y)

    def log_prob(
        self, y: Float[Tensor, "rows classes"], f: Float[Tensor, "*samples rows classes"]
    ) -> Float[Tensor, "*samples rows"]:
        return self.gaussian.log_prob(y, f)

    def log_probs(self, f: Float[Tensor, "*samples rows latents"]) -> Float[Tensor, "*samples rows classes"]:
        return self._posterior(f, self.noise.to(f.dtype).expand_as(f))

    @torch.no_grad()
    def predict_proba(
        self, mean: Float[Tensor, "rows latents"], variance: Float[Tensor, "rows latents"]
    ) -> Float[Tensor, "rows classes"]:
        return self._posterior(mean, variance.clamp_min(0.0) + self.noise.to(mean.dtype)).exp()

    def _posterior(
        self, mean: Float[Tensor, "*samples rows latents"], variance: Float[Tensor, "*samples rows latents"]
    ) -> Float[Tensor, "*samples rows classes"]:
        # log N(t_k; mean, variance) up to what all k share: t_k differs from the other targets in coordinate k alone
        off, on = -1 / self.num_classes, 1 - 1 / self.num_classes
        return torch.log_softmax(0.5 * ((off - mean).square() - (on - mean).square()) / variance, -1)
