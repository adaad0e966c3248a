"""Many classes by pairwise comparison (Titsias 2016), with a Polya-Gamma term for each pair."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.likelihoods.base import Moments, Quadratic, required
from orbitgp.likelihoods.classification import Softmax
from orbitgp.likelihoods.polyagamma import pg_const, pg_mean, root_second


class OneVsEach(Softmax):
    """log softmax_y(f) >= sum_{j != y} log sigma(d_j) >= sum_{j != y} [k(c_j) + 1/2 d_j - 1/2 w(c_j) d_j^2],  d_j = f_y - f_j.

    The local parameters are one c_j for each other class, best at sqrt(E d_j^2) (the one at j = y is not used). The squares
    couple latent functions, so ``lam`` is a full matrix and E f_y f_j is needed. Tight where one class is certain, loose where
    many are possible: at f = 0 it gives -(K-1) log 2 instead of -log K.
    """

    couples = True

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.num_locals = num_classes

    @torch.no_grad()
    def local(self, y: Float[Tensor, "rows classes"], moments: Moments) -> Float[Tensor, "rows classes"]:
        if moments.cross is None:
            raise ValueError("one-vs-each couples latent functions and needs their cross moments.")
        square = moments.cross.diagonal(dim1=-2, dim2=-1)
        own = (y * square).sum(-1, keepdim=True)
        with_own = (y[:, :, None] * moments.cross).sum(1)
        mean = (y * moments.mean).sum(-1, keepdim=True) - moments.mean
        return root_second(own - 2 * with_own + square, mean)

    def quadratic(self, y: Float[Tensor, "rows classes"], local: Float[Tensor, "rows classes"] | None) -> Quadratic:
        c, others = required(local), 1 - y
        w = others * pg_mean(c)
        # sum_j w_j (e_y - e_j)(e_y - e_j)^T, with y the indicator e_y
        mixed = y[:, :, None] * w[:, None, :]
        lam = torch.diag_embed(w + y * w.sum(-1, keepdim=True)) - mixed - mixed.mT
        # sum_{j != y} 1/2 (e_y - e_j)
        eta = 0.5 * (self.num_classes * y - 1)
        return Quadratic((others * pg_const(c)).sum(-1), eta, lam)
