"""Gaussian windows along a line of samples, smooth in their width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.constants import constant


def windows(size: int, number: int, width: Float[Tensor, ""]) -> Float[Tensor, "number size"]:
    """Weights of windows whose centres lie evenly; ``width`` is their standard deviation, in samples."""
    return gaussian_weights(_from_centres(size, number, dtype=width.dtype, device=width.device) / width)


def gaussian_weights(r: Float[Tensor, "number size"]) -> Float[Tensor, "number size"]:
    """exp(-r^2 / 2), where each row sums to one."""
    return without_tails(torch.softmax(-0.5 * r.square(), 1))


def without_tails(weights: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same, with zeros for what is far below rounding.

    Tails of a Gaussian end in subnormal numbers, with which a CPU may compute ten times slower.
    """
    return F.threshold(weights, torch.finfo(weights.dtype).eps ** 2, 0.0)


@constant
def _from_centres(size: int, number: int) -> Float[Tensor, "number size"]:
    centres = (torch.arange(number, dtype=torch.float64) + 0.5) * (size / number) - 0.5
    return torch.arange(size, dtype=torch.float64) - centres[:, None]
