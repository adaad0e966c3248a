"""What the library's own feature maps are made of: learned constants, Gaussian windows, arrows sorted by direction."""

from __future__ import annotations

from math import inf, log, pi

import torch
import torch.nn.functional as F
from gpytorch import Module
from gpytorch.constraints import Positive
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.machine import constant

_FLAT = 1e-6  # squared length of an arrow that has no direction


class LearnedConstants(Module):
    """A feature map with named positive constants, in the order in which they are given, each learned as its logarithm.

    The constant ``window`` is the parameter ``raw_window``. ``fixed`` names the constructor's other arguments.
    Few data leave constants open: learning moves their logarithms by ``farthest`` at most, a factor of 10,000.
    """

    fixed: tuple[str, ...] = ()
    farthest = log(1e4)

    def __init__(self, learn: bool, **values: float) -> None:
        super().__init__()
        self.learn = learn
        for name, value in values.items():
            if not 0 < value < inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
            parameter = nn.Parameter(torch.tensor(value, dtype=torch.float64).log(), requires_grad=learn)
            self.register_parameter(f"raw_{name}", parameter)
            self.register_constraint(f"raw_{name}", Positive(transform=torch.exp, inv_transform=torch.log))

    def constants(self, dtype: torch.dtype) -> list[Tensor]:
        """All constants in this precision."""
        return [raw.to(dtype).exp() for raw in self.parameters(recurse=False)]

    def named_constants(self) -> dict[str, float]:
        """All constants by name, as plain numbers."""
        own = self.named_parameters(recurse=False)
        return {name.removeprefix("raw_"): raw.exp().item() for name, raw in own}

    def extra_repr(self) -> str:
        """What is fixed, then what is learned, as arguments of the constructor."""
        given = [f"{name}={getattr(self, name)}" for name in self.fixed if getattr(self, name) is not None]
        return ", ".join([*given, *(f"{name}={value:.3g}" for name, value in self.named_constants().items())])


def windows(size: int, number: int, width: Float[Tensor, ""]) -> Float[Tensor, "number size"]:
    """Weights of Gaussian windows along a line of samples; ``width`` is their standard deviation, in samples.

    Their centres lie evenly, and the weights of each sum to one.
    """
    r = _from_centres(size, number, dtype=width.dtype, device=width.device) / width
    return without_tails(torch.softmax(-0.5 * r.square(), 1))


def without_tails(weights: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same, with zeros for what is far below rounding.

    Tails of a Gaussian end in subnormal numbers, with which a CPU may compute ten times slower.
    """
    return F.threshold(weights, torch.finfo(weights.dtype).eps ** 2, 0.0)


def by_direction(
    x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], directions: int, sharpness: Float[Tensor, ""], power: float
) -> Float[Tensor, "directions *shape"]:
    """Arrows (x, y) as each of these directions, evenly around the circle, sees them.

    That is a power of their length times the tuning curve exp(sharpness * (cos(angle) - 1)) of the angle between them.
    Its logarithm is linear in the direction, so one small product yields all of them.
    """
    squared = x.square() + y.square() + _FLAT
    inverse = squared.rsqrt()
    terms = torch.stack([x * inverse, y * inverse, (0.5 * power) * squared.log() - sharpness])
    cosine, sine = _compass(directions, dtype=x.dtype, device=x.device)
    tuning = torch.stack([sharpness * cosine, sharpness * sine, torch.ones_like(sine)], 1)
    return (tuning @ terms.flatten(1)).exp().unflatten(1, x.shape)


@constant
def _from_centres(size: int, number: int) -> Float[Tensor, "number size"]:
    centres = (torch.arange(number, dtype=torch.float64) + 0.5) * (size / number) - 0.5
    return torch.arange(size, dtype=torch.float64) - centres[:, None]


@constant
def _compass(directions: int) -> Float[Tensor, "2 directions"]:
    angles = torch.arange(directions, dtype=torch.float64) * (2 * pi / directions)
    return torch.stack([angles.cos(), angles.sin()])
