"""Convolutional Gaussian processes: a function of images that is a mean of one function of their patches.

    f(x) = 1/P sum_p g(x[p]),        k_f(x, x') = 1/P^2 sum_p sum_q k_g(x[p], x'[q])

(Van der Wilk, Rasmussen and Hensman, 2017). The patches of an image are an orbit that comes after the feature map. So
the sums over an orbit and over patches are one sum, on the tensor cores of a GPU where there are some
(:mod:`orbitgp.kernels.pair_sums`).

:class:`PatchVectors` cuts images, or the maps of a layer before, into patches. The place of a patch is a part of it, so
that what holds of a patch need not hold of it everywhere (Dutordoir, van der Wilk, Artemev and Hensman, 2020)::

    vectors = nn.Sequential(PatchDictionary(128, size=5, cells=14), PatchVectors(size=3))
    kernel = ConvolutionalKernel(ScaleKernel(RBFKernel()), places=144)
    InvariantGPClassifier("flip", kernel=kernel, feature_map=vectors)
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel
from jaxtyping import Float
from linear_operator import to_dense
from torch import Tensor

from orbitgp.kernels.covariance import Centre, Covariance, Cross, OthersSeen, Seen, Stationary, covariance
from orbitgp.kernels.patches import WhitenedPatches
from orbitgp.machine import split_rows
from orbitgp.orbits.sampling import Blocks, Pairing

_SUMS = 2**14  # on each side of a matrix of them
_PAIRS = 2**28  # of patches of the same image, at a time


class PatchVectors(WhitenedPatches):
    """Patches, whitened and scaled to unit length as in :class:`PatchDictionary`, each with its place in the image.

    A patch becomes its first principal components u after whitening, and its place, between -1 and 1 along each side of
    the image: (u, row / reach, column / reach). So a kernel with the lengthscale l falls by exp(-1/2) where patches of
    an image of side 2 lie l * reach apart.

        >>> vectors = PatchVectors(dim=8, size=3)
        >>> vectors.prepare(torch.rand(10, 3, 16, 16))
        >>> vectors(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 196, 10])

    Args:
        dim: how many principal components, at most; fewer where patches have fewer numbers.
        size, components, whitening, seed, learn, channels: as in :class:`PatchDictionary`.
        stride: there is a patch at each such pixel of each such row.
        reach: how far apart patches are alike.
    """

    fixed = ("dim", "size", "stride", "components", "seed")

    def __init__(
        self,
        dim: int = 192,
        size: int | None = None,
        stride: int = 1,
        components: int = 96,
        whitening: float = 4.0,
        reach: float = 0.8,
        seed: int = 0,
        learn: bool = True,
        channels: int | None = None,
    ) -> None:
        super().__init__(learn, whitening=whitening, reach=reach)
        for name, value in {"dim": dim, "size": size, "stride": stride, "components": components}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.dim, self.size, self.stride, self.components = dim, size, stride, components
        self.seed, self.channels = seed, channels
        self._allot()

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows places dim"]:
        images = self._images(x)
        size, reach = self._fits(images), self.constants(x.dtype)[1]
        patches = F.unfold(F.conv2d(images - self.centre.to(x), self.basis.to(x)), size, stride=self.stride).mT
        along = [torch.linspace(-1, 1, side - size + 1, dtype=x.dtype, device=x.device) for side in images.shape[2:]]
        sides = [centres[:: self.stride] / reach for centres in along]
        places = torch.cartesian_prod(*sides).expand(x.shape[0], -1, 2)
        return torch.cat([self._whitening(x, self.dim)(patches), places], 2)


class ConvolutionalKernel(Kernel):
    """The mean of k_g over all pairs of patches of two images, whose ``places`` patches lie in turn in a row of x.

    >>> kernel = ConvolutionalKernel(RBFKernel(), places=4)
    >>> kernel(torch.rand(3, 20)).shape
    torch.Size([3, 3])
    """

    def __init__(self, base_kernel: Kernel, places: int) -> None:
        super().__init__()
        self.base_kernel, self.places = base_kernel, places

    def fast_covariance(self) -> Covariance:
        """What the model asks of this kernel (:func:`orbitgp.kernels.covariance`)."""
        return ConvolutionalCovariance(self)

    def patches(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch places pixels"]:
        """The patches of each row."""
        if x.shape[-1] % self.places:
            raise ValueError(f"ConvolutionalKernel has {self.places} places, but {x.shape[-1]} numbers are no patches.")
        return x.unflatten(-1, (self.places, -1))

    def forward(
        self, x1: Float[Tensor, "*batch1 n dim"], x2: Float[Tensor, "*batch2 m dim"], diag: bool = False, **params: Any
    ) -> Float[Tensor, "..."]:
        left, right = self.patches(x1), self.patches(x2)
        if diag:
            return to_dense(self.base_kernel(left, right, **params)).mean((-2, -1))
        values = to_dense(self.base_kernel(left.flatten(-3, -2), right.flatten(-3, -2), **params))
        sums = values.unflatten(-1, (-1, self.places)).mean(-1)
        return sums.unflatten(-2, (-1, self.places)).mean(-2)


class ConvolutionalCovariance(Covariance):
    """Patches of all samples of an orbit are samples of k_g. On tensor cores they are rounded to half precision first.

    Rounded patches are patches, so their covariance is positive definite, and a sum takes one product instead of three.
    """

    @property
    def of_patches(self) -> Covariance:
        """The same for k_g. Made anew: as a part of this module it would be saved twice."""
        return covariance(self.kernel.base_kernel)

    def pairs(self, samples: int) -> int:
        return (samples * int(self.kernel.places)) ** 2

    def sums_in_cache(self, points: Seen, centre: Centre) -> bool:
        return isinstance(self.of_patches, Stationary) and self.of_patches.sums_on_tensor_cores(points)

    def cross(self, xa: Seen, xb: OthersSeen, centre: Centre | None = None) -> Cross:
        of_patches = self.of_patches
        left, right = (self.kernel.patches(x).flatten(1, 2) for x in (xa, xb))
        if not (isinstance(of_patches, Stationary) and of_patches.sums_on_tensor_cores(left)):
            return of_patches.cross(left, right)
        centre = torch.zeros_like(left[0, 0])
        xs, zs = [side.split(max(1, _SUMS * gcd(side.shape[1], 8) // side.shape[1])) for side in (left, right)]
        return torch.cat([torch.cat([of_patches.sums(a, b, centre, rounded=True) for b in zs], 1) for a in xs])

    def own(self, xa: Blocks, pairing: Pairing) -> Float[Tensor, " rows"]:
        patches = self.kernel.patches(xa).flatten(2, 3)
        step = max(1, _PAIRS // (patches.shape[1] * patches.shape[2]) ** 2)
        return torch.cat([self.of_patches.own(part, pairing) for part in split_rows(patches, step)])
