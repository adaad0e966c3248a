"""Feature maps for signals: SNV, as spectroscopists do to spectra, a learned derivative, and shapes.

Signals are rows (N, T), or (N, C, T) with each channel on its own.
"""

from __future__ import annotations

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.learned_constants import LearnedConstants, by_direction, windows, without_tails
from orbitgp.machine import constant

Signals = Float[Tensor, "rows *shape"]


class SNV(nn.Module):
    """Standard normal variate: each signal less its mean, over its standard deviation. It keeps the shape.

    >>> SNV()(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[-1.2247,  0.0000,  1.2247]])
    """

    def forward(self, x: Signals) -> Signals:
        return _centred(x) / _deviation(x)


class SmoothDerivative(LearnedConstants):
    """A derivative of the smoothed signal, over a power of its own standard deviation: two learned constants.

    The Gaussian ``width`` decides between noise and detail, and ``power`` between the signal as it is (towards 0) and
    SNV (1): what is else chosen by trial. Derivatives are with respect to time in units of the width.

        >>> SmoothDerivative(1)(torch.rand(2, 50)).shape
        torch.Size([2, 50])

    Args:
        order: of the derivative, 0 to 2; 0 only smooths.
        width: standard deviation of the smoothing, in samples.
        power: of the standard deviation by which a signal is divided.
        learn: whether width and power are learned, starting at these values.
    """

    fixed = ("order",)

    def __init__(self, order: int = 1, width: float = 2.0, power: float = 0.5, learn: bool = True) -> None:
        super().__init__(learn, width=width, power=power)
        if order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {order}.")
        self.order = order

    def forward(self, x: Signals) -> Float[Tensor, "rows mapped"]:
        width, power = self.constants(x.dtype)
        found = derivatives(x.reshape(-1, x.shape[-1]), width[None])[self.order, 0].view_as(x)
        return (found * _deviation(found) ** -power).flatten(1)


class ShapeHistograms(LearnedConstants):
    """Which shapes occur, and roughly where: how often pairs of directions occur at neighbouring scales, in windows.

    These are the oriented gradients of an image, for a signal. The smoothed signal has a slope and a curvature at every
    sample. Together they are an arrow. Its direction says whether the signal rises, peaks, falls or bottoms out, and
    all between; its length says how strongly. A scale twice as coarse has another arrow there. Which pairs of
    directions occur together, within windows along the signal, tells shapes apart.

    Each of ``directions`` weights the arrows of a scale by its tuning curve exp(sharpness * (cos(angle) - 1)) and by
    the square root of their length. Products of the weights at neighbouring scales are averaged under Gaussian windows.
    What counts is the logarithm log(1 + mean / rare). Signals are first brought to mean zero and variance one (all
    channels of a signal by one number), so offset and gain do not matter. Every channel has these features.

        >>> ShapeHistograms()(torch.rand(2, 50)).shape
        torch.Size([2, 432])

    Args:
        directions: how many, evenly around the circle.
        scales: how many, each twice as coarse as the one before.
        windows: how many, evenly along the signal.
        width: standard deviation of the finest smoothing, in samples.
        spread: standard deviation of a window, as a part of the distance between windows. As it grows, all windows see
            the whole signal, and where a shape occurs no longer matters.
        sharpness: how narrow the tuning curves are.
        rare: the mean above which a pair counts by its logarithm. Below, it counts in proportion.
        learn: whether width, spread, sharpness and rare are learned, starting at these values.
    """

    fixed = ("directions", "scales", "windows")

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
            raise ValueError(f"ShapeHistograms takes signals (T,) or (C, T), not inputs of shape {tuple(x.shape[1:])}.")
        width, spread, sharpness, rare = self.constants(x.dtype)
        rows, length = x.shape[0], x.shape[-1]
        x = _centred(x).flatten(1)
        x = (x / _deviation(x)).reshape(-1, length)
        _, slope, curvature = derivatives(x, width * 2.0 ** torch.arange(self.scales).to(x))
        # A peak, where the curvature is lowest, has the direction pi / 2.
        arrows = by_direction(slope, curvature / -sqrt(2), self.directions, sharpness, power=0.5).movedim(0, 2)
        fine, coarse = arrows[:-1], arrows[1:].mT.contiguous()  # neighbour scales: (scales - 1, signals, directions, T)
        weights = windows(length, self.windows, spread * length / self.windows)
        histogram = torch.stack([(fine * weight) @ coarse for weight in weights], 2).movedim(0, 1)
        return (histogram.reshape(rows, -1) / rare).log1p()


def derivatives(x: Float[Tensor, "rows time"], widths: Float[Tensor, " widths"]) -> Float[Tensor, "3 widths rows time"]:
    """Signals under Gaussians of these widths, their slope and their curvature, with respect to time over the width.

    With the Gaussian around a sample as weights of sum one, these are moments of r, the time from there over the width:

        m = E x,    E r (x - m),    E r^2 (x - m)

    Inside the signal they are derivatives. At its ends, where part of the Gaussian is missing, they are still zero for
    constants. Fourier transforms yield all of them, for signals with zeros behind that keep the two ends apart.
    """
    length = x.shape[-1]
    r = _lags(length, dtype=x.dtype, device=x.device) / widths[:, None]
    bell = without_tails((-0.5 * r.square()).exp())
    filters = torch.fft.rfft(torch.stack([bell, bell * r, bell * r.square()])).conj()
    spectra = torch.fft.rfft(torch.cat([x, torch.ones_like(x[:1])]), 2 * length)
    moments = torch.fft.irfft(filters[:, :, None] * spectra, 2 * length)[..., :length]
    # The ones find out how much of the Gaussian lies within the signal.
    moments = moments / moments[:1, :, -1:]
    mean = moments[0, :, :-1]
    return torch.stack([mean, *(moments[1:, :, :-1] - mean * moments[1:, :, -1:])])


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _deviation(x: Tensor) -> Tensor:
    """Standard deviations; that of a constant is tiny, not zero."""
    tiny = torch.finfo(x.dtype).eps ** 2
    return (_centred(x).square().mean(-1, keepdim=True) + tiny).sqrt()


@constant
def _lags(length: int) -> Float[Tensor, " both"]:
    """0, 1 .. T - 1, then -T .. -1: how many samples later each sample of a filter stands."""
    return torch.fft.fftfreq(2 * length, 1 / (2 * length), dtype=torch.float64)
