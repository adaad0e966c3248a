"""k_f of a finite orbit whose pairs of elements do not all count alike, and where one sum stands for two.

If the elements of an orbit are a group G, and k_g does not change when one of them acts on both of its arguments, then

    1/|G|^2 sum_g sum_h k_g(g x, h x')  =  1/|G|^2 sum_g sum_h k_g(x, g^-1 h x')  =  1/|G| sum_g k_g(x, g x'),

because g^-1 h runs through the group once for every g. The single sum costs |G| values of k_g instead of |G|^2.

Whether that holds is found by trial (:func:`single_sum`). So there is no list of kernels and orbits, and new ones are
recognised. A set S of maps with an inverse is a group if S h = S for each h in S: the elements of each element of a
random input must be the elements of that input. And k_g(h x, h x') must equal k_g(x, x') for each element h, for random
pairs that differ in all or in some coordinates, at scales from 1e-6 to 1e6. All parameters of k_g are random in this
trial: lengthscales that are equal by chance, as those of columns are before learning, would make the values of both
sums equal but not their gradients. So permuted columns with own lengthscales take the double sum, changed signs do not.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.settings import lazily_evaluate_kernels
from jaxtyping import Float, Int
from linear_operator import to_dense
from torch import Tensor

from orbitgp.kernels.covariance import Centre, Covariance, Cross, OthersSeen, Seen
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.sampling import Blocks, Inputs, Pairing

_MOST_TRIED = 2**28  # numbers in the elements of all elements, beyond which nobody tries whether they are a group
_AT_ONCE = 2**22  # of these
_CLOSE = 1e-9  # differences in double precision that are rounding


Left = Float[Tensor, " chosen"]  # weights of the elements on the left of k_g,
Right = Float[Tensor, " size"]  # and on the right


class SingleSum(NamedTuple):
    """What makes two sums one: the index of the identity, or why they are not.

    ``products``, where elements have weights: [g, i] is the index of g followed by g_i.
    """

    identity: int = 0
    obstacle: str = ""
    products: Int[Tensor, "size size"] | None = None


@torch.no_grad()
def single_sum(kernel: Kernel, orbit: Orbit, x: Inputs) -> SingleSum:
    """Whether a single sum over the orbit is k_f for inputs like these, whatever the parameters of k_g are."""
    if not isinstance(orbit, FiniteOrbit) or orbit.size == 1:
        return SingleSum(obstacle="the orbit is not a finite group of several elements")
    generator = torch.Generator().manual_seed(0)
    point, other, direction = torch.randn(3, *x.shape[1:], generator=generator, dtype=torch.float64).to(x.device)
    elements = orbit.elements(point[None])[0]
    if elements.numel() * orbit.size > _MOST_TRIED:
        return SingleSum(obstacle=f"its {orbit.size:,} elements are too many to try whether they are a group")
    marks, order = _marks(elements[None], direction)
    if orbit.weights() is not None and (marks.diff() < _CLOSE).any():
        return SingleSum(obstacle="an element with a weight occurs twice")
    products = []
    for part in elements.split(max(1, _AT_ONCE // elements.numel())):
        found, places = _marks(orbit.elements(part), direction)
        if not torch.isclose(found, marks, rtol=0.0, atol=_CLOSE).all():
            group = "one after another gives one that is not among them"
            return SingleSum(obstacle=f"its elements are not a group: {group}")
        products.append(torch.empty_like(places).scatter_(1, places, order.expand_as(places)))
    if not _is_invariant(kernel, orbit, point, other, generator):
        return SingleSum(obstacle="the kernel is not the same when an element acts on both of its arguments")
    identity = int((elements - point).flatten(1).square().sum(1).argmin())
    return SingleSum(identity, products=None if orbit.weights() is None else torch.cat(products))


def _marks(
    elements: Float[Tensor, "rows size *features"], direction: Float[Tensor, "*features"]
) -> tuple[Float[Tensor, "rows size"], Int[Tensor, "rows size"]]:
    """A number for each element, in order, and whose it is: equal sets have equal numbers."""
    values, order = (elements.flatten(2) @ direction.flatten()).sort(1)
    return values, order


def _is_invariant(kernel: Kernel, orbit: FiniteOrbit, point: Tensor, other: Tensor, generator: torch.Generator) -> bool:
    """Whether k_g(h x, h x') = k_g(x, x') for all elements h, for pairs at several scales, at random parameters."""
    kernel = deepcopy(kernel).double()
    for parameter in kernel.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter))
    chances = torch.tensor([0.0, 0.3, 0.5, 0.7]).reshape(4, *[1] * point.ndim)
    shared = (torch.rand(4, *point.shape, generator=generator) < chances).to(point.device)
    scales = torch.logspace(-6, 6, 25, dtype=torch.float64, device=point.device).reshape(-1, *[1] * (point.ndim + 1))

    def values(a: Tensor, b: Tensor) -> Tensor:
        with lazily_evaluate_kernels(False):
            return to_dense(kernel(a.flatten(1), b.flatten(1), diag=True))

    def holds_at(scales: Tensor) -> tuple[bool, bool]:
        """Whether it holds at these scales, and whether k_g is neither constant nor zero for some of their pairs."""
        left = (scales * point.expand(shared.shape)).flatten(0, 1)
        right = (scales * torch.where(shared, point, other)).flatten(0, 1)
        before, size = values(left, right), (values(left, left) * values(right, right)).sqrt()
        images = [orbit.elements(side).flatten(0, 1) for side in (left, right)]
        moved = values(*images).unflatten(-1, (len(left), -1))
        varies = (before.abs() > 0.05 * size) & (before.abs() < 0.95 * size)
        return bool(((moved - before[..., None]).abs() <= _CLOSE * size[..., None]).all()), bool(varies.any())

    # Most kernels for which it does not hold show that at one scale, which matters where a feature map takes long.
    return holds_at(scales[len(scales) // 2 :][:1])[0] and all(holds_at(scales))


class CorrectedCovariance(Covariance):
    """k_f of an infinite orbit from two independent sets of draws, less half of what draws add to it.

    A mean over S draws that all data share is f with an error. K_S of S = 2 h draws in two independent sets has the
    covariance of that error as a bias, and so have K_11 and K_22 of one set, twice as large; K_12 has none:

        E K_S = K + B,    E K_11 = E K_22 = K + 2 B,    E K_12 = K,    K_S = 1/4 (K_11 + K_22 + K_12 + K_21).

    So D = 1/4 (K_11 + K_22 - K_12 - K_21) is an unbiased estimate of B, and k_f = K_S - c D has the bias (1 - c) B.
    Without any bias (c = 1) it is so indefinite that parameters feed on it. With c = 1/2, the bias is that of twice as
    many draws, for a quarter of their pairs. Affine maps of 100 digits, learned with S draws, in nats below the best:

        S                          16      32     64    128
        shared draws             21.6     9.0    3.4    0.0
        two sets and c = 1/2     12.5     1.8    0.0
        two sets and c = 1                        19
    """

    pairing = Pairing(2, off=3 / 8, diag=1 / 8)

    def __init__(self, base: Covariance) -> None:
        super().__init__(base.kernel)
        self.base = base

    def cross(self, xa: Seen, xb: OthersSeen, centre: Centre | None = None) -> Cross:
        left = xa.unflatten(1, (2, -1)).flatten(0, 1)
        right = left if xa is xb else xb.unflatten(1, (2, -1)).flatten(0, 1)
        means = self.base.cross(left, right, centre).unflatten(0, (-1, 2)).unflatten(2, (-1, 2))
        same, other = means[:, 0, :, 0] + means[:, 1, :, 1], means[:, 0, :, 1] + means[:, 1, :, 0]
        return self.pairing.diag * same + self.pairing.off * other

    def own(self, xa: Blocks, pairing: Pairing) -> Float[Tensor, " rows"]:
        return self.base.own(xa.flatten(1, 2).unflatten(1, (2, -1)), self.pairing)

    def sums_in_cache(self, points: Seen, centre: Centre) -> bool:
        return self.base.sums_in_cache(points, centre)


class WeightedCovariance(Covariance):
    """k_f(x, x') = sum_l sum_p left_l right_p k_g(x_l, x'_p), where only ``chosen`` elements stand on the left."""

    def __init__(self, base: Covariance, chosen: slice, left: Left, right: Right) -> None:
        super().__init__(base.kernel)
        self.base, self.chosen, self.left, self.right = base, chosen, left, right

    def pairs(self, samples: int) -> int:
        return len(self.left) * samples

    def cross(self, xa: Seen, xb: OthersSeen, centre: Centre | None = None) -> Cross:
        values = self.base.cross(xa[:, self.chosen].flatten(0, 1)[:, None], xb.flatten(0, 1)[:, None], centre)
        pairs = values.unflatten(1, xb.shape[:2]).unflatten(0, (len(xa), -1))
        return torch.einsum("rlop,p,l->ro", pairs, *self._weights(values))

    def own(self, xa: Blocks, pairing: Pairing) -> Float[Tensor, " rows"]:
        points = xa.flatten(1, 2)
        values = self.base.values(points[:, self.chosen], points)
        right, left = self._weights(values)
        return values @ right @ left

    def _weights(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return self.right.to(like), self.left.to(like)


def element_weights(orbit: FiniteOrbit, single: SingleSum) -> tuple[slice, Left, Right]:
    """Which elements stand on the left of k_g, their weights, and those of all elements, which stand on the right.

    A single sum has the identity on the left. With probabilities w of the elements, sum_ij w_i w_j k_g(x, g_i^-1 g_j
    x') has g_j = g_i g for each g and i, so that g has the weight sum_i w_i w(g_i g): the autocorrelation of w.
    """
    weights = orbit.weights()
    right = torch.full((orbit.size,), 1 / orbit.size, dtype=torch.float64) if weights is None else weights
    if single.obstacle:
        return slice(None), right, right
    if single.products is not None:
        right = right[single.products.to(right.device)] @ right
    return slice(single.identity, single.identity + 1), torch.ones(1, dtype=torch.float64), right


def averaged(base: Covariance, orbit: FiniteOrbit, single: SingleSum) -> Covariance:
    """The covariance of f between orbits that are enumerated: by the single sum where that is k_f."""
    if single.obstacle and orbit.weights() is None:
        return base
    return WeightedCovariance(base, *element_weights(orbit, single))
