"""Examples in the docstrings of what a user imports print what they show."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

MODULES = [
    import_module(name)
    for name in ("orbitgp", "orbitgp.orbits", "orbitgp.kernels", "orbitgp.likelihoods", "orbitgp.datasets")
]
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}
# Those that download, that users extend or receive and do not make, or that a page shows at length.
WITHOUT = {
    "mnist", "fashion_mnist", "DatasetError",
    "Composition", "FiniteOrbit", "FiniteProduct", "ImageOrbit", "Pairing", "Points", "Samples",
    "SignalOrbit", "SignalWarp", "SignalWarpProduct", "Warp", "WarpProduct",
    "Covariance", "covariance", "InvariantGP", "elbo",
    "Categorical", "Classification", "CountMixture", "HeteroscedasticGaussian", "Likelihood", "Moments", "Noise",
    "Quadratic", "ScaleMixture",
}  # fmt: skip
SHOWN = {name: thing for name, thing in PUBLIC.items() if name not in WITHOUT and not inspect.ismodule(thing)}


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_of_a_docstring_prints_what_it_shows(name: str) -> None:
    torch.manual_seed(0)
    given = {**PUBLIC, "np": np, "torch": torch, "RBFKernel": RBFKernel}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(SHOWN[name]), given, name, None, None)
    assert example.examples, f"the docstring of {name} has no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert said == []
