"""Every parameter of every orbit against finite differences, in float64, on rectangular and on colour images."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from experiments.infinimnist import TangentDeformation
from orbitgp.orbits import (
    Affine,
    Brightness,
    Contrast,
    Flip,
    GaussianNoise,
    LocalDeformation,
    Rotation,
    Scale,
    Shear,
    Thickness,
    Translation,
)

ORBITS = {
    "rotation": lambda: Rotation(50),
    "affine": lambda: Affine((-10, 20), 1.2, (0.8, 1.1), 0.2, 1.5, (-2, 1)),
    "translation": lambda: Translation(),
    "scale": lambda: Scale(),
    "shear": lambda: Shear(),
    "deformation": lambda: LocalDeformation(0.7, 4),
    "tangent": lambda: TangentDeformation(0.7, 4),
    "thickness": lambda: Thickness((-0.8, 1.3)),
    "contrast": lambda: Contrast(),
    "brightness": lambda: Brightness(),
    "noise": lambda: GaussianNoise(),
    "affine * deformation": lambda: Affine() * LocalDeformation(0.7, 4),
    "deformation * affine": lambda: LocalDeformation(0.7, 4) * Affine(),
    "everything": lambda: (
        Flip() * Rotation() * LocalDeformation(0.7, 4) * Thickness() * Affine() * Contrast() * Brightness()
    ),
}


@pytest.mark.parametrize("shape", [(6, 9), (2, 5, 7)], ids=str)
@pytest.mark.parametrize("name", ORBITS)
def test_gradcheck(name: str, shape: tuple[int, ...]) -> None:
    orbit = ORBITS[name]().double()
    x = torch.rand(2, *shape, dtype=torch.float64, requires_grad=True)
    u = torch.rand(2, 3, orbit.draws_for(x.shape[1:]), dtype=torch.float64)
    # gradcheck moves its inputs in place, so the parameters that the orbit itself holds are the ones that move.
    parameters = tuple(orbit.parameters())
    assert parameters
    assert all(p.requires_grad for p in parameters)
    assert gradcheck(lambda x, *_: orbit.transform(x, u), (x, *parameters), fast_mode=True)
    # A check of zeros would pass too.
    grads = torch.autograd.grad(orbit.transform(x, u).square().sum(), parameters)
    assert all((grad != 0).all() for grad in grads)
