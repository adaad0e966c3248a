"""Classification: what every likelihood over K classes shares.

A subclass says how K - 1 or K latent functions become log probabilities (``log_probs``) and how that is bounded by a quadratic
(``local``, ``quadratic``). Classes are 0 .. K-1 outside, an indicator row for each datum inside; ``encode`` makes it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.likelihoods.base import Likelihood
from orbitgp.likelihoods.predictive import Categorical
from orbitgp.likelihoods.quadrature import normal_average

_LOG_ODDS_VARIANCE = 10.0  # a function that may be sure of a class, and need not be


class Classification(Likelihood):
    """One of K classes. Subclasses write ``log_probs(f)``, ``local`` and ``quadratic``."""

    num_classes: int

    def __init__(self, num_classes: int, num_latents: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"classification needs at least two classes, got {num_classes}.")
        self.num_classes = num_classes
        self.num_latents = num_latents

    def encode(self, labels: Int[Tensor, " rows"], dtype: torch.dtype = torch.float64) -> Float[Tensor, "rows outputs"]:
        """The targets ``y`` of these classes: an indicator row for each datum."""
        return torch.nn.functional.one_hot(labels, self.num_classes).to(dtype)

    def prepare(self, x: Float[Tensor, "rows *features"], labels: Int[Tensor, " rows"]) -> None:
        """Settle what must be known of the data before their targets are: nothing, here."""

    def start(self, y: Float[Tensor, "rows outputs"]) -> tuple[float, Float[Tensor, " latents"]]:
        """A variance and a mean for the prior of f to start from: log odds, here."""
        return _LOG_ODDS_VARIANCE, y.new_zeros(self.num_latents)

    def log_probs(self, f: Float[Tensor, "*samples rows latents"]) -> Float[Tensor, "*samples rows classes"]:
        """The log probability of each class given f."""
        raise NotImplementedError(f"{type(self).__name__} must define log_probs(f).")

    def log_prob(
        self, y: Float[Tensor, "rows outputs"], f: Float[Tensor, "*samples rows latents"]
    ) -> Float[Tensor, "*samples rows"]:
        return (y * self.log_probs(f)).sum(-1)

    @torch.no_grad()
    def predict_proba(
        self, mean: Float[Tensor, "rows latents"], variance: Float[Tensor, "rows latents"]
    ) -> Float[Tensor, "rows classes"]:
        """Class probabilities, averaged over f ~ N(mean, diag variance); rows sum to one."""
        return normal_average(lambda f: self.log_probs(f).exp(), mean, variance)

    def predictive(self, mean: Float[Tensor, "rows latents"], variance: Float[Tensor, "rows latents"]) -> Categorical:
        return Categorical(self.predict_proba(mean, variance))


class Softmax(Classification):
    """p(k | f) = exp f_k / sum_j exp f_j, one latent function for each class; subclasses differ in how they bound it."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, num_latents=num_classes)

    def log_probs(self, f: Float[Tensor, "*samples rows latents"]) -> Float[Tensor, "*samples rows classes"]:
        return torch.log_softmax(f, -1)
