"""Fixed points of a map by Anderson mixing: the images of the last points, combined so that they move as little as possible.

Points z_i with images G(z_i) and steps f_i = G(z_i) - z_i. With weights w that add up to one, and make |sum_i w_i f_i| least,

    z_next = sum_i w_i G(z_i).

Where plain steps z_next = G(z) shrink the distance by a factor each, this finds the place they tend to: Krylov's method for
nonlinear maps (Walker and Ni 2011).

So the turns of local parameters and a posterior are extrapolated: any local parameters give a bound, and each plain turn raises
it.
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

FINE, COARSE = 1e-6, 1e-5  # nats a datum that one more turn may gain; the latter of many data, without a gradient
_TURNS = 50  # at most
_SETTLED = 1e-5  # nats that it may gain, however few data there are
_MEMORY = 5  # points before the last one
_FACTOR = 2.0  # by which a mixed number may differ from the last image
_LEAST = 1e-10  # of the largest eigenvalue: directions that differ by less say nothing


def settled(turn: Callable[[Point], tuple[float, Point, Found]], point: Point, of_a_datum: float) -> tuple[Point, Found]:
    """The image of the fixed point, where the bound is highest, and what a turn finds there.

    A turn returns the bound at a point, the image of the point, and what else it finds. Points have a row for each datum. The
    turns end where one more would gain little; gains shrink from turn to turn by about the same factor.
    """
    mixing, gain = AndersonMixing(), 0.0
    bound, image, found = turn(point)
    for _ in range(_TURNS):
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
        if gain * shrinks < enough(point, of_a_datum):
            break
    return image, found


def enough(point: Point, of_a_datum: float) -> float:
    """Nats that one more turn may gain."""
    return max(_SETTLED, of_a_datum * len(point))


class AndersonMixing:
    """The next point from those before, each with its image. Numbers keep their sign, and stay within a factor of the image."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._steps: list[Tensor] = []

    def forget(self) -> None:
        """Begin again: the next step is a plain one."""
        self._images, self._steps = [], []

    def next(self, point: Point, image: Point) -> Point:
        """Where to go from this point, whose image is known."""
        self._images = [*self._images[-_MEMORY:], image.flatten()]
        self._steps = [*self._steps[-_MEMORY:], (image - point).flatten()]
        if len(self._steps) == 1:
            return image
        steps, images = (torch.stack([kept[-1] - one for one in kept[:-1]], 1) for kept in (self._steps, self._images))
        normal = torch.linalg.pinv(steps.mT @ steps, rtol=_LEAST, hermitian=True)
        mixed = (self._images[-1] - images @ (normal @ (steps.mT @ self._steps[-1]))).reshape(image.shape)
        ends = image / _FACTOR, image * _FACTOR
        return mixed.clamp(torch.minimum(*ends), torch.maximum(*ends))
