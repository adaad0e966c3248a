"""Two classes by the logistic function (section 4.5 of the paper).

The quadratic bound on the logistic function (Jaakkola and Jordan 2000) is Polya-Gamma augmentation (Polson 2013):

    log sigma(x) = -log 2 + x/2 - log cosh(x/2)  >=  k(c) + x/2 - 1/2 w(c) x^2,      equality at x = +-c

    w(c) = tanh(c/2) / (2c)                 the mean of PG(1, c), which is the optimal q(w)
    k(c) = -log 2 cosh(c/2) + 1/2 c^2 w(c)

The bound holds because log cosh(x/2) is concave in x^2. The best c for a distribution of x is sqrt(E x^2). Both
functions are even in c.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Latents, LogProbs, Moments, Quadratic, Values, required, root_second
from orbitgp.likelihoods.classification import Classification, ClassLogProbs, ClassProbs, ClassTargets, Labels
from orbitgp.likelihoods.tilted import Tilted, logistic_as_probits, tilted_by_probits

_SERIES_BELOW = 0.1  # |c| under which w is a series


def pg_mean(c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """w(c) = tanh(c/2) / (2c), with its limit 1/4 at c = 0."""
    small = c.abs() < _SERIES_BELOW
    # Each branch gets only arguments where it is accurate: else the branch not taken would have a gradient of nan.
    c2 = torch.where(small, c, 0.0).square()
    series = 1 / 4 - c2 * (1 / 48 - c2 * (1 / 480 - c2 * (17 / 80640)))
    big = torch.where(small, 1.0, c)
    return torch.where(small, series, torch.tanh(0.5 * big) / (2 * big))


def pg_const(c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """k(c) = -log 2 cosh(c/2) + 1/2 c^2 w(c), written so that no exponential overflows."""
    return 0.25 * c * torch.tanh(0.5 * c) - torch.logaddexp(0.5 * c, -0.5 * c)


class Bernoulli(Classification):
    """p(y | f) = sigma(y f) with y = -1 or +1; eta = y/2, lam = w(c), const = k(c).

    The local parameter is c, and the best c is sqrt(E f^2). The bound is exact for a point mass at |f| = c.

        >>> Bernoulli().predictive(torch.zeros(1, 1), torch.ones(1, 1)).probs
        tensor([[0.5000, 0.5000]])
    """

    num_locals = 1
    mean_decides = True  # E sigma(f) lies above 1/2 where the mean lies above 0

    def __init__(self, num_classes: int = 2) -> None:
        super().__init__(num_classes, num_latents=1)
        if num_classes != 2:
            raise ValueError(f"the bernoulli likelihood is for 2 classes, got {num_classes}: use 'dirichlet' for more.")

    def encode(self, labels: Labels, dtype: torch.dtype = torch.float64) -> ClassTargets:
        """-1 for class 0, +1 for class 1."""
        return (2 * labels[:, None] - 1).to(dtype)

    @torch.no_grad()
    def local(self, y: ClassTargets, moments: Moments) -> Latents:
        return root_second(moments.second, moments.mean)

    def quadratic(self, y: ClassTargets, local: Latents | None) -> Quadratic:
        c = required(local)
        return Quadratic(pg_const(c)[:, 0], 0.5 * y, pg_mean(c))

    @torch.no_grad()
    def tilted(self, y: ClassTargets, mean: Latents, variance: Latents) -> Tilted:
        weights, scales = (part.to(mean) for part in logistic_as_probits())
        return tilted_by_probits(y, mean, variance, weights, scales)

    @torch.no_grad()
    def predict_proba(self, mean: Latents, variance: Latents) -> ClassProbs:
        signs = mean.new_tensor([-1.0, 1.0])
        return torch.cat([self.tilted(y.expand_as(mean), mean, variance.clamp_min(0.0)).log_z for y in signs], -1).exp()

    def log_probs(self, f: Values) -> ClassLogProbs:
        return logsigmoid(torch.cat([-f, f], -1))

    def log_prob(self, y: ClassTargets, f: Values) -> LogProbs:
        return logsigmoid(y * f)[..., 0]
