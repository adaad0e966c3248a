"""The invariant Gaussian process without inducing points: f at the data themselves.

Orbits are finite: enumerated, or S fixed draws that all data share, or of one element where K_f has a closed form
(:mod:`orbitgp.kernels.covariance`). K_f gives the log evidence (:mod:`orbitgp.inference.dense_posterior`): exactly for
a Gaussian or Dirichlet likelihood, by expectation propagation for two classes, and for the others as the bound that
their quadratic gives. With C_l = K_f + diag(noise_l), targets t and prior mean m, its gradient in K_f is G = 1/2 sum_l
(alpha_l alpha_l^T - C_l^-1) with alpha_l = C_l^-1 (t_l - m_l), and goes on into kernel, feature map and orbit through
the blocks of K_f (:mod:`orbitgp.inference.orbit_gram`, and :mod:`orbitgp.inference.streamed` for very many features).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import streamed
from orbitgp.inference.dense_posterior import Gram, Solution, observed, solve
from orbitgp.inference.exact_predictions import ExactPredictions
from orbitgp.inference.fresh_evidence import FreshEvidence, fresh_evidence
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.inference.prior import MeanName, Means, PriorMean, single_precision_suffices
from orbitgp.inference.streamed import Streamed, held_elements
from orbitgp.kernels import Covariance, covariance
from orbitgp.kernels.covariance import Seen, Stationary, closed_form
from orbitgp.kernels.feature_maps import embeds_means
from orbitgp.kernels.orbit_average import CorrectedCovariance, averaged, single_sum
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Locals, Targets
from orbitgp.machine import chunk_elements, in_parts
from orbitgp.orbits import FiniteOrbit, Identity, Orbit
from orbitgp.orbits.sampling import Inputs, Pairing

_FEW_DRAWS = 32  # of one set; with fewer, its error is large


class ExactGP(ExactPredictions):
    """A Gaussian process that is insensitive to an orbit, conditioned on all data exactly.

    ``num_samples`` fixed draws (seeded by ``seed``) stand for an infinite orbit, or for a finite one with more
    elements; None enumerates, or takes the closed form of k_f: the orbit then has one element, the input itself. Draws
    are the same for every input, in training and in prediction. ``by_bound``: the likelihood enters by its bound, as in
    a sparse model, even where expectation propagation is possible. :meth:`condition` must be called before predictions,
    and again after any parameter has changed.
    """

    def __init__(
        self,
        kernel: Kernel,
        orbit: Orbit,
        x: Inputs,
        num_latents: int = 1,
        mean: MeanName = "constant",
        num_samples: int | None = None,
        seed: int = 0,
        by_bound: bool = False,
    ) -> None:
        super().__init__()
        self.orbit = orbit
        self.covariance = covariance(kernel.double())
        self.prior_mean = PriorMean(mean, x.flatten(1), num_latents)
        self.num_latents, self.num_samples, self.seed, self.by_bound = num_latents, num_samples, seed, by_bound
        self.register_buffer("x", x)
        self.register_buffer("weights", torch.zeros(len(x), num_latents, dtype=torch.float64))
        self.register_buffer("noise", torch.ones(len(x), 1, dtype=torch.float64))
        self._inverted: dict[torch.device, NoisyCovariance] = {}
        self._single_sum = single_sum(kernel, orbit, x)
        self.corrected = self.climbs = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_inverted": {}}  # made again when it is needed

    @property
    def kernel(self) -> Kernel:
        return self.covariance.kernel

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def is_enumerated(self) -> bool:
        """Whether f needs no draws: the orbit is finite, or k_f has a closed form."""
        return isinstance(self.orbit, FiniteOrbit) or closed_form(self.kernel, self.orbit) is not None

    @property
    def _closed_form(self) -> Covariance | None:
        """k_f of the inputs themselves if nothing is drawn. Made anew: this module has kernel and orbit already."""
        return closed_form(self.kernel, self.orbit) if self.num_samples is None else None

    @property
    def vectors(self) -> Covariance:
        """The covariance whose mean over pairs of what g sees of two finite orbits is k_f; or a single sum of them."""
        vectors = self._closed_form or self.covariance.of_features
        if embeds_means(self.kernel):
            return vectors
        if self.corrected:
            return CorrectedCovariance(vectors)
        if not isinstance(self.orbit, FiniteOrbit) or 0 < (self.num_samples or 0) < self.orbit.size:
            return vectors
        return averaged(vectors, self.orbit, self._single_sum)

    def restricted(
        self, x: Inputs, num_samples: int | None, orbit: Orbit | None = None, seed: int | None = None
    ) -> ExactGP:
        """The same model of other data, draws or orbit. Parameters are shared; it has no posterior of its own."""
        view = copy(self)
        view._modules, view._buffers = dict(self._modules), dict(self._buffers)
        view.x, view.num_samples, view._inverted = x, num_samples, {}
        if orbit is not None:
            view.orbit, view._single_sum = orbit, single_sum(self.kernel, orbit, x)
        view.seed, view.corrected = self.seed if seed is None else seed, False
        return view

    @property
    def gains_by_correction(self) -> bool:
        """Whether half of the draws, corrected, do what all do. In one or two dimensions one net is better than two."""
        return not (self.is_enumerated or embeds_means(self.kernel)) and self.orbit.draws_for(self.x.shape[1:]) > 2

    def with_corrected_draws(self) -> ExactGP:
        """The same, to learn from, with half as many draws in two sets (:class:`CorrectedCovariance`).

        K_f is then not always positive definite. Where noise does not make it so, there is no evidence.
        """
        view = self.restricted(self.x, self.num_samples)
        view.corrected = self.num_samples is not None
        return view

    def samples(self, x: Inputs) -> Seen:
        """The finite orbit of each row."""
        orbit = self.orbit if self._closed_form is None else Identity()
        if self.corrected and self.num_samples is not None:
            return orbit.shared_samples(x, max(1, self.num_samples // 4), self.seed, ~self.seed).points[:, 0].flatten(2)
        return orbit.shared_samples(x, self.num_samples, self.seed).points[:, 0].flatten(2)

    def seen_and_means(self, x: Inputs) -> tuple[Seen, Means]:
        """What g sees of the finite orbit of each row, and their prior mean; again for a gradient of many rows."""

        def of_part(x: Inputs) -> tuple[Tensor, Tensor]:
            samples = self.samples(x)
            weights = self.orbit.weights() if isinstance(self.orbit, FiniteOrbit) else None
            averaged = samples if weights is None else (weights.to(samples) @ samples)[:, None]  # the mean is linear
            seen = self.covariance.features(samples)
            if embeds_means(self.kernel):
                seen = seen.mean(1, keepdim=True) if weights is None else (weights.to(seen) @ seen)[:, None]
            return seen, self.prior_mean(averaged[:, None])[:, 0]

        seen, means = in_parts(of_part, x.split(self.rows_at_once(x)))
        return seen, means

    def rows_at_once(self, x: Inputs) -> int:
        """How many rows are transformed and mapped at once."""
        return max(1, chunk_elements(x.device) // (16 * x[0].numel() * (self.num_samples or 1)))

    def means(self, x: Inputs) -> Means:
        """The prior mean of f at these rows."""
        return torch.cat([self.prior_mean(self.samples(part)[:, None])[:, 0] for part in x.split(self.rows_at_once(x))])

    @torch.no_grad()
    def features(self, x: Inputs) -> Seen | Streamed:
        """What g sees of the finite orbit of each row; of many rows, it is computed when it is asked for."""
        numbers = self.seen_and_means(x[:1])[0].numel()
        if len(x) * numbers <= held_elements(x.device):
            return self.seen_and_means(x)[0]
        return Streamed(lambda part: self.seen_and_means(part)[0], x, numbers, x.dtype)

    @torch.no_grad()
    def gram(self) -> Gram:
        """K_f of the data."""
        return streamed.gram(self.vectors, self.features(self.x))

    def precise(self, noise: Float[Tensor, "*rows"], *exact: Seen | Streamed) -> Sequence[Seen | Streamed]:
        """What g sees, in double precision where the noise is not far above the rounding of K_f in single precision.

        Climbs round double precision, too, as pairs then take half as long, after a centre nearby is taken off. So only
        distances may count.
        """
        first, held = exact[0], [seen for seen in exact if isinstance(seen, Tensor)]
        pairs = held and held[0].shape[1] > 1 and isinstance(self.covariance.of_features, Stationary)
        if first.dtype == torch.float64 and not (self.climbs and pairs):
            return exact
        with torch.no_grad():
            centre, variance = first[:1][0].mean(0), self.vectors.own(first[:4].detach()[:, None], Pairing.exact())
        spare = 1 if first.dtype == torch.float32 else 100  # so that gradients keep four digits
        if not single_precision_suffices(noise, spare * variance, torch.float32):
            return [seen.double() for seen in exact]
        return exact if first.dtype == torch.float32 else [(seen - centre).float() for seen in held]

    @torch.no_grad()
    def condition(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Solution:
        """The posterior given these targets, kept for predictions; local parameters start from ``local``."""
        self.climbs = False  # predictions need every digit
        gram, _, solution = self._solved(likelihood, y, local)
        self.prior_mean.set_bias(solution.bias)
        self.weights, self.noise = solution.weights, solution.system.noise
        self._inverted = {gram.device: solution.system}
        return solution

    @torch.no_grad()
    def log_evidence(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> float:
        """The log evidence of the finite orbit; nothing is kept."""
        return self._solved(likelihood, y, local)[2].log_evidence

    @torch.no_grad()
    def fresh_evidence(
        self, likelihood: Likelihood, y: Targets, local: Locals | None = None, sets: Sequence[int] = (1, 2)
    ) -> FreshEvidence:
        """The log evidence of the infinite orbit, by sets of draws that nothing was fitted to; by their numbers.

        In one or two dimensions, half of many draws are enough for each of more than two sets: pairs take a quarter of
        the time.
        """
        if self.num_samples is None:
            return FreshEvidence(self.log_evidence(likelihood, y, local), 0.0)
        means_only, low = embeds_means(self.kernel), self.orbit.draws_for(self.x.shape[1:]) <= 2
        halved = len(sets) > 2 and low and not means_only and self.num_samples > _FEW_DRAWS
        draws = max(_FEW_DRAWS, self.num_samples // 2) if halved else self.num_samples
        views = [self.restricted(self.x, draws, seed=self.seed + number) for number in sets]
        if means_only:  # of two sets, means differ even where x is the same
            found = torch.tensor([view.log_evidence(likelihood, y, local) for view in views], dtype=torch.float64)
            return FreshEvidence(float(found.mean()), float(found.std(correction=0)))
        seen, means = [v.seen_and_means(self.x)[0] for v in views], self.prior_mean.without_bias(self.means(self.x))
        if not likelihood.num_locals:
            precise = self.precise(observed(likelihood, y).noise, *seen)
            seen = [one for one in precise if isinstance(one, Tensor)]
        given = means, likelihood, y, local, self.prior_mean.bias.requires_grad
        return fresh_evidence(views[0].vectors, seen, lambda gram: solve(gram, *given, by_bound=self.by_bound))

    def _solved(
        self, likelihood: Likelihood, y: Targets, local: Locals | None, invert: bool = False
    ) -> tuple[Gram, Means, Solution]:
        """K_f in the precision that the solution needs, the prior means, and the solution, which has no gradient."""
        exact: Seen | Streamed
        learns = torch.is_grad_enabled()
        exact, means = self.seen_and_means(self.x) if learns else (self.features(self.x), self.means(self.x))
        noise = means.new_tensor(math.inf) if likelihood.num_locals else observed(likelihood, y).noise
        (seen,) = self.precise(noise, exact)
        given = self.prior_mean.without_bias(means).detach(), likelihood, y, local, self.prior_mean.bias.requires_grad
        while True:
            gram = streamed.gram(self.vectors, seen)
            try:
                solution = solve(gram.detach(), *given, invert=invert, by_bound=self.by_bound)
                unsure = likelihood.num_locals and seen.dtype != torch.float64  # the noise was not known before
                (precise,) = self.precise(solution.system.noise, exact) if unsure else (seen,)
            except FloatingPointError:
                precise = exact.double()
                if precise.dtype == seen.dtype:
                    raise
            if precise.dtype == seen.dtype:
                if self.corrected and solution.jitter:
                    raise FloatingPointError("corrected draws do not make a covariance: take more of them.")
                return gram, means, solution
            del gram
            seen = precise

    def evidence_with_gradient(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Solution:
        """The log evidence; its gradient is added to parameters of kernel, feature map, orbit, likelihood and mean."""
        gram, means, solution = self._solved(likelihood, y, local, invert=True)
        system, weights = solution.system, solution.weights
        outputs, slopes = [gram], [system.slope(weights)]
        if any(p.requires_grad for p in likelihood.parameters()):
            # d/dt = -alpha; of the constants of a quadratic autograd takes care. A constant mean is at its best.
            observations = observed(likelihood, y, solution.local, self.by_bound)
            to_noise = 0.5 * (weights.square() - system.diagonals())
            outputs, slopes = (
                [gram, *observations],
                [*slopes, -weights, to_noise, torch.ones_like(observations.constant)],
            )
        if self.prior_mean.weight is not None:
            outputs, slopes = [*outputs, means], [*slopes, weights]
        learned = [(output, slope) for output, slope in zip(outputs, slopes, strict=True) if output.requires_grad]
        if learned:
            torch.autograd.backward([part for part, _ in learned], [slope.to(part.dtype) for part, slope in learned])
        return solution
