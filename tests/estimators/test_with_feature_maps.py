"""Feature maps inside the estimators, and in their files."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.kernels.covariance import FeatureMapCovariance
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.image_maps import OrientedGradients
from orbitgp.orbits import Rotation
from orbitgp.saving import SavedFileError
from orbitgp.training.trainer import Trainer
from tests.kernels.maps import NAMES, OTHER, Curved
from tests.quick_fits import one_start, short_ends

pytestmark = pytest.mark.usefixtures("one_start", "short_ends")


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def digits(count: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=classes, return_X_y=True)
    return images[:count].reshape(-1, 8, 8) / 16, labels[:count]


BRIEF = TrainingOptions(learning_rate=0.03, start_rows=0)
QUICK: dict[str, Any] = {"max_steps": 6, "num_samples": 4, "num_inducing": 20, "random_state": 0, "training": BRIEF}


@pytest.fixture(scope="module")
def fitted() -> tuple[InvariantGPClassifier, OrientedGradients]:
    """A classifier of sixty digits, and the map that it was given, which nobody else may change."""
    own = OrientedGradients(orientations=4, cell=2.0)
    X, y = digits(60, classes=3)
    with one_start(), short_ends():
        return InvariantGPClassifier(Rotation(20.0), feature_map=own, **QUICK).fit(X, y), own


def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(20, 4))
    return X, np.sin(X.sum(1)) + 0.1 * X[:, 0]


class Fixed(nn.Module):
    """x A^T, which is not learned."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.tensor(matrix))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix.mT


