"""Many classes by normalised sigmoids (Galy-Fajou et al. 2020): order-free, diagonal, and exact for a point mass."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Moments, Quadratic, required
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.polyagamma import pg_const, pg_mean, root_second

_SMALLEST = 1e-20


class LogisticSoftmax(Classification):
    """p(k | f) = sigma(f_k) / sum_j sigma(f_j), bounded in three steps, each a tangent:

        log sigma(f_y) - log s >= log sigma(f_y) - log a + 1 - s/a,        s = sum_j sigma(f_j) = K - sum_j sigma(-f_j)
        sigma(-f_j) >= g_j (1 - log g_j + log sigma(-f_j))                 exp lies above its tangent at log g_j
        log sigma(+-f_j) >= k(c_j) +- f_j/2 - 1/2 w(c_j) f_j^2             Polya-Gamma

    The local parameters are c_j, log g_j and log a, with joint optimum in closed form: c_j = sqrt(E f_j^2),
    log g_j = k(c_j) - E f_j / 2 - 1/2 w(c_j) E f_j^2, a = sum_j (1 - g_j). A point mass has no gap.
    This is the likelihood's own law, not the softmax; it equals it where all f_j are well below zero.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, num_latents=num_classes)
        self.num_locals = 2 * num_classes + 1

    @torch.no_grad()
    def local(self, y: Float[Tensor, "rows classes"], moments: Moments) -> Float[Tensor, "rows params"]:
        c = root_second(moments.second, moments.mean)
        # With c^2 in the place of E f^2 (they differ where a noisy estimate was clamped) g is a probability, so a is positive.
        # k(c) - 1/2 c^2 w(c) = -c/2 - log(1 + exp -c): so written, 1 - g keeps its digits however small it is.
        log_g = -0.5 * (moments.mean + c) - torch.log1p(torch.exp(-c))
        log_a = (-torch.expm1(log_g)).sum(-1, keepdim=True).clamp_min(_SMALLEST).log()
        return torch.cat([c, log_g, log_a], -1)

    def quadratic(self, y: Float[Tensor, "rows classes"], local: Float[Tensor, "rows params"] | None) -> Quadratic:
        c, log_g, log_a = required(local).split([self.num_classes, self.num_classes, 1], -1)
        w, k = pg_mean(c), pg_const(c)
        share = (log_g - log_a).exp()
        # sum_j share_j - K/a, without the cancellation
        rest = torch.exp(-log_a) * torch.expm1(log_g)
        const = (y * k + share * (k - log_g) + rest).sum(-1) + (1 - log_a)[:, 0]
        return Quadratic(const, 0.5 * (y - share), w * (y + share))

    def log_probs(self, f: Float[Tensor, "*samples rows latents"]) -> Float[Tensor, "*samples rows classes"]:
        return torch.log_softmax(logsigmoid(f), -1)
