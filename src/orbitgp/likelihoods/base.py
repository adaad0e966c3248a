"""Likelihoods as quadratic bounds.

Every likelihood here is used through one inequality, for each datum,

    log p(y | f) >= const + eta . f - 1/2 f . lam f,        tight at f = +- its local parameter,

so that the expected log likelihood needs only the first two moments of q(f), for which unbiased estimates exist. The
Gaussian is such a quadratic itself. Super-Gaussian likelihoods (logistic, Student-t, Laplace) are an upper envelope of
quadratics, indexed by a local parameter for each datum. The constants are kept: without them bounds cannot be compared.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.moments import Moments


class Quadratic(NamedTuple):
    """const + eta . f - 1/2 f . lam f for each datum; ``lam`` is a diagonal (N, L), or full (N, L, L) where latents couple."""

    const: Float[Tensor, " rows"]
    eta: Float[Tensor, "rows latents"]
    lam: Float[Tensor, "rows latents *again"]

    def expectation(self, moments: Moments) -> Float[Tensor, " rows"]:
        """E_q of the quadratic: linear in the moments, so unbiased estimates in give an unbiased estimate out."""
        linear = (self.eta * moments.mean).sum(-1)
        if self.lam.ndim == 2:
            return self.const + linear - 0.5 * (self.lam * moments.second).sum(-1)
        if moments.cross is None:
            raise ValueError("this likelihood couples latent functions and needs their cross moments.")
        return self.const + linear - 0.5 * (self.lam * moments.cross).sum((-2, -1))


class Likelihood(nn.Module):
    """One likelihood: its local parameter, its quadratic, its log density and its predictive distribution."""

    num_latents: int
    couples: bool = False  # True where ``lam`` is a full matrix over latent functions

    def local(self, y: Float[Tensor, "rows *outputs"], moments: Moments) -> Float[Tensor, "rows *params"] | None:
        """The local parameter at which the bound is best, given the moments of q(f); None where there is none.

        The moments must not come from the draws that the bound is then scored with: that would make it optimistic.
        """
        return None

    def quadratic(self, y: Float[Tensor, "rows *outputs"], local: Float[Tensor, "rows *params"] | None) -> Quadratic:
        """The quadratic at this local parameter."""
        raise NotImplementedError

    def log_prob(
        self, y: Float[Tensor, "rows *outputs"], f: Float[Tensor, "*samples rows latents"]
    ) -> Float[Tensor, "*samples rows"]:
        """The exact log density of y given f."""
        raise NotImplementedError
