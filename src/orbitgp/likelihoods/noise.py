"""Regression: y = f + e with symmetric, super-Gaussian noise e, one latent function for each output.

Noise with log density g(r) is super-Gaussian if g is convex as a function of r^2: its tails are heavier than a
Gaussian's. Then a tangent in r^2 is a lower bound, quadratic in r = y - f:

    g(r) >= g(c) - 1/2 w(c) (r^2 - c^2),     w(c) = -g'(c) / c,     best c = sqrt(E r^2)

So such noise is *two* functions, its log density and the precision w. The tails make it robust: w falls as c grows, so
a datum far from its prediction weighs little.

For prediction, the noise is written as a mixture of Gaussians with many variances. Non-negative least squares finds the
mixture from the density alone. Then y = f + e is a mixture of Gaussians too, with a known density and known quantiles.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor, nn

from orbitgp.likelihoods.base import Latents, Likelihood, LogProbs, Moments, Quadratic, Values, required, root_second
from orbitgp.likelihoods.predictive import ScaleMixture

Components = Float[Tensor, " components"]  # of a mixture of Gaussians
Places = Float[Tensor, " points"]  # where densities are looked at

_MIN_DF = 2.0  # above it the noise has a variance
_LEAST_EXCESS = 0.01  # df lies above two by this: the variance is at most 201 squared scales
_LARGE = 1e4  # half a df, above which the noise is as good as Gaussian, and log Gamma rounds away what is left


class Noise(Likelihood):
    """y = f + e. Subclasses write ``log_density(r)`` and ``precision(c)`` = -g'(c)/c. Both are even functions."""

    def __init__(self, num_latents: int = 1) -> None:
        super().__init__()
        self.num_latents = num_latents
        self.num_locals = num_latents

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """g(r), the log density of the noise."""
        raise NotImplementedError(f"{type(self).__name__} must define log_density(r).")

    def precision(self, c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """w(c) = -g'(c) / c: finite and positive for every real c."""
        raise NotImplementedError(f"{type(self).__name__} must define precision(c).")

    @torch.no_grad()
    def local(self, y: Latents, moments: Moments) -> Latents | None:
        # E r^2 = y^2 - 2 y E f + E f^2
        r = y - moments.mean
        return root_second(r.square() + (moments.second - moments.mean.square()), r)

    def quadratic(self, y: Latents, local: Latents | None) -> Quadratic:
        c = required(local)
        w = self.precision(c)
        # g(c) - 1/2 w ((y - f)^2 - c^2), sorted by powers of f
        const = self.log_density(c) + 0.5 * w * (c.square() - y.square())
        return Quadratic(const.sum(-1), w * y, w)

    def log_prob(self, y: Latents, f: Values) -> LogProbs:
        return self.log_density(y - f).sum(-1)

    def noise_variance(self) -> float | None:
        """The variance of the noise if it has a closed form, else None."""
        return None

    @torch.no_grad()
    def scale_mixture(self) -> tuple[Components, Components]:
        """Weights w_i and variances tau_i with exp g(r) = sum_i w_i N(r; 0, tau_i)."""
        unit = math.exp(-float(self.log_density(torch.zeros(1, dtype=torch.float64)))) / math.sqrt(2 * math.pi)
        weights, log_tau, error = _mixture(unit, tuple(self.log_density(_points(unit)).tolist()))
        if error > 0.02:
            raise ValueError(
                f"{type(self).__name__} is no mixture of centred Gaussians (the closest one is off by {error:.0%}), "
                "so it is not super-Gaussian: define predictive(mean, variance) for it."
            )
        used = weights > 0
        return weights[used] / weights.sum(), log_tau[used].exp()

    def predictive(self, mean: Latents, variance: Latents) -> ScaleMixture:
        return ScaleMixture(mean, variance, *self.scale_mixture(), self.noise_variance())


class StudentT(Noise):
    """g(r) = log t_df(r / scale) - log scale, w(c) = (df + 1) / (df scale^2 + c^2).

    ``scale`` and ``df`` are learned: ``scale`` above ``min_scale``, as targets that f passes through have infinite
    density at scale 0, and ``df`` above 2, so that the noise has a variance.

        >>> predictive = StudentT().predictive(torch.zeros(1, 1), torch.ones(1, 1))
        >>> predictive.quantile(0.95) > predictive.quantile(0.5)
        tensor([[True]])
    """

    def __init__(self, num_latents: int = 1, scale: float = 0.3, df: float = 4.0, min_scale: float = 0.0) -> None:
        super().__init__(num_latents)
        if not scale > min_scale:
            raise ValueError(f"scale must be above min_scale={min_scale}, got {scale}.")
        if not df > _MIN_DF:
            raise ValueError(f"Student-t noise needs df > {_MIN_DF:g}, got {df}.")
        self.min_scale = min_scale
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale - min_scale), dtype=torch.float64))
        self.log_df = nn.Parameter(torch.tensor(math.log(df - _MIN_DF), dtype=torch.float64))

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp() + self.min_scale

    @property
    def df(self) -> Tensor:
        return self.log_df.exp().clamp_min(_LEAST_EXCESS) + _MIN_DF

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        df, spread = self.df, self.df * self.scale.square()
        const = _log_gamma_ratio(df / 2) - 0.5 * math.log(2 * math.pi) - self.scale.log()
        return (const - 0.5 * (df + 1) * torch.log1p(r.square() / spread)).to(r.dtype)

    def precision(self, c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return ((self.df + 1) / (self.df * self.scale.square() + c.square())).to(c.dtype)

    @torch.no_grad()
    def noise_variance(self) -> float:
        return float(self.scale.square() * self.df / (self.df - 2))

    def saved_arguments(self) -> dict[str, Any]:
        # The scale is a parameter, learned above min_scale, and must start above it.
        return {"num_latents": self.num_latents, "scale": self.min_scale + 1.0, "min_scale": self.min_scale}


def _points(unit: float) -> Places:
    """Where the density is looked at, with values of r that are close at zero and far apart in the tails."""
    return torch.sinh(torch.linspace(0.0, math.asinh(1e7), 250, dtype=torch.float64)) * (unit / 100)


@lru_cache(maxsize=16)  # predictions ask for the same mixture again and again
def _mixture(unit: float, density: tuple[float, ...]) -> tuple[Components, Components, float]:
    """Weights and log variances of the mixture with this log density at all points, and its largest relative error."""
    r, g = _points(unit), torch.tensor(density, dtype=torch.float64)
    r, g = (t[g > g[0] - 32.0] for t in (r, g))
    log_tau = torch.arange(-14.0, 2 * math.log(float(r[-1]) / unit), 0.3, dtype=torch.float64) + 2 * math.log(unit)
    for spacing in (0.3, 0.05, 0.01, None):
        weights, error = _fit(r, g, log_tau)
        if error < 1e-3 or spacing is None:
            break
        # A mixture of few variances falls between the nodes of a coarse grid: refine the grid around the nodes in use.
        around = spacing * torch.linspace(-1.0, 1.0, 11, dtype=torch.float64)
        log_tau = (log_tau[weights > 0, None] + around).flatten().unique()
    return weights, log_tau, error


def _fit(r: Places, g: Places, log_tau: Components) -> tuple[Components, float]:
    """Non-negative weights of Gaussians with these variances whose sum is exp g(r), and the largest relative error."""
    # Each column is a component's density over that of the noise, so that the tails count as much as the centre.
    log_ratio = -0.5 * (r[:, None].square() * torch.exp(-log_tau) + log_tau + math.log(2 * math.pi)) - g[:, None]
    dictionary = log_ratio.exp()
    target = torch.ones_like(r)
    weights = torch.as_tensor(nnls(dictionary.numpy(), target.numpy(), maxiter=100_000)[0])
    return weights, float((dictionary @ weights - target).abs().max())


def _log_gamma_ratio(z: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The value of log Gamma(z + 1/2) - log Gamma(z) - 1/2 log z: -1/(8 z) + 1/(192 z^3), where z is large."""
    small = z.clamp_max(_LARGE)
    exact = torch.lgamma(small + 0.5) - torch.lgamma(small) - 0.5 * torch.log(small)
    return torch.where(z < _LARGE, exact, -1 / (8 * z) + 1 / (192 * z**3))
