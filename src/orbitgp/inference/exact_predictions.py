"""Predictions of the exact model: the mean from weights of the data, the variance from their covariance's factor.

With cross-covariances k between a new row and the data,

    E f = m + k^T alpha        var f = k_f(x, x) - k^T C^-1 k

The mean needs no factor, so a model that comes from a file makes one only where a variance is asked for. The label of a
row may be sure without its variance (``Classification.is_sure``). Given a few of the data, the variance of f is no
smaller than given all of them. This bound costs little, and most labels are sure with it. Of many rows, rough means
(:class:`RoughCovariance`) serve first, and their errors in some rows say which labels could change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbitgp.inference import orbit_gram, streamed
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.inference.prior import Means
from orbitgp.inference.streamed import Streamed, held_elements
from orbitgp.kernels.covariance import Covariance, Cross, Seen, Stationary
from orbitgp.machine import chunk_elements, in_smaller_chunks
from orbitgp.orbits.sampling import Inputs, Pairing

Latents = Float[Tensor, "others latents"]
Data = Float[Tensor, "data size dim"]  # what g sees of them
NeedsVariance = Callable[..., Bool[Tensor, " others"]]
Model = TypeVar("Model", bound="ExactPredictions")


class RoughCovariance:
    """Covariances of new rows with data of many dimensions, from a fifth of these: rough, and soon there.

    A kernel of distances compares samples x of new rows with samples z of the data. With V the directions in which
    1,024 samples of the data vary most, and r what is left of a sample without these, |x - z|^2 = |Vx - Vz|^2 + |r_x|^2
    + |r_z|^2 - 2 r_x . r_z. All but the last term is the distance between (Vx, |r_x|, 0) and (Vz, 0, |r_z|).
    """

    def __init__(self, covariance: Covariance, seen: Seen | Streamed) -> None:
        self.covariance = covariance
        some = seen[:: -(-len(seen) // 64)].flatten(0, 1)
        some = some[:: -(-len(some) // 1024)].float()
        self.centre = some.mean(0)
        vectors = torch.linalg.eigh((some - self.centre) @ (some - self.centre).mT)[1]
        self.directions = torch.linalg.qr((some - self.centre).mT @ vectors[:, -(min(some.shape) // 5) :])[0]
        self.data = torch.cat([self._seen(seen[i : i + 128], -1) for i in range(0, len(seen), 128)])

    def _seen(self, seen: Seen, place: int) -> Tensor:
        """V x of each sample, and two more numbers: |r_x| at this place, and 0 at the other."""
        x = seen.float() - self.centre
        found = nn.functional.pad(x @ self.directions, (0, 2))
        found[..., place] = (x.square().sum(-1) - found.square().sum(-1)).clamp_min(0.0).sqrt()
        return found

    def cross(self, others: Seen) -> Cross:
        """Of new rows, by what g sees of them."""
        return orbit_gram.cross(self.covariance, self._seen(others, -2), self.data)


def pays(covariance: Covariance, seen: Seen | Streamed, others: int) -> bool:
    """Whether this saves time for so many rows, some of which are computed exactly: where all pairs take seconds."""
    size, dim = seen[:1].shape[1:]
    costs = seen.device.type == "cpu" and min(others, dim) > 255 and others * len(seen) * size**2 * dim > 2**38
    return costs and type(covariance) is Stationary and len(covariance.hyperparameters(dim)[0]) == 1


class ExactPredictions(nn.Module):
    """What an exact model says of new rows; the model itself is :class:`orbitgp.inference.exact.ExactGP`."""

    x: Tensor
    weights: Tensor
    noise: Tensor
    num_latents: int
    covariance: Covariance
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

        ``needs_variance(mean, most, error)`` says of some rows which need their variance, if not all do. It is given an
        upper bound of the variance, and one of the error of a mean that is rough. Other rows keep what it was given.
        """
        seen = self._conditioned_on()
        exactly = partial(self._of_rows, needs=needs_variance, seen=seen)
        if needs_variance is None or self.vectors is not self.covariance or not pays(self.vectors, seen, len(x)):
            return exactly(x)
        rough = RoughCovariance(self.vectors, seen)
        roughly = partial(self._of_rows, needs=lambda f, _: f.new_zeros(len(f)).bool(), seen=seen, rough=rough)
        mean, most = roughly(some := x[:: -(-len(x) // 16)])
        error = 6 * float((exactly(some)[0] - mean).square().mean().sqrt())  # 4 would do for 10,000 digits
        if needs_variance(mean, most, error).double().mean() > 0.5:
            return exactly(x)
        mean, variance = roughly(x)
        if (rows := needs_variance(mean, variance, error)).any():
            mean[rows], variance[rows] = exactly(x[rows])
        return mean, variance

    def _of_rows(
        self, x: Inputs, needs: NeedsVariance | None, seen: Data | Streamed, rough: RoughCovariance | None = None
    ) -> tuple[Latents, Latents]:
        """Mean and variance, or an upper bound of it where it is not needed."""
        means, variances = [], []
        few = torch.arange(0, len(seen), max(1, len(seen) // 64), device=seen.device)  # 64 make most rows sure
        of_few = None if needs is None else NoisyCovariance(streamed.gram(self.vectors, seen[few]), self.noise[few])
        for other, prior, cross in self._with_data(x, seen, rough):
            own = self.vectors.own(other[:, None], Pairing.exact()).double()
            means.append(prior + cross @ self.weights)
            if needs is None or of_few is None:
                variances.append(self._left(own, cross, self._posterior()))
                continue
            variances.append(self._left(own, cross[:, few], of_few))
            if (rows := needs(means[-1], variances[-1])).any():
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

    def _with_data(
        self, x: Inputs, seen: Data | Streamed, rough: RoughCovariance | None = None
    ) -> Iterator[tuple[Seen, Means, Cross]]:
        """What g sees of new rows, their prior means, and covariances of f there and at the data; a few at a time."""
        # Data that are mapped anew for each part of the new rows ask for large parts.
        at_once = held_elements(x.device) // seen.numbers if isinstance(seen, Streamed) else self.rows_at_once(x)
        for part in x.split(max(1, min(at_once, chunk_elements(x.device) // len(self.x)))):
            other, prior = self.seen_and_means(part)
            other = other.to(seen.dtype)
            yield other, prior, (rough.cross(other) if rough else streamed.cross(self.vectors, other, seen)).double()

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
