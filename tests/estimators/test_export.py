"""Exported programs, in a process that has torch alone, against predictions of the estimator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RQKernel
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from torch import Tensor

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, datasets
from orbitgp.orbits import Orbit, Permutation

RUN = """
import sys, torch
found = {}
for name in sys.argv[2:]:
    program = torch.export.load(f"{sys.argv[1]}/{name}.pt2").module()
    found[name] = [program(x) for x in torch.load(f"{sys.argv[1]}/{name}.in")]
assert not {"orbitgp", "gpytorch", "sklearn"} & sys.modules.keys()
torch.save(found, f"{sys.argv[1]}/out")
"""


def in_another_process(folder: Path, inputs: dict[str, list[Tensor]]) -> Any:
    """What each program yields for each of its inputs, where only torch is imported."""
    for name, batches in inputs.items():
        torch.save(batches, folder / f"{name}.in")
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", RUN, folder, *inputs], check=True)
    return torch.load(folder / "out")


def table(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    return x, 50 + 9 * np.sin(x[:, 0]) + 9 * x[:, 1] * x[:, 2] + rng.normal(size=rows)


@pytest.fixture(scope="module")
def regressor() -> Any:
    return InvariantGPRegressor(Permutation.swap(1, 2), random_state=0, max_steps=3).fit(*table()).compact(20)


@pytest.mark.slow
def test_programs_predict_as_the_model_for_any_number_of_rows(regressor: Any, tmp_path: Path) -> None:
    digits, rows = datasets.digits(), (1, 2, 3, 50)
    classifier = InvariantGPClassifier("rotation", random_state=0, num_samples=4, max_steps=1)
    classifier = classifier.fit(digits.x_train[:40], digits.y_train[:40]).compact(20)
    classifier.export(tmp_path / "images.pt2")
    plain = InvariantGPRegressor(random_state=0, max_steps=3).fit(*table()).compact(20)  # without an orbit
    regressor.export(str(tmp_path / "table.pt2"))
    plain.export(tmp_path / "plain.pt2")
    images, numbers = torch.tensor(digits.x_test[:50]).float(), torch.tensor(table(90)[0][40:])
    inputs = {"images": images, "table": numbers, "plain": numbers}
    found = in_another_process(tmp_path, {name: [x[-n:] for n in rows] for name, x in inputs.items()})
    for n, probs, *moments in zip(rows, found["images"], found["table"], found["plain"], strict=True):
        assert_allclose(probs, classifier.predict_proba(digits.x_test[50 - n : 50]), rtol=0, atol=1e-5)
        for model, (mean, std) in zip((regressor, plain), moments, strict=True):
            expected = model.predict(numbers[-n:].numpy(), return_std=True)
            assert_allclose(mean, expected[0], rtol=0, atol=1e-5)
            assert_allclose(std, expected[1], rtol=0, atol=1e-5)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_what_cannot_be_exported_is_said(regressor: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with pytest.raises(NotFittedError):
        InvariantGPRegressor().export(path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .* to write model\.pt2 into"):
        regressor.export(tmp_path / "nowhere" / "model.pt2")
    x, y = table(12)
    exact = InvariantGPRegressor(max_steps=1).fit(x, y)
    with pytest.raises(ValueError, match=r"compact\(\)"):
        exact.export(path)
    counts = InvariantGPRegressor(likelihood="negative-binomial", max_steps=1).fit(x, y.round())
    with pytest.raises(ValueError, match="NegativeBinomial cannot be exported"):
        counts.compact(5).export(path)
    mixed = InvariantGPRegressor(kernel=RQKernel(), max_steps=1).fit(x, y)
    with pytest.raises(ValueError, match="other than RBF and Matérn"):
        mixed.compact(5).export(path)
    words = pd.DataFrame({"a": x[:, 0], "b": ["u", "v", "w"] * 4})
    with pytest.raises(ValueError, match="words, dates or gaps"):
        InvariantGPRegressor(max_steps=1).fit(words, y).compact(5).export(path)
    assert list(tmp_path.iterdir()) == []


class Doubtful(Orbit):
    """An orbit that asks for numbers, or does something else where it is exported."""

    num_draws = 1
    asks = True

    def transform(self, x: Tensor, u: Tensor) -> Tensor:
        far = (self.asks and bool(x.max() > 1e9)) or torch.compiler.is_exporting()
        return x[:, None] + u * (1.0 + far)


@pytest.mark.slow
def test_a_program_that_cannot_be_or_is_wrong_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = InvariantGPRegressor(Doubtful(), random_state=0, num_samples=2, max_steps=1).fit(*table(12)).compact(5)
    with pytest.raises(ValueError, match=r"torch\.export cannot follow this model .* depends on numbers"):
        fitted.export(tmp_path / "model.pt2")
    monkeypatch.setattr(Doubtful, "asks", False)
    with pytest.raises(ValueError, match="would not predict what the model does"):
        fitted.export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
