"""Learned amplitudes of local deformations, where the truth is known and on plain digits, against the profile of the bound.

*Where it is known*: all classes are one thin closed curve, bent by a large random deformation of their own; an example is its
class's curve bent once more, by ``bent`` pixels (root mean square). So deformations up to ``bent`` leave the label as it is,
and those as large as the ones between classes change it. The smoothness of the orbit is that of the data and is not learned.
The exact log marginal likelihood of a hundred such drawings is highest at ``bent``.

``python -m experiments.deformations --out results`` writes deformations.json and deformations.png.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from experiments import profiles
from experiments.runs import Claims
from orbitgp.datasets import digits
from orbitgp.orbits import LocalDeformation, Orbit

SIDE = 16
SMOOTHNESS = 4.0
BETWEEN = 3.0  # pixels by which classes are bent apart
STROKE = 0.7  # pixels: half the width of a line; thick ones hardly change when they are bent


@dataclass(frozen=True)
class BentDrawings(profiles.Problem):
    """Classes that differ by large deformations, examples that differ by deformations of ``bent`` pixels."""

    bent: float
    num_classes: int = 10
    num_train: int = 100
    num_test: int = 1000

    key = "amplitude"
    unit = "px"
    grid: ClassVar[tuple[float, ...]] = (0.25, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
    starts: ClassVar[tuple[float, ...]] = (0.2, 1.0, 4.0)
    num_inducing = 400

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        generator = torch.Generator().manual_seed(seed)
        drawing = _curve(generator)
        classes = _bend(drawing.expand(self.num_classes, -1, -1), BETWEEN, generator)
        labels = torch.arange(self.num_train + self.num_test) % self.num_classes
        images = _bend(classes[labels], self.bent, generator).numpy()
        n = self.num_train
        return images[:n], labels[:n].numpy(), images[n:], labels[n:].numpy()

    def orbit(self, value: float, learn: bool) -> Orbit:
        frozen = ("smoothness",) if learn else ("amplitude", "smoothness")
        return LocalDeformation(value, smoothness=SMOOTHNESS, frozen=frozen)

    def title(self) -> str:
        return f"{self.num_train} drawings bent by {self.bent:g} px"


@dataclass(frozen=True)
class CoarselyBentDrawings(BentDrawings):
    """The same with a short grid, for two cores."""

    grid = (0.3, 0.6, 1.2)
    starts = (0.2, 1.0)


@dataclass(frozen=True)
class PlainDigits(profiles.Problem):
    """Some embedded digits as they are: how much may they be bent?"""

    num_train: int = 400

    key = "amplitude"
    unit = "px"
    grid = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.4)
    starts = (0.05, 0.5, 2.0)

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        data = digits(seed=seed)
        return data.x_train[: self.num_train], data.y_train[: self.num_train], data.x_test, data.y_test

    def orbit(self, value: float, learn: bool) -> Orbit:
        frozen = ("smoothness",) if learn else ("amplitude", "smoothness")
        return LocalDeformation(value, smoothness=2.0, frozen=frozen)

    def title(self) -> str:
        return f"{self.num_train} plain digits of 8x8 pixels"


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


PROBLEMS = [BentDrawings(1.0), PlainDigits()]

# A field has many draws, and their noise in q(u) would pull the amplitude down: many samples, of few data.
FULL = {"num_samples": 64, "posterior_samples": 256}
QUICK = {"num_samples": 16, "posterior_samples": 64}


def main(arguments: list[str] | None = None) -> Claims:
    """Run the experiment, print its table, write the record and the picture."""
    description = __doc__.split("\n")[0]
    quick = [CoarselyBentDrawings(1.0)]
    return profiles.main(
        "deformations", description, PROBLEMS, lambda: quick, arguments, full_settings=FULL, quick_settings=QUICK
    )


if __name__ == "__main__":
    main()
