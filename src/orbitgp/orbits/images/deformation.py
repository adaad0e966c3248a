"""Local deformations: every point of the picture moves a little, and neighbours move alike.

The displacements are a smooth random field with few base draws: a stationary Gaussian field with covariance amplitude^2
exp(-r^2 / (2 smoothness^2)), as a short Fourier series:

    d(p) = sum_j s_j z_j phi_j(p),   phi = 1, cos k_1.p, sin k_1.p, cos k_2.p, ...,   z_j ~ N(0, 1)

The waves are those of a torus larger than the image by 1.5 times the smoothness, so that opposite edges are almost
uncorrelated. s_j^2 is the Gaussian spectrum at k_j, normalised over the waves that are kept. Since cos^2 + sin^2 = 1,
the root mean square displacement *is* the amplitude at every point, for any smoothness. The waves are fixed, chosen for
the initial smoothness; only their weights depend on the parameters. Hence the field is linear in its draws, costs one
matrix product, and is differentiable in all parameters. Waves are sorted by frequency, so the leading base draws matter
most, and quasi-Monte-Carlo draws act on them.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from math import floor, inf, log, pi
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.machine import constant
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.images.warps import Border, Points, Size, Warp, WarpDraws, pixels
from orbitgp.orbits.ranges import PIXELS, Number, check_names
from orbitgp.orbits.sampling import Draws


class LocalDeformation(Warp):
    """x_a(p) = x(p + d(p)) for a smooth Gaussian random field d of displacements.

        >>> LocalDeformation(amplitude=0.5).describe()
        LocalDeformation
          amplitude   0.50 px
          smoothness  6.0 px

    Args:
        amplitude: root mean square length of the displacement, in pixels.
        smoothness: the length, in pixels, over which they change: their correlation is exp(-r^2 / (2 smoothness^2)).
        frozen: which of ``"amplitude"`` and ``"smoothness"`` are not learned.
        finest: the smallest smoothness, in pixels, that the field can have. The number of base draws grows with (image
            size / finest)^2: 50 for the default on 28 x 28. By default 5/6 of the initial smoothness, or that itself if
            it is frozen. Below it, and above twice the initial smoothness, the correlation is another one.
        border: what lies outside the image: ``zero``, ``edge`` or ``reflect``. By default the data say.

    Write it last in a composition, ``Affine() * LocalDeformation()``. There the field is needed only at the pixels.
    Elsewhere it is interpolated at the points where the later warps look. Outside the image it goes on as at the edge,
    or is zero where the border is.
    """

    def __init__(
        self,
        amplitude: Number = 1.0,
        smoothness: Number = 6.0,
        frozen: Collection[str] = (),
        finest: Number | None = None,
        border: Border | None = None,
    ) -> None:
        super().__init__(border)
        self.field = SmoothField(amplitude, smoothness, frozen, finest)

    def draws_for(self, features: torch.Size) -> int:
        self.check(features)
        return self.field.draws_for(tuple(features[-2:]))

    def bytes_of_table(self, features: tuple[int, ...]) -> float:
        """What the functions phi_j at all pixels take: made in double precision, and kept in single."""
        height, width = features[-2:]
        return 12.0 * self.field.draws_for((height, width)) / 2 * height * width

    def basis(self, size: Size, like: Tensor) -> Float[Tensor, "terms pixels"]:
        """The functions phi_j at the pixels."""
        return _basis(size, self.field.finest, self.field.coarsest, dtype=like.dtype, device=like.device)

    def describe(self) -> Description:
        return Description("LocalDeformation", self.field.quantities())

    def saved_arguments(self) -> dict[str, Any]:
        return {**self.field.saved_arguments(), "border": self.border}

    def points(self, p: Points, u: WarpDraws) -> Points:
        c, basis = self.field.coefficients(u[:, :, 0, 0], p.size), self.basis(p.size, u)
        if p.unmoved:
            return p.displaced(c[:, :, 0], c[:, :, 1], basis)
        d = p.each_in((c @ basis).unflatten(-1, p.size), "zero" if self.outside == "zero" else "edge")
        return p.at(p.x + d[:, :, 0], p.y + d[:, :, 1])


class SmoothField(nn.Module):
    """Displacements along each axis of an image or of a signal, whose points are ``interval`` apart, in this unit.

    The other arguments are those of ``LocalDeformation``: a field may learn to be rougher than it starts.
    """

    reach = ("amplitude",)

    def __init__(
        self,
        amplitude: Number,
        smoothness: Number,
        frozen: Collection[str],
        finest: Number | None,
        owner: str = "a deformation",
        interval: Number = 1.0,
        unit: str = "px",
    ) -> None:
        super().__init__()
        check_names(frozen, owner, ("amplitude", "smoothness"))
        if finest is None:
            finest = smoothness * (1 if "smoothness" in frozen else 5 / 6)
        units = "pixels" if unit == "px" else unit
        for name, value in (("amplitude", amplitude), ("smoothness", smoothness), ("finest", finest)):
            if not 0 < value < inf:
                raise ValueError(f"{name} must be a positive length in {units}, got {value}.")
        self.interval, self.unit = interval, unit
        self.coarsest, self.finest = float(smoothness / interval), float(finest / interval)
        # In tens of points, like shifts, and as a logarithm.
        size = torch.tensor(amplitude / (PIXELS * interval))
        self.amplitude = nn.Parameter(size, requires_grad="amplitude" not in frozen)
        self.log_smoothness = nn.Parameter(torch.tensor(log(self.coarsest)), requires_grad="smoothness" not in frozen)

    def draws_for(self, size: tuple[int, ...]) -> int:
        return len(size) * (2 * len(self.waves(size)) + 1)

    def waves(self, size: tuple[int, ...], like: Tensor | None = None) -> Float[Tensor, "waves axes"]:
        """Wave vectors k_j, in radians per point, in the precision of a tensor."""
        kept = {} if like is None else {"dtype": like.dtype, "device": like.device}
        return waves(size, self.finest, self.coarsest, **kept)

    def deviations(self, size: tuple[int, ...]) -> Float[Tensor, " terms"]:
        """Standard deviations s_j, in points, of the coefficients of each displacement."""
        k = self.waves(size, self.log_smoothness).norm(dim=1)
        # The amplitude is the length of the displacement, which the axes share.
        s = PIXELS * self.amplitude.abs() / len(size) ** 0.5 * (0.5 * log_spectrum(self.log_smoothness.exp(), k)).exp()
        return torch.cat([s[:1], s[1:].repeat_interleave(2)])  # cosine and sine

    def coefficients(self, u: Draws, size: tuple[int, ...]) -> Float[Tensor, "rows samples axes terms"]:
        """The coefficients of the displacements along each axis; draws of one wave are neighbours."""
        z = torch.special.ndtri(u).unflatten(-1, (-1, len(size))).transpose(-1, -2)
        return self.deviations(size).to(u.dtype) * z

    def quantities(self) -> dict[str, Quantity]:
        """Amplitude and smoothness by name."""
        lengths = {"amplitude": PIXELS * self.amplitude.abs().item(), "smoothness": self.log_smoothness.exp().item()}
        return {name: Quantity(self.interval * length, self.unit) for name, length in lengths.items()}

    def saved_arguments(self) -> dict[str, Any]:
        return {"smoothness": self.coarsest * self.interval, "finest": self.finest * self.interval}


def log_spectrum(smoothness: Float[Tensor, ""], k: Float[Tensor, " waves"]) -> Float[Tensor, " terms"]:
    """The logarithms of s_j^2 for a field of unit amplitude, for the constant and then for each wave number.

    The waves k and -k are one, hence the factor two for all but the constant. In logarithms: short waves underflow.
    """
    twice = F.pad(k.new_full(k.shape, log(2.0)), (1, 0))
    return torch.log_softmax(twice - 0.5 * (smoothness * F.pad(k, (1, 0))) ** 2, -1)


@constant
def waves(size: tuple[int, ...], finest: float, coarsest: float) -> Float[Tensor, "waves axes"]:
    """Wave vectors (k_x, k_y) of images, or (k,) of signals, in radians a pixel: one of each (k, -k), long waves first.

    Waves are kept up to |k| = 2.5 / finest, where the spectrum of a field of that smoothness has fallen to exp(-2.5^2 /
    2), and at least one along each axis.
    """
    steps = [2 * pi / (n + 1.5 * coarsest) for n in size]
    cutoff = max(2.5 / finest, *steps)
    counts = product(*(range(-floor(cutoff / step), floor(cutoff / step) + 1) for step in steps))
    half = [[n * s for n, s in zip(count, steps, strict=True)][::-1] for count in counts if count > (0,) * len(size)]
    length = {tuple(k): sum(part**2 for part in k) for k in half}
    kept = [k for k in length if length[k] <= cutoff**2]
    return torch.tensor(sorted(kept, key=lambda k: (round(length[k], 9), k)), dtype=torch.float64)


@constant
def _basis(size: Size, finest: float, coarsest: float) -> Float[Tensor, "terms pixels"]:
    one, places = pixels(size).split([1, 2])
    basis = one.new_empty(2 * len(waves(size, finest, coarsest)) + 1, one.shape[1])
    basis[:1] = one
    # In place: of a large image, this is a large table.
    torch.mm(waves(size, finest, coarsest), places, out=basis[1::2])
    torch.sin(basis[1::2], out=basis[2::2])
    basis[1::2].cos_()
    return basis
