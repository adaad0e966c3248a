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

_BATCHED_ROWS = 256  # rows of a function, up to which all functions are updated together: faster, in more memory
_BLOCK = 256  # columns of an inverse at a time


class _Update(NamedTuple):
    """The rows of some functions whose noise is smaller, and root with root root^T = (D^-1 - A_RR)^-1 of each.

    A function with fewer such rows than the others has some with d = 0 besides, for which its root is zero.
    """

    functions: Int[Tensor, " functions"]
    rows: Int[Tensor, "functions few"]
    root: Float[Tensor, "functions few few"]
    logdets: Float[Tensor, " functions"]


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
        alike = noise.shape[1] == 1 or float((lower > 0).double().mean()) <= 0.5  # or updates cost as much as factors
        columns = [reference] if alike else list(noise.unbind(1))
        factors = [cholesky(_noisy(covariance, column)) for column in columns]
        self.factors, self.jitter = [factor for factor, _ in factors], max(jitter for _, jitter in factors)
        self.inverses: list[Square] = []
        if invert:
            self.invert()
        self.updates = self._updates(lower.mT) if alike else []
        self.logdets = torch.stack([2 * factor.diagonal().log().sum() for factor in self.factors]).repeat(
            noise.shape[1] // len(self.factors)
        )
        for update in self.updates:
            self.logdets[update.functions] += update.logdets

    def invert(self) -> None:
        """Make the inverses."""
        self.inverses = [torch.cholesky_inverse(factor) for factor in self.factors]

    def _updates(self, lower: Float[Tensor, "latents rows"]) -> list[_Update]:
        """All functions at once where each has few rows, and about as many, else one after the other."""
        smaller = lower > 0
        counts: list[int] = smaller.sum(1).tolist()
        functions = torch.arange(len(counts), device=lower.device)
        # Those with d > 0 come first, in their order.
        rows = smaller.byte().argsort(dim=1, descending=True, stable=True)
        most = max(counts)
        if most <= _BATCHED_ROWS and len(counts) * most <= 2 * lower.shape[1]:
            return [self._update(functions, rows[:, :most], lower)] if most else []
        return [self._update(functions[[one]], rows[[one], :count], lower[[one]]) for one, count in enumerate(counts) if count]

    def _update(
        self,
        functions: Int[Tensor, " functions"],
        rows: Int[Tensor, "functions few"],
        lower: Float[Tensor, "functions rows"],
    ) -> _Update:
        root_d = lower.gather(1, rows).sqrt()
        inner = -root_d[:, :, None] * self._submatrices(rows) * root_d[:, None]
        inner.diagonal(dim1=1, dim2=2).add_(1.0)
        factor = cholesky(inner).lower
        # (D^-1 - A_RR)^-1 = D^1/2 (I - D^1/2 A_RR D^1/2)^-1 D^1/2 = root root^T
        root = root_d[:, :, None] * _inverse_of_triangle(factor).mT
        return _Update(functions, rows, root, 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1))

    def _submatrices(self, rows: Int[Tensor, "functions few"]) -> Float[Tensor, "functions few few"]:
        """A_RR of each function."""
        if self.inverses:
            return self.inverses[0][rows[:, :, None], rows[:, None]]
        halves = (torch.linalg.solve_triangular(self.factors[0], self._unit_columns(some), upper=False) for some in rows)
        return torch.stack([half.mT @ half for half in halves])

    def _parts(self, update: _Update) -> Float[Tensor, "functions rows few"]:
        """P = A_R root of each function: C_l^-1 = A + P P^T."""
        if self.inverses:
            return self.inverses[0][update.rows].mT @ update.root
        columns = [torch.cholesky_solve(self._unit_columns(some), self.factors[0]) for some in update.rows]
        return torch.stack(columns) @ update.root

    def _unit_columns(self, rows: Int[Tensor, " few"]) -> Float[Tensor, "rows few"]:
        """E."""
        columns = self.noise.new_zeros(len(self.noise), len(rows))
        columns[rows, torch.arange(len(rows), device=rows.device)] = 1.0
        return columns

    def solve(self, right: Float[Tensor, "rows latents sets"]) -> Float[Tensor, "rows latents sets"]:
        """C_l^-1 of the columns of each function l."""
        if len(self.factors) > 1:
            pairs = zip(right.unbind(1), self.factors, strict=True)
            return torch.stack([torch.cholesky_solve(columns, factor) for columns, factor in pairs], 1)
        solved = torch.cholesky_solve(right.flatten(1), self.factors[0]).view_as(right)
        if not self.updates:
            return solved
        rest = torch.zeros_like(right)
        for functions, rows, root, _ in self.updates:
            at = rows, functions[:, None]
            rest[at] = root @ (root.mT @ solved[at])
        return solved + torch.cholesky_solve(rest.flatten(1), self.factors[0]).view_as(right)

    def explained(self, cross: Float[Tensor, "rows others"]) -> Float[Tensor, "others anylatents"]:
        """k^T C_l^-1 k for each column k: what the data explain of the variance there."""
        copies = self.noise.shape[1] // len(self.factors)
        if not self.updates:  # |L^-1 k|^2, at half the cost
            squares = [torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0) for factor in self.factors]
            return torch.stack(squares, 1).repeat(1, copies)
        solved = torch.cholesky_solve(cross, self.factors[0])
        explained = (solved * cross).sum(0)[:, None].repeat(1, copies)
        for functions, rows, root, _ in self.updates:
            explained[:, functions] += (root.mT @ solved[rows]).square().sum(1).mT
        return explained

    def diagonals(self) -> Float[Tensor, "rows anylatents"]:
        """The diagonals of C_l^-1."""
        found = [matrix.diagonal() for matrix in self.inverses] or [_inverse_diagonal(factor) for factor in self.factors]
        diagonals = torch.stack(found, 1).repeat(1, self.noise.shape[1] // len(found))
        for update in self.updates:
            diagonals[:, update.functions] += self._parts(update).square().sum(2).mT
        return diagonals

    def total_and_diagonals(self, latents: int) -> tuple[Square, Float[Tensor, "rows anylatents"]]:
        """sum_l C_l^-1 over all latent functions, and the diagonals, from the inverses."""
        diagonals = torch.stack([matrix.diagonal() for matrix in self.inverses], 1)
        if len(self.inverses) > 1:
            return torch.stack(self.inverses).sum(0), diagonals
        total, diagonals = latents * self.inverses[0], diagonals.repeat(1, self.noise.shape[1])
        for update in self.updates:
            parts = self._parts(update)
            joined = parts.transpose(0, 1).flatten(1)
            total.addmm_(joined, joined.mT)
            diagonals[:, update.functions] += parts.square().sum(2).mT
        return total, diagonals


def _inverse_diagonal(factor: Square) -> Float[Tensor, " rows"]:
    """The diagonal of (L L^T)^-1: sums of squares of the columns of L^-1, which are zero above the diagonal.

    Block for block, L_ii X_i = -sum_k L_ik X_k. That takes N^3 / 3 operations, half of those for the inverse, and no matrix
    of its size: a triangular solver would copy the part of L below.
    """
    size, found = len(factor), []
    blocks = [slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK)]
    corners = [_inverse_of_triangle(factor[block, block]) for block in blocks]
    for number, (block, corner) in enumerate(zip(blocks, corners, strict=True)):
        columns = factor.new_empty(size - block.start, corner.shape[1])
        columns[: len(corner)] = corner
        for below, inverse in zip(blocks[number + 1 :], corners[number + 1 :], strict=True):
            above = below.start - block.start
            columns[above : above + len(inverse)] = -inverse @ (factor[below, block.start : below.start] @ columns[:above])
        found.append(columns.square().sum(0))
    return torch.cat(found)


def _inverse_of_triangle(lower: Float[Tensor, "*batch size size"]) -> Float[Tensor, "*batch size size"]:
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, identity.expand_as(lower), upper=False)


def _noisy(covariance: Square, noise: Float[Tensor, " rows"]) -> Square:
    """K + diag(noise), in double precision."""
    matrix = covariance.to(torch.float64, copy=True)
    matrix.diagonal().add_(noise)
    return matrix
