"""The quadratic bound on the logistic function (Jaakkola and Jordan 2000), which is Polya-Gamma augmentation (Polson 2013).

    log sigma(x) = -log 2 + x/2 - log cosh(x/2)  >=  k(c) + x/2 - 1/2 w(c) x^2,      equality at x = +-c

    w(c) = tanh(c/2) / (2c)                 the mean of PG(1, c), which is the optimal q(w)
    k(c) = -log 2 cosh(c/2) + 1/2 c^2 w(c)

The bound holds because log cosh(x/2) is concave in x^2. The best c for a distribution of x is sqrt(E x^2). Both functions are
even in c.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_SERIES_BELOW = 0.1  # |c| under which w is a series
_SMALLEST = 1e-12  # of E x^2, so that its root has a gradient


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


def root_second(second: Float[Tensor, "*shape"], mean: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sqrt(E x^2), the best c, from estimates of E x^2 and E x.

    An unbiased estimate of E x^2 may be negative. It is clamped only here, inside the root, at its least value (E x)^2.
    """
    return torch.maximum(second, mean.square()).clamp_min(_SMALLEST).sqrt()
