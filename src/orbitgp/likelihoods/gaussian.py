"""Gaussian noise, equal or not, for regression and for class indicators: the likelihood that is a quadratic itself."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.cholesky import cholesky
from orbitgp.likelihoods.base import Latents, Likelihood, Locals, LogProbs, Moments, Quadratic, Values, log_normal
from orbitgp.likelihoods.classification import Classification, ClassLogProbs, ClassProbs, ClassTargets, Labels
from orbitgp.likelihoods.noise import Noise
from orbitgp.likelihoods.predictive import ScaleMixture

Features = Float[Tensor, "rows centres"]  # what the noise of each row depends on

_MOST_CENTRES = 16


class Gaussian(Noise):
    """y = f + e, e ~ N(0, noise): const = -1/2 (log 2 pi noise + y^2 / noise), eta = y / noise, lam = 1 / noise.

    ``noise`` is one variance, shared by all outputs. It is learned on the log scale above ``min_noise``. Behind the
    outputs, y may have two more columns, a weight w > 0 and a known variance v >= 0. The noise then is noise / w + v.

        >>> Gaussian().predictive(torch.zeros(1, 1), torch.ones(1, 1)).std
        tensor([[1.0488]])
    """

    shares_curvature = True

    def __init__(self, num_latents: int = 1, noise: float = 0.1, min_noise: float = 1e-6) -> None:
        super().__init__(num_latents)
        if not noise > min_noise:
            raise ValueError(f"noise must be above min_noise={min_noise}, got {noise}.")
        self.num_locals = 0
        self.min_noise = min_noise
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise - min_noise), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        return self.log_noise.exp() + self.min_noise

    @torch.no_grad()
    def set_noise(self, noise: float) -> None:
        """Start anew from this variance, which must lie above the least."""
        self.log_noise.fill_(math.log(noise - self.min_noise))

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return log_normal(r, self.noise.to(r.dtype))

    def observations(self, y: Float[Tensor, "rows columns"]) -> tuple[Latents, Latents]:
        """The outputs, and the variance of their noise."""
        outputs, known = y.tensor_split([self.num_latents], dim=1)
        noise = self.noise_at(known[:, 2:]).to(y.dtype)
        return outputs, (noise / known[:, :1] + known[:, 1:2] if known.shape[1] else noise).expand_as(outputs)

    def noise_at(self, features: Float[Tensor, "rows features"]) -> Tensor:
        """The variance in each row: the same, whatever its features."""
        return self.noise

    def local(self, y: Latents, moments: Moments) -> None:
        return None

    def quadratic(self, y: Float[Tensor, "rows columns"], local: Locals | None = None) -> Quadratic:
        return Likelihood.quadratic(self, y, local)

    def log_prob(self, y: Float[Tensor, "rows columns"], f: Values) -> LogProbs:
        outputs, noise = self.observations(y)
        return log_normal(outputs - f, noise).sum(-1)

    def scale_mixture(self) -> tuple[Float[Tensor, " components"], Float[Tensor, " components"]]:
        noise = self.noise.detach()[None]
        return torch.ones_like(noise), noise

    def saved_arguments(self) -> dict[str, Any]:
        # The noise is a parameter, learned above min_noise, and must start above it.
        return {"num_latents": self.num_latents, "noise": self.min_noise + 1.0, "min_noise": self.min_noise}


class HeteroscedasticGaussian(Gaussian):
    """Noise that differs between places: the log of its variance is a small Gaussian process h, with an RBF kernel k.

        y = f(x) + e,    e ~ N(0, noise exp h(x) + min_noise),  h(x) = k(x, Z) L^-T w,    L L^T = k(Z, Z),  w ~ N(0, I)

    Z are some of the training inputs, and the lengthscale is the median distance between them. So h is smooth, and
    falls to zero far from all data, where the noise is a typical one. The weights w are learned with all else, by the
    evidence and their prior. Given them, inference is as exact as with one noise. Several outputs share it. An orbit
    acts on f alone: the noise is that at the input itself. The last columns of y are :meth:`features`, behind the
    weight and the known variance of a row.
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
        dim, given = x[0].numel(), self.centres.shape[1]
        if len(self.centres) and given != dim:
            raise ValueError(f"centres of HeteroscedasticGaussian have {given} features, but the inputs have {dim}.")
        if not len(self.centres):
            some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_MOST_CENTRES]
            self.centres = x.detach()[some].cpu().flatten(1).double()
            apart = torch.pdist(self.centres)
            self.lengthscale = float(apart[apart > 0].median()) if apart.any() else 1.0
            self.weights = nn.Parameter(torch.zeros(len(some), dtype=torch.float64))

    @torch.no_grad()
    def features(self, x: Float[Tensor, "rows *features"]) -> Features:
        """What h is linear in: L^-1 k(Z, x)."""
        centres = self.centres.cpu()

        def k(a: Float[Tensor, "n dim"]) -> Float[Tensor, "centres n"]:
            distances = torch.cdist(centres, a, compute_mode="donot_use_mm_for_euclid_dist")
            return torch.exp(-0.5 * (distances / self.lengthscale).square())

        return torch.linalg.solve_triangular(cholesky(k(centres)).lower, k(x.cpu().flatten(1).double()), upper=False).mT

    def noise_at(self, features: Features) -> Float[Tensor, "rows 1"]:
        return (self.log_noise + features.double() @ self.weights).exp()[:, None] + self.min_noise

    def log_prior(self) -> Float[Tensor, ""]:
        return -0.5 * self.weights.square().sum()

    @torch.no_grad()
    def predictive(self, mean: Latents, variance: Latents, features: Features | None = None) -> ScaleMixture:
        """The distribution of a new y, by the features of its row; without them, with the typical noise."""
        if features is None:
            return super().predictive(mean, variance)
        return ScaleMixture(mean, variance, torch.ones(1), self.noise_at(features)[:, None])

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "centres": self.centres, "lengthscale": self.lengthscale}


