"""Fixed points of a map by Anderson mixing: images of the last points, combined so as to move least.

Points z_i with images G(z_i) and steps f_i = G(z_i) - z_i. With weights w that sum to one, with least |sum_i w_i f_i|,

    z_next = sum_i w_i G(z_i).

Where plain steps z_next = G(z) shrink the distance by a factor each, this finds the place they tend to: Krylov's method
for nonlinear maps (Walker and Ni 2011). So the turns of local parameters and a posterior are extrapolated: any local
parameters give a bound, and each plain turn raises it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Point = Float[Tensor, "*shape"]
Found = TypeVar("Found")

MOST_TURNS = 100
_NATS_OF_DATUM = 1e-6  # that one more turn may gain, for each of at least ten data


def find_fixed_point(turn: Callable[[Point], tuple[float, Point, Found]], point: Point) -> tuple[Point, Found]:
    """The image of the fixed point, where the bound is highest, and what a turn finds there.

    A turn returns the bound at a point, the image of the point, and what else it finds. Points have a row for each
    datum. The turns end where one more would gain little; gains shrink from turn to turn by about the same factor.
    """
    mixing, gain = AndersonMixing(), 0.0
    bound, image, found = turn(point)
    for _ in range(MOST_TURNS):
        if not (math.isfinite(bound) and image.isfinite().all()):
            break
        last, plain, point = bound, image, mixing.next(point, image)
        del found  # factors of many data fill the memory
        bound, image, found = turn(point)
        if not bound >= last:  # too far
            mixing.forget()
            point = plain
            del found
            bound, image, found = turn(point)
        before, gain = gain, bound - last
        shrinks = min(1.0, gain / before) if before > 0 else 1.0
        if gain * shrinks < tolerance(point):
            break
    return image, found


def tolerance(point: Point) -> float:
    """Nats that one more turn may gain."""
    return _NATS_OF_DATUM * max(10, len(point))


class AndersonMixing:
    """The next point from the last six and their images. Numbers keep their sign, within a factor 2 of the image."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._steps: list[Tensor] = []

    def forget(self) -> None:
        """Begin again: the next step is a plain one."""
        self._images, self._steps = [], []

    def next(self, point: Point, image: Point) -> Point:
        """Where to go from this point, whose image is known."""
        self._images = [*self._images[-5:], image.flatten()]
        self._steps = [*self._steps[-5:], (image - point).flatten()]
        if len(self._steps) == 1:
            return image
        steps, images = (torch.stack([kept[-1] - one for one in kept[:-1]], 1) for kept in (self._steps, self._images))
        normal = torch.linalg.pinv(steps.mT @ steps, rtol=1e-10, hermitian=True)
        mixed = (self._images[-1] - images @ (normal @ (steps.mT @ self._steps[-1]))).reshape(image.shape)
        ends = image / 2, image * 2
        return mixed.clamp(torch.minimum(*ends), torch.maximum(*ends))
