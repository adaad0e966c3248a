"""A feature map for signals: which shapes occur, and roughly where; smooth in the signal and in four learned constants.

The oriented gradients of an image, for a signal. The smoothed signal has a slope and a curvature at every sample. Together they
are an arrow. Its direction says whether the signal rises, peaks, falls or bottoms out, and all between; its length says how
strongly. A scale twice as coarse has another arrow there. Which pairs of directions occur together, within windows along the
signal, tells shapes apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log, pi, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.kernels.spectra import derivatives, differences
from orbitgp.kernels.windows import windows, without_tails
from orbitgp.orbits.constants import constant


class ShapeHistograms(LearnedConstants):
    """How often each pair of directions occurs at neighbouring scales, in windows along the signal.

    Each of ``directions`` weights the arrows of a scale by its tuning curve exp(sharpness * (cos(angle) - 1)) and by the square
    root of their length. Products of the weights at neighbouring scales are averaged under Gaussian windows. What counts is the
    logarithm log(1 + mean / rare). Signals are first brought to mean zero and variance one (all channels of a signal by one
    number), so offset and gain do not matter. Every channel has these features.

    Args:
        directions: how many, evenly around the circle.
        scales: how many, each twice as coarse as the one before.
        windows: how many, evenly along the signal.
        width: standard deviation of the finest smoothing, in samples.
        spread: standard deviation of a window, as a part of the distance between windows. As it grows, all windows see the
            whole signal, and where a shape occurs no longer matters.
        sharpness: how narrow the tuning curves are.
        rare: the mean above which a pair counts by its logarithm. Below, it counts in proportion.
        learn: whether width, spread, sharpness and rare are learned, starting at these values.
    """

    def __init__(
        self,
        directions: int = 6,
        scales: int = 4,
        windows: int = 4,
        width: float = 1.0,
        spread: float = 1.0,
        sharpness: float = 6.0,
        rare: float = 0.01,
        learn: bool = True,
    ) -> None:
        super().__init__(learn, width=width, spread=spread, sharpness=sharpness, rare=rare)
        for name, value, least in (("directions", directions, 1), ("scales", scales, 2), ("windows", windows, 1)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        self.directions, self.scales, self.windows = directions, scales, windows

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        if x.ndim not in (2, 3):
            raise ValueError(f"ShapeHistograms takes signals (T,) or (C, T), but the inputs have shape {tuple(x.shape[1:])}.")
        width, spread, sharpness, rare = self.constants(x.dtype)
        length = x.shape[-1]
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(tuple(range(1, x.ndim)), keepdim=True) + torch.finfo(x.dtype).eps ** 2).sqrt()
        slope, curvature = _derivatives(x.reshape(-1, length), [2**scale * width for scale in range(self.scales)])
        weights = windows(length, self.windows, spread * length / self.windows)
        # The logarithm of strength times tuning curve is linear in the direction. A peak has the direction pi / 2.
        squared = slope.square() + curvature.square() / 2 + _FLAT
        inverse = squared.rsqrt()
        terms = torch.stack([slope * inverse, curvature * inverse / -sqrt(2), 0.25 * squared.log() - sharpness], 2)
        cosine, sine = _compass(self.directions, dtype=x.dtype, device=x.device)
        tuning = torch.stack([sharpness * cosine, sharpness * sine, torch.ones_like(sine)], 1)
        histogram: Tensor = _PairMeans.apply(terms, tuning, weights)
        return (histogram.reshape(len(x), -1) / rare).log1p()

    def extra_repr(self) -> str:
        return self._described(directions=self.directions, scales=self.scales, windows=self.windows)


_FLAT = 1e-6  # squared length of an arrow that has no direction
_TILE = 32  # samples whose derivatives are found at once
_AT_ONCE = {False: 2**17, True: 2**25}  # arrows: few on a CPU, with its small cache, and more on a GPU


def _derivatives(x: Float[Tensor, "rows length"], widths: list[Tensor]) -> Float[Tensor, "2 widths rows length"]:
    """Slope and curvature under Gaussians of these widths, with respect to time over the width."""
    length = x.shape[1]
    found = []
    for width in widths:
        # Asked only of a CPU: a GPU would have to be waited for.
        reach = length if x.is_cuda else ceil(width.item() * _far(x.dtype))
        if 3 * (_TILE + 2 * reach) < 2 * length:
            found.append(_near_derivatives(x, width, reach))
        else:
            found.append((x @ derivatives(length, width).mT).unflatten(1, (2, length)).movedim(1, 0))
    return torch.stack(found, 1)


def _near_derivatives(x: Float[Tensor, "rows length"], width: Tensor, reach: int) -> Float[Tensor, "2 rows length"]:
    """The same from samples within ``reach`` only, a stretch of the signal at a time: all stretches have one small matrix."""
    rows, length = x.shape
    r = (differences(_TILE + 2 * reach, dtype=x.dtype, device=x.device)[reach : reach + _TILE] / width)[None]
    bands = without_tails((-0.5 * r.square()).exp()) * torch.cat([torch.ones_like(r), r, r.square()])
    # The ones find out how much of the Gaussian lies within the signal.
    padded = F.pad(torch.cat([x, torch.ones_like(x[:1])]), (reach, reach + -length % _TILE))
    stretches = padded.unfold(1, _TILE + 2 * reach, _TILE)  # (rows + 1, stretches, samples)
    moments = stretches.reshape(-1, stretches.shape[2]) @ bands.flatten(0, 1).mT
    moments = moments.reshape(rows + 1, -1, 3, _TILE).movedim(2, 0).flatten(2)[..., :length]
    inside = moments[:, -1:]
    mean, *others = moments[:, :-1] / inside[0]
    return torch.stack([other - mean * (own / inside[0]) for other, own in zip(others, inside[1:], strict=True)])


class _PairMeans(torch.autograd.Function):
    """Products of arrows at neighbouring scales, averaged under windows: sum_t w_t exp(tuning terms)_st exp(tuning terms)_s't.

    There are many arrows for each sample. They are made for few signals at a time, so that they stay in the cache, and again
    for the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        terms: Float[Tensor, "scales rows 3 length"],
        tuning: Float[Tensor, "directions 3"],
        weights: Float[Tensor, "windows length"],
    ) -> Float[Tensor, "rows pairs windows directions directions"]:
        ctx.save_for_backward(terms, tuning, weights)
        means = []
        for rows in _few_rows(terms, tuning):
            fine, coarse = _sides(_arrows(terms[:, rows], tuning))
            means.append((_weighted(fine, weights) @ coarse.mT).unflatten(0, (len(terms) - 1, -1)))
        return torch.cat(means, 1).movedim(0, 1).unflatten(2, (len(weights), -1)).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        terms, tuning, weights = ctx.saved_tensors
        to_terms, to_tuning, to_weights = torch.empty_like(terms), torch.zeros_like(tuning), torch.zeros_like(weights)
        for rows in _few_rows(terms, tuning):
            arrows = _arrows(terms[:, rows], tuning)
            fine, coarse = _sides(arrows)
            part = grad[rows].movedim(1, 0).flatten(0, 1)  # (pairs of signals, windows, directions, directions)
            to_weighted = (part.flatten(1, 2) @ coarse).unflatten(1, (len(weights), -1)).mul_(fine[:, None])
            # A product with ones sums faster than a sum over rows.
            to_weights += (to_weighted.new_ones(len(part)) @ to_weighted.flatten(1)).reshape(to_weighted.shape[1:]).sum(1)
            to_arrows = torch.zeros_like(arrows)
            to_fine, to_coarse = _sides(to_arrows)
            to_fine += part.movedim(2, 1).flatten(2) @ _weighted(coarse, weights)
            to_coarse += part.flatten(1, 2).mT @ _weighted(fine, weights)
            to_exponents = to_arrows.mul_(arrows)
            to_terms[:, rows] = tuning.mT @ to_exponents
            to_tuning += (to_exponents @ terms[:, rows].mT).sum((0, 1))
        return to_terms, to_tuning, to_weights


