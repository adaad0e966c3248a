"""The bound of a sparse model with q(u) at its best, as something that learns as an exact model does.

Fixed draws of the orbit, shared by all data, make it finite. A likelihood that is Gaussian in f is an observation t of f with
noise 1 / lam. With a = L^-1 k_u, Q_ff = a a^T and m the prior mean, the bound at its best q(u) is (Titsias 2009)

    const + sum_l [ log N(t_l; m_l, Q_ff + diag(1 / lam_l)) - 1/2 sum_n lam_nl (k_ff - q_ff)_n ].

That is the bound of :mod:`orbitgp.inference.elbo` at the q(u) of :mod:`orbitgp.inference.natural_gradient`, on the same draws.
It has no noise and no q(u), so all else can climb it by quasi-Newton steps. Where the inducing variables are f at all data, it
is the exact evidence. A constant prior mean is at its best in closed form. The kernel between data and inducing points is in
the precision of the inputs where the noise lies far above their rounding. All else is in double precision.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.exact import CLEAR, Locals, Observations, Rows, Targets, backward
from orbitgp.inference.memory import in_smaller_chunks
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics, total
from orbitgp.inference.whitening import KernelMeans
from orbitgp.likelihoods import Likelihood

Columns = Float[Tensor, "rows latents"]

_KEPT = 4  # parts of the data are few enough for their kernel to be kept for the gradient


class CollapsedBound(NamedTuple):
    """The bound, where an exact model has its solution."""

    log_evidence: float
    jitter: float
    local: None = None


class CollapsedGP(nn.Module):
    """A sparse model with all its data, whose q(u) is always the best. It learns as :class:`~orbitgp.inference.exact.ExactGP`.

    ``num_samples`` fixed draws (seeded by ``seed``) stand for an infinite orbit, or for a finite one with more elements; None
    enumerates. q(u) of the sparse model is set by :meth:`set_posterior`, and nothing else here uses it.
    """

    x: Tensor

    def __init__(self, sparse: InvariantGP, x: Rows, num_samples: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.sparse, self.orbit, self.prior_mean = sparse, sparse.orbit, sparse.prior_mean
        self.register_buffer("x", x, persistent=False)
        self.num_samples, self.seed = num_samples, seed

    @property
    def kernel(self) -> Kernel:
        return self.sparse.kernel

    @torch.no_grad()
    def condition(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> CollapsedBound:
        """The bound here, with a constant mean at its best."""
        observed, kuu = Observations.of(likelihood.quadratic(y, None)), self.sparse.inducing_covariance()
        return self._described(self._bound(_joined(self._pieces(self._precision(observed, kuu))), kuu, observed))

    @torch.no_grad()
    def log_evidence(self, likelihood: Likelihood, y: Targets, local: Locals | None = None, seed: int = 0) -> float:
        """The bound with the draws of another seed; the model stays as it is."""
        before, bias = self.seed, self.prior_mean.bias.detach().clone()
        self.seed = seed
        try:
            return self.condition(likelihood, y).log_evidence
        finally:
            self.seed = before
            self.prior_mean.bias.copy_(bias)

    @torch.no_grad()
    def slack(self, likelihood: Likelihood, y: Targets) -> float:
        """What the bound loses to the variance that the inducing variables leave; the model stays as it is."""
        observed, kuu = Observations.of(likelihood.quadratic(y, None)), self.sparse.inducing_covariance()
        means = _joined(self._pieces(self._precision(observed, kuu)))
        return float(_slack(means.whiten_by_kuu(kuu, torch.float64).a[:, 0], means, observed))

    def evidence_with_gradient(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> CollapsedBound:
        """The bound; its gradient is added to the parameters of kernel, feature map, orbit, likelihood, mean and points."""
        observed, kuu = Observations.of(likelihood.quadratic(y, None)), self.sparse.inducing_covariance()
        dtype = self._precision(observed, kuu)
        pieces = self._pieces(dtype)
        means, sizes = _joined(pieces), [len(piece.kff) for piece in pieces]
        ku, prior_mean, kff = leaves = [term.detach().requires_grad_() for term in means[:3]]
        value = self._bound(KernelMeans(ku, prior_mean, kff, means.pairing), kuu, observed)
        value.backward()
        gradients = zip(*(_gradient(leaf).split(sizes) for leaf in leaves), strict=True)
        for part, piece, gradient in zip(self.x.split(sizes), pieces, gradients, strict=True):
            backward((piece if len(pieces) <= _KEPT else self._means(part, dtype))[:3], gradient)
        return self._described(value)

    @in_smaller_chunks
    @torch.no_grad()
    def set_posterior(self, likelihood: Likelihood, y: Targets) -> None:
        """Give the sparse model its best q(u) on these draws."""
        model, starts = self.sparse, 0
        with model.cached_inducing_features(), model.covariance.in_full_precision():
            factor, parts = model.factor(), []
            for part in self._parts():
                rows = slice(starts, starts := starts + len(part))
                means = model.whitened_means(self.orbit.fixed(part, self.num_samples, self.seed), factor)
                parts.append(statistics(model, means, likelihood.quadratic(y[rows], None), num_data=len(part)))
        set_posterior(model, total(parts))

    def _parts(self) -> tuple[Tensor, ...]:
        """The data, few enough at a time to fit into memory."""
        return self.x.split(self.sparse.rows_at_once(self.x, self.num_samples))

    @in_smaller_chunks
    def _pieces(self, dtype: torch.dtype) -> list[KernelMeans]:
        """What the prior knows of the data. What few data take is kept for the gradient; that of many is computed again."""
        parts = self._parts()
        with torch.set_grad_enabled(torch.is_grad_enabled() and len(parts) <= _KEPT):
            return [self._means(part, dtype) for part in parts]

    def _means(self, x: Rows, dtype: torch.dtype) -> KernelMeans:
        with self.sparse.covariance.in_full_precision():
            return self.sparse.kernel_means(self.orbit.fixed(x, self.num_samples, self.seed), dtype)

    @torch.no_grad()
    def _precision(self, observed: Observations, kuu: Float[Tensor, "inducing inducing"]) -> torch.dtype:
        """That of the inputs, or double precision where the noise is not far above the rounding of k_u."""
        rounding = torch.finfo(self.x.dtype).eps * float(kuu.diagonal().max())
        return self.x.dtype if float(observed.noise.min()) > CLEAR * rounding else torch.float64

    def _described(self, value: Float[Tensor, ""]) -> CollapsedBound:
        return CollapsedBound(float(value.detach()), self.sparse.jitter)

    def _bound(self, means: KernelMeans, kuu: Float[Tensor, "inducing inducing"], observed: Observations) -> Float[Tensor, ""]:
        """The bound, given what the prior knows of the data."""
        a = means.whiten_by_kuu(kuu, torch.float64).a[:, 0]
        precision, shared = 1 / observed.noise, bool((observed.noise == observed.noise[:, :1]).all())
        systems = [_Precision(a, lam) for lam in (precision[:, :1] if shared else precision).split(1, dim=1)]
        residual = observed.targets - means.prior_mean[:, 0]
        if self.prior_mean.bias.requires_grad:
            residual = residual - self._correct_bias(systems, residual.detach())
        columns = residual.split(residual.shape[1] // len(systems), dim=1)
        fits = [(column * system.product(column)).sum() for system, column in zip(systems, columns, strict=True)]
        logdets = [column.shape[1] * system.logdet for system, column in zip(systems, columns, strict=True)]
        rest = residual.numel() * math.log(2 * math.pi)
        return observed.constant - 0.5 * (torch.stack([*fits, *logdets]).sum() + rest) - _slack(a, means, observed)

    @torch.no_grad()
    def _correct_bias(self, systems: list[_Precision], residual: Columns) -> Float[Tensor, " latents"]:
        """Bring a constant mean to its best, by generalised least squares, and return by how much it has changed."""
        ones = torch.cat([system.product(torch.ones_like(residual[:, :1])) for system in systems], 1)
        change = (ones * residual).sum(0) / ones.sum(0)
        if change.isfinite().all():  # else the next parameters would start from what these have spoiled
            self.prior_mean.bias.add_(change)
        return change


class _Precision:
    """The inverse of Q_ff + diag(1 / lam), through the factor of I + a^T diag(lam) a, and minus its log determinant."""

    def __init__(self, a: Float[Tensor, "rows inducing"], lam: Float[Tensor, "rows 1"]) -> None:
        self.a, self.lam = a, lam
        inner = torch.eye(a.shape[1], dtype=a.dtype, device=a.device) + (a * lam).mT @ a
        self.factor, failed = torch.linalg.cholesky_ex(inner)
        if failed:
            raise FloatingPointError("the bound is not finite: scale the inputs or change the kernel.")
        self.logdet = 2 * self.factor.diagonal().log().sum() - lam.log().sum()

    def product(self, right: Columns) -> Columns:
        """The inverse times each column."""
        weighted = self.lam * right
        return weighted - self.lam * (self.a @ torch.cholesky_solve(self.a.mT @ weighted, self.factor))


def _slack(a: Float[Tensor, "rows inducing"], means: KernelMeans, observed: Observations) -> Float[Tensor, ""]:
    """1/2 sum_nl lam_nl (k_ff - q_ff)_n."""
    return 0.5 * ((1 / observed.noise).sum(1) * (means.kff - a.square().sum(1))).sum()


def _joined(pieces: list[KernelMeans]) -> KernelMeans:
    """What the prior knows of all data."""
    if len(pieces) == 1:
        return pieces[0]
    ku, prior_mean, kff = (torch.cat(terms) for terms in zip(*(piece[:3] for piece in pieces), strict=True))
    return KernelMeans(ku, prior_mean, kff, pieces[0].pairing)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
