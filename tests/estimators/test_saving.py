"""Saved estimators: what comes back is what was saved, to the last bit, without pickle."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.priors import (
    GammaPrior,
)
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions, saving
from orbitgp.likelihoods import Gaussian, StudentT
from orbitgp.orbits import (
    Flip,
    GaussianNoise,
    Orbit,
    Permutation,
    Rotation,
)
from orbitgp.saving import SavedFileError
from orbitgp.saving.objects import pack, unpack
from tests.saving.quick import QUICK, pictures, table

pytestmark = pytest.mark.usefixtures("one_start", "short_ends")

FIXTURES = Path(__file__).parents[1] / "saving" / "fixtures"


def content(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and tensors; the order of the header's entries is not defined."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


@saving.register
class Halved(nn.Module):
    """Half of the inputs at random, unless it is in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x)


class TestEstimators:
    @pytest.mark.slow
    @pytest.mark.parametrize("labels", [
        ["cat", "a very long name", "ü"], [3, -1, 7], [4.0, 1.0, -2.0], np.array(["u", "v", "w"], dtype=object),
        np.array([1, 2, 3], dtype=np.uint8),
    ], ids=str)  # fmt: skip
    def test_classifier(self, tmp_path: Path, labels: Any) -> None:
        X, y = pictures()
        fitted = InvariantGPClassifier(Rotation(20.0), **QUICK).fit(X, np.array(labels)[y])
        fitted.save(tmp_path / "model.safetensors")
        loaded = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert loaded.predict_proba(X).tobytes() == fitted.predict_proba(X).tobytes()
        assert loaded.classes_.dtype == fitted.classes_.dtype
        assert_array_equal(loaded.predict(X), fitted.predict(X))
        assert loaded.input_shape_ == fitted.input_shape_ == (6, 6)

    @pytest.mark.slow
    @pytest.mark.parametrize("settings", [
        {}, {"mean": "zero", "likelihood": "student-t"},
        {"mean": "linear", "training": TrainingOptions(dtype="float32", learning_rate=0.1, start_rows=20)},
        {"normalize_y": False, "likelihood": Gaussian(2, noise=0.3)},
        {"orbit": Permutation.swap(0, 1), "num_samples": 2},
        {"kernel": ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2, lengthscale_prior=GammaPrior(3.0, 6.0)))},
        {"random_state": np.random.RandomState(1), "image_shape": None, "max_seconds": 100.0,
         "num_inducing": np.int64(6)},
    ], ids=lambda s: ", ".join(s) or "default")  # fmt: skip
    def test_regressor(self, tmp_path: Path, settings: dict[str, Any]) -> None:
        X, y = table()
        y = np.stack([y, 3 - y], 1)
        fitted = InvariantGPRegressor(**{"orbit": GaussianNoise(0.3), **QUICK, **settings}).fit(X, y)
        fitted.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        for ours, theirs in zip(loaded.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True):
            assert ours.tobytes() == theirs.tobytes()
        assert loaded.predict_quantiles(X).tobytes() == fitted.predict_quantiles(X).tobytes()
        assert loaded.evidence_ == fitted.evidence_
        assert loaded.history_ == fitted.history_
        assert vars(loaded).keys() == vars(fitted).keys()
        assert {n: p.requires_grad for n, p in loaded.model_.named_parameters()} == {
            n: p.requires_grad for n, p in fitted.model_.named_parameters()
        }
        # Joint predictions go through everything the model holds.
        x = torch.as_tensor(X, dtype=fitted.model_.inducing.dtype)
        joint = [e.model_.joint(x, 8) for e in (fitted, loaded)]
        assert all(torch.equal(*pair) for pair in zip(*joint, strict=True))

    def test_a_loaded_estimator_is_fitted_again_as_the_first_was(self, tmp_path: Path) -> None:
        X, y = table()
        kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        kernel.base_kernel.lengthscale = torch.tensor([[0.7, 2.0]])
        fitted = InvariantGPRegressor(GaussianNoise(0.3), kernel, likelihood=StudentT(df=6.0), **QUICK).fit(X, y)
        fitted.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert loaded.orbit.scale.item() == fitted.orbit.scale.item() != loaded.orbit_.scale.item()
        assert torch.equal(loaded.kernel.base_kernel.lengthscale, kernel.base_kernel.lengthscale)
        simple = {n: v for n, v in fitted.get_params().items() if not isinstance(v, nn.Module)}
        assert {n: v for n, v in loaded.get_params().items() if not isinstance(v, nn.Module)} == simple
        assert clone(loaded).fit(X, y).evidence_ == fitted.evidence_
        loaded.save(tmp_path / "again.safetensors")
        assert content(tmp_path / "again.safetensors") == content(tmp_path / "model.safetensors")

    @pytest.mark.parametrize(
        ("kernel", "inference"),
        [
            (ScaleKernel(RBFKernel(active_dims=(0, 1))), "exact"),
            (ScaleKernel(RBFKernel(ard_num_dims=1), active_dims=(1,)), "sparse"),
            (ScaleKernel(RBFKernel(ard_num_dims=2) + RBFKernel(active_dims=(0,)), active_dims=(0, 1)), "exact"),
            (ScaleKernel(RBFKernel(active_dims=(0,))) * ScaleKernel(RBFKernel(active_dims=(1,))), "sparse"),
        ],
    )
    def test_a_kernel_that_shares_its_columns_with_its_part(self, tmp_path: Path, kernel: Any, inference: Any) -> None:
        x, y = table()
        model = InvariantGPRegressor(None, kernel, inference=inference, max_steps=3, random_state=0).fit(x, y)
        model.save(tmp_path / "model")
        back = InvariantGPRegressor.load(tmp_path / "model")
        assert_array_equal(back.predict(x), model.predict(x))

    def test_a_feature_map_in_evaluation_mode_is_so_again(self, tmp_path: Path) -> None:
        x, y = table()
        model = InvariantGPRegressor(feature_map=Halved().eval(), max_steps=3, random_state=0).fit(x, y)
        model.save(tmp_path / "model")
        back = InvariantGPRegressor.load(tmp_path / "model")
        for _ in range(2):
            assert_array_equal(back.predict(x), model.predict(x))

    def test_fitted_to_a_data_frame(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        x, y = table()
        frame = pandas.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])])
        model = InvariantGPRegressor("swap(c0, c1)", max_steps=3, random_state=0).fit(frame, y)
        model.save(tmp_path / "model")
        back = InvariantGPRegressor.load(tmp_path / "model")  # warns of nothing
        assert_array_equal(back.predict(frame), model.predict(frame))

    def test_tuples_and_devices_among_the_arguments(self, tmp_path: Path) -> None:
        X, y = pictures()
        fitted = InvariantGPClassifier(Flip(), image_shape=(6, 6), device=torch.device("cpu"), **QUICK).fit(X, y)
        fitted.save(str(tmp_path / "model.safetensors"))
        loaded = InvariantGPClassifier.load(str(tmp_path / "model.safetensors"))
        assert loaded.image_shape == (6, 6)
        assert loaded.device == torch.device("cpu")

    def test_no_pickle_anywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y = pictures()
        fitted = InvariantGPClassifier(Rotation(20.0), **QUICK).fit(X, y)
        expected = fitted.predict_proba(X)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("pickle")

        for owner, name in [(pickle, n) for n in ("load", "loads", "dump", "dumps", "Pickler", "Unpickler")] + [
            (torch, "load"), (torch, "save"), (np, "load"), (np, "save")
        ]:  # fmt: skip
            monkeypatch.setattr(owner, name, refuse)
        fitted.save(tmp_path / "model.safetensors")
        assert_array_equal(InvariantGPClassifier.load(tmp_path / "model.safetensors").predict_proba(X), expected)

    def test_fitted_where_there_was_a_gpu(self, tmp_path: Path) -> None:
        X, y = table()
        fitted = InvariantGPRegressor(**QUICK).fit(X, y)
        expected = fitted.predict(X)
        missing = "mps" if torch.cuda.is_available() else "cuda"
        fitted.set_params(device=missing).save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert loaded.device == "cpu"
        assert_array_equal(loaded.predict(X), expected)

    def test_only_what_is_fitted(self, tmp_path: Path) -> None:
        with pytest.raises(NotFittedError):
            InvariantGPRegressor().save(tmp_path / "model.safetensors")
        assert not list(tmp_path.iterdir())

    def test_an_attribute_without_words(self, tmp_path: Path) -> None:
        fitted = InvariantGPRegressor(**QUICK).fit(*table())
        fitted.mine_ = object()
        with pytest.raises(TypeError, match="mine_"):
            fitted.save(tmp_path / "model.safetensors")

    def test_numbers_that_are_not_finite_are_not_saved(self, tmp_path: Path) -> None:
        fitted = InvariantGPRegressor(**QUICK).fit(*table())
        with torch.no_grad():
            fitted.model_.q_mean[0, 0] = math.nan
        with pytest.raises(ValueError, match=r"model\.q_mean"):
            fitted.save(tmp_path / "model.safetensors")


