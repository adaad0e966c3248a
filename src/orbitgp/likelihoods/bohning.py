"""Many classes by a parabola of fixed curvature (Böhning 1992): one covariance for all classes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.likelihoods.base import Moments, Quadratic, required
from orbitgp.likelihoods.classification import Softmax


class Bohning(Softmax):
    """log softmax_y(f) >= f_y - logsumexp(a) - p . (f - a) - 1/4 |f - a|^2,   p = softmax(a),

    because the Hessian of logsumexp is nowhere above 1/2. The local parameter is the point of contact a, best at E f, where the
    bound is exact for a point mass. ``lam`` is 1/2 for every datum and class, so all classes share one posterior covariance,
    which saves a factor of K; the price is a bound that charges as much for variance at a sure datum as at a doubtful one.
    """

    shares_curvature = True

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.num_locals = num_classes

    @torch.no_grad()
    def local(self, y: Float[Tensor, "rows classes"], moments: Moments) -> Float[Tensor, "rows classes"]:
        return moments.mean

    def quadratic(self, y: Float[Tensor, "rows classes"], local: Float[Tensor, "rows classes"] | None) -> Quadratic:
        a = required(local)
        p = torch.softmax(a, -1)
        const = (a * (p - 0.25 * a)).sum(-1) - torch.logsumexp(a, -1)
        return Quadratic(const, y - p + 0.5 * a, torch.full_like(a, 0.5))