class GaussianIndicators(Classification):
    """Classes as regression targets, as in the paper: y = f + e, e ~ N(0, noise I).

    The target of class k is t_k = e_k - 1/K, centred as the prior of f is. This is fast and exact. But it is a density
    over R^K that knows nothing of classes, so its evidence compares with that of no other likelihood. The probability
    of class k is that of the target t_k given that y is one of the K targets: p(k) ~ N(t_k; mean, variance + noise).

        >>> GaussianIndicators(3).encode(torch.tensor([0, 2]))
        tensor([[ 0.6667, -0.3333, -0.3333],
                [-0.3333, -0.3333,  0.6667]], dtype=torch.float64)
    """

    shares_curvature = True
    mean_decides = True  # all latent functions share their variance, so the largest mean has the largest probability

    def __init__(self, num_classes: int, noise: float = 0.1) -> None:
        super().__init__(num_classes, num_latents=num_classes)
        self.gaussian = Gaussian(num_classes, noise)

    @property
    def noise(self) -> Tensor:
        return self.gaussian.noise

    def encode(self, labels: Labels, dtype: torch.dtype = torch.float64) -> ClassTargets:
        """The centred indicator of each class."""
        return super().encode(labels, dtype) - 1 / self.num_classes

    def start(self, y: ClassTargets) -> tuple[float, Float[Tensor, " classes"]]:
        """The variance and the mean of the targets."""
        return float(y.var(0, correction=0).mean()), y.mean(0)

    def observations(self, y: ClassTargets) -> tuple[Latents, Latents]:
        return self.gaussian.observations(y)

    def log_prob(self, y: ClassTargets, f: Values) -> LogProbs:
        return self.gaussian.log_prob(y, f)

    def log_probs(self, f: Values) -> ClassLogProbs:
        return self._posterior(f, self.noise.to(f.dtype).expand_as(f))

    @torch.no_grad()
    def predict_proba(self, mean: Latents, variance: Latents) -> ClassProbs:
        return self._posterior(mean, variance.clamp_min(0.0) + self.noise.to(mean.dtype)).exp()

    def _posterior(self, mean: Values, variance: Values) -> ClassLogProbs:
        # log N(t_k; mean, variance) without the terms that all k share: t_k differs from others in coordinate k alone.
        off, on = -1 / self.num_classes, 1 - 1 / self.num_classes
        return torch.log_softmax(0.5 * ((off - mean).square() - (on - mean).square()) / variance, -1)
