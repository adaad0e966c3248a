"""Counts: the negative binomial as two powers of the logistic function.

    p(y | f) = C(y + r - 1, y) sigma(x)^y sigma(-x)^r,     x = f + log(unit / r)

Its mean is mu = unit e^f, and its variance mu + mu^2 / r. As r = 1 / overdispersion grows, it becomes the Poisson
distribution. The unit is the mean of all counts, so that f is of order one. Each factor has the bound of
:mod:`orbitgp.likelihoods.logistic`, with k(c) and w(c) as there:

    log p(y | f) >= log C(y + r - 1, y) + (y - r) x / 2 + (y + r) [k(c) - 1/2 w(c) x^2],      best c = sqrt(E x^2)

The bound is loose where r is far above the counts. So exact inference is by expectation propagation. log p is concave
in f, so N(f; m, v) p(y | f) has one mode, and falls off from it at least as fast as N(0, v). Nodes mode + s sinh(t),
even in t, resolve its width s at the mode and reach its tails.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Latents, Likelihood, Moments, Quadratic, Values, log_normal, required, root_second
from orbitgp.likelihoods.logistic import pg_const, pg_mean
from orbitgp.likelihoods.predictive import CountMixture
from orbitgp.likelihoods.tilted import Tilted

_LEAST_OVERDISPERSION = 1e-4  # no counts below ten thousand tell it from the Poisson distribution
_NODES, _REACH = 121, 8.5  # reach in standard deviations of f


class NegativeBinomial(Likelihood):
    """A count of mean mu = unit e^f and variance mu + overdispersion mu^2; the overdispersion is learned.

    >>> NegativeBinomial().predictive(torch.zeros(1, 1), torch.ones(1, 1)).quantile(0.95)
    tensor([[6.]])
    """

    num_locals = 1
    unit: Tensor

    def __init__(self, num_latents: int = 1, overdispersion: float = 0.3) -> None:
        super().__init__()
        if num_latents != 1:
            raise ValueError(f"the negative binomial is for one output, got {num_latents}: fit counts one by one.")
        self.num_latents = num_latents
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))
        self.log_overdispersion = nn.Parameter(torch.tensor(overdispersion, dtype=torch.float64).log())

    @property
    def r(self) -> Tensor:
        return 1 / self.log_overdispersion.exp().clamp_min(_LEAST_OVERDISPERSION)

    @torch.no_grad()
    def local(self, y: Latents, moments: Moments) -> Latents:
        b = (self.unit / self.r).log()
        return root_second(moments.second + b * (2 * moments.mean + b), moments.mean + b)

    def quadratic(self, y: Latents, local: Latents | None) -> Quadratic:
        c, r, b = required(local), self.r, (self.unit / self.r).log()
        w, kappa = (y + r) * pg_mean(c), 0.5 * (y - r)
        const = self._log_ways(y) + (y + r) * pg_const(c) + b * (kappa - 0.5 * w * b)
        return Quadratic(const[:, 0], kappa - w * b, w)

    def log_prob(self, y: Latents, f: Values) -> Float[Tensor, "*samples rows"]:
        x = f + (self.unit / self.r).log()
        return (self._log_ways(y) + y * logsigmoid(x) + self.r * logsigmoid(-x))[..., 0]

    def _log_ways(self, y: Latents) -> Latents:
        """The value of log C(y + r - 1, y)."""
        return torch.lgamma(y + self.r) - torch.lgamma(self.r) - torch.lgamma(y + 1)

    def _slope_and_curvature(self, y: Latents, f: Float[Tensor, "rows *nodes"]) -> tuple[Tensor, Tensor]:
        """The slope of log p in f, and minus its second derivative."""
        share, total = torch.sigmoid(f + (self.unit / self.r).log()), y + self.r
        return y - total * share, total * share * (1 - share)

    def tilted(self, y: Latents, mean: Latents, variance: Latents) -> Tilted:
        with torch.no_grad():
            low, high = mean - variance * self.r, mean + variance * y  # the slope of log p lies between -r and y
            for _ in range(60):
                mode = 0.5 * (low + high)
                rises = self._slope_and_curvature(y, mode)[0] > (mode - mean) / variance
                low, high = torch.where(rises, mode, low), torch.where(rises, high, mode)
            width = (self._slope_and_curvature(y, mode)[1] + 1 / variance).rsqrt()
            nodes = torch.linspace(-1, 1, _NODES, dtype=torch.float64).to(mean)
            t = torch.asinh(_REACH * variance.sqrt() / width) * nodes
            f = mode + width * torch.sinh(t)
            step = width * torch.cosh(t) * (t[:, 1:2] - t[:, :1])
        parts = self.log_prob(y, f.mT[..., None]).mT + log_normal(f - mean, variance) + step.log()
        log_z = torch.logsumexp(parts, 1, keepdim=True)
        # (log Z)' = E slope and (log Z)'' = var slope - E curvature, over the tilted distribution.
        weights = torch.exp(parts - log_z)
        slopes, curvatures = self._slope_and_curvature(y, f)
        slope = (weights * slopes).sum(1, keepdim=True)
        return Tilted(log_z, slope, (weights * (curvatures - (slopes - slope).square())).sum(1, keepdim=True))

    def predictive(self, mean: Latents, variance: Latents) -> CountMixture:
        return CountMixture(mean + self.unit.log(), variance, self.r.detach())
