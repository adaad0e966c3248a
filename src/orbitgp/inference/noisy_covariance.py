"""C_l = K + diag(noise_l) for every latent function l, inverted together.

Likelihoods of one noise need one factorisation for all functions. So do those whose noises differ in few entries: the Dirichlet
likelihood observes class l with another noise only where l is the label. With r_n = max_l noise_nl and the rows R of l where
d = r - noise_l > 0,

    C_l = C - E D E^T,   C = K + diag r,   E = columns R of the identity,   D = diag d

    C_l^-1   = A + A_R (D^-1 - A_RR)^-1 A_R^T          A = C^-1,  A_R = A E   (Woodbury)
    log|C_l| = log|C| + log|I - D^1/2 A_RR D^1/2|      (the determinant lemma)

so that ten classes cost one factorisation of N x N and ten of N/10 x N/10. The inner matrices are well conditioned: their
eigenvalues lie between min noise/r and 1. Where noises differ everywhere, each function has a factorisation of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.kernels.cholesky import cholesky

Square = Float[Tensor, "rows rows"]

_FEW = 0.5  # of the entries of the noise may differ from the largest of their row, for the update to pay
_LEAST_BLOCK, _BLOCKS = 128, 16  # columns of an inverse at a time: as fast as any, and little memory


class _Update(NamedTuple):
    """The rows of one function whose noise is smaller, and root with root root^T = (D^-1 - A_RR)^-1."""

    rows: Int[Tensor, " few"]
    root: Float[Tensor, "few few"]
    logdet: Float[Tensor, ""]


class NoisyCovariance:
    """The inverses of K + diag(noise_l); ``noise`` has one column for each latent function, or one for all of them.

    With ``invert``, the inverse of each factorised matrix is made, which gradients need (:meth:`invert` makes it later). All
    else needs the factors alone.
    ``jitter`` is the share of the diagonal that had to be added to it, if anything (:mod:`orbitgp.kernels.cholesky`).
    """

    def __init__(self, covariance: Square, noise: Float[Tensor, "rows anylatents"], invert: bool = False) -> None:
        self.noise = noise
        reference = noise.amax(1)
        lower = reference[:, None] - noise
        alike = noise.shape[1] == 1 or float((lower > 0).double().mean()) <= _FEW
        columns = [reference] if alike else list(noise.unbind(1))
        factors = [cholesky(_noisy(covariance, column)) for column in columns]
        self.factors, self.jitter = [factor for factor, _ in factors], max(jitter for _, jitter in factors)
        self.inverses: list[Square] = []
        if invert:
            self.invert()
        self.updates = [self._update(column) if alike else None for column in lower.unbind(1)]
        logdets = [2 * factor.diagonal().log().sum() for factor in self.factors]
        self.logdets = torch.stack(
            [logdets[self._which(latent)] + (0.0 if u is None else u.logdet) for latent, u in enumerate(self.updates)]
        )

    def invert(self) -> None:
        """Make the inverses."""
        self.inverses = [torch.cholesky_inverse(factor) for factor in self.factors]

    def _which(self, latent: int) -> int:
        """The factorisation that serves this latent function."""
        return latent if len(self.factors) > 1 else 0

    def _update(self, lower: Float[Tensor, " rows"]) -> _Update | None:
        rows = (lower > 0).nonzero()[:, 0]
        if not len(rows):
            return None
        root_d = lower[rows].sqrt()
        inner = -root_d[:, None] * self._submatrix(rows) * root_d
        inner.diagonal().add_(1.0)
        factor = cholesky(inner).lower
        # (D^-1 - A_RR)^-1 = D^1/2 (I - D^1/2 A_RR D^1/2)^-1 D^1/2 = root root^T
        root = root_d[:, None] * _inverse_of_triangle(factor).mT
        return _Update(rows, root, 2 * factor.diagonal().log().sum())

    def _submatrix(self, rows: Int[Tensor, " few"]) -> Float[Tensor, "few few"]:
        """A_RR."""
        if self.inverses:
            return self.inverses[0][rows][:, rows]
        half = torch.linalg.solve_triangular(self.factors[0], self._unit_columns(rows), upper=False)
        return half.mT @ half

    def _columns(self, rows: Int[Tensor, " few"]) -> Float[Tensor, "rows few"]:
        """A_R."""
        if self.inverses:
            return self.inverses[0][:, rows]
        return torch.cholesky_solve(self._unit_columns(rows), self.factors[0])

    def _unit_columns(self, rows: Int[Tensor, " few"]) -> Float[Tensor, "rows few"]:
        """E."""
        columns = self.noise.new_zeros(len(self.noise), len(rows))
        columns[rows, torch.arange(len(rows), device=rows.device)] = 1.0
        return columns

    def solve_for(self, latent: int, right: Float[Tensor, "rows others"]) -> Float[Tensor, "rows others"]:
        """C_l^-1 of all columns, for one latent function."""
        factor, update = self.factors[self._which(latent)], self.updates[latent]
        solved = torch.cholesky_solve(right, factor)
        if update is None:
            return solved
        rest = torch.zeros_like(right)
        rest[update.rows] = update.root @ (update.root.mT @ solved[update.rows])
        return solved + torch.cholesky_solve(rest, factor)

    def solve(self, right: Float[Tensor, "rows latents"]) -> Float[Tensor, "rows latents"]:
        """C_l^-1 of each column."""
        if self.noise.shape[1] == 1:
            return self.solve_for(0, right)
        return torch.cat([self.solve_for(latent, column[:, None]) for latent, column in enumerate(right.unbind(1))], 1)

    def explained(self, cross: Float[Tensor, "rows others"]) -> Float[Tensor, "others anylatents"]:
        """k^T C_l^-1 k for each column k: what the data explain of the variance there."""
        if not any(self.updates):  # |L^-1 k|^2, at half the cost
            squares = [torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0) for factor in self.factors]
            return torch.stack([squares[self._which(latent)] for latent in range(len(self.updates))], 1)
        solved = [torch.cholesky_solve(cross, factor) for factor in self.factors]
        columns = []
        for latent, update in enumerate(self.updates):
            mine = solved[self._which(latent)]
            explained = (mine * cross).sum(0)
            if update is not None:
                explained = explained + (update.root.mT @ mine[update.rows]).square().sum(0)
            columns.append(explained)
        return torch.stack(columns, 1)

    def diagonals(self) -> Float[Tensor, "rows anylatents"]:
        """The diagonals of C_l^-1."""
        found = [matrix.diagonal() for matrix in self.inverses] or [_inverse_diagonal(factor) for factor in self.factors]
        columns = []
        for latent, update in enumerate(self.updates):
            diagonal = found[self._which(latent)]
            if update is not None:
                diagonal = diagonal + (self._columns(update.rows) @ update.root).square().sum(1)
            columns.append(diagonal)
        return torch.stack(columns, 1)

    def total(self, latents: int) -> Square:
        """sum_l C_l^-1 over so many latent functions."""
        if len(self.inverses) > 1:
            return torch.stack(self.inverses).sum(0)
        inverse, copies = self.inverses[0], latents // len(self.updates)
        total = latents * inverse
        updates = [inverse[:, u.rows] @ u.root for u in self.updates if u is not None]
        if not updates:
            return total
        joined = torch.cat(updates, 1)
        return torch.addmm(total, joined, joined.mT, alpha=copies)


def _inverse_diagonal(factor: Square) -> Float[Tensor, " rows"]:
    """The diagonal of (L L^T)^-1: sums of squares of the columns of L^-1, which are zero above the diagonal.

    Block for block, L_ii X_i = -sum_k L_ik X_k. That takes N^3 / 3 operations, half of those for the inverse, and no matrix
    of its size: a triangular solver would copy the part of L below.
    """
    size = len(factor)
    step = max(_LEAST_BLOCK, -(-size // _BLOCKS))
    blocks = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    corners = [_inverse_of_triangle(factor[block, block]) for block in blocks]
    found = []
    for number, (block, corner) in enumerate(zip(blocks, corners, strict=True)):
        columns = factor.new_empty(size - block.start, corner.shape[1])
        columns[: len(corner)] = corner
        for below, inverse in zip(blocks[number + 1 :], corners[number + 1 :], strict=True):
            above = below.start - block.start
            columns[above : above + len(inverse)] = -inverse @ (factor[below, block.start : below.start] @ columns[:above])
        found.append(columns.square().sum(0))
    return torch.cat(found)


def _inverse_of_triangle(lower: Square) -> Square:
    return torch.linalg.solve_triangular(lower, torch.eye(len(lower), dtype=lower.dtype, device=lower.device), upper=False)


def _noisy(covariance: Square, noise: Float[Tensor, " rows"]) -> Square:
    """K + diag(noise), in double precision."""
    matrix = covariance.double()
    matrix = matrix.clone() if matrix is covariance else matrix
    matrix.diagonal().add_(noise)
    return matrix