class Returns(nn.Module):
    """A map that goes wrong in a way of one's choice."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Any:
        if isinstance(self.how, Exception):
            raise self.how
        return self.how(x)


class TestEstimators:
    @pytest.mark.slow
    def test_fits_and_learns_the_map_too(self, fitted: Any) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        assert type(estimator.kernel_) is FeatureMapKernel
        assert estimator.kernel_ is estimator.model_.kernel
        assert type(estimator.model_.covariance) is FeatureMapCovariance
        assert estimator.kernel_.image_shape == (8, 8)
        assert estimator.score(X, y) > 0.9
        learned = dict(estimator.kernel_.feature_map.named_parameters())
        for name, before in OrientedGradients(orientations=4, cell=2.0).named_parameters():
            assert torch.equal(getattr(own, name), before)
            assert getattr(own, name).grad is None
            assert abs(learned[name].item() - before.item()) > 1e-3
        assert estimator.feature_map is own
        assert estimator.kernel_.feature_map is not own
        assert estimator.orbit_.describe().to_dict() != estimator.orbit.describe().to_dict()

    def test_the_history_tells_of_the_map_by_name(self, fitted: Any) -> None:
        estimator, _ = fitted
        last = estimator.history_[-1]
        for name in NAMES:
            assert last[name] == pytest.approx(getattr(estimator.kernel_.feature_map, f"raw_{name}").exp().item())
        assert estimator.history_[0]["window"] != last["window"]
        assert last["lengthscale"] == pytest.approx(estimator.kernel_.base_kernel.base_kernel.lengthscale.item())

    def test_the_first_lengthscale_is_a_distance_of_features(self) -> None:
        """Distances of pixels are ten times as large here; no step is long enough to get from one to the other."""
        X, y = digits(30)
        own = OrientedGradients(cell=2.0)
        estimator = InvariantGPRegressor(feature_map=own, **{**QUICK, "max_steps": 1}).fit(10 * X, y.astype(float))
        with torch.no_grad():
            median = torch.pdist(own(torch.tensor(10 * X))).median().item()
        assert estimator.kernel_.base_kernel.base_kernel.lengthscale.item() == pytest.approx(median, rel=0.2)

    def test_what_is_not_learned_stays(self) -> None:
        X, y = digits(20)
        own = OrientedGradients(learn=False)
        estimator = InvariantGPRegressor(feature_map=own, **QUICK).fit(X, y.astype(float))
        for name, parameter in estimator.kernel_.feature_map.named_parameters():
            assert torch.equal(parameter, getattr(own, name))

    def test_a_kernel_of_ones_own_is_one_of_features(self) -> None:
        X, y = table()
        linear = nn.Linear(4, 2)
        before = copy.deepcopy(linear.state_dict())
        kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        estimator = InvariantGPRegressor(None, kernel, feature_map=linear, **QUICK).fit(X, y)
        assert estimator.kernel_.base_kernel.base_kernel.lengthscale.shape == (1, 2)
        assert estimator.kernel_.image_shape is None
        assert not torch.equal(estimator.kernel_.feature_map.weight.float(), before["weight"])
        assert all(torch.equal(linear.state_dict()[n], v) for n, v in before.items())
        assert linear.weight.dtype == torch.float32
        with pytest.raises(ValueError, match="lengthscales for 4 features, but the inputs have 2"):
            InvariantGPRegressor(None, ScaleKernel(RBFKernel(ard_num_dims=4)), feature_map=linear, **QUICK).fit(X, y)

    def test_as_a_kernel_it_may_have_a_lengthscale_for_each_feature(self) -> None:
        X, y = table()
        kernel = FeatureMapKernel(RBFKernel(ard_num_dims=3), Curved())
        estimator = InvariantGPRegressor(None, kernel, **QUICK).fit(X, y)
        assert estimator.kernel_.base_kernel.lengthscale.shape == (1, 3)

    def test_a_fixed_linear_map_is_preprocessing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Trained from end to end: the inducing points are fixed, as one step of x is not one of A x."""
        monkeypatch.setattr("orbitgp.training.stochastic_steps._INDUCING_RATE", 0.0)
        X, y = table()
        matrix = np.random.default_rng(1).normal(size=(3, 4))
        settings = {**QUICK, "num_inducing": 12, "training": BRIEF}
        mapped = InvariantGPRegressor(feature_map=Fixed(matrix), **settings).fit(X, y)
        before = InvariantGPRegressor(**settings).fit(X @ matrix.T, y)
        assert mapped.evidence_.value == pytest.approx(before.evidence_.value, rel=1e-8)
        new = np.random.default_rng(2).normal(size=(5, 4))
        found, expected = mapped.predict(new, return_std=True), before.predict(new @ matrix.T, return_std=True)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        for one in (mapped, before):
            assert one.history_[-1]["bound"] == pytest.approx(before.history_[-1]["bound"], rel=1e-8)
        assert mapped.model_.inducing.shape == (12, 4)

    def test_evidence_with_all_inducing_points_is_that_of_the_exact_gp(self) -> None:
        X, y = table()
        settings = {**QUICK, "num_inducing": len(X), "training": replace(BRIEF, jitter=1e-10)}
        estimator = InvariantGPRegressor(feature_map=Curved(), normalize_y=False, **settings).fit(X, y)
        kernel, noise = estimator.kernel_, estimator.likelihood_.noise.item()
        with torch.no_grad():
            phi = torch.sin(torch.tensor(X) @ kernel.feature_map.weight + kernel.feature_map.shift)
            distances = torch.cdist(phi, phi, compute_mode="donot_use_mm_for_euclid_dist")
            scale = kernel.base_kernel.base_kernel.lengthscale.item()
            k = kernel.base_kernel.outputscale * torch.exp(-0.5 * (distances / scale) ** 2) + noise * torch.eye(len(X))
            mean = estimator.model_.prior_mean.bias.expand(len(X))
            truth = torch.distributions.MultivariateNormal(mean, k).log_prob(torch.tensor(y)).item()
        assert estimator.evidence_.value == pytest.approx(truth, abs=1e-4)

    @pytest.mark.slow
    def test_is_cloned_and_pickled(self, fitted: Any) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        twin = clone(estimator)
        assert type(twin.feature_map) is OrientedGradients
        assert twin.feature_map is not own
        assert not hasattr(twin, "kernel_")
        twin.fit(X, y)
        assert twin.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()
        assert twin.evidence_ == estimator.evidence_
        back = pickle.loads(pickle.dumps(estimator))
        assert back.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()

    @pytest.mark.parametrize(("value", "sentence"), [
        ("gradients", "feature_map must be a torch.nn.Module or None, got str"),
        (OrientedGradients, r"must be an instance, got the class OrientedGradients: write OrientedGradients\("),
        (3.0, "feature_map must be a torch.nn.Module or None"),
    ], ids=str)  # fmt: skip
    def test_what_is_no_map(self, value: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
        with pytest.raises(TypeError, match=sentence):
            InvariantGPRegressor(feature_map=value).fit(*table())

    @pytest.mark.parametrize(("how", "sentence"), [
        (lambda x: x.sum(1), r"must take 2 inputs to vectors \(2, D\), but gives \(2,\)"),
        (lambda x: x[:1], r"but gives \(1, 4\)"),
        (lambda x: x[:, :0], r"but gives \(2, 0\)"),
        (lambda x: (x, x), "but gives tuple"),
        (lambda x: None, "but gives NoneType"),
        (lambda x: x * math.nan, "numbers that are not finite"),
        (lambda x: x / 0, "numbers that are not finite"),
        (lambda x: x @ torch.ones(5, 2).double(), r"cannot be evaluated on inputs of shape \(4,\): .*mat1 and mat2"),
        (lambda x: x[:, 9], "cannot be evaluated"),
        (RuntimeError("first\nsecond"), r"feature map Returns cannot be evaluated on inputs of shape \(4,\): first$"),
        (ValueError("no such input"), "no such input"),
        (RuntimeError(), "the feature map Returns cannot be evaluated"),
        (NotImplementedError(), "the feature map Returns cannot be evaluated"),
        (KeyError("missing"), "the feature map Returns cannot be evaluated"),
        (AttributeError("missing"), "the feature map Returns cannot be evaluated"),
    ], ids=[
        "one number", "fewer rows", "no features", "a tuple", "nothing", "NaN", "infinity", "product", "index",
        "raises", "says what is wrong", "raises without a word", "not written", "KeyError", "AttributeError",
    ])  # fmt: skip
    def test_maps_that_go_wrong(self, how: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
        estimator = InvariantGPRegressor(feature_map=Returns(how))
        before = set(vars(estimator))
        with pytest.raises(ValueError, match=sentence) as caught:
            estimator.fit(*table())
        assert "\n" not in str(caught.value)
        assert set(vars(estimator)) == before

    def test_images_that_came_as_rows(self) -> None:
        X, y = digits(20, classes=3)
        flat = X.reshape(20, 64)
        with pytest.raises(ValueError, match=r"OrientedGradients takes images .* shape \(64,\): set image_shape\.$"):
            InvariantGPClassifier(feature_map=OrientedGradients()).fit(flat, y)
        settings = {"feature_map": OrientedGradients(), **QUICK, "max_steps": 1}
        estimators = [
            InvariantGPClassifier(image_shape=(8, 8), **settings).fit(flat, y),
            InvariantGPClassifier(**settings).fit(X, y),
        ]
        assert estimators[0].predict_proba(flat).tobytes() == estimators[1].predict_proba(X).tobytes()


class OwnKernel(RBFKernel):
    """A kernel that nobody registered."""


class TestSaving:
    @pytest.mark.slow
    def test_comes_back_to_the_last_bit(self, fitted: Any, tmp_path: Path) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert loaded.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()
        assert type(loaded.kernel_) is FeatureMapKernel
        assert loaded.kernel_.image_shape == (8, 8)
        for name, parameter in own.named_parameters():
            assert torch.equal(getattr(loaded.feature_map, name), parameter)
            assert torch.equal(getattr(loaded.kernel_.feature_map, name), getattr(estimator.kernel_.feature_map, name))
            assert getattr(loaded.kernel_.feature_map, name).requires_grad
        assert (loaded.feature_map.orientations, loaded.feature_map.cell) == (4, 2.0)
        assert clone(loaded).fit(X, y).evidence_ == estimator.evidence_

    def test_a_map_that_is_not_learned(self, tmp_path: Path) -> None:
        X, y = digits(20)
        own = OrientedGradients(**OTHER, learn=False)
        estimator = InvariantGPRegressor(feature_map=own, **QUICK).fit(X, y.astype(float))
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()
        assert not any(p.requires_grad for p in loaded.kernel_.feature_map.parameters())
        assert not loaded.feature_map.learn

    @pytest.fixture
    def unregistered(self, tmp_path: Path) -> tuple[InvariantGPRegressor, Path]:
        estimator = InvariantGPRegressor(feature_map=Curved(), **QUICK).fit(*table())
        estimator.save(tmp_path / "model.safetensors")
        return estimator, tmp_path / "model.safetensors"

    def test_the_file_asks_for_a_map_of_ones_own(self, unregistered: Any) -> None:
        _, path = unregistered
        with pytest.raises(SavedFileError, match=r"feature_map \(.*Curved\).* load\(path, .*feature_map=…\)") as caught:
            InvariantGPRegressor.load(path)
        assert "\n" not in str(caught.value)

    def test_a_map_of_ones_own_is_handed_in(self, unregistered: Any) -> None:
        estimator, path = unregistered
        X, y = table()
        own = Curved()
        loaded = InvariantGPRegressor.load(path, feature_map=own)
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()
        assert torch.equal(loaded.kernel_.feature_map.weight, estimator.kernel_.feature_map.weight)
        assert torch.equal(loaded.feature_map.weight, Curved().weight)
        assert torch.equal(own.weight, Curved().weight)
        assert clone(loaded).fit(X, y).evidence_ == estimator.evidence_

    def test_another_map_is_noticed(self, unregistered: Any) -> None:
        class Other(Curved):
            def forward(self, x: Tensor) -> Tensor:
                return 2 * super().forward(x)

        with pytest.raises(SavedFileError, match="predicts something else"):
            InvariantGPRegressor.load(unregistered[1], feature_map=Other())

    def test_a_map_of_ones_own_with_a_given_kernel(self, tmp_path: Path) -> None:
        X, y = table()
        estimator = InvariantGPRegressor(None, RBFKernel(), feature_map=Curved(), **QUICK).fit(X, y)
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors", feature_map=Curved())
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()

    def test_our_map_with_a_kernel_of_ones_own(self, tmp_path: Path) -> None:
        X, y = digits(20)
        estimator = InvariantGPRegressor(None, OwnKernel(), feature_map=OrientedGradients(), **QUICK).fit(
            X, y.astype(float)
        )
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors", kernel=OwnKernel())
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()
