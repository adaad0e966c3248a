"""What spectroscopists do to spectra before a model sees them, as feature maps: SNV, Savitzky-Golay, and a learned derivative.

Signals are rows (N, T), or (N, C, T) with each channel on its own.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.kernels.windows import gaussian_weights
from orbitgp.orbits.constants import constant

Signals = Float[Tensor, "rows *shape"]


class SNV(nn.Module):
    """Standard normal variate: each signal less its mean, over its standard deviation. It keeps the shape."""

    def forward(self, x: Signals) -> Signals:
        centred = x - x.mean(-1, keepdim=True)
        return centred / _deviation(centred)


class SavitzkyGolay(nn.Module):
    """The value or a derivative, per sample, of the parabola (or higher polynomial) that fits best around each sample.

    Args:
        window: how many samples it is fitted to: odd, and no more than the signal has. At the ends, the first and the last fit
            go on.
        degree: of the polynomial.
        order: of the derivative; 0 only smooths.
    """

    def __init__(self, window: int = 11, degree: int = 2, order: int = 1) -> None:
        super().__init__()
        if window < 1 or window % 2 == 0 or not 0 <= order <= degree < window:
            raise ValueError(
                f"SavitzkyGolay needs an odd window and order <= degree < window, got window={window}, degree={degree}, "
                f"order={order}."
            )
        self.window, self.degree, self.order = window, degree, order

    def forward(self, x: Signals) -> Float[Tensor, "rows mapped"]:
        length = x.shape[-1]
        if length < self.window:
            raise ValueError(f"SavitzkyGolay has a window of {self.window} samples, but signals have {length}: take fewer.")
        matrix = _savitzky_golay(length, self.window, self.degree, self.order, dtype=x.dtype, device=x.device)
        return (x @ matrix.mT).flatten(1)


class SmoothDerivative(LearnedConstants):
    """A derivative of the smoothed signal, over a power of its own standard deviation: two learned constants.

    The Gaussian ``width`` decides between noise and detail, and ``power`` between the signal as it is (towards 0) and SNV (1):
    what is else chosen by trial. Derivatives are with respect to time in units of the width.

    Args:
        order: of the derivative, 0 to 2; 0 only smooths.
        width: standard deviation of the smoothing, in samples.
        power: of the standard deviation by which a signal is divided.
        learn: whether width and power are learned, starting at these values.
    """

    def __init__(self, order: int = 1, width: float = 2.0, power: float = 0.5, learn: bool = True) -> None:
        super().__init__(learn, width=width, power=power)
        if order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {order}.")
        self.order = order

    def forward(self, x: Signals) -> Float[Tensor, "rows mapped"]:
        width, power = self.constants(x.dtype)
        length = x.shape[-1]
        matrix = derivatives(length, width)[(self.order - 1) * length :][:length] if self.order else smoothing(length, width)
        found = x @ matrix.mT
        return (found * _deviation(found - found.mean(-1, keepdim=True)) ** -power).flatten(1)

    def extra_repr(self) -> str:
        return self._described(order=self.order)


def smoothing(length: int, width: Float[Tensor, ""]) -> Float[Tensor, "length length"]:
    """The matrix that puts a signal under a Gaussian; its rows sum to one, also at the ends."""
    r = differences(length, dtype=width.dtype, device=width.device) / width
    return gaussian_weights(r)


def derivatives(length: int, width: Float[Tensor, ""]) -> Float[Tensor, "both length"]:
    """The matrices of the first and the second derivative, one above the other, with respect to time over the width.

    Inside the signal these are derivatives of the Gaussian. At the ends, where part of it is missing, they are still zero for
    constants.
    """
    r = differences(length, dtype=width.dtype, device=width.device) / width
    bell = gaussian_weights(r)
    moments = (bell * r, bell * r.square())
    return torch.cat([moment - bell * moment.sum(1, keepdim=True) for moment in moments])


def _deviation(centred: Tensor) -> Tensor:
    """Standard deviations; that of a constant is tiny, not zero."""
    tiny = torch.finfo(centred.dtype).eps ** 2
    return (centred.square().mean(-1, keepdim=True) + tiny).sqrt()


@constant
def differences(length: int) -> Float[Tensor, "length length"]:
    """How many samples each is after each other one."""
    t = torch.arange(length, dtype=torch.float64)
    return t - t[:, None]


@constant
def _savitzky_golay(length: int, window: int, degree: int, order: int) -> Float[Tensor, "length length"]:
    from scipy.signal import savgol_filter  # it takes a while to import, and few need it

    return torch.tensor(savgol_filter(np.eye(length), window, degree, deriv=order, axis=0))
