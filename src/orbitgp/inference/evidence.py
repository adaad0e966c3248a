"""The evidence: the bound on the log marginal likelihood of the whole training set, with its Monte-Carlo error.

Anything that was fitted to draws is scored on fresh ones: local parameters come from one set of passes over the data, the
value from another. The standard error is that of the mean over passes with independent orbit samples; it says how well the
*bound* is known, not how far it lies below the log marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.elbo import expected_log_likelihood
from orbitgp.inference.model import InvariantGP, chunk_elements
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits.sampling import Policy


@dataclass(frozen=True)
class Evidence:
    """A lower bound on the log marginal likelihood, in nats, for the whole training set.

    Comparable between models of the same data, likelihood and target units, and only there.
    """

    value: float
    stderr: float
    num_data: int
    num_samples: int | None
    likelihood: str

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        orbit = "exact" if self.num_samples is None else f"S = {self.num_samples}"
        error = f" ± {self.stderr:.2g}" if self.stderr else ""
        return f"{self.value:,.1f}{error} nats ({self.num_data:,} data, {self.likelihood} likelihood, {orbit})"


def chunks(x: Tensor, model: InvariantGP, num_samples: int | None) -> Iterator[slice]:
    """Slices of rows small enough that their samples, and the kernel between these, fit into memory with ease."""
    max_elements = chunk_elements(x.device)
    samples = model.samples_per_row(num_samples)
    rows = max(1, max_elements // (samples * max(model.num_points, x[0].numel(), samples)))
    for start in range(0, len(x), rows):
        yield slice(start, start + rows)


@torch.no_grad()
def measure_evidence(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Float[Tensor, "rows *features"],
    y: Float[Tensor, "rows *outputs"],
    num_samples: int | None = 64,
    num_groups: int = 2,
    sampler: Policy = "qmc",
    passes: int = 8,
    local_passes: int = 4,
    generator: torch.Generator | None = None,
) -> Evidence:
    """The bound over all data: the mean of ``passes`` independent estimates, and its standard error."""
    kl, factor = float(model.kl()), model.factor()

    @model.holding_still()
    def sweep(local: Tensor | None) -> tuple[float, Moments]:
        total, parts = 0.0, []
        for rows in chunks(x, model, num_samples):
            samples = model.orbit.sample(x[rows], num_samples, num_groups, sampler, generator)
            if likelihood.num_locals and local is None:
                moments = model.moments(model.project(samples, factor), cross=likelihood.couples)
            else:
                piece = None if local is None else local[rows]
                expected, moments = expected_log_likelihood(model, likelihood, samples, y[rows], piece, factor)
                total += float(expected.sum())
            parts.append(moments)
        cross = torch.cat([m.cross for m in parts if m.cross is not None]) if likelihood.couples else None
        return total, Moments(torch.cat([m.mean for m in parts]), torch.cat([m.second for m in parts]), cross)

    local = None
    if likelihood.num_locals:
        sets = [sweep(None)[1] for _ in range(local_passes)]
        cross = torch.stack([m.cross for m in sets if m.cross is not None]).mean(0) if likelihood.couples else None
        average = Moments(torch.stack([m.mean for m in sets]).mean(0), torch.stack([m.second for m in sets]).mean(0), cross)
        local = likelihood.local(y, average)
    # One pass tells whether there is any noise: a finite orbit that is enumerated has none.
    exact = model.orbit.sample(x[:1], num_samples, num_groups, sampler, generator).pairing.off == 0.0
    values = torch.tensor([sweep(local)[0] - kl for _ in range(1 if exact else passes)], dtype=torch.float64)
    stderr = 0.0 if exact else float(values.std()) / math.sqrt(len(values))
    return Evidence(
        value=float(values.mean()),
        stderr=stderr,
        num_data=len(x),
        num_samples=None if exact else num_samples,
        likelihood=type(likelihood).__name__,
    )
