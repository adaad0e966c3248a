"""Features that are computed block by block give the same posterior as features that are at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference import exact, streamed
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.streamed import Streamed
from orbitgp.kernels import FeatureMapKernel, OrientedGradients
from orbitgp.likelihoods import make_likelihood
from orbitgp.orbits.parse import make_orbit


@pytest.fixture
def problem() -> tuple[ExactGP, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(23, 6, 6, generator=generator, dtype=torch.float64)
    kernel = FeatureMapKernel(ScaleKernel(RBFKernel()), OrientedGradients(4), (6, 6))
    return ExactGP(kernel, make_orbit("flip"), x[:15]), x[:15].mean((1, 2))[:, None], x[15:]


@pytest.mark.parametrize("held", [1, 150, 300])
def test_the_posterior_is_the_same_in_blocks(
    problem: tuple[ExactGP, torch.Tensor, torch.Tensor], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, y, new = problem
    likelihood = make_likelihood("gaussian")
    solution = model.condition(likelihood, y)
    assert isinstance(model.features(model.x), torch.Tensor)
    expected: list[Any] = [solution.log_evidence, *model.predict(new), *model.joint(new), model.gram()]
    for room in (exact, streamed):
        monkeypatch.setattr(room, "held_elements", lambda device: held)
    model.forget_posterior()
    seen = model.features(model.x)
    assert isinstance(seen, Streamed)
    assert len(list(streamed.blocks(seen))) == {1: 15, 150: 8, 300: 4}[held]
    solution = model.condition(likelihood, y)
    model.forget_posterior()
    found: list[Any] = [solution.log_evidence, *model.predict(new), *model.joint(new), model.gram()]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_precision_is_that_which_was_asked_for(problem: tuple[ExactGP, torch.Tensor, torch.Tensor]) -> None:
    model, *_ = problem
    seen = Streamed(lambda x: model.seen_and_means(x)[0], model.x.float(), 100, torch.float32)
    assert seen[:2].dtype == torch.float32
    assert seen.double()[:2].dtype == torch.float64
    assert streamed.gram(model.vectors, seen.double()).dtype == torch.float64
