"""C_l = K + diag(noise_l) for every latent function l, inverted together.

Likelihoods of one noise need one factorisation for all functions. So do those whose noises differ in few entries: the
Dirichlet likelihood observes class l with another noise only where l is the label. With r_n = max_l noise_nl and the
rows R of l where d = r - noise_l > 0,

    C_l = C - E D E^T,   C = K + diag r,   E = columns R of the identity,   D = diag d

    C_l^-1   = A + A_R (D^-1 - A_RR)^-1 A_R^T          A = C^-1,  A_R = A E   (Woodbury)
    log|C_l| = log|C| + log|I - D^1/2 A_RR D^1/2|      (the determinant lemma)

so that ten classes cost one factorisation of N x N and ten of N/10 x N/10. The inner matrices are well conditioned:
their eigenvalues lie between min noise/r and 1. Where all noises differ, each function has its own factorisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.kernels.cholesky import cholesky
from orbitgp.machine import chunk_elements

Square = Float[Tensor, "rows rows"]

_FEW = 32  # rows: updates of so few cost a call of each operation, whatever their number


class _Update(NamedTuple):
    """Functions with about as many rows R of smaller noise, and a root of each, root root^T = (D^-1 - A_RR)^-1.

    Functions with fewer of them have further rows, where D and the root are zero.
    """

    functions: Int[Tensor, " some"]
    rows: Int[Tensor, "some few"]
    root: Float[Tensor, "some few few"]

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Where the rows of each function are in its own column."""
        return self.rows, self.functions[:, None]

    def parts(self, inverse: Square) -> Float[Tensor, "some few rows"]:
        """P^T with P = A_R root: C_l^-1 = A + P P^T."""
        return self.root.mT @ inverse.mT[self.rows]


