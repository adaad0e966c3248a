"""A feature map for signals: which shapes occur, and roughly where; smooth in the signal and in four learned constants.

The oriented gradients of an image, for a signal. The smoothed signal has a slope and a curvature at every sample. Together they
are an arrow. Its direction says whether the signal rises, peaks, falls or bottoms out, and all between; its length says how
strongly. A scale twice as coarse has another arrow there. Which pairs of directions occur together, within windows along the
signal, tells shapes apart.
"""

from __future__ import annotations

from itertools import pairwise
from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.kernels.spectra import derivatives
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
        signals = x.reshape(-1, length)
        compass = _compass(self.directions, dtype=x.dtype, device=x.device)
        arrows = [self._arrows(signals, 2**scale * width, sharpness, compass) for scale in range(self.scales)]
        # Windows over the finer scale first: then each pair of scales is one product of matrices.
        distance = _distances(length, self.windows, dtype=x.dtype, device=x.device) / (spread * length / self.windows)
        weights = torch.softmax(-0.5 * distance.square(), 1)
        means = [(fine[:, None] * weights[:, None]).flatten(1, 2) @ coarse.mT for fine, coarse in pairwise(arrows)]
        histogram = torch.stack(means, 1).reshape(len(x), -1)
        return (histogram / rare).log1p()

    def _arrows(self, x: Tensor, width: Tensor, sharpness: Tensor, compass: Tensor) -> Float[Tensor, "rows directions length"]:
        """Every direction at every sample: tuning curve times the square root of strength."""
        length = x.shape[-1]
        slope, curvature = (x @ derivatives(length, width).mT).unflatten(1, (2, length)).unbind(1)
        squared = slope.square() + curvature.square() / 2 + _FLAT
        # A peak has the direction pi / 2.
        cosine = torch.einsum("dk,nkt->ndt", compass, torch.stack([slope, -curvature / sqrt(2)], 1) * squared.rsqrt()[:, None])
        return (sharpness * (cosine - 1) + 0.25 * squared.log()[:, None]).exp()

    def extra_repr(self) -> str:
        return self._described(directions=self.directions, scales=self.scales, windows=self.windows)


_FLAT = 1e-6  # squared length of an arrow that has no direction


@constant
def _compass(directions: int) -> Float[Tensor, "directions 2"]:
    angles = torch.arange(directions, dtype=torch.float64) * (2 * pi / directions)
    return torch.stack([angles.cos(), angles.sin()], 1)


@constant
def _distances(length: int, windows: int) -> Float[Tensor, "windows length"]:
    centres = (torch.arange(windows, dtype=torch.float64) + 0.5) * (length / windows) - 0.5
    return torch.arange(length, dtype=torch.float64) - centres[:, None]