def _few_rows(terms: Tensor, tuning: Tensor) -> Iterator[slice]:
    """Few signals at a time."""
    scales, rows, _, length = terms.shape
    step = max(1, _AT_ONCE[terms.is_cuda] // (len(tuning) * scales * length))
    return (slice(start, start + step) for start in range(0, rows, step))


def _arrows(terms: Tensor, tuning: Tensor) -> Float[Tensor, "scales rows directions length"]:
    return (tuning @ terms).exp_()


def _sides(arrows: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the finer and of the coarser scale of each pair (pairs of signals, directions, length)."""
    return arrows[:-1].flatten(0, 1), arrows[1:].flatten(0, 1)


def _weighted(side: Tensor, weights: Tensor) -> Float[Tensor, "pairs both length"]:
    """Arrows times the weights of each window."""
    return (side[:, None] * weights[:, None]).flatten(1, 2)


def _far(dtype: torch.dtype) -> float:
    """How many widths away a Gaussian is lost in rounding."""
    return sqrt(-2 * log(torch.finfo(dtype).eps)) + 1


@constant
def _compass(directions: int) -> Float[Tensor, "2 directions"]:
    angles = torch.arange(directions, dtype=torch.float64) * (2 * pi / directions)
    return torch.stack([angles.cos(), angles.sin()])
