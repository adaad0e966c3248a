"""The exact evidence, or the collapsed bound, as a function of one vector: what quasi-Newton steps climb.

Some of the data may stand for all, in an order whose every beginning stands for the whole. Draws of the orbit are fixed, so the
function has no noise. Other draws are another function: how much the two differ says how much draws matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedBound, CollapsedGP
from orbitgp.inference.dense_posterior import Solution
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.training.learned_vector import LearnedVector, Vector


class ExactObjective:
    """The log evidence (and priors) of a model, as a function of all that is learned of it and of its likelihood."""

    def __init__(
        self,
        model: ExactGP | CollapsedGP,
        likelihood: Likelihood,
        y: Float[Tensor, "rows *outputs"],
        order: Int[Tensor, " rows"],
    ) -> None:
        self.model, self.likelihood, self.y = model, likelihood, y
        self.learned = LearnedVector(model, likelihood)
        self.order = order
        self.local: Tensor | None = None  # the local parameters at the last point: the next search for them begins there
        self.jitter = 0.0  # the share of the diagonal that the last factorisation needed

    @contextmanager
    def subset(self, rows: int) -> Iterator[None]:
        """Some of the data, in place of all."""
        x, y = self.model.x, self.y
        if len(x) > rows:
            chosen = self.order[:rows].to(x.device)
            self.model.x, self.y = x[chosen], y[chosen]
        try:
            yield
        finally:
            self.model.x, self.y = x, y

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        """Minus the log evidence (and priors), and its gradient; infinite where it cannot be computed."""
        nowhere = math.inf, np.zeros_like(vector)
        self.learned.set(vector)
        try:
            solution = self.model.evidence_with_gradient(self.likelihood, self.y, self.local)
            value = solution.log_evidence + self._pull_back_priors()
            gradient = self.learned.gradient()
        except FloatingPointError:
            return nowhere
        if not (math.isfinite(value) and np.all(np.isfinite(gradient))):
            return nowhere
        self.local, self.jitter = solution.local, solution.jitter
        return -value, -gradient

    def gradient_at(self, vector: Vector) -> Vector:
        """The gradient of the log evidence (and priors) there."""
        self.learned.set(vector)
        self.model.evidence_with_gradient(self.likelihood, self.y, self.known_local())
        self._pull_back_priors()
        return self.learned.gradient()

    def condition(self) -> Solution | CollapsedBound:
        """The posterior here, which the model keeps."""
        return self.model.condition(self.likelihood, self.y, self.known_local())

    def log_evidence(self, other: int = 0) -> float:
        """The log evidence here, or that with other draws of the orbit."""
        return self.model.log_evidence(self.likelihood, self.y, self.known_local(), self.model.seed + other)

    def known_local(self) -> Tensor | None:
        """The local parameters of the present data, if they are known: a run that was stopped early knows those of fewer."""
        return self.local if self.local is not None and len(self.local) == len(self.y) else None

    def value(self) -> float:
        """The log evidence (and priors) here, which is what is climbed."""
        return self.log_evidence() + self.log_prior()

    def log_prior(self) -> float:
        """The log density of the priors on the kernel's hyperparameters."""
        return float(log_prior(self.model).detach())

    def _pull_back_priors(self) -> float:
        """The same; its gradient is added to the hyperparameters."""
        density = log_prior(self.model)
        if density.requires_grad:
            density.backward()
        return float(density.detach())

    def state_dict(self) -> dict[str, Any]:
        """What is neither learned by steps nor computed anew: the bias of the prior mean, and the local parameters."""
        return {"bias": self.model.prior_mean.bias.detach().clone(), "local": self.local}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.model.prior_mean.bias.copy_(state["bias"])
        self.local = None if state["local"] is None else state["local"].to(self.y.device)


def log_prior(model: InvariantGP | ExactGP | CollapsedGP) -> Float[Tensor, ""]:
    """The log density of the priors that the user put on the kernel's hyperparameters (zero without any)."""
    total = torch.zeros((), dtype=torch.float64, device=model.prior_mean.bias.device)
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
