"""Many classes by logistic decisions, one after the other: a likelihood of one's own, which the paper names.

It is not in the package, because it predicts much worse than the Dirichlet likelihood (``python -m experiments
likelihoods``): its bound charges for the variance of f, so it keeps f small and predictions unsure. It bounds the
probability of the labels.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods import Classification, Moments, Quadratic
from orbitgp.likelihoods.base import Latents, Values, required, root_second
from orbitgp.likelihoods.classification import ClassLogProbs, ClassProbs, Sure, normal_average
from orbitgp.likelihoods.logistic import pg_const, pg_mean
from orbitgp.likelihoods.tilted import logistic_mean
from orbitgp.saving import register

_ROUNDING = 1e-6  # of a log probability


@register
class StickBreaking(Classification):
    """Many classes by breaking a stick (Linderman et al. 2015), as the paper suggests: K - 1 logistic decisions, one by
    one.

        p(k | f) = sigma(x_k) prod_{j<k} sigma(-x_j),    x_j = f_j + b_j;    the last class takes the rest of the stick

    The offsets b_j = -log(K - 1 - j) make all classes equally likely at f = 0, where the prior of f is centred. A datum
    of class k takes part in decisions 0 .. k only. Each decision is a logistic likelihood with a local parameter c_j of
    its own, best at sqrt(E x_j^2). The bound is diagonal, and exact for a point mass. The order of the classes matters.
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
    def is_sure(self, mean: Latents, most: Latents, error: float = 0.0) -> Sure:
        """Each E sigma(x_j) lies between its values at variances 0 and ``most``, and so does each product of them."""
        x, top = mean + self.offset.to(mean), self.log_probs(mean).argmax(-1, keepdim=True)
        wide = partial(logistic_mean, variance=most)
        ends = ((side - error, side + error) for side in (x, -x))
        take, leave = (torch.stack([f(end) for end in both for f in (torch.sigmoid, wide)]).log() for both in ends)
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
