"""Image warps: x_a(p) = x(points(p)), interpolated once.

The hook of a warp is a map from output points to input points, ``points(p, u)``. Composed warps compose the points, so an image
is interpolated once for any number of warps::

    class Swirl(Warp):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(0.5))

        def points(self, p, u):  # p.x, p.y: pixels from the centre; u[..., i] broadcasts against them
            angle = self.strength * (2 * u[..., 0] - 1) * torch.exp(-(p.x**2 + p.y**2) / 50)
            return p.at(angle.cos() * p.x - angle.sin() * p.y, angle.sin() * p.x + angle.cos() * p.y)

Images are (H, W) or (C, H, W). Interpolation is bilinear, and zero outside the image. That is right where the background is 0,
so do not standardise pixels first. The identity is exact: images are padded with zeros to powers of two, where the
normalised coordinates of ``grid_sample`` are exact in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.images.base import ImageOrbit
from orbitgp.orbits.images.points import Grid, Points
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class Warp(ImageOrbit):
    """An orbit of images that moves points. Subclasses set ``num_draws`` and write ``points``."""

    def points(self, p: Points, u: Float[Tensor, "rows samples 1 1 dim"]) -> Points:
        """The input points that the output points p look at; ``u[..., i]`` broadcasts against ``p.x`` and ``p.y``."""
        raise NotImplementedError(f"{type(self).__name__} must define points(p, u).")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        rows, samples, _ = u.shape
        height, width = x.shape[-2:]
        if rows > 1 and u.stride(0) == 0:  # predictions use one set of draws for all images: one set of points
            u = u[:1]
        p = self.points(Grid((height, width), x.dtype, x.device), u[:, :, None, None])
        images = x.reshape(rows, x.shape[1:-2].numel(), height, width)
        padded = (_power_of_two(height), _power_of_two(width))
        images = F.pad(images, (0, padded[1] - width, 0, padded[0] - height))
        # The samples of one image are one tall output (N, C, S*H, W), so no image is copied S times.
        tall = F.grid_sample(images, p.grid(rows, samples, padded), align_corners=False)
        if images.shape[1] == 1:
            return tall.view(rows, samples, *x.shape[1:])
        return tall.view(rows, -1, samples, height, width).transpose(1, 2)

    def merge(self, other: Orbit) -> Orbit | None:
        return WarpProduct([self, other]) if isinstance(other, Warp) else None


class WarpProduct(Parts, Warp):
    """Warps that act one after the other, interpolated once: for ``a * b``, x_ab(p) = x(a(b(p)))."""

    parts: Sequence[Warp]

    def points(self, p: Points, u: Float[Tensor, "rows samples 1 1 dim"]) -> Points:
        pieces = torch.split(u, [part.draws_for(torch.Size(p.size)) for part in self.parts], dim=-1)
        # The last warp to act on the image is the first to act on the output points.
        for part, piece in zip(reversed(self.parts), reversed(pieces), strict=True):
            p = part.points(p, piece)
        return p


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
