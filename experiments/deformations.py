"""Learned amplitudes of local deformations, where the truth is known and on plain digits, against the exact profile.

*Where it is known*: all classes are one thin closed curve, bent by a large random deformation of their own; an example
is its class's curve bent once more, by ``bent`` pixels (root mean square). So deformations up to ``bent`` leave the
label as it is, and those as large as the ones between classes change it. The smoothness of the orbit is that of the
data and is not learned. Two examples of a class differ by two such deformations. The exact log marginal likelihood of a
hundred drawings that were bent by a pixel is highest at 1.4 pixels, about the square root of two.

``python -m experiments deformations --device cuda --jobs 10``
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from experiments import harness, profiles
from experiments.profiles import Profile
from orbitgp.datasets import Dataset, digits
from orbitgp.orbits import LocalDeformation

SIDE = 16
SMOOTHNESS = 4.0
BETWEEN = 3.0  # pixels by which classes are bent apart
STROKE = 0.7  # pixels: half the width of a line; thick ones hardly change when they are bent


@dataclass(frozen=True)
class BentDrawings(profiles.Profiled):
    """Classes that differ by large deformations, examples that differ by deformations of ``bent`` pixels."""

    key = "amplitude"
    unit = "px"

    bent: float = 1.0
    num_classes: int = 10
    num_train: int = 100
    num_test: int = 1000

    def data(self) -> Dataset:
        generator = torch.Generator().manual_seed(self.seed)
        drawing = _curve(generator)
        classes = _bend(drawing.expand(self.num_classes, -1, -1), BETWEEN, generator)
        y = torch.arange(self.num_train + self.num_test) % self.num_classes
        (x_train, x_test), (y_train, y_test) = (
            [part.numpy() for part in all_rows.split([self.num_train, self.num_test])]
            for all_rows in (_bend(classes[y], self.bent, generator), y)
        )
        return Dataset(x_train, y_train, x_test, y_test, name="bent drawings", source="generated")

    def at(self, value: float, learn: bool) -> str:
        return _deformation(value, SMOOTHNESS, learn)

    def title(self) -> str:
        return f"{self.num_train} drawings bent by {self.bent:g} px"


@dataclass(frozen=True)
class PlainDigits(profiles.Profiled):
    """Some embedded digits as they are: how much may they be bent?"""

    key = "amplitude"
    unit = "px"

    num_train: int = 400

    def data(self) -> Dataset:
        return harness.cut(digits(seed=self.seed), slice(self.num_train))

    def at(self, value: float, learn: bool) -> str:
        return _deformation(value, 2.0, learn)

    def title(self) -> str:
        return f"{self.num_train} plain digits of 8x8 pixels"


def _deformation(amplitude: float, smoothness: float, learn: bool) -> str:
    frozen = ["smoothness"] if learn else ["amplitude", "smoothness"]
    return f"deformation({amplitude}, smoothness={smoothness}, frozen={frozen})"


def _curve(generator: torch.Generator, waves: int = 4) -> torch.Tensor:
    """A drawing: a closed curve of a few waves that stays clear of the border."""
    sizes = torch.tensor([1.0, 0.8, 0.5, 0.35])
    phase = torch.arange(1, waves + 1)[:, None] * torch.linspace(0, 2 * torch.pi, 200)
    cos, sin = (torch.randn(2, waves, generator=generator) * sizes for _ in range(2))
    path = cos @ phase.cos() + sin @ phase.sin()
    path *= (SIDE / 2 - 3) / path.abs().max()
    axis = torch.arange(SIDE) - (SIDE - 1) / 2
    squared = (axis[None, :, None] - path[0]) ** 2 + (axis[:, None, None] - path[1]) ** 2
    return torch.exp(-squared.amin(-1) / (2 * STROKE**2))


def _bend(images: torch.Tensor, pixels: float, generator: torch.Generator) -> torch.Tensor:
    """Every image bent by a deformation of its own."""
    orbit = LocalDeformation(pixels, smoothness=SMOOTHNESS, frozen=("amplitude", "smoothness"))
    with torch.no_grad():
        return orbit.sample(images, 2, 2, "iid", generator).points[:, 0, 0]


FULL = [
    Profile(BentDrawings(), (0.25, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0), (0.2, 1.0, 4.0)),
    Profile(PlainDigits(), (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.4), (0.05, 0.5, 2.0)),
]
QUICK = [Profile(BentDrawings(num_train=50, num_test=200, max_seconds=10.0), (0.6, 1.2, 1.8), (0.2, 1.0))]

EXPERIMENT = profiles.experiment("deformations", __doc__, FULL, QUICK)
