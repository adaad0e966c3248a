"""The base class of likelihoods over K classes.

A subclass maps its latent functions to log probabilities (``log_probs``) and bounds them by a quadratic (``local``,
``quadratic``). Labels are 0 .. K-1. ``encode`` turns them into targets, by default one indicator row for each datum.

Class probabilities are averages over a normal f, by fixed nodes: deterministic, and the same for every row. In one
dimension the nodes are evenly spaced, with normal weights. This is the trapezoid rule, which converges exponentially
for smooth integrands that decay on both sides. For a sigmoid under a wide normal it is better than Gauss-Hermite, whose
outer nodes carry no weight: at standard deviation 10 the mean of a sigmoid is off by 2e-7 with 128 even nodes, and by
8e-4 with 100 Gauss-Hermite nodes. In many dimensions the nodes are a scrambled Sobol' set with a fixed seed. With 1024
points, class probabilities are off by a few 1e-4. Plain Monte Carlo would be off by 5e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from orbitgp.likelihoods.base import Latents, Likelihood, LogProbs, Values
from orbitgp.likelihoods.predictive import Categorical
from orbitgp.machine import split_rows

Labels = Int[Tensor, " rows"]
Sure = Bool[Tensor, " rows"]
ClassTargets = Float[Tensor, "rows outputs"]
ClassProbs = Float[Tensor, "rows classes"]
ClassLogProbs = Float[Tensor, "*samples rows classes"]

_LOG_ODDS_VARIANCE = 10.0  # wide enough for log odds that are sure of a class
_EVEN_NODES, _EVEN_REACH = 201, 8.5  # nodes between -8.5 and 8.5 standard deviations
_SOBOL_POINTS = 1024
_MAX_ELEMENTS = 2**22  # of one array of nodes and rows


class Classification(Likelihood):
    """One of K classes. Subclasses write ``log_probs(f)``, ``local`` and ``quadratic``."""

    num_classes: int
    mean_decides: ClassVar[bool] = False  # whether the most probable class is always that at the mean of f

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

    def is_sure(self, mean: Latents, most: Latents, error: float = 0.0) -> Sure:
        """Whether the most probable class of a row is that at f = mean, for all variances up to ``most``.

        It is never said where this does not hold for all means within ``error``; by default, only where these decide.
        """
        top = mean.argmax(-1, keepdim=True)
        ends = mean + error, (mean + error).scatter_add(-1, top, torch.full_like(top, -2 * error, dtype=mean.dtype))
        same = torch.eq(*(self.log_probs(end).argmax(-1) for end in ends))
        return same if self.mean_decides else torch.zeros_like(same)

    @torch.no_grad()
    def most_probable(self, mean: Latents, variance: Latents) -> Labels:
        """The class of the largest probability. Only rows that are not sure need an average over f."""
        labels, unsure = self.log_probs(mean).argmax(-1), ~self.is_sure(mean, variance)
        labels[unsure] = self.predict_proba(mean[unsure], variance[unsure]).argmax(-1)
        return labels

    def predictive(self, mean: Latents, variance: Latents) -> Categorical:
        return Categorical(self.predict_proba(mean, variance))


@lru_cache(maxsize=16)
def normal_nodes(dim: int) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " nodes"]]:
    """Nodes and weights for an average over N(0, I) in ``dim`` dimensions."""
    if dim == 1:
        z = torch.linspace(-_EVEN_REACH, _EVEN_REACH, _EVEN_NODES, dtype=torch.float64)
        return z[:, None], torch.softmax(-0.5 * z.square(), 0)
    sobol = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0).draw(_SOBOL_POINTS, dtype=torch.float64)
    # Scrambled points may lie on the edge of the cube, where the normal quantile is infinite.
    z = torch.special.ndtri(sobol.clamp(1e-10, 1 - 1e-10))
    return z, torch.full((_SOBOL_POINTS,), 1.0 / _SOBOL_POINTS, dtype=torch.float64)


def normal_average(
    function: Callable[[Float[Tensor, "nodes rows latents"]], Float[Tensor, "nodes rows *values"]],
    mean: Float[Tensor, "rows latents"],
    variance: Float[Tensor, "rows latents"],
) -> Float[Tensor, "rows *values"]:
    """E function(f) for f ~ N(mean, diag variance) in each row.

    ``function`` is called with all nodes of a block of rows. Small blocks bound the memory.
    """
    z, weights = normal_nodes(mean.shape[1])
    z, weights = z.to(mean), weights.to(mean)
    std = variance.clamp_min(0.0).sqrt()
    step = max(1, _MAX_ELEMENTS // z.numel())
    blocks = zip(split_rows(mean, step), split_rows(std, step), strict=True)
    return torch.cat([torch.einsum("q,q...->...", weights, function(m + s * z[:, None])) for m, s in blocks])
