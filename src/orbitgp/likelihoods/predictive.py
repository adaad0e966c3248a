"""The distribution of a new observation, one for each row: class probabilities, a density on the real line, or counts.

All score an observation with ``log_prob``. Its negative mean over a test set is the NLL. A :class:`Categorical` also
has ``probs``. The others also have ``mean``, ``std``, ``cdf``, ``quantile`` and ``sample``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import nbinom
from torch import Tensor

Outputs = Float[Tensor, "rows outputs"]


class Categorical:
    """Class k with probability ``probs[n, k]``."""

    def __init__(self, probs: Float[Tensor, "rows classes"]) -> None:
        self.probs = probs

    def log_prob(self, y: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """The log probability of the observed classes 0 .. K-1."""
        tiny = torch.finfo(self.probs.dtype).tiny
        return self.probs.gather(1, y[:, None])[:, 0].clamp_min(tiny).log()


class ScaleMixture:
    """sum_i w_i N(mean, variance + tau_i): a Gaussian f plus noise that is itself a scale mixture of Gaussians.

    ``weights`` and ``noise`` are the w_i and tau_i of the noise, which rows may have of their own. ``noise_variance``
    is its variance, by default sum_i w_i tau_i.
    """

    def __init__(
        self,
        mean: Outputs,
        variance: Outputs,
        weights: Float[Tensor, " components"],
        noise: Float[Tensor, "*anyrows components"],
        noise_variance: float | None = None,
    ) -> None:
        self.mean = mean
        self.weights = weights.to(mean)
        self.scales = (variance.clamp_min(0.0)[..., None] + noise.to(mean)).sqrt()
        of_noise = noise.to(mean) @ self.weights if noise_variance is None else noise_variance
        self.std = (variance.clamp_min(0.0) + of_noise).sqrt()

    def log_prob(self, y: Outputs) -> Float[Tensor, " rows"]:
        """The log density of y, summed over outputs."""
        z = (y - self.mean)[..., None] / self.scales
        log_normal = -0.5 * (math.log(2 * math.pi) + z.square()) - self.scales.log()
        return torch.logsumexp(log_normal + self.weights.log(), -1).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Outputs:
        """An observation in each row."""
        which = torch.multinomial(self.weights, self.mean.numel(), replacement=True, generator=generator)
        scales = self.scales.gather(-1, which.view(*self.mean.shape, 1))[..., 0]
        return self.mean + scales * torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype)

    def cdf(self, y: Outputs) -> Outputs:
        """P(Y <= y)."""
        return torch.special.ndtr((y - self.mean)[..., None] / self.scales) @ self.weights

    def quantile(self, level: float) -> Outputs:
        """The y below which a fraction ``level`` of the probability lies."""
        # All components share their centre, so the quantile lies between that of the narrowest and that of the widest.
        z = torch.special.ndtri(self.mean.new_tensor(_checked(level)))
        low, high = (self.mean + z * s for s in (self.scales.amin(-1), self.scales.amax(-1)))
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)


class CountMixture:
    """A negative binomial count of mean e^f, variance e^f + e^2f / r, with f ~ N(mean, variance): a mixture over f."""

    def __init__(self, mean: Outputs, variance: Outputs, r: Float[Tensor, ""]) -> None:
        z = torch.linspace(-8.5, 8.5, 201, dtype=torch.float64).to(mean)
        rates = torch.exp((mean[..., None] + variance.clamp_min(0.0).sqrt()[..., None] * z).clamp_max(300.0))
        self.weights, self.r, self.p = torch.softmax(-0.5 * z.square(), 0), r.numpy(), (r / (r + rates)).numpy()
        self.mean = rates @ self.weights
        self.std = (self.mean + (1 + 1 / r) * (rates.square() @ self.weights) - self.mean.square()).sqrt()

    def log_prob(self, y: Outputs) -> Float[Tensor, " rows"]:
        """The log probability of these counts."""
        log_probs = torch.as_tensor(nbinom.logpmf(y[..., None].numpy(), self.r, self.p)).to(self.mean)
        return torch.logsumexp(log_probs + self.weights.log(), -1).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Outputs:
        """A count in each row."""
        which = torch.multinomial(self.weights, self.mean.numel(), replacement=True, generator=generator)
        p = np.take_along_axis(self.p, which.view(*self.mean.shape, 1).numpy(), -1)[..., 0]
        return torch.as_tensor(nbinom.ppf(torch.rand(p.shape, generator=generator).numpy(), self.r, p)).to(self.mean)

    def cdf(self, y: Outputs) -> Outputs:
        """P(Y <= y)."""
        return torch.as_tensor(nbinom.cdf(y[..., None].numpy(), self.r, self.p)).to(self.mean) @ self.weights

    def quantile(self, level: float) -> Outputs:
        """The least count that is not exceeded with probability ``level`` or more."""
        low, high = -torch.ones_like(self.mean), self.mean.ceil()
        while bool((below := self.cdf(high) < _checked(level)).any()):
            low, high = torch.where(below, high, low), torch.where(below, 2 * high + 1, high)
        while bool((high - low > 1 + 1e-15 * high).any()):
            middle = torch.floor(0.5 * (low + high))
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high


def _checked(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"a quantile level lies strictly between 0 and 1, got {level}.")
    return level
