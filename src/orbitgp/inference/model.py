"""The invariant Gaussian process and its variational posterior (sections 4.2 and 4.3).

    g ~ GP(m_g, k_g),   f(x) = E_{x_a ~ p(x_a | x)} g(x_a)             the prior
    u = g(Z) = m_g(Z) + L v,  L L^T = Kuu,  q(v) = N(m, S)              inducing variables on g, whitened

With a(x) = L^-1 k_u(x), the orbit enters only through the block means of a, of m_g and of k_g itself:

    E f   = E_a [m_g + a^T m]
    var f = E_aa' k_g - (E a)^T (E a) + (E a)^T S (E a)

where every product of two expectations is taken over pairs of independent blocks (:mod:`orbitgp.inference.moments`).
The factor L and all solves are in float64; the kernel between samples and inducing points is in the dtype of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.moments import WhitenedMeans, estimate, learned_factor, pair_product, whitened
from orbitgp.inference.orbit_gram import gram
from orbitgp.inference.prior import MeanName, Means, PriorMean
from orbitgp.inference.rows import AllInputs
from orbitgp.kernels.cholesky import cholesky
from orbitgp.kernels.covariance import covariance
from orbitgp.kernels.feature_maps import embeds_means
from orbitgp.likelihoods.base import Moments
from orbitgp.machine import chunk_elements, in_smaller_chunks
from orbitgp.orbits import FiniteOrbit, Orbit, Pairing, Samples
from orbitgp.orbits.sampling import Inputs, base_draws

Square = Float[Tensor, "inducing inducing"]
Features = Float[Tensor, "inducing samples features"]


class InvariantGP(nn.Module):
    """A Gaussian process that is insensitive to an orbit, with inducing points and q(u).

    ``shared_covariance``: all latent functions share one S, which is exact where every datum weighs the same in each of
    them (Gaussian likelihood with one noise), and saves a factor of ``num_latents``.

    ``inducing_samples``: with 1, inducing variables are values of g, as in the paper. With P > 1 each is the mean of g
    over P samples of the orbit of its point, with fixed draws. Any linear functional of g makes a valid bound. This one
    is close to a value of f, so fewer are needed. The kernel takes P times as long; costs in M^2 and M^3 stay.

    ``fixed_draws``: number and seed of the draws of every prediction, where q(u) was fitted to a posterior with these.
    """

    inducing_draws: Tensor | None

    def __init__(
        self,
        kernel: Kernel,
        orbit: Orbit,
        inducing: Float[Tensor, "inducing *features"],
        num_latents: int = 1,
        mean: MeanName = "constant",
        shared_covariance: bool = True,
        jitter: float = 1e-6,
        inducing_samples: int = 1,
        fixed_draws: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(orbit, FiniteOrbit) and orbit.weights() is not None:
            raise ValueError('weights need exact inference: give inference="exact", fewer rows, or no Weighted.')
        if embeds_means(kernel):
            raise ValueError('MeanEmbedding needs exact inference: set inference="exact", fewer rows or the map alone.')
        size, self.fixed_draws = len(inducing), fixed_draws
        self.orbit = orbit
        draws, rng = (size, 1, inducing_samples, orbit.draws_for(inducing.shape[1:])), torch.Generator().manual_seed(0)
        fixed = base_draws("qmc", *draws, generator=rng, dtype=inducing.dtype)[:, 0] if inducing_samples > 1 else None
        self.register_buffer("inducing_draws", fixed)
        self.covariance = covariance(kernel.double())
        self.prior_mean = PriorMean(mean, inducing.flatten(1), num_latents)
        self.inducing = nn.Parameter(inducing.detach().clone())
        self.q_mean = nn.Parameter(torch.zeros(size, num_latents, dtype=torch.float64))
        sqrt = torch.eye(size, dtype=torch.float64).repeat(1 if shared_covariance else num_latents, 1, 1)
        self.q_sqrt = nn.Parameter(sqrt)
        self.num_latents = num_latents
        self.jitter = jitter
        self._kept_features: Tensor | None = None

    @property
    def kernel(self) -> Kernel:
        return self.covariance.kernel

    @property
    def dtype(self) -> torch.dtype:
        """The precision of inputs."""
        return self.inducing.dtype

    def factor(self) -> Square:
        """L with L L^T = Kuu + jitter I, in float64."""
        return cholesky(self.inducing_covariance()).lower

    def inducing_covariance(self, features: Features | None = None) -> Square:
        """Kuu + jitter I, in float64; give the features of the inducing sets where they are known."""
        features = self._inducing_features() if features is None else features
        kuu = gram(self.covariance.of_features, features.double())
        return kuu + self.jitter * torch.eye(len(kuu), dtype=kuu.dtype, device=kuu.device)

    def whitened_means(self, samples: Samples, factor: Square | None = None) -> WhitenedMeans:
        """What the prior knows of these samples. Give ``factor`` where L is known and needs no gradient."""
        features = self._inducing_features()
        ku, prior_mean, kff = self.kernel_means(samples, features=features)
        factor = learned_factor(self.inducing_covariance(features)) if factor is None else factor
        return WhitenedMeans(whitened(ku, factor), prior_mean, kff, samples.pairing)

    def kernel_means(
        self, samples: Samples, dtype: torch.dtype | None = None, features: Features | None = None
    ) -> tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, "rows blocks latents"], Float[Tensor, " rows"]]:
        """Block means of k_u and of m_g, and kff; the kernel in the precision of the samples, or in this one."""
        features = self._inducing_features() if features is None else features
        xa, covariance = samples.points.flatten(3), self.covariance
        seen, z = covariance.features(xa), features.flatten(0, 1)
        seen, z = seen.to(dtype or seen.dtype), z.to(dtype or z.dtype)
        kfu, kff = covariance.of_features.expectations(seen, z, samples.pairing)
        if features.shape[1] > 1:
            kfu = kfu.unflatten(-1, features.shape[:2]).mean(-1)
        return kfu.double(), self.prior_mean(xa), kff.double()

    def _inducing_features(self) -> Features:
        """The features of the inducing sets, which Kuu and k_fu share."""
        return self.covariance.features(self.inducing_sets()) if self._kept_features is None else self._kept_features

    @contextmanager
    def cached_inducing_features(self) -> Iterator[None]:
        """Compute features of the inducing sets once, not per batch: for passes over the data that learn nothing."""
        before = self._kept_features
        with torch.no_grad():
            self._kept_features = self._inducing_features()
        try:
            yield
        finally:
            self._kept_features = before

    def inducing_sets(self) -> Float[Tensor, "inducing samples dim"]:
        """The points at which each inducing variable averages g."""
        if self.inducing_draws is None:
            return self.inducing.flatten(1)[:, None]
        if isinstance(self.orbit, FiniteOrbit):  # as many of its elements, the same for every point
            return self.orbit.shared_samples(self.inducing, self.inducing_draws.shape[1]).points[:, 0].flatten(2)
        return self.orbit.transform(self.inducing, self.inducing_draws).flatten(2)

    @property
    def inducing_samples(self) -> int:
        """Over how many samples each inducing variable averages g."""
        return 1 if self.inducing_draws is None else self.samples_per_row(self.inducing_draws.shape[1])

    def moments(self, means: WhitenedMeans) -> Moments:
        """Unbiased estimates of the moments of q(f) for each datum (exact where the samples are the whole orbit)."""
        a, prior_mean, kff, pairing = means
        mean = prior_mean + a @ self.q_mean
        return estimate(mean, kff[:, None] + self._reduced(a, pairing), pairing)

    def _reduced(self, a: Float[Tensor, "rows blocks inducing"], pairing: Pairing) -> Float[Tensor, "rows anylatents"]:
        """(E a)^T (S - I) (E a): what the inducing points change of the prior variance, never clamped."""
        explained = pair_product(a, a, pairing).sum(-1)
        # t = R^T a with S = R R^T, for each latent function: plain products of two matrices. |t|^2 is added to kff and
        # needs no more digits than kff has, so the dtype of the data is enough.
        flat = a.flatten(0, 1).to(self.inducing.dtype)
        ts = [(flat @ root).view_as(a) for root in self.q_sqrt.to(flat.dtype).unbind()]
        return torch.stack([pair_product(t, t, pairing).sum(-1) for t in ts], 1) - explained[:, None]

    def kl(self) -> Float[Tensor, ""]:
        """KL(q(v) || N(0, I)), over all latent functions."""
        size, latents = self.q_mean.shape
        diagonal = self.q_sqrt.diagonal(dim1=-2, dim2=-1)
        trace_logdet = self.q_sqrt.square().sum() - diagonal.square().log().sum()
        copies = latents / len(self.q_sqrt)
        return 0.5 * (self.q_mean.square().sum() + copies * trace_logdet - latents * size)

    @in_smaller_chunks
    @torch.no_grad()
    def predict(
        self,
        x: Float[Tensor, "rows *features"],
        num_samples: int | None = 64,
        seed: int = 0,
        needs_variance: Any = None,
    ) -> tuple[Float[Tensor, "rows latents"], Float[Tensor, "rows latents"]]:
        """Mean and variance of f, streamed. All rows share their draws, a finite orbit: no row depends on others.

        Variances cost little here, so all rows have them, whichever need them.
        """
        num_samples, seed = self.draws(num_samples, seed)
        means, variances = [], []
        with self.cached_inducing_features():
            factor = self.factor()
            for part in x.split(self.rows_at_once(x, num_samples)):
                samples = self.orbit.shared_samples(part, num_samples, seed)
                mean, variance = self.marginals(self.whitened_means(samples, factor))
                means.append(mean)
                variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    def marginals(self, known: WhitenedMeans) -> tuple[Means, Means]:
        """Mean and variance of f of each row, where samples are a finite orbit, in one block."""
        a, mean, kff, pairing = known
        variance = kff[:, None] + self._reduced(a, pairing)
        # A posterior variance of a real GP: below zero only by rounding.
        return (mean + a @ self.q_mean)[:, 0], variance.clamp_min(0.0).expand(-1, self.num_latents)

    def predict_mean(self, x: Inputs, num_samples: int | None = 64, seed: int = 0) -> Means:
        """The mean of f, with the same draws. The variance costs little more here."""
        return self.predict(x, num_samples, seed)[0]

    @torch.no_grad()
    def joint(
        self, x: Inputs, num_samples: int | None = 64, seed: int = 0
    ) -> tuple[Means, Float[Tensor, "anylatents rows rows"]]:
        """Mean and joint covariance of f at x; one covariance if all latent functions share it."""
        samples = self.orbit.shared_samples(x, *self.draws(num_samples, seed))
        means = self.whitened_means(samples)
        a = means.a[:, 0]
        seen = self.covariance.features(samples.points.flatten(3)[:, 0].double())
        kff = gram(self.covariance.of_features, seen)
        t = a @ self.q_sqrt
        covariance = kff - a @ a.mT + t @ t.mT
        return means.prior_mean[:, 0] + a @ self.q_mean, 0.5 * (covariance + covariance.mT)

    def draws(self, num_samples: int | None, seed: int) -> tuple[int | None, int]:
        """The number and the seed of the draws of a prediction: those that are asked for, unless they are fixed."""
        return (num_samples, seed) if self.fixed_draws is None else (self.fixed_draws[0], self.fixed_draws[1] or 0)

    def samples_per_row(self, num_samples: int | None) -> int:
        """The samples of each datum: as many as asked for, but never more than a finite orbit has elements."""
        size = getattr(self.orbit, "size", None)
        return min((s for s in (num_samples, size) if s is not None), default=1)

    def rows_at_once(self, x: AllInputs, num_samples: int | None) -> int:
        """How many rows of x, with ``num_samples`` samples of each, to stream at once."""
        samples = self.samples_per_row(num_samples)
        # The largest of: kernel with the inducing points, kernel between the samples of a row, the samples themselves.
        per_row = samples * max(len(self.inducing) * self.inducing_samples, samples, math.prod(x.shape[1:]), 1)
        return max(1, chunk_elements(x.device) // per_row)
