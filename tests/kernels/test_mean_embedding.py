"""Kernels of means over orbits, against brute force, and in estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import FeatureMapKernel, MeanEmbedding, PatchDictionary
from orbitgp.kernels.feature_maps import prepare
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Flip, Orbit, Weighted
from orbitgp.orbits.parse import make_orbit

FLIPS: list[Orbit] = [Flip(), Weighted(Flip(), 0.2)]


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of(orbit: Orbit, base: RBFKernel | LinearKernel, x: Tensor, embed: bool = True) -> ExactGP:
    seen = PatchDictionary(8, size=3, cells=2)
    prepare(seen, images(20, 1))
    return ExactGP(FeatureMapKernel(base, MeanEmbedding(seen) if embed else seen, (3, 8, 8)), orbit, x)


@pytest.mark.parametrize("orbit", FLIPS, ids=["equal", "weighted"])
def test_the_kernel_compares_means_over_the_orbit(orbit: Flip) -> None:
    x = images(5)
    model = of(orbit, RBFKernel(), x)
    weights = torch.tensor([0.5, 0.5]) if orbit.weights() is None else orbit.weights()
    assert weights is not None
    seen = model.kernel.feature_map
    with torch.no_grad():
        means = sum(w * seen(one).flatten(1) for w, one in zip(weights, (x, x.flip(-1)), strict=True))
        torch.testing.assert_close(model.gram(), RBFKernel().double()(means).to_dense())


def test_both_means_agree_for_a_linear_kernel() -> None:
    x = images(6)
    grams = [of(Flip(), LinearKernel(), x, embed).gram() for embed in (True, False)]
    torch.testing.assert_close(*grams)


def test_fresh_draws_score_a_finite_orbit_of_their_own() -> None:
    x, y = images(8), torch.randn(8, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = of(make_orbit("rotation"), RBFKernel(), x).restricted(x, 4)
    likelihood = Gaussian().double()
    values = [model.restricted(x, 4, seed=seed).log_evidence(likelihood, y) for seed in (1, 2)]
    fresh = model.fresh_evidence(likelihood, y)
    assert fresh.value == pytest.approx(np.mean(values))
    assert fresh.error == pytest.approx(abs(values[0] - values[1]) / 2)


@pytest.mark.parametrize("orbit", ["flip", "rotation"])
def test_an_estimator_says_that_it_embeds_and_is_saved(tmp_path: Path, orbit: str) -> None:
    x, y = images(20).numpy(), np.arange(20) % 2
    settings = {"likelihood": "gaussian", "max_steps": 3, "random_state": 0}
    model = InvariantGPClassifier(
        orbit, feature_map=MeanEmbedding(PatchDictionary(8, size=3, cells=2)), **settings
    ).fit(x, y)
    assert "mean embedding" in str(model.evidence_)
    if orbit == "flip":
        np.testing.assert_allclose(model.predict_proba(x), model.predict_proba(x[..., ::-1].copy()), atol=1e-8)
    model.save(tmp_path / "model.orbitgp")
    again = InvariantGPClassifier.load(tmp_path / "model.orbitgp")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert str(again.evidence_) == str(model.evidence_)


def test_sparse_inference_refuses() -> None:
    x, y = images(20).numpy(), np.arange(20.0)
    with pytest.raises(ValueError, match="MeanEmbedding needs exact inference"):
        InvariantGPRegressor("flip", feature_map=MeanEmbedding(nn.Flatten()), inference="sparse", random_state=0).fit(
            x, y
        )
