"""The base class of likelihoods over K classes.

A subclass maps its latent functions to log probabilities (``log_probs``) and bounds them by a quadratic (``local``,
``quadratic``). Labels are 0 .. K-1. ``encode`` turns them into targets, by default one indicator row for each datum.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.likelihoods.base import Latents, Likelihood, LogProbs, Values
from orbitgp.likelihoods.predictive import Categorical
from orbitgp.likelihoods.quadrature import normal_average

Labels = Int[Tensor, " rows"]
ClassTargets = Float[Tensor, "rows outputs"]
ClassProbs = Float[Tensor, "rows classes"]
ClassLogProbs = Float[Tensor, "*samples rows classes"]

_LOG_ODDS_VARIANCE = 10.0  # wide enough for log odds that are sure of a class


class Classification(Likelihood):
    """One of K classes. Subclasses write ``log_probs(f)``, ``local`` and ``quadratic``."""

    num_classes: int

    def __init__(self, num_classes: int, num_latents: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"classification needs at least two classes, got {num_classes}.")
        self.num_classes = num_classes
        self.num_latents = num_latents

    def encode(self, labels: Labels, dtype: torch.dtype = torch.float64) -> ClassTargets:
        """The targets ``y`` of these classes: an indicator row for each datum."""
        return torch.nn.functional.one_hot(labels, self.num_classes).to(dtype)

    def prepare(self, x: Float[Tensor, "rows *features"], labels: Labels) -> None:
        """Set what the targets depend on, from the data. Called before ``encode``; does nothing by default."""

    def start(self, y: ClassTargets) -> tuple[float, Float[Tensor, " latents"]]:
        """The variance and the mean at which the prior of f starts; by default those of log odds."""
        return _LOG_ODDS_VARIANCE, y.new_zeros(self.num_latents)

    def log_probs(self, f: Values) -> ClassLogProbs:
        """The log probability of each class given f."""
        raise NotImplementedError(f"{type(self).__name__} must define log_probs(f).")

    def log_prob(self, y: ClassTargets, f: Values) -> LogProbs:
        return (y * self.log_probs(f)).sum(-1)

    @torch.no_grad()
    def predict_proba(self, mean: Latents, variance: Latents) -> ClassProbs:
        """Class probabilities, averaged over f ~ N(mean, diag variance). Rows sum to one."""
        return normal_average(lambda f: self.log_probs(f).exp(), mean, variance)

    def predictive(self, mean: Latents, variance: Latents) -> Categorical:
        return Categorical(self.predict_proba(mean, variance))