class Jitter(Orbit):
    """The ten lines of a user."""

    num_draws = 1

    def __init__(self, times: float = 1.0) -> None:
        super().__init__()
        self.times = times
        self.width = nn.Parameter(torch.tensor(0.3))

    def transform(self, x: Tensor, u: Tensor) -> Tensor:
        return x[:, None] + self.times * self.width * (2 * u - 1)


class Several(Orbit):
    """The same with arguments that the object does not keep."""

    num_draws = 1

    def __init__(self, count: int) -> None:
        super().__init__()
        self.widths = nn.Parameter(torch.full((count,), 0.3))

    def transform(self, x: Tensor, u: Tensor) -> Tensor:
        return x[:, None] + self.widths.sum() * (2 * u - 1)

    def saved_arguments(self) -> dict[str, Any]:
        return {"count": len(self.widths)}


class OwnKernel(Kernel):
    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        return torch.exp(-self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag=diag, square_dist=True))


class OwnLikelihood(Gaussian):
    """Gaussian by another name."""


class TestObjectsOfYourOwn:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> tuple[InvariantGPRegressor, Path]:
        fitted = InvariantGPRegressor(Jitter(2.0), OwnKernel(), likelihood=OwnLikelihood(), **QUICK).fit(*table())
        fitted.save(tmp_path / "model.safetensors")
        return fitted, tmp_path / "model.safetensors"

    def test_are_handed_in(self, saved: tuple[InvariantGPRegressor, Path]) -> None:
        fitted, path = saved
        orbit, kernel = Jitter(2.0), OwnKernel()
        loaded = InvariantGPRegressor.load(path, orbit=orbit, kernel=kernel, likelihood=OwnLikelihood())
        X, _ = table()
        assert_array_equal(loaded.predict(X), fitted.predict(X))
        assert loaded.orbit.width.item() == pytest.approx(0.3)
        assert loaded.orbit_.width.item() == fitted.orbit_.width.item() != loaded.orbit.width.item()
        assert loaded.orbit is not orbit
        assert orbit.width.item() == pytest.approx(0.3)
        assert kernel.raw_lengthscale.dtype == torch.float32
        assert clone(loaded).fit(*table()).evidence_ == fitted.evidence_

    def test_the_file_names_all_that_it_lacks(self, saved: tuple[InvariantGPRegressor, Path]) -> None:
        with pytest.raises(SavedFileError) as caught:
            InvariantGPRegressor.load(saved[1], kernel=OwnKernel())
        assert all(
            word in str(caught.value) for word in ("Jitter", "OwnLikelihood", "orbit=…, likelihood=…", str(saved[1]))
        )
        assert "OwnKernel" not in str(caught.value)

    @pytest.mark.parametrize(("orbit", "word"), [
        (Jitter(1.0), "predicts something else"), (Rotation(), "does not fit"), (GaussianNoise(0.3), "does not fit"),
    ], ids=["other attribute", "other class", "other parameters"])  # fmt: skip
    def test_another_object_is_noticed(self, saved: tuple[InvariantGPRegressor, Path], orbit: Orbit, word: str) -> None:
        with pytest.raises(SavedFileError, match=word):
            InvariantGPRegressor.load(saved[1], orbit=orbit, kernel=OwnKernel(), likelihood=OwnLikelihood())

    def test_inside_of_a_composition(self, tmp_path: Path) -> None:
        X, y = table()
        fitted = InvariantGPRegressor(GaussianNoise(0.2) * Jitter(), **QUICK).fit(X, y)
        fitted.save(tmp_path / "model.safetensors")
        with pytest.raises(SavedFileError, match=r"the orbit \(.*Jitter\): hand it in, load\(path, orbit=…\)"):
            InvariantGPRegressor.load(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors", orbit=GaussianNoise() * Jitter())
        assert_array_equal(loaded.predict(X), fitted.predict(X))

    @pytest.fixture
    def registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a test registers is forgotten afterwards."""
        for name in ("_builders", "_recipes"):
            monkeypatch.setattr(saving.objects, name, dict(getattr(saving.objects, name)))

    @pytest.mark.usefixtures("registry")
    @pytest.mark.parametrize(
        "arguments", [None, lambda orbit: {"times": orbit.times}], ids=["by attribute", "by function"]
    )
    def test_registered(self, tmp_path: Path, arguments: Any) -> None:
        saving.register(Jitter, arguments)
        X, y = table()
        fitted = InvariantGPRegressor(GaussianNoise(0.2) * Jitter(3.0), **QUICK).fit(X, y)
        fitted.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert_array_equal(loaded.predict(X), fitted.predict(X))

    @pytest.mark.usefixtures("registry")
    def test_a_class_that_declares_its_arguments(self) -> None:
        saving.register(Several)
        tensors: dict[str, Tensor] = {}
        back = unpack(pack(Several(3), tensors, "orbit"), tensors, "orbit")
        assert len(back.get_parameter("widths")) == 3

    @pytest.mark.usefixtures("registry")
    def test_a_recipe_that_forgets_something_is_not_believed(self) -> None:
        saving.register(Jitter, lambda orbit: {})
        assert pack(Jitter(), {}, "orbit")["build"] is not None
        assert pack(Jitter(2.0), {}, "orbit")["build"] is None
        saving.register(Several, lambda orbit: {"count": 2})
        assert pack(Several(2), {}, "orbit")["build"] is not None
        assert "changed" in pack(Several(3), {}, "orbit")["lacks"]


class TestTrainingOptions:
    def test_come_back(self, tmp_path: Path) -> None:
        options = TrainingOptions(inducing_samples=6, start_rows=20, num_predict_samples=8, local="kept")
        InvariantGPRegressor(**{**QUICK, "training": options}).fit(*table()).save(tmp_path / "file")
        assert InvariantGPRegressor.load(tmp_path / "file").training == options
        InvariantGPRegressor(**{**QUICK, "training": None}).fit(*table()).save(tmp_path / "file")
        assert InvariantGPRegressor.load(tmp_path / "file").training is None


class TestOldFiles:
    @pytest.mark.parametrize("name", ["classifier", "regressor"])
    def test_predict_what_they_did(self, name: str) -> None:
        """Files of this version of the format, and what they predicted when they were written."""
        path = FIXTURES / f"{name}-v{saving.FORMAT_VERSION}.safetensors"
        wanted = json.loads(path.with_suffix(".json").read_text())
        assert path.stat().st_size < 50 * 1024
        kind = InvariantGPClassifier if name == "classifier" else InvariantGPRegressor
        loaded: Any = kind.load(path)
        X = np.array(wanted["X"])
        found = loaded.predict_proba(X) if name == "classifier" else np.stack(loaded.predict(X, return_std=True), 1)
        np.testing.assert_allclose(found, wanted["predictions"], rtol=1e-4, atol=1e-5)
        if name == "classifier":
            assert loaded.predict(X).tolist() == wanted["predict"]
        assert loaded.evidence_.value == wanted["evidence"]
        clone(loaded)

    def test_of_the_first_version_are_refused_in_a_sentence(self) -> None:
        with pytest.raises(
            SavedFileError, match=r"-v1\.safetensors has format version 1, .*: fit again, or use the version that"
        ):
            InvariantGPRegressor.load(FIXTURES / "regressor-v1.safetensors")
