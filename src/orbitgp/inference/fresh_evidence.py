"""The evidence of the infinite orbit, by draws that nothing was fitted to.

K_f of shared draws, mean_ab k_g(x_a, x'_b) with a and b from one set, contains pairs of equal draws:

    K_S = (1 - 1/S) K + 1/S E_a k_g(x_a, x'_a) + noise.

For an orbit of isometries the second term is k_g itself, a narrow kernel that the infinite orbit does not have.
Parameters can feed on it, by a large variance and a short lengthscale: the evidence of S draws then lies far above that
of the infinite orbit, and other sets of S do not show it. With a and b from different sets every pair is independent,
and K_f is unbiased. It need not be positive definite: where noise does not make it so, its positive part stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.stats
import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import orbit_gram
from orbitgp.inference.dense_posterior import Gram, Solution
from orbitgp.kernels import Covariance


class FreshEvidence(NamedTuple):
    """The log evidence with draws nothing was fitted to. Within two errors lies that of the infinite orbit in 95 %."""

    value: float
    error: float


@torch.no_grad()
def fresh_evidence(
    vectors: Covariance, sets: Sequence[Float[Tensor, "rows samples dim"]], solve: Callable[[Gram], Solution]
) -> FreshEvidence:
    """The log evidence with the mean of K_f over all pairs of sets; its error by the jackknife, zero for a single pair.

    Pairs share sets, so it is sets that are left out, one at a time. Few sets tell their spread badly: Student's
    distribution makes good for that.

    Args:
        vectors: the kernel of what g sees.
        sets: what g sees of the data, for each set of draws.
        solve: the posterior given K_f.
    """
    count, pairs = len(sets), list(combinations(range(len(sets)), 2))
    grams = torch.stack([orbit_gram.cross(vectors, sets[i], sets[j]).double() for i, j in pairs])
    grams = 0.5 * (grams + grams.mT)
    value = _log_evidence(grams.mean(0), solve)
    if count < 3:
        return FreshEvidence(value, 0.0)
    left_out = [_log_evidence(grams[[s not in pair for pair in pairs]].mean(0), solve) for s in range(count)]
    deviation = (count - 1) / count**0.5 * float(np.std(left_out, ddof=1))
    return FreshEvidence(value, deviation * float(scipy.stats.t.ppf(0.975, count - 1)) / 2)


def _log_evidence(gram: Gram, solve: Callable[[Gram], Solution]) -> float:
    """That of K_f, or of its positive part where noise does not make it positive definite."""
    try:
        found = solve(gram)
        if not found.jitter:
            return found.log_evidence
    except FloatingPointError:
        pass
    values, directions = torch.linalg.eigh(gram)
    return solve((directions * values.clamp_min(0.0)) @ directions.mT).log_evidence
