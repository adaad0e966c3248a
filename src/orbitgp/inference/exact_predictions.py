"""Predictions of the exact model: the mean from weights of the data, the variance from their covariance's factor.

With cross-covariances k between a new row and the data,

    E f = m + k^T alpha        var f = k_f(x, x) - k^T C^-1 k

The mean needs no factor, so a model that comes from a file makes one only where a variance is asked for. The label of a
row may be sure without its variance (``Classification.is_sure``). Given a few of the data, the variance of f is no
smaller than given all of them. This bound costs little, and most labels are sure with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbitgp.inference import streamed
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.inference.prior import Means
from orbitgp.inference.streamed import Streamed, held_elements
from orbitgp.kernels.covariance import Covariance, Cross, OthersSeen, Seen
from orbitgp.machine import chunk_elements, in_smaller_chunks
from orbitgp.orbits.sampling import Inputs, Pairing

Latents = Float[Tensor, "others latents"]
NeedsVariance = Callable[[Latents, Latents], Bool[Tensor, " others"]]


Model = TypeVar("Model", bound="ExactPredictions")


class ExactPredictions(nn.Module):
    """What an exact model says of new rows; the model itself is :class:`orbitgp.inference.exact.ExactGP`."""

    x: Tensor
    weights: Tensor
    noise: Tensor
    num_latents: int
    _inverted: dict[torch.device, NoisyCovariance]

    if TYPE_CHECKING:

        @property
        def vectors(self) -> Covariance: ...
        def seen_and_means(self, x: Inputs) -> tuple[Seen, Means]: ...
        def features(self, x: Inputs) -> Seen | Streamed: ...
        def precise(self, noise: Float[Tensor, "*rows"], *exact: Seen | Streamed) -> Sequence[Seen | Streamed]: ...
        def rows_at_once(self, x: Inputs) -> int: ...

    @in_smaller_chunks
    @torch.no_grad()
    def predict(self, x: Inputs, *_: Any, needs_variance: NeedsVariance | None = None) -> tuple[Latents, Latents]:
        """Mean and variance of f, each row on its own, streamed.

        ``needs_variance(mean, most)`` says of some rows which need their variance, if not all do. It is given an upper
        bound of the variance, and rows that it does not ask for keep this bound.
        """
        seen, means, variances = self._conditioned_on(), [], []
        few = torch.arange(0, len(seen), max(1, len(seen) // 64), device=seen.device)  # 64 make most rows sure
        gram = None if needs_variance is None else streamed.gram(self.vectors, seen[few])
        of_few = None if gram is None else NoisyCovariance(gram, self.noise[few])
        for other, prior, cross in self._with_data(x, seen):
            own = self.vectors.own(other[:, None], Pairing.exact()).double()
            means.append(prior + cross @ self.weights)
            if needs_variance is None or of_few is None:
                variances.append(self._left(own, cross, self._posterior()))
                continue
            variances.append(self._left(own, cross[:, few], of_few))
            rows = needs_variance(means[-1], variances[-1])
            if rows.any():
                variances[-1][rows] = self._left(own[rows], cross[rows], self._posterior())
        return torch.cat(means), torch.cat(variances)

    def _left(self, own: Float[Tensor, " others"], k: Float[Tensor, "others data"], system: NoisyCovariance) -> Latents:
        """The variance that is left of each latent function, given data."""
        left = (own[:, None] - system.explained(k.mT)).clamp_min(0.0)
        return left.repeat(1, self.num_latents // left.shape[1])

    @in_smaller_chunks
    @torch.no_grad()
    def predict_mean(self, x: Inputs, *_: Any, **__: Any) -> Latents:
        """The mean of f alone, each row on its own, streamed: it needs no factor, and no variance of the prior."""
        return torch.cat([prior + k @ self.weights for _, prior, k in self._with_data(x, self._conditioned_on())])

    def _with_data(self, x: Inputs, seen: OthersSeen | Streamed) -> Iterator[tuple[Seen, Means, Cross]]:
        """What g sees of new rows, their prior means, and covariances of f there and at the data; a few at a time."""
        # Data that are mapped anew for each part of the new rows ask for large parts.
        at_once = held_elements(x.device) // seen.numbers if isinstance(seen, Streamed) else self.rows_at_once(x)
        for part in x.split(max(1, min(at_once, chunk_elements(x.device) // len(self.x)))):
            other, prior = self.seen_and_means(part)
            other = other.to(seen.dtype)
            yield other, prior, streamed.cross(self.vectors, other, seen).double()

    @torch.no_grad()
    def joint(self, x: Inputs, *_: Any, **__: Any) -> tuple[Latents, Float[Tensor, "anylatents others others"]]:
        """Mean and joint covariance of f at x; one covariance if all latent functions share it."""
        vectors, seen, system = self.vectors, self._conditioned_on(), self._posterior()
        other, prior = self.seen_and_means(x)
        other = other.to(seen.dtype)
        cross = streamed.cross(vectors, other, seen).double()
        prior_covariance = streamed.gram(vectors, other).double()
        solved = system.solve(cross.mT[:, None].repeat(1, system.noise.shape[1], 1))
        return prior + cross @ self.weights, prior_covariance - cross @ solved.transpose(0, 1)

    def _conditioned_on(self) -> Seen | Streamed:
        """What g sees of the data, in the precision in which they were conditioned on."""
        return self.precise(self.noise, self.features(self.x))[0]

    def _posterior(self) -> NoisyCovariance:
        """The inverses; made again where they are not at hand, as after loading from a file, or on another device."""
        if self.x.device not in self._inverted:
            gram = streamed.gram(self.vectors, self._conditioned_on())
            self._inverted[self.x.device] = NoisyCovariance(gram, self.noise)
        return self._inverted[self.x.device]

    def copied_to(self: Model, device: torch.device) -> Model:
        """A copy on this device. What either inverts serves both: for many data that takes long, and much memory."""
        other = deepcopy(self).to(device)
        other._inverted = self._inverted
        return other

    def forget_posterior(self) -> None:
        """Give back the memory of what was inverted; the next prediction inverts it again."""
        self._inverted.clear()
