"""Classes by regression on transformed labels, with a known noise for each class (Milios et al. 2018)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.likelihoods.base import Quadratic
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.concentration import Observations, best_concentration

_CONCENTRATION = 1e-4  # used until ``prepare`` chooses one from the data


class Dirichlet(Classification):
    """t_k = f_k + e_k, e_k ~ N(0, s_k^2), with targets t and noise s^2 from the label; class probabilities are softmax(f).

    A Dirichlet prior has all its parameters at ``concentration``. One label turns it into a Dirichlet with parameters
    a_k = concentration + [k = label], which is the law of normalised Gamma variables. A log-normal matches the mean and the
    variance of each Gamma variable. So the log of each is observed with Gaussian noise:

        s_k^2 = log(1 + 1/a_k),    t_k = log a_k - s_k^2 / 2   (less their mean over classes, which softmax ignores)

    The likelihood is Gaussian with known noise, so its quadratic is exact and has no local parameters. Its evidence is that of
    the targets t. It compares orbits and kernels, but neither likelihoods nor concentrations. A smaller ``concentration``
    believes a label more. If none is given, estimators choose it from the data (:mod:`~orbitgp.likelihoods.concentration`).
    """

    def __init__(self, num_classes: int, concentration: float | None = None) -> None:
        super().__init__(num_classes, num_latents=num_classes)
        if concentration is not None and not concentration > 0:
            raise ValueError(f"the concentration of a Dirichlet must be positive, got {concentration}.")
        self.is_given = concentration is not None
        self.concentration = _CONCENTRATION if concentration is None else concentration

    def prepare(self, x: Float[Tensor, "rows *features"], labels: Int[Tensor, " rows"]) -> None:
        """Choose the concentration, unless it was given."""
        if not self.is_given:
            self.concentration = best_concentration(x, labels, self._observed, self.predict_proba)
            self.is_given = True

    def _observed(self, labels: Int[Tensor, " rows"], concentration: float) -> Observations:
        return Dirichlet(self.num_classes, concentration).observations(self.encode(labels))

    def observations(
        self, y: Float[Tensor, "rows classes"]
    ) -> tuple[Float[Tensor, "rows classes"], Float[Tensor, "rows classes"]]:
        """Targets t and noise variances s^2 of indicators y."""
        a = y + self.concentration
        noise = torch.log1p(1 / a)
        targets = a.log() - 0.5 * noise
        return targets - targets.mean(-1, keepdim=True), noise

    def start(self, y: Float[Tensor, "rows classes"]) -> tuple[float, Float[Tensor, " classes"]]:
        """The variance and the mean of the targets."""
        t, _ = self.observations(y)
        return float(t.var(0, correction=0).mean()), t.mean(0)

    def quadratic(self, y: Float[Tensor, "rows classes"], local: Float[Tensor, "rows *params"] | None = None) -> Quadratic:
        t, noise = self.observations(y)
        return Quadratic(_log_normal(t, noise).sum(-1), t / noise, 1 / noise)

    def log_probs(self, f: Float[Tensor, "*samples rows latents"]) -> Float[Tensor, "*samples rows classes"]:
        return torch.log_softmax(f, -1)

    def log_prob(
        self, y: Float[Tensor, "rows classes"], f: Float[Tensor, "*samples rows latents"]
    ) -> Float[Tensor, "*samples rows"]:
        """The log density of the targets."""
        t, noise = self.observations(y)
        return _log_normal(t - f, noise).sum(-1)


def _log_normal(r: Float[Tensor, "*shape"], variance: Float[Tensor, "rows classes"]) -> Float[Tensor, "*shape"]:
    return -0.5 * (torch.log(2 * math.pi * variance) + r.square() / variance)
