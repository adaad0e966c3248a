"""Brightness and contrast: the values of the pixels change. Nothing is clipped, so gradients never vanish."""

from __future__ import annotations

from typing import Any, Literal

from orbitgp.orbits.ranges import FACTOR, NUMBER, Ends, Number, Range, Ranged
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class Brightness(Ranged):
    """x_a = x + b with b uniform in a learned range: a half-width or a (min, max) pair, in the units of the pixels.

    A learned range contains zero: what all images gain alike is no invariance.
    """

    num_draws = 1

    def __init__(self, brightness: Number | Ends = 0.1, learn: bool = True) -> None:
        super().__init__()
        self.brightness = Range.of(brightness, NUMBER, "brightness", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] + self.brightness(u[..., 0]).reshape(*u.shape[:2], *[1] * (x.ndim - 1))


class Contrast(Ranged):
    """x_a = pivot + c (x - pivot) with the factor c uniform, in its logarithm, in a learned range.

    Args:
        contrast: a factor, 1.2 for 1/1.2 to 1.2, or a (min, max) pair of factors. A learned range contains 1.
        pivot: the value that stays: ``"mean"`` of the image over pixels and channels, or a number. 0 scales the ink of digits
            and keeps their background at 0, which warps need.
        learn: whether the range is learned.
    """

    num_draws = 1

    def __init__(self, contrast: Number | Ends = 1.2, pivot: Number | Literal["mean"] = "mean", learn: bool = True) -> None:
        super().__init__()
        if isinstance(pivot, str) and pivot != "mean":
            raise ValueError(f"pivot must be a number or 'mean', got {pivot!r}.")
        self.pivot = pivot
        self.contrast = Range.of(contrast, FACTOR, "contrast", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        pivot = x.mean(dim=tuple(range(1, x.ndim)), keepdim=True) if isinstance(self.pivot, str) else self.pivot
        # expm1 instead of exp: a factor of one returns the image exactly.
        gain = self.contrast(u[..., 0]).expm1().reshape(*u.shape[:2], *[1] * (x.ndim - 1))
        return x[:, None] + gain * (x - pivot)[:, None]

    def saved_arguments(self) -> dict[str, Any]:
        return {"pivot": self.pivot, **super().saved_arguments()}
