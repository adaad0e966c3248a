"""Where a run may begin: the evidence may have several tops over how far an orbit goes.

An orbit has a natural unit: how far it moves inputs, as a share of the distances between them. Starts are

- the orbit as it was given;
- the same with all reaches multiplied, so that it moves inputs a little, by some way, and far: by all angles, if that
  is not much farther;
- the simpler orbits that it contains (:meth:`~orbitgp.orbits.Orbit.simpler`), with all else close to nothing. So a
  composition starts from its parts, and ``Affine`` from rotations, among others: a richer family is never behind.

So neither the first guess nor the unit of the inputs matters much. The evidence may have several tops over the
lengthscale as well, and over the constants of a learned feature map. Where the orbit has nothing to learn, the starts
are the lengthscale as given, shorter, and longer, and such constants as given, smaller, and larger. Where it has, the
same is tried without the orbit, which costs little, and each start has the best of it, or the kernel as given.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.orbits import Orbit

# A multiple of each reach. Where there is none: one of the lengthscales, and one of a feature map's constants.
Start = tuple[float, ...]
Inputs = Float[Tensor, "rows *features"]

NARROW, MIDDLE, WIDE = 0.1, 0.35, 1.2  # how far an orbit moves inputs at a start, as a share of distances between them
CLOSE_TO_NOTHING = 0.03  # the same, by the reaches that a simpler orbit lacks; at zero there would be no gradient
LENGTHS = (0.25, 4.0)  # multiples of the lengthscales to start from
CONSTANTS = (1 / 3, 3.0)  # multiples of the constants of a feature map; farther ones end four nats lower
_GROWS = 1.02  # an orbit that moves inputs by less than this factor more when its reach doubles has come to its end
_ROWS, _SAMPLES = 60, 8  # enough to see how far an orbit goes


def possible_starts(orbit: Orbit, x: Inputs, kernel: Kernel | None = None) -> list[Start]:
    """The starts of a run: as given, with inputs moved a little, and others. Without a reach, the kernel varies."""
    reaches = orbit.reaches()
    given = (1.0,) * len(reaches)
    distance = distance_between(x)
    if distance == 0.0:
        return [given]
    if not reaches:
        return kernel_starts(kernel)
    ruler = _Ruler(orbit, _few(x), distance)
    whole = tuple(range(len(reaches)))
    starts = [given, *(ruler.start(share, ruler.multiple(whole, share)) for share in (NARROW, MIDDLE, WIDE))]
    number = {id(reach): i for i, reach in enumerate(reaches)}
    for family in orbit.simpler():
        kept = tuple(sorted(number[id(reach)] for reach in family))
        rest = tuple(i for i in whole if i not in kept)
        little = ruler.multiple(rest, CLOSE_TO_NOTHING)
        for share in (MIDDLE, WIDE):
            far = ruler.start(share, ruler.multiple(kept, share))
            starts.append(tuple(far[i] if i in kept else little for i in whole))
    return starts


def kernel_starts(kernel: Kernel | None) -> list[Start]:
    """Multiples of the lengthscales, and of the constants of a feature map if it has any to learn."""
    learned = kernel is not None and any(raw.requires_grad for raw in map_constants(kernel))
    return [(1.0, 1.0), *((length, 1.0) for length in LENGTHS), *((1.0, multiple) for multiple in CONSTANTS if learned)]


def natural_units(orbit: Orbit, x: Inputs) -> list[Tensor]:
    """For each reach, where it moves inputs by ``MIDDLE``. Units of the inputs and the given orbit do not matter."""
    reaches, distance = orbit.reaches(), distance_between(x)
    sizes = [reach.detach().abs() for reach in reaches]
    if not reaches or distance == 0.0:
        return sizes
    ruler = _Ruler(orbit, _few(x), distance)
    return [size * ruler.multiple((i,), MIDDLE) for i, size in enumerate(sizes)]


@torch.no_grad()
def move_to(start: Start, orbit: Orbit, kernel: Kernel | None = None) -> None:
    """Multiply the reaches of an orbit as given, each by its own factor; or what the kernel learns, if it has none."""
    reaches = orbit.reaches()
    for reach, multiple in zip(reaches, start, strict=bool(reaches)):
        reach.mul_(multiple)
    if not reaches and start and kernel is not None:
        move_kernel(start, kernel)


@torch.no_grad()
def move_kernel(start: Start, kernel: Kernel) -> None:
    """Multiply the learned lengthscales of a kernel, and the learned constants of its feature map."""
    of_lengths, of_constants = start
    for part in kernel.modules():
        raw = getattr(part, "raw_lengthscale", None)
        if isinstance(part, Kernel) and raw is not None and raw.requires_grad:
            part.lengthscale = part.lengthscale * of_lengths
    for raw in map_constants(kernel):
        if raw.requires_grad:
            raw.add_(math.log(of_constants))


def map_constants(kernel: Kernel) -> list[Parameter]:
    """The logarithms of the constants of a feature map."""
    return [raw for part in kernel.modules() if isinstance(part, LearnedConstants) for raw in part.parameters()]


@torch.no_grad()
def distance_between(x: Inputs) -> float:
    """The median distance between different inputs; 0 where there are none."""
    distances = torch.pdist(x[: 10 * len(_few(x))].flatten(1).double())
    distances = distances[distances > 0]
    return float(distances.median()) if len(distances) else 0.0


def _few(x: Inputs) -> Float[Tensor, "few *features"]:
    """Some rows, fewer where each has thousands of values: every multiple that is tried transforms them all."""
    return x[: max(_SAMPLES, min(_ROWS, 2**16 // max(1, x[0].numel())))]


class _Ruler:
    """How far an orbit moves inputs if some of its reaches are multiplied and the others are zero."""

    def __init__(self, orbit: Orbit, x: Inputs, distance: float) -> None:
        self.orbit, self.x, self.distance = orbit, x, distance
        self.nothing = self._samples((0.0,) * len(orbit.reaches()))

    def multiple(self, kept: tuple[int, ...], share: float) -> float:
        """The multiple, to a factor of two, at which these reaches move inputs by such a share of their distances.

        An orbit that never gets so far, such as the whole circle, gets the multiple at which it goes furthest.
        """
        multiple, moved = 1.0, self._moved(kept, 1.0)
        for _ in range(40):  # a factor of 1e12
            if moved >= share:
                break
            further = self._moved(kept, 2 * multiple)
            if further < _GROWS * moved:
                return 2 * multiple if further > moved / _GROWS**5 else multiple
            multiple, moved = 2 * multiple, further
        for _ in range(40):
            if moved <= 1.5 * share:
                break
            multiple /= 2
            moved = self._moved(kept, multiple)
        return multiple

    def start(self, share: float, multiple: float) -> Start:
        """All reaches multiplied. Where a start is wide, a reach of at least half its widest is set to the widest."""
        reaches = zip(self.orbit.reaches(), self.orbit.widest_reaches(), strict=True)
        ends = [widest / float(reach.detach().abs().max()) for reach, widest in reaches]
        return tuple(multiple if multiple < end / 2 or share < WIDE else end for end in ends)

    def _moved(self, kept: tuple[int, ...], multiple: float) -> float:
        count = len(self.orbit.reaches())
        samples = self._samples(tuple(multiple if i in kept else 0.0 for i in range(count)))
        moved = (samples - self.nothing).flatten(2).double().norm(dim=-1)
        return float(moved.square().mean().sqrt()) / self.distance

    @torch.no_grad()
    def _samples(self, multiples: Start) -> Tensor:
        reaches = self.orbit.reaches()
        before = [reach.clone() for reach in reaches]
        move_to(multiples, self.orbit)
        try:
            return self.orbit.shared_samples(self.x, _SAMPLES).points[:, 0]
        finally:
            for reach, value in zip(reaches, before, strict=True):
                reach.copy_(value)