class NoisyCovariance:
    """The inverses of K + diag(noise_l); ``noise`` has one column for each latent function, or one for all of them.

    With ``invert``, the inverse of each factorised matrix is made, which gradients need (:meth:`invert` makes it
    later). All else needs the factors alone; of few data that share one, its inverse is made for updates. ``jitter`` is
    the share of the diagonal that had to be added to it, if anything (:mod:`orbitgp.kernels.cholesky`).
    """

    def __init__(self, covariance: Square, noise: Float[Tensor, "rows anylatents"], invert: bool = False) -> None:
        self.noise = noise
        reference = noise.amax(1)
        lower = reference[:, None] - noise
        sizes, order = (lower > 0).sum(0).sort(descending=True)
        counts = sizes.tolist()
        alike = 2 * sum(counts) <= lower.numel()  # or updates cost as much as factors
        factors = [cholesky(_noisy(covariance, column)) for column in ([reference] if alike else noise.unbind(1))]
        self.factors, self.jitter = [factor for factor, _ in factors], max(jitter for _, jitter in factors)
        self.copies = noise.shape[1] // len(factors)  # of each factor, for functions that share it
        self.logdets = torch.stack([2 * factor.diagonal().log().sum() for factor in self.factors]).repeat(self.copies)
        self.inverses: list[Square] = []
        together = list(_together(counts, chunk_elements(noise.device) // (16 * len(noise)))) if alike else []
        if invert or (together and 16 * len(noise) ** 2 <= chunk_elements(noise.device)):
            self.invert()
        self.updates = [self._update(order[some], lower.mT, counts[some.start]) for some in together]

    def invert(self) -> None:
        """Make the inverses."""
        self.inverses = [torch.cholesky_inverse(factor) for factor in self.factors]

    def _update(self, functions: Int[Tensor, " some"], lower: Float[Tensor, "latents rows"], few: int) -> _Update:
        rows = lower[functions].topk(few).indices.sort().values
        root_d = lower[functions[:, None], rows].sqrt()
        inner = -root_d[:, :, None] * self._among(rows) * root_d[:, None]
        inner.diagonal(dim1=1, dim2=2).add_(1.0)
        factor = cholesky(inner).lower
        self.logdets.index_add_(0, functions, 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1))
        # (D^-1 - A_RR)^-1 = D^1/2 (I - D^1/2 A_RR D^1/2)^-1 D^1/2 = root root^T
        return _Update(functions, rows, torch.linalg.solve_triangular(factor, torch.diag_embed(root_d), upper=False).mT)

    def _among(self, rows: Int[Tensor, "some few"]) -> Float[Tensor, "some few few"]:
        """A_RR of each function."""
        if self.inverses:
            return self.inverses[0][rows[:, :, None], rows[:, None]]
        return torch.stack([_inverse_among(self.factors[0], some) for some in rows])

    def solve(self, right: Float[Tensor, "rows latents sets"]) -> Float[Tensor, "rows latents sets"]:
        """C_l^-1 of the columns of each function l."""
        if len(self.factors) > 1:
            pairs = zip(right.unbind(1), self.factors, strict=True)
            return torch.stack([torch.cholesky_solve(columns, factor) for columns, factor in pairs], 1)
        solved = torch.cholesky_solve(right.flatten(1), self.factors[0]).view_as(right)
        if not self.updates:
            return solved
        rest = torch.zeros_like(right)
        for update in self.updates:
            rest[update.places] = update.root @ (update.root.mT @ solved[update.places])
        return solved + torch.cholesky_solve(rest.flatten(1), self.factors[0]).view_as(right)

    def explained(self, cross: Float[Tensor, "rows others"]) -> Float[Tensor, "others anylatents"]:
        """k^T C_l^-1 k for each column k: what the data explain of the variance there."""
        halves = [torch.linalg.solve_triangular(factor, cross, upper=False) for factor in self.factors]  # |L^-1 k|^2
        explained = torch.stack([half.square().sum(0) for half in halves], 1).repeat(1, self.copies)
        if self.updates:
            solved = torch.linalg.solve_triangular(self.factors[0].mT, halves[0], upper=True)
            for update in self.updates:
                explained.index_add_(1, update.functions, (update.root.mT @ solved[update.rows]).square().sum(1).mT)
        return explained

    def diagonals(self) -> Float[Tensor, "rows anylatents"]:
        """The diagonals of C_l^-1."""
        inverses = self.inverses or [torch.cholesky_inverse(factor) for factor in self.factors]
        diagonals = torch.stack([inverse.diagonal() for inverse in inverses], 1).repeat(1, self.copies)
        for update in self.updates:
            diagonals.index_add_(1, update.functions, update.parts(inverses[0]).square_().sum(1).mT)
        return diagonals

    def slope(self, weights: Float[Tensor, "rows latents"]) -> Square:
        """dL/dK = 1/2 sum_l (alpha_l alpha_l^T - C_l^-1) with weights alpha_l, from the inverses."""
        inverse, share = sum(self.inverses[1:], self.inverses[0]), weights.shape[1] / len(self.inverses)
        slope = torch.addmm(inverse, weights, weights.mT, beta=-0.5 * share, alpha=0.5)
        for update in self.updates:
            parts = update.parts(self.inverses[0]).flatten(0, 1)
            slope.addmm_(parts.mT, parts, alpha=-0.5)
        return slope


class LowRankCovariance:
    """The same for K = a a^T, through the factors of I + a^T diag(1 / noise_l) a. Autograd goes through all of it."""

    def __init__(self, a: Float[Tensor, "rows rank"], noise: Float[Tensor, "rows anylatents"], jitter: float) -> None:
        self.a, self.noise, self.jitter = a, noise, jitter
        identity = torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
        found = [torch.linalg.cholesky_ex(identity + (a / column).mT @ a) for column in noise.split(1, dim=1)]
        if any(failed for _, failed in found):
            raise FloatingPointError("the bound is not finite: scale the inputs or change the kernel.")
        self.factors = [factor for factor, _ in found]
        self.logdets = torch.stack([2 * factor.diagonal().log().sum() for factor in self.factors]) + noise.log().sum(0)

    def solve(self, right: Float[Tensor, "rows latents sets"]) -> Float[Tensor, "rows latents sets"]:
        """C_l^-1 of the columns of each function l."""
        scaled = right / self.noise[:, :, None]
        columns = scaled.chunk(len(self.factors), dim=1)
        pairs = zip(columns, self.factors, strict=True)
        inner = [torch.cholesky_solve(self.a.mT @ some.flatten(1), factor) for some, factor in pairs]
        return scaled - (self.a @ torch.cat(inner, 1)).view_as(right) / self.noise[:, :, None]

    def diagonals(self) -> Float[Tensor, "rows anylatents"]:
        """The diagonals of C_l^-1."""
        halves = [torch.linalg.solve_triangular(factor, self.a.mT, upper=False) for factor in self.factors]
        return 1 / self.noise - torch.stack([half.square().sum(0) for half in halves], 1) / self.noise.square()


def _inverse_among(factor: Square, rows: Int[Tensor, " few"]) -> Float[Tensor, "few few"]:
    """(L L^T)^-1 = H^T H in ascending rows and the same columns: H = L^-1 E, whose column of row r is zero above r."""
    size, few = len(factor), len(rows)
    halves, among = factor.new_zeros(few, size).scatter_(1, rows[:, None], 1.0).mT, factor.new_empty(few, few)
    step, height = -(-few // 8), -(-size // 16)  # of blocks: small ones skip more zeros
    for start, top in zip(range(0, few, step), rows[::step].tolist(), strict=True):
        columns, some = slice(start, start + step), halves[:, start : start + step]
        for first in range(top, size, height):
            block = slice(first, first + height)
            some[block].addmm_(factor[block, top:first], some[top:first], alpha=-1)
            some[block] = torch.linalg.solve_triangular(factor[block, block], some[block], upper=False)
        products = some[top:].mT @ halves[top:, : columns.stop]
        among[columns, : columns.stop], among[: columns.stop, columns] = products, products.mT
    return among


def _together(counts: list[int], most: int) -> Iterator[slice]:
    """Runs of functions, largest first, with about as many rows: within a factor two, or small; ``most`` in all."""
    start = 0
    for stop in range(1, len(counts) + 1):
        if stop == len(counts) or 2 * counts[stop] + _FEW < counts[start] or (stop + 1 - start) * counts[start] > most:
            if counts[start]:
                yield slice(start, stop)
            start = stop


def _noisy(covariance: Square, noise: Float[Tensor, " rows"]) -> Square:
    """K + diag(noise), in double precision."""
    matrix = covariance.to(torch.float64, copy=True)
    matrix.diagonal().add_(noise)
    return matrix
