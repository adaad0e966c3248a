"""Two classes by the logistic function (section 4.5 of the paper), and many by a sequence of such decisions.

The quadratic bound on the logistic function (Jaakkola and Jordan 2000) is Polya-Gamma augmentation (Polson 2013):

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
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Latents, LogProbs, Moments, Quadratic, Values, required, root_second
from orbitgp.likelihoods.classification import (
    Classification,
    ClassLogProbs,
    ClassProbs,
    ClassTargets,
    Labels,
    Sure,
    normal_average,
)
from orbitgp.likelihoods.tilted import Tilted, logistic_as_probits, logistic_mean, tilted_by_probits

_ROUNDING = 1e-6  # of a log probability
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

    def __init__(self) -> None:
        super().__init__(num_classes=2, num_latents=1)

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
        return torch.cat([self.tilted(sign.expand_as(mean), mean, variance.clamp_min(0.0)).log_z for sign in signs], -1).exp()

    def is_sure(self, mean: Latents, most: Latents) -> Sure:
        """Always: E sigma(f) lies above 1/2 where the mean lies above 0."""
        return torch.ones(len(mean), dtype=torch.bool, device=mean.device)

    def log_probs(self, f: Values) -> ClassLogProbs:
        return logsigmoid(torch.cat([-f, f], -1))

    def log_prob(self, y: ClassTargets, f: Values) -> LogProbs:
        return logsigmoid(y * f)[..., 0]


class StickBreaking(Classification):
    """Many classes by breaking a stick (Linderman et al. 2015), as the paper suggests: K - 1 logistic decisions, one by one.

        p(k | f) = sigma(x_k) prod_{j<k} sigma(-x_j),    x_j = f_j + b_j;    the last class takes the rest of the stick

    The offsets b_j = -log(K - 1 - j) make all classes equally likely at f = 0, where the prior of f is centred. A datum of
    class k takes part in decisions 0 .. k only. Each decision is a logistic likelihood with a local parameter c_j of its own,
    best at sqrt(E x_j^2). The bound is diagonal, and exact for a point mass. The order of the classes matters.

        >>> StickBreaking(3).num_latents
        2
    """

    offset: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, num_latents=num_classes - 1)
        self.num_locals = num_classes - 1
        left = torch.arange(num_classes - 1, 0, -1, dtype=torch.float64)
        self.register_buffer("offset", -left.log())

    @torch.no_grad()
    def local(self, y: ClassProbs, moments: Moments) -> Latents:
        b = self.offset
        return root_second(moments.second + b * (2 * moments.mean + b), moments.mean + b)

    def quadratic(self, y: ClassProbs, local: Latents | None) -> Quadratic:
        c, b = required(local), self.offset.to(y.dtype)
        taken, reached = y[:, :-1], self._reached(y)
        # reached_j [k(c_j) - 1/2 w(c_j) x_j^2] + (taken_j - reached_j / 2) x_j, sorted by powers of f_j = x_j - b_j
        w, kappa = reached * pg_mean(c), taken - 0.5 * reached
        const = reached * pg_const(c) + b * (kappa - 0.5 * w * b)
        return Quadratic(const.sum(-1), kappa - w * b, w)

    def log_probs(self, f: Values) -> ClassLogProbs:
        x = f + self.offset.to(f.dtype)
        return self._break(logsigmoid(x), logsigmoid(-x))

    @torch.no_grad()
    def predict_proba(self, mean: Latents, variance: Latents) -> ClassProbs:
        # The latents are independent, so the expectation of the product is a product of one-dimensional expectations.
        m, v = (mean + self.offset.to(mean.dtype)).reshape(-1, 1), variance.reshape(-1, 1)
        take, leave = (normal_average(torch.sigmoid, sign * m, v).reshape(mean.shape).log() for sign in (1.0, -1.0))
        return self._break(take, leave).exp()

    @torch.no_grad()
    def is_sure(self, mean: Latents, most: Latents) -> Sure:
        """Each E sigma(x_j) lies between its values at variances 0 and ``most``, and so does each product of them."""
        x, top = mean + self.offset.to(mean), self.log_probs(mean).argmax(-1, keepdim=True)
        take, leave = (torch.stack([torch.sigmoid(side), logistic_mean(side, most)]).log() for side in (x, -x))
        least, largest = self._break(take.amin(0), leave.amin(0)), self._break(take.amax(0), leave.amax(0))
        others = largest.scatter(-1, top, -torch.inf).amax(-1)
        return least.gather(-1, top)[:, 0] > others + _ROUNDING

    @staticmethod
    def _reached(y: ClassProbs) -> Latents:
        """1 for the decisions that a datum takes part in: those up to its class."""
        return y.flip(-1).cumsum(-1).flip(-1)[:, :-1]

    @staticmethod
    def _break(take: Values, leave: Values) -> ClassLogProbs:
        """Log probabilities of classes from the log probabilities of taking and of leaving the rest of the stick."""
        zero = torch.zeros_like(take[..., :1])
        return torch.cat([take, zero], -1) + torch.cat([zero, leave.cumsum(-1)], -1)
