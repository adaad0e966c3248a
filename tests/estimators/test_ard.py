"""A lengthscale for each column: the evidence of scikit-learn's, the choice by evidence, and what has no columns."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, compare
from orbitgp.datasets import digits
from orbitgp.kernels import OrientedGradients


def one_of_three(rows: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Only the first of three columns matters."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, np.sin(1.5 * x[:, 0]) + 0.05 * rng.normal(size=rows)


@pytest.mark.slow
def test_the_evidence_is_that_of_scikit_learn() -> None:
    x, y = one_of_three()
    y = (y - y.mean()) / y.std()
    model = InvariantGPRegressor(ard=True, mean="zero", random_state=0).fit(x, y)
    bounds = (1e-3, 1e5)
    kernel = ConstantKernel(1.0, bounds) * RBF(np.ones(3), bounds) + WhiteKernel(0.1, (1e-5, 10))
    with warnings.catch_warnings(action="ignore"):  # lengthscales at their bounds
        other = GaussianProcessRegressor(kernel, n_restarts_optimizer=5, random_state=0).fit(x, y)
    assert model.evidence_.value == pytest.approx(other.log_marginal_likelihood_value_, abs=0.2)
    lengthscales = model.kernel_.base_kernel.lengthscale[0].tolist()
    assert lengthscales[0] == pytest.approx(other.kernel_.k1.k2.length_scale[0], rel=0.05)
    assert min(lengthscales[1:]) > 5 * lengthscales[0]


@pytest.mark.slow
def test_units_of_columns_do_not_matter() -> None:
    x, y = one_of_three(30)
    units = np.array([1e-4, 1.0, 1e5])
    a, b = (InvariantGPRegressor(ard=True, random_state=0).fit(data, y) for data in (x, x * units + 7 * units))
    assert a.evidence_.value == pytest.approx(b.evidence_.value, abs=1e-3)
    np.testing.assert_allclose(a.predict(x[:5]), b.predict(x[:5] * units + 7 * units), atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_the_evidence_decides() -> None:
    x, y = one_of_three(30)
    model = InvariantGPRegressor(ard="auto", random_state=0).fit(x, y)
    each, shared = (InvariantGPRegressor(ard=ard, random_state=0).fit(x, y) for ard in (True, False))
    assert (model.ard_, each.ard_, shared.ard_) == (True, True, False)
    assert model.ard_gain_ == pytest.approx(each.evidence_.value - shared.evidence_.value)
    np.testing.assert_array_equal(model.predict(x), each.predict(x))
    alike = np.sin(x.sum(1))  # all columns matter in the same way
    model = InvariantGPRegressor(ard="auto", random_state=0).fit(x, alike)
    assert not model.ard_
    assert model.ard_gain_ < 5
    assert model.kernel_.base_kernel.lengthscale.numel() == 1


@pytest.mark.usefixtures("one_start")
def test_one_kernel_for_all_orbits_of_a_comparison(tmp_path: Path) -> None:
    x, y = one_of_three(30)
    trained = []
    table = compare(
        x,
        y,
        ["none", "swap(1, 2)"],
        ard="auto",
        refine_seconds=0.0,
        keep=tmp_path,
        watch=lambda job, _: trained.append(job),
    )
    assert [model.ard_ for model in table.models.values()] == [True, True]
    assert {(job.name, job.settings["ard"]) for job in trained} == {("none", "auto"), ("swap(1,2)", True)}  # each once


@pytest.mark.usefixtures("one_start")
def test_one_kernel_for_a_comparison_without_the_plain_model() -> None:
    x, y = one_of_three(30)
    trained = []
    limits = {
        "max_steps": 20,
        "refine_seconds": 0.0,
        "watch": lambda job, _: trained.append((job.name, job.settings["ard"])),
    }
    compare(x, y, ["swap(1, 2)", "sign(0)"], ard="auto", **limits)
    assert set(trained) == {("none", "auto"), ("swap(1,2)", True), ("sign(0)", True)}


def test_images_need_no_model_to_decide() -> None:
    data, trained = digits(), []
    limits = {
        "max_steps": 3,
        "refine_seconds": 0.0,
        "watch": lambda job, _: trained.append((job.name, job.settings["ard"])),
    }
    compare(data.x_train[:20], data.y_train[:20], ["rotation", "flip"], ard="auto", **limits)
    assert set(trained) == {("rotation", "auto"), ("flip", "auto")}


def test_images_feature_maps_and_kernels_have_no_columns(tmp_path: Path) -> None:
    data = digits()
    x, y = data.x_train[:20], data.y_train[:20]
    with pytest.raises(ValueError, match="ard=True is for the default kernel of tables"):
        InvariantGPClassifier(ard=True).fit(x, y)
    with pytest.raises(ValueError, match="ard=True is for"):
        InvariantGPClassifier(ard=True, feature_map=OrientedGradients()).fit(x, y)
    with pytest.raises(ValueError, match="ard must be True, False or 'auto', got 'yes'"):
        InvariantGPClassifier(ard="yes").fit(x, y)
    model = InvariantGPClassifier(ard="auto", max_steps=3, random_state=0).fit(x, y)
    assert not model.ard_
    model.save(tmp_path / "model.safetensors")
    assert InvariantGPClassifier.load(tmp_path / "model.safetensors").ard_ is False
