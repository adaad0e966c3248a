"""Bounds on the log evidence of a finite orbit from both sides, from the inducing variables of a sparse model.

It holds for likelihoods that are Gaussian in f: const + eta f - 1/2 lam f^2 with known lam (Gaussian, indicators, Dirichlet).
The orbit is enumerated, or S fixed draws shared by all data stand for it, as in exact inference. With m the prior mean and, for
each latent function, D = diag lam^1/2, h = D^-1 (eta - lam m) and B = I + D K_f D, the log evidence is

    sum_n [const + eta m - 1/2 lam m^2] + 1/2 h.h - 1/2 log|B| - 1/2 h.B^-1 h.

With Q = Kfu Kuu^-1 Kuf <= K_f and P = I + D Q D, both terms in B have lower bounds (jitter on Kuu only lowers Q):

    log|B|    >= log|P|                                                        (Titsias 2014)
    log|B|    >= log|P| + mu_1 log(1 + t) / t,   t = mu_2 / mu_1,   mu_k = tr (P^-1 (B - P))^k
    h.B^-1 h  >= h.(P + tr(B - P) I)^-1 h                                      (Titsias 2014)
    h.B^-1 h  >= 2 h.v - v.B v   for every v                                   (equal where B v = h)

The second line is Gauss-Radau quadrature of log(1 + x) over the eigenvalues x >= 0 of P^-1 (B - P), with one node at zero (Bai
and Golub 1997): log(1 + x) has a positive third derivative, so the quadrature lies below. It is best where the slack is spread
over many directions. In the last line v comes from conjugate gradients with P as the preconditioner (Kim and Teh 2018; Artemev,
Burt and van der Wilk 2021). What v still loses is at most r.P^-1 r with r = h - B v, which says when to stop.

The same numbers bound both terms from above, and so the log evidence from below:

    log|B|    <= log|P| + mu_1,   mu_1 <= tr(B - P)
    log|B|    <= log|P| + w log(1 + s) + (N - w) log(1 + b),   b = mu_2^1/2,   the quadrature with a node at b instead of zero
    h.B^-1 h  <= h.P^-1 h
    h.B^-1 h  <= 2 h.v - v.B v + r.P^-1 r

The first and third are the bound of the sparse model at its best q(u). The others are tighter.

The lines with mu_2 and v need products with K_f, which is kept where it fits into memory and made again block by block where
it does not. Everything here is in float64: a bound that rounding could lift or lower by a nat decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import orbit_gram
from orbitgp.inference.memory import chunk_elements, in_smaller_chunks
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.whitening import solve
from orbitgp.kernels.cholesky import cholesky
from orbitgp.kernels.covariance import Covariance
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import Pairing
from orbitgp.orbits.sampling import Inputs

Targets = Float[Tensor, "rows *outputs"]
Columns = Float[Tensor, "rows latents"]

_TOLERANCE = 0.01  # nats: what conjugate gradients may leave
_SHARE = 0.5  # of the free memory, for K_f


class Bounds(NamedTuple):
    """What the log evidence lies between, in nats."""

    lower: float
    upper: float


@in_smaller_chunks
@torch.no_grad()
def two_sided_bounds(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Inputs,
    y: Targets,
    num_samples: int | None = 64,
    seed: int = 0,
    max_iterations: int = 100,
    tolerance: float = _TOLERANCE,
    max_bytes: float | None = None,
) -> Bounds:
    """Bounds on the log evidence of the model with the orbit ``orbit.shared_samples(x, num_samples, seed)``, whatever q(u) is.

    ``max_iterations``: products with K_f, one for each step of conjugate gradients. With 0 there is none, and the bounds cost
    no more than the sparse model itself: O(N M^2). ``tolerance``: nats that conjugate gradients may leave. ``max_bytes``: K_f
    is kept if it is no larger than this; by default half of the free memory.
    """
    data = _prior(model, x, num_samples, seed)
    observed = _observed(likelihood, y, data.means)
    precision, right = observed.precision, observed.right
    sparse = _SparseSystem(data.whitened, precision)
    traces = (precision * (data.variances - data.whitened.square().sum(1)).clamp_min(0.0)[:, None]).sum(0)
    shifted = _SparseSystem(data.whitened, precision / (1 + traces))
    # h.B^-1 h and log|B| - log|P|, each at least and at most.
    fits = (right * shifted.solve(right)).sum(0) / (1 + traces), (right * sparse.solve(right)).sum(0)
    gains = torch.zeros_like(traces), traces
    if max_iterations > 0:
        limit = _SHARE * free_memory(x.device) if max_bytes is None else max_bytes
        gram = _Gram(model.covariance.of_features, data.seen, data.variances, keep=8.0 * len(x) ** 2 <= limit)
        root = precision.sqrt()

        def product(right: Columns) -> Columns:
            """B = I + D K_f D times each column."""
            return right + root * gram.product(root * right)

        best = _conjugate_gradients(product, sparse, right, max_iterations, tolerance)
        # Its product is made afresh, so that the bounds do not depend on rounding on the way to v.
        residual = right - product(best)
        fit = (best * (right + residual)).sum(0)
        fits = torch.maximum(fits[0], fit), torch.minimum(fits[1], fit + (residual * sparse.solve(residual)).sum(0))
        moments = _residual_moments(gram, data.whitened, precision, sparse, traces)
        gains = _least_log_det(*moments), _most_log_det(*moments, len(x))
    copies = right.shape[1] / precision.shape[1]
    upper, lower = (
        float(observed.constant - 0.5 * (fit.sum() + copies * (sparse.logdets + gain).sum()))
        for fit, gain in zip(fits, gains, strict=True)
    )
    return Bounds(lower, upper)


class _Prior(NamedTuple):
    """What the prior says of the finite orbits of all data."""

    seen: Float[Tensor, "rows samples dim"]
    whitened: Float[Tensor, "rows inducing"]  # a = L^-1 k_u, so that Q = a a^T
    variances: Float[Tensor, " rows"]  # the diagonal of K_f
    means: Columns


def _prior(model: InvariantGP, x: Inputs, num_samples: int | None, seed: int) -> _Prior:
    vectors, exact = model.covariance.of_features, Pairing.exact()
    inducing = model.covariance.features(model.inducing_sets()).double()
    sets = inducing if inducing.shape[1] > 1 else inducing[:, 0]
    factor = cholesky(vectors.gram(sets, torch.float64, model.jitter)).lower
    parts = []
    for rows in x.split(model.rows_at_once(x, num_samples)):
        points = model.orbit.shared_samples(rows, num_samples, seed).points.flatten(3)
        seen = model.covariance.features(points).double()
        ku, variances = vectors.expectations(seen, inducing.flatten(0, 1), exact)
        ku = ku[:, 0].unflatten(1, inducing.shape[:2]).mean(-1)
        parts.append(_Prior(seen[:, 0], solve(factor, ku), variances, model.prior_mean(points)[:, 0]))
    return _Prior(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))


class _Observed(NamedTuple):
    """lam (one column if all functions share it), h = D^-1 (eta - lam m), and the terms of the log evidence without B."""

    precision: Float[Tensor, "rows anylatents"]
    right: Columns
    constant: Float[Tensor, ""]


def _observed(likelihood: Likelihood, y: Targets, means: Columns) -> _Observed:
    name = type(likelihood).__name__
    if likelihood.num_locals or likelihood.couples:
        raise ValueError(f"an upper bound needs a likelihood that is Gaussian in f, and {name} is not: use the lower bound.")
    const, eta, lam = (term.double() for term in likelihood.quadratic(y, None))
    if not bool((lam > 0).all()):
        raise ValueError(f"an upper bound needs lam > 0 for every datum, and {name} gave lam <= 0: use the lower bound.")
    right = (eta - lam * means) / lam.sqrt()
    constant = const.sum() + ((eta - 0.5 * lam * means) * means).sum() + 0.5 * right.square().sum()
    shared = bool((lam == lam[:, :1]).all())
    return _Observed(lam[:, :1] if shared else lam, right, constant)


class _SparseSystem:
    """P = I + D a a^T D for each column of lam, through the Cholesky factor of I + a^T D^2 a (Woodbury)."""

    def __init__(self, a: Float[Tensor, "rows inducing"], precision: Float[Tensor, "rows anylatents"]) -> None:
        self.a, self.root = a, precision.sqrt()
        eye = torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
        self.factors = [cholesky(eye + (a * lam[:, None]).mT @ a).lower for lam in precision.unbind(1)]
        self.logdets = torch.stack([2 * factor.diagonal().log().sum() for factor in self.factors])

    def solve(self, right: Columns) -> Columns:
        """P^-1 of each column."""
        inner = self.a.mT @ (self.root * right)
        if len(self.factors) == 1:
            solved = torch.cholesky_solve(inner, self.factors[0])
        else:
            pairs = zip(inner.split(1, dim=1), self.factors, strict=True)
            solved = torch.cat([torch.cholesky_solve(column, factor) for column, factor in pairs], 1)
        return right - self.root * (self.a @ solved)


class _Gram:
    """K_f by rows, kept or made again for each pass over it."""

    def __init__(
        self,
        vectors: Covariance,
        seen: Float[Tensor, "rows samples dim"],
        variances: Float[Tensor, " rows"],
        keep: bool,
    ) -> None:
        self.vectors, self.seen, self.variances = vectors, seen, variances
        self.kept = orbit_gram.gram(vectors, seen) if keep else None

    def blocks(self) -> Iterator[tuple[slice, Float[Tensor, "block rows"]]]:
        """Some rows at a time."""
        size, samples = self.seen.shape[:2]
        pairs = size if self.kept is not None else size * samples * samples
        step = max(1, chunk_elements(self.seen.device) // pairs)
        for start in range(0, size, step):
            rows = slice(start, min(start + step, size))
            yield rows, self._made(rows) if self.kept is None else self.kept[rows]

    def _made(self, rows: slice) -> Float[Tensor, "block rows"]:
        values = orbit_gram.cross(self.vectors, self.seen[rows], self.seen)
        # A datum with itself is exact: no distance is rounded.
        return torch.diagonal_scatter(values, self.variances[rows], offset=rows.start)

    def product(self, right: Columns) -> Columns:
        """K_f times each column."""
        return torch.cat([values @ right for _, values in self.blocks()])


def _conjugate_gradients(
    product: Callable[[Columns], Columns], preconditioner: _SparseSystem, right: Columns, max_iterations: int, tolerance: float
) -> Columns:
    """Solve B v = h for each column, to within so many nats in all."""
    solution, residual = torch.zeros_like(right), right
    direction = preconditioned = preconditioner.solve(right)
    remaining = (residual * preconditioned).sum(0)  # of h.B^-1 h, at most
    for _ in range(max_iterations):
        if 0.5 * float(remaining.sum()) <= tolerance:
            break
        towards = product(direction)
        curvature = (direction * towards).sum(0)
        step = remaining / torch.where(curvature > 0, curvature, 1.0)
        solution, residual = solution + step * direction, residual - step * towards
        preconditioned, before = preconditioner.solve(residual), remaining
        remaining = (residual * preconditioned).sum(0)
        direction = preconditioned + remaining / torch.where(before > 0, before, 1.0) * direction
    return solution


def _residual_moments(
    gram: _Gram,
    a: Float[Tensor, "rows inducing"],
    precision: Float[Tensor, "rows anylatents"],
    sparse: _SparseSystem,
    traces: Float[Tensor, " anylatents"],
) -> tuple[Float[Tensor, " anylatents"], Float[Tensor, " anylatents"]]:
    """mu_1 and mu_2 for each column of lam.

    With E = D (K_f - Q) D, A = D a and G = (I + A^T A)^-1, P^-1 = I - A G A^T, so one pass over K_f is enough for

        mu_1 = tr E - tr G (A^T E A)
        mu_2 = |E|^2 - 2 tr G (A^T E E A) + tr G (A^T E A) G (A^T E A).
    """
    columns, inducing = precision.shape[1], a.shape[1]
    once, twice = (a.new_zeros(columns, inducing, inducing) for _ in range(2))
    squares = a.new_zeros(columns)
    for rows, values in gram.blocks():
        residual = values - a[rows] @ a.mT
        for column, lam in enumerate(precision.unbind(1)):
            y = (residual * lam) @ a
            weighted = y * lam[rows, None]
            once[column] += a[rows].mT @ weighted
            twice[column] += y.mT @ weighted
        squares += (precision[rows] * (residual.square_() @ precision)).sum(0)
    solved = [[torch.cholesky_solve(m, f) for m in pair] for *pair, f in zip(once, twice, sparse.factors, strict=True)]
    first = torch.stack([trace - g1.trace() for trace, (g1, _) in zip(traces, solved, strict=True)])
    second = torch.stack([s - 2 * g2.trace() + (g1 * g1.mT).sum() for s, (g1, g2) in zip(squares, solved, strict=True)])
    return first, second


def _least_log_det(first: Float[Tensor, " anylatents"], second: Float[Tensor, " anylatents"]) -> Float[Tensor, " anylatents"]:
    """mu_1 log(1 + t) / t with t = mu_2 / mu_1: at most sum_i log(1 + x_i), where x_i >= 0 have these sums of powers."""
    ratio = second / torch.where(first > 0, first, 1.0)
    # Where rounding is all that is left of either, it gains nothing.
    return torch.where((first > 0) & (ratio > 0), first * torch.log1p(ratio) / ratio, 0.0)


def _most_log_det(
    first: Float[Tensor, " anylatents"], second: Float[Tensor, " anylatents"], count: int
) -> Float[Tensor, " anylatents"]:
    """At least sum_i log(1 + x_i), where ``count`` numbers x_i >= 0 have these sums of powers, and none exceeds mu_2^1/2.

    The quadrature has nodes s and b = mu_2^1/2 and the moments N, mu_1 and mu_2. Nor is the sum above mu_1.
    """
    first = first.clamp_min(0.0)
    end = second.clamp_min(0.0).sqrt()
    below = count * end - first  # sum_i (b - x_i)
    weight = below.square() / (count * end.square() - 2 * end * first + second)
    node = (end * first - second) / below
    value = weight * torch.log1p(node) + (count - weight) * torch.log1p(end)
    return torch.where((below > 0) & (node >= 0) & (weight <= count), torch.minimum(value, first), first)
