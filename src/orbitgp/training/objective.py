"""The log evidence of a model on some rows, with some draws of the orbit, as a function of one vector.

Draws are fixed, so the function has no noise. Evaluating it moves the learned parameters there and no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.fresh_evidence import FreshEvidence
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.training.learned_vector import LearnedVector, Vector


@dataclass(eq=False)
class Objective:
    """The log evidence (and priors) of ``model`` with targets ``y``; a collapsed bound is climbed in the same way.

    ``value_at`` and ``fresh_at`` are the log evidence itself. A call gives minus that, which
    :mod:`~orbitgp.training.maximise` takes, with its gradient.
    """

    model: ExactGP | CollapsedGP
    likelihood: Likelihood
    y: Float[Tensor, "rows *outputs"]
    learned: LearnedVector
    is_plain: bool = False  # the orbit is left out
    local: Tensor | None = None  # local parameters at the last point: the next search for them begins there
    jitter = 0.0  # the share of the diagonal that the last factorisation needed

    def __post_init__(self) -> None:
        self.model.climbs = True

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        """Minus the log evidence (and priors), and its gradient; infinite where it cannot be computed."""
        nowhere = math.inf, np.zeros_like(vector)
        if not self.learned.contains(vector):
            return nowhere
        self.learned.set(vector)
        try:
            solution = self.model.evidence_with_gradient(self.likelihood, self.y, self.local)
            density = log_prior(self.model, self.likelihood)
            if density.requires_grad:
                density.backward()
            value = solution.log_evidence + float(density.detach())
            gradient = self.learned.gradient()
        except FloatingPointError:
            return nowhere
        if not (math.isfinite(value) and np.all(np.isfinite(gradient))):
            return nowhere
        self.local, self.jitter = solution.local, solution.jitter
        return -value, -gradient

    def value_at(self, vector: Vector) -> float:
        """The log evidence (and priors) there; minus infinity where it cannot be computed."""
        self.learned.set(vector)
        try:
            return self._finite(self.model.log_evidence(self.likelihood, self.y, self.local))
        except FloatingPointError:
            return -math.inf

    def fresh_at(self, vector: Vector, sets: Sequence[int] = (1, 2)) -> FreshEvidence:
        """The same with these sets of fresh draws of the orbit, which nothing was fitted to."""
        self.learned.set(vector)
        try:
            found = self.model.fresh_evidence(self.likelihood, self.y, self.local, sets)
        except FloatingPointError:
            return FreshEvidence(-math.inf, math.inf)
        return found._replace(value=self._finite(found.value))

    def resolution(self) -> float:
        """Nats below which differences of the objective mean nothing: a loose bound is not worth many digits."""
        model = self.model
        return model.resolution(self.likelihood, self.y, self.local) if isinstance(model, CollapsedGP) else 0.0

    def _finite(self, value: float) -> float:
        value += float(log_prior(self.model, self.likelihood).detach())
        return value if math.isfinite(value) else -math.inf


def log_prior(model: InvariantGP | ExactGP | CollapsedGP, likelihood: Likelihood) -> Float[Tensor, ""]:
    """The log density of the priors on hyperparameters: the user's of the kernel, and those of the likelihood."""
    total = likelihood.log_prior().to(model.prior_mean.bias.device)
    for _, module, prior, closure, _ in model.kernel.named_priors():
        total = total + prior.log_prob(closure(module)).sum()
    return total


def representative_order(y: Float[Tensor, "rows *outputs"], seed: int) -> Int[Tensor, " rows"]:
    """An order of the data whose every beginning stands for the whole: at random, with labels in their proportions."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    distinct, which, counts = torch.unique(y.cpu()[order], dim=0, return_inverse=True, return_counts=True)
    if len(distinct) > len(y) // 2:
        return order
    # The i-th of n rows with a label comes after about (i + 1/2) / n of all rows.
    by_label = torch.argsort(which, stable=True)
    number = torch.empty_like(order)
    number[by_label] = torch.arange(len(y)) - (counts.cumsum(0) - counts)[which[by_label]]
    return order[torch.argsort((number + 0.5) / counts[which], stable=True)]
