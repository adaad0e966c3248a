"""Many classes by breaking a stick (Linderman et al. 2015), as the paper suggests: a sequence of K - 1 logistic decisions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Latents, Moments, Quadratic, Values, required, root_second
from orbitgp.likelihoods.bernoulli import pg_const, pg_mean
from orbitgp.likelihoods.classification import Classification, ClassLogProbs, ClassProbs
from orbitgp.likelihoods.quadrature import normal_average


class StickBreaking(Classification):
    """p(k | f) = sigma(x_k) prod_{j<k} sigma(-x_j),  x_j = f_j + b_j; the last class takes the rest of the stick.

    The offsets b_j = -log(K - 1 - j) make all classes equally likely at f = 0, where the prior of f is centred. A datum of
    class k takes part in decisions 0 .. k only. Each decision is a logistic likelihood with a local parameter c_j of its own,
    best at sqrt(E x_j^2). The bound is diagonal, and exact for a point mass. The order of the classes matters.
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

    @staticmethod
    def _reached(y: ClassProbs) -> Latents:
        """1 for the decisions that a datum takes part in: those up to its class."""
        return y.flip(-1).cumsum(-1).flip(-1)[:, :-1]

    @staticmethod
    def _break(take: Values, leave: Values) -> ClassLogProbs:
        """Log probabilities of classes from the log probabilities of taking and of leaving the rest of the stick."""
        zero = torch.zeros_like(take[..., :1])
        return torch.cat([take, zero], -1) + torch.cat([zero, leave.cumsum(-1)], -1)
