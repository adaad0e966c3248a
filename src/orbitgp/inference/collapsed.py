"""The bound of a sparse model with q(u) at its best, as something that learns as an exact model does.

Fixed draws of the orbit, shared by all data, make it finite. A likelihood that is Gaussian in f is an observation t of
f with noise 1 / lam. With a = L^-1 k_u, Q_ff = a a^T and m the prior mean, the bound at its best q(u) is (Titsias 2009)

    const + sum_l [ log N(t_l; m_l, Q_ff + diag(1 / lam_l)) - 1/2 sum_n lam_nl (k_ff - q_ff)_n ].

That is the bound of :mod:`orbitgp.inference.elbo` at the q(u) of :mod:`orbitgp.inference.natural_gradient`, on the same
draws. It has no noise and no q(u), so all else can climb it by quasi-Newton steps. Where the inducing variables are f
at all data, it is the exact evidence. A constant prior mean is at its best in closed form. Local parameters and q(u)
take turns until both are at their best; that needs a, and no kernel. The kernel between data and inducing points is in
the precision of the inputs where the noise lies far above their rounding. All else is in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.dense_posterior import Observations, Posterior, best_local, initial_local, observed, posterior
from orbitgp.inference.fresh_evidence import FreshEvidence
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import learned_factor, whitened
from orbitgp.inference.natural_gradient import set_posterior, statistics, total
from orbitgp.inference.noisy_covariance import LowRankCovariance
from orbitgp.inference.prior import single_precision_suffices
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Locals, Targets
from orbitgp.machine import in_parts, in_smaller_chunks
from orbitgp.orbits import Orbit
from orbitgp.orbits.sampling import Inputs

Columns = Float[Tensor, "rows latents"]
Bound = Posterior[LowRankCovariance]
Square = Float[Tensor, "inducing inducing"]

_SLACK_SHARE = 1e-3  # differences of the bound below this share of its slack mean nothing


class CollapsedGP(nn.Module):
    """A sparse model with all its data, whose q(u) is always the best. It learns as
    :class:`~orbitgp.inference.exact.ExactGP`.

    ``num_samples`` fixed draws (seeded by ``seed``) stand for an infinite orbit, or for a finite one with more
    elements; None enumerates. q(u) of the sparse model is set by :meth:`set_posterior`, and nothing else here uses it.
    """

    x: Tensor
    corrected = False  # as an exact model may be: here, no pairs of equal draws are to be corrected for
    climbs = False  # an exact model then rounds what it may

    def __init__(self, sparse: InvariantGP, x: Inputs, num_samples: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.sparse, self.orbit, self.prior_mean = sparse, sparse.orbit, sparse.prior_mean
        self.x, self.num_samples, self.seed = x, num_samples, seed

    @property
    def kernel(self) -> Kernel:
        return self.sparse.kernel

    @torch.no_grad()
    def condition(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Bound:
        """The bound here, with a constant mean and local parameters at their best, which are sought from ``local``."""
        solution = self._solved(likelihood, y, local)
        self.prior_mean.set_bias(solution.bias)
        return solution

    @torch.no_grad()
    def log_evidence(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> float:
        """The bound here; nothing is kept."""
        return self._solved(likelihood, y, local).log_evidence

    def fresh_evidence(
        self, likelihood: Likelihood, y: Targets, local: Locals | None = None, sets: Sequence[int] = ()
    ) -> FreshEvidence:
        """The bound again: inducing variables have draws of their own, and no pairs of equal draws raise it."""
        return FreshEvidence(self.log_evidence(likelihood, y, local), 0.0)

    def restricted(
        self, x: Inputs, num_samples: int | None, orbit: Orbit | None = None, seed: int | None = None
    ) -> CollapsedGP:
        """The same model of other data or draws; parameters are shared."""
        assert orbit is None, "a sparse model is built for its orbit"
        return CollapsedGP(self.sparse, x, num_samples, self.seed if seed is None else seed)

    @torch.no_grad()
    def resolution(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> float:
        """Nats below which differences of the bound mean nothing: a small part of its slack."""
        return _SLACK_SHARE * float(self._solved(likelihood, y, local).slack)

    def evidence_with_gradient(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Bound:
        """The bound; its gradient is added to parameters of kernel, feature map, orbit, likelihood, mean and points."""
        solution = self._solved(likelihood, y, local)
        if solution.value.requires_grad:  # some parameter is not fixed
            solution.value.backward()
        return solution

    @in_smaller_chunks
    @torch.no_grad()
    def set_posterior(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> None:
        """Give the sparse model its best q(u) on these draws, for these local parameters, or for the best ones."""
        if likelihood.num_locals and local is None:
            local = self.condition(likelihood, y).local
        model, starts = self.sparse, 0
        with model.cached_inducing_features():
            factor, parts = model.factor(), []
            for part in self._parts():
                rows = slice(starts, starts := starts + len(part))
                means = model.whitened_means(self.orbit.shared_samples(part, self.num_samples, self.seed), factor)
                quadratic = likelihood.quadratic(y[rows], None if local is None else local[rows])
                parts.append(statistics(model, means, quadratic, num_data=len(part)))
        set_posterior(model, total(parts))

    def _parts(self) -> tuple[Tensor, ...]:
        """The data, few enough at a time to fit into memory."""
        return self.x.split(self.sparse.rows_at_once(self.x, self.num_samples))

    @in_smaller_chunks
    def _means(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What the prior knows of the data: block means of k_u and m_g, and kff; again for a gradient of many rows."""

        def of_part(x: Inputs) -> tuple[Tensor, ...]:
            return self.sparse.kernel_means(self.orbit.shared_samples(x, self.num_samples, self.seed), dtype)

        return in_parts(of_part, self._parts(), kept=4)

    def _solved(self, likelihood: Likelihood, y: Targets, local: Locals | None) -> Bound:
        """The best q(u), at the best local parameters, if the likelihood has any: they and q(u) take turns."""
        kuu = self.sparse.inducing_covariance()
        noise = observed(likelihood, y, initial_local(likelihood, y, local)).noise
        enough = single_precision_suffices(noise, kuu.diagonal(), self.x.dtype)
        ku, prior_mean, kff = self._means(self.x.dtype if enough else torch.float64)
        a = whitened(ku, learned_factor(kuu))[:, 0]
        unexplained, prior_mean = kff - a.square().sum(1), self.prior_mean.without_bias(prior_mean[:, 0])
        invert = partial(LowRankCovariance, a, jitter=self.sparse.jitter)

        def at(observations: Observations, local: Locals | None) -> Bound:
            return posterior(invert, prior_mean, observations, local, self.prior_mean.bias.requires_grad, unexplained)

        local = best_local(at, likelihood, y, local)[0] if likelihood.num_locals else None
        return at(observed(likelihood, y, local), local)
