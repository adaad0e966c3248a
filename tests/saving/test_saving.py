"""Saving: what comes back is what was saved, to the last bit, without pickle; a file that is not whole gives one sentence."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import random
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import safetensors.torch
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    CylindricalKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    HorseshoePrior,
    LogNormalPrior,
    NormalPrior,
    SmoothedBoxPrior,
    UniformPrior,
)
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, InvariantKernel, TrainingOptions, orbits, saving
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, Laplace, StudentT
from orbitgp.likelihoods.registry import CLASSIFICATION
from orbitgp.orbits import (
    Affine,
    Baseline,
    Brightness,
    ChannelPermutation,
    Contrast,
    Dropout,
    Flip,
    Gain,
    GaussianNoise,
    Identity,
    LocalDeformation,
    Offset,
    Orbit,
    Permutation,
    Reversal,
    Rotate90,
    Rotation,
    Scale,
    Shear,
    Smoothing,
    TangentDeformation,
    Thickness,
    TimeScale,
    TimeShift,
    TimeWarp,
    Translation,
)
from orbitgp.saving import SavedFileError
from orbitgp.saving.atomic import replace
from orbitgp.saving.container import read, write
from orbitgp.saving.modules import pack, unpack
from orbitgp.saving.registry import decode, encode

FIXTURES = Path(__file__).parent / "fixtures"
QUICK: dict[str, Any] = {
    "max_steps": 4,
    "num_inducing": 8,
    "num_samples": 4,
    "training": TrainingOptions(num_predict_samples=8),
    "random_state": 0,
}


def table(rows: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(X[:, 0] + X[:, 1])


def pictures(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 1, (rows, 6, 6)), np.arange(rows) % 3


def through_json(value: Any) -> Any:
    tensors: dict[str, Tensor] = {}
    text = json.dumps(encode(value, tensors, "x"))
    return decode(json.loads(text), tensors)


def through_file(module: nn.Module, path: Path) -> nn.Module:
    tensors: dict[str, Tensor] = {}
    packed = pack(module, tensors, "module")
    assert packed["build"] is not None, packed
    write(path, "regressor", packed, tensors)
    _, config, found = read(path)
    return unpack(config, found, "module")


@torch.no_grad()
def shake(module: Any) -> Any:
    """Move every parameter away from where the constructor put it."""
    for parameter in module.parameters():
        parameter.add_(0.05 + 0.1 * torch.rand_like(parameter))
    return module


class TestValues:
    @pytest.mark.parametrize("value", [
        None, True, False, 0, -3, 2**70, 0.1, 1e-320, math.inf, -math.inf, "a", "", "\ud800 ü", b"\xff\x00", (), [1, (2,)],
        (1, (2.0, "b")), {"a": (1, 2)}, {0: {"step": 1.5}, (1, 2): None}, {"$tuple": 1}, {}, [], torch.Size([2, 3]),
        torch.device("cpu"),
    ], ids=repr)  # fmt: skip
    def test_come_back_as_they_were(self, value: Any) -> None:
        back = through_json(value)
        assert back == value
        assert type(back) is type(value)
        assert repr(back) == repr(value)

    def test_not_a_number(self) -> None:
        assert math.isnan(through_json(math.nan))

    @pytest.mark.parametrize("array", [
        np.array(["b", "ccc", ""]), np.array([b"x", b"yy"]), np.array([True, False]), np.array([1, -2], dtype=np.int8),
        np.array([2**63], dtype=np.uint64), np.array([0.1, math.inf, -0.0], dtype=np.float32), np.array([[0.1, 0.2]]),
        np.array(["a", 1, None, 2.5, b"x"], dtype=object), np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        np.array([0.1, 2.0], dtype=">f8"), np.array([], dtype="<U3"), np.array(3.0), np.array([1.5], dtype=np.float16),
    ], ids=lambda a: f"{a.dtype}{a.shape}")  # fmt: skip
    def test_arrays_keep_their_type(self, array: np.ndarray) -> None:
        back = through_json(array)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert_array_equal(back, array)
        assert array.dtype == object or back.tobytes() == array.tobytes()

    @pytest.mark.parametrize("tensor", [
        torch.randn(3, 4), torch.randn(3, 4).mT, torch.randn(2, 3, 4).permute(1, 2, 0), torch.randn(4, 6)[:, ::2],
        torch.tensor(1.0), torch.ones(1).expand(1), torch.empty(0, 3), torch.arange(4), torch.tensor([True]),
        torch.randn(1, 5).mT,
    ], ids=lambda t: f"{t.dtype}{tuple(t.shape)}{t.stride()}")  # fmt: skip
    def test_tensors_keep_the_order_in_which_their_axes_lie(self, tensor: Tensor) -> None:
        back = through_json([tensor])[0]
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)
        if tensor.is_contiguous() or tensor.mT.is_contiguous() or tensor.ndim == 3:
            assert back.stride() == tensor.stride()

    def test_random_state(self) -> None:
        state = np.random.RandomState(3)
        state.normal(size=5)
        back = through_json(state)
        assert_array_equal(back.normal(size=7), state.normal(size=7))

    @pytest.mark.parametrize("value", [object(), {1, 2}, lambda x: x, nn.Linear(2, 2)], ids=lambda v: type(v).__name__)
    def test_what_cannot_be_said_is_an_error(self, value: Any) -> None:
        with pytest.raises(TypeError):
            encode(value, {}, "x")

    def test_unknown_words_are_errors(self) -> None:
        for value in (
            {"$object": ["os.system", {}]},
            {"$object": ["exp"]},
            {"$object": ["tuple", {"*": [3]}]},
            {"$tensor": ["missing"]},
        ):
            with pytest.raises((ValueError, KeyError, TypeError)):
                decode(value, {})


ORBITS: dict[str, Any] = {
    "Identity": lambda: Identity(),
    "Rotate90": lambda: Rotate90(),
    "Flip": lambda: Flip(horizontal=False, vertical=True),
    "Permutation": lambda: Permutation([[1, 0, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5]], close=True),
    "FiniteProduct": lambda: Flip() * Rotate90() * Flip(vertical=True),
    "Rotation": lambda: Rotation(20.0),
    "Scale": lambda: Scale((0.9, 1.3)),
    "Shear": lambda: Shear(0.3),
    "Translation": lambda: Translation(shift_x=None),
    "Affine": lambda: Affine(without=("shear", "shift_y"), angle=(3, 3), frozen=["angle"]),
    "Brightness": lambda: Brightness(0.2),
    "Contrast": lambda: Contrast(pivot=0),
    "Thickness": lambda: Thickness((-0.2, 0.8)),
    "GaussianNoise": lambda: GaussianNoise(0.2, num_features=36),
    "LocalDeformation": lambda: LocalDeformation([0.5, 1.0], [3.0, 6.0], per_axis=True, finest=2.0),
    "TangentDeformation": lambda: TangentDeformation(thickness=None, blur=1.1, smoothness=4.0),
    "WarpProduct": lambda: Rotation(10.0) * Affine() * LocalDeformation(),
    "TimeShift": lambda: TimeShift((-1.0, 2.0), border="circular", interpolation="cubic", interval=0.5, unit="s"),
    "TimeScale": lambda: TimeScale((0.9, 1.3)),
    "TimeWarp": lambda: TimeWarp(0.5, 4.0, interval=0.5, unit="s", finest=1.0),
    "Gain": lambda: Gain((0.9, 1.4)),
    "Offset": lambda: Offset((-0.2, 0.1)),
    "Baseline": lambda: Baseline(0.2, degree=1),
    "Smoothing": lambda: Smoothing(1.5, learn=False, interval=0.5, unit="s"),
    "Dropout": lambda: Dropout(2.0, fill=0.5),
    "Reversal": lambda: Reversal(),
    "ChannelPermutation": lambda: ChannelPermutation([[1, 0, 2, 3, 4, 5]], close=True),
    "SignalWarpProduct": lambda: TimeShift() * TimeWarp(0.5, 4.0) * TimeScale(),
    "Composition": lambda: Flip() * Rotation(10.0) * Brightness() * GaussianNoise(),
}


class TestOrbits:
    def test_every_orbit_of_the_library_is_here(self) -> None:
        abstract = {"Orbit", "FiniteOrbit", "ImageOrbit", "Warp", "SignalOrbit", "SignalWarp"}
        kinds = {n for n in orbits.__all__ if isinstance(getattr(orbits, n), type) and issubclass(getattr(orbits, n), Orbit)}
        assert kinds - abstract == set(ORBITS)
        assert all(type(make()).__name__ == name for name, make in ORBITS.items())

    def test_a_swap_in_vectors_of_any_length(self, tmp_path: Path) -> None:
        for orbit in (Permutation.swap(0, 1), Permutation.swap(0, 1) * GaussianNoise(0.1)):
            back = through_file(orbit, tmp_path / "orbit.safetensors")
            for x in (torch.rand(3, 2), torch.rand(3, 5)):
                assert torch.equal(back.shared_samples(x, 4).points, orbit.shared_samples(x, 4).points)

    @pytest.mark.parametrize("name", ORBITS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_samples_are_the_same(self, tmp_path: Path, name: str, dtype: torch.dtype) -> None:
        orbit = shake(ORBITS[name]()).to(dtype)
        back = through_file(orbit, tmp_path / "orbit.safetensors")
        assert type(back) is type(orbit)
        x = torch.rand(3, 6, dtype=dtype) if name == "Permutation" else torch.rand(3, 6, 6, dtype=dtype)
        samples = [
            o.sample(x, None if hasattr(o, "size") else 8, generator=torch.Generator().manual_seed(0)) for o in (orbit, back)
        ]
        assert torch.equal(samples[0].points, samples[1].points)
        assert orbit.describe().to_dict() == back.describe().to_dict()
        learned = [[(n, p.requires_grad, p.dtype) for n, p in o.named_parameters()] for o in (orbit, back)]
        assert learned[0] == learned[1]

    def test_frozen_and_of_width_zero(self, tmp_path: Path) -> None:
        orbit = Affine(angle=(3, 3), frozen=["angle"]).freeze()
        back = through_file(orbit, tmp_path / "orbit.safetensors")
        assert back.describe()["angle"] == orbit.describe()["angle"]
        assert not any(p.requires_grad for p in back.parameters())

    @pytest.mark.parametrize("make", [
        lambda: Affine(angle=(-3, 12), scale_x=(0.9, 1.3), scale_y=None, shift_y=(0, 2)),
        lambda: Scale((1, 1.3)), lambda: Shear((-0.2, 0.1)), lambda: Translation(1, (-2, 1)), lambda: Brightness((0, 0.3)),
        lambda: Contrast((0.9, 1.4), pivot=0), lambda: Thickness((-0.5, 0)), lambda: TangentDeformation(thickness=(-0.1, 0.4)),
    ], ids=range(8))  # fmt: skip
    def test_two_sided_and_one_sided_ranges(self, tmp_path: Path, make: Any) -> None:
        orbit = make()
        back = through_file(orbit, tmp_path / "orbit.safetensors")
        x, draws = torch.rand(3, 6, 6), torch.rand(3, 8, orbit.draws_for(torch.Size((6, 6))))
        assert torch.equal(back.transform(x, draws), orbit.transform(x, draws))
        assert back.describe().to_dict() == orbit.describe().to_dict()
        learned = [[(n, p.requires_grad) for n, p in o.named_parameters()] for o in (orbit, back)]
        assert learned[0] == learned[1]

    def test_a_fixed_range_that_two_parts_share(self, tmp_path: Path) -> None:
        shift = Translation((2, 3), (-4, -3), frozen=("shift_x", "shift_y"))
        back = through_file(shift * shift, tmp_path / "orbit.safetensors")
        for part in back.parts:
            assert part.describe().to_dict() == shift.describe().to_dict()

    def test_parameters_that_two_parts_share_stay_shared(self, tmp_path: Path) -> None:
        turn = Rotation(20.0)
        orbit = turn * turn
        back = through_file(orbit, tmp_path / "orbit.safetensors")
        assert len(list(back.parameters())) == 1
        assert back.parts[0].angle is back.parts[1].angle
        assert torch.equal(back.parts[1].angle, turn.angle)
        assert len(list(through_file(Rotation(20.0) * Rotation(20.0), tmp_path / "two.safetensors").parameters())) == 2


LOG_SCALE = {"transform": torch.exp, "inv_transform": torch.log}
KERNELS: dict[str, Any] = {
    "default": lambda: ScaleKernel(
        RBFKernel(lengthscale_constraint=Positive(**LOG_SCALE)), outputscale_constraint=Positive(**LOG_SCALE)
    ),
    "rbf": lambda: RBFKernel(ard_num_dims=2, active_dims=(2, 0), lengthscale_prior=GammaPrior(2.0, torch.tensor([[1.0, 2.0]]))),
    "matern": lambda: MaternKernel(
        nu=1.5, lengthscale_constraint=Interval(0.1, 9.0), lengthscale_prior=UniformPrior(0.0, 20.0)
    ),
    "botorch": lambda: RBFKernel(
        ard_num_dims=3,
        lengthscale_prior=LogNormalPrior(1.4, 1.7),
        lengthscale_constraint=GreaterThan(0.025, transform=None, initial_value=1.0),
    ),
    "rq": lambda: RQKernel(alpha_constraint=LessThan(4.0)),
    "periodic": lambda: PeriodicKernel(ard_num_dims=3, period_length_prior=NormalPrior(1.0, 0.5)),
    "cosine": lambda: CosineKernel(period_length_prior=HalfNormalPrior(2.0)),
    "linear": lambda: LinearKernel(active_dims=(1,), variance_prior=HalfCauchyPrior(1.0)),
    "constant": lambda: ConstantKernel(constant_prior=SmoothedBoxPrior(0.1, 3.0, sigma=0.2)),
    "polynomial": lambda: PolynomialKernel(power=3, offset_prior=HorseshoePrior(0.3)),
    "piecewise": lambda: PiecewisePolynomialKernel(q=1, lengthscale_constraint=Positive(transform=nn.functional.softplus)),
    "spectral mixture": lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3),
    "random features": lambda: RFFKernel(num_samples=5),
    "cylindrical": lambda: CylindricalKernel(2, RBFKernel(), alpha_prior=GammaPrior(2.0, 2.0)),
    "sum and product": lambda: ScaleKernel(
        RBFKernel() + LinearKernel() * PeriodicKernel(), outputscale_prior=GammaPrior(2.0, 3.0)
    ),
    "invariant": lambda: InvariantKernel(ScaleKernel(RBFKernel()), Permutation.swap(0, 1, dim=3), normalise=True),
}


class TestKernels:
    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_values_priors_and_gradients_are_the_same(self, tmp_path: Path, name: str, dtype: torch.dtype) -> None:
        kernel = KERNELS[name]().to(dtype)
        x = 0.5 * torch.rand(5, 3, dtype=dtype)
        kernel(x).to_dense()  # random features are drawn when the kernel first sees an input
        shake(kernel)
        kernel.requires_grad_(True)
        back = through_file(kernel, tmp_path / "kernel.safetensors")
        results = []
        for k in (kernel, back):
            priors = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in k.named_priors()]
            value = k(x).to_dense()
            (value.sin().sum() + sum(priors)).backward()
            results.append([value, *priors, *(p.grad for p in k.parameters() if p.grad is not None)])
        assert len(results[0]) == len(results[1])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        assert {type(c) for c in kernel.constraints()} == {type(c) for c in back.constraints()}
        assert {n: v.dtype for n, v in kernel.state_dict().items()} == {n: v.dtype for n, v in back.state_dict().items()}

    @pytest.mark.parametrize("change", [
        lambda k: setattr(k, "nu", 0.5),  # a recipe knows this one
        lambda k: k.register_constraint("raw_lengthscale", Positive(transform=lambda t: t.exp(), inv_transform=torch.log)),
        lambda k: k.register_prior("mine", GammaPrior(2.0, 2.0), lambda module: module.lengthscale),
        lambda k: setattr(k, "note", 3),
    ])  # fmt: skip
    def test_what_cannot_be_rebuilt_exactly_is_not_rebuilt_at_all(self, change: Any) -> None:
        kernel = MaternKernel(nu=2.5)
        change(kernel)
        packed = pack(kernel, {}, "kernel")
        assert (packed["build"] is None) == (kernel.nu == 2.5)
        assert kernel.nu == 0.5 or packed["lacks"]


class TestLikelihoods:
    @pytest.mark.parametrize("likelihood", [
        *(make(4) for make in CLASSIFICATION.values()), Bernoulli(), Gaussian(2, noise=0.3, min_noise=0.1),
        Gaussian(min_noise=0.0), StudentT(2, df=5.0), Laplace(2), Dirichlet(4, concentration=0.01),
    ], ids=lambda likelihood: type(likelihood).__name__)  # fmt: skip
    def test_predictions_are_the_same(self, tmp_path: Path, likelihood: Any) -> None:
        shake(likelihood)
        back = through_file(likelihood, tmp_path / "likelihood.safetensors")
        mean, variance = torch.randn(3, likelihood.num_latents).double(), torch.rand(3, likelihood.num_latents).double()
        laws = [vars(one.predictive(mean, variance)) for one in (likelihood, back)]
        for name, value in laws[0].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(laws[1][name])), name


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
        {"mean": "linear", "training": TrainingOptions(dtype="float32", optimizer="adam", start_rows=20)},
        {"normalize_y": False, "likelihood": Gaussian(2, noise=0.3)}, {"orbit": Permutation.swap(0, 1), "num_samples": 2},
        {"kernel": ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2, lengthscale_prior=GammaPrior(3.0, 6.0)))},
        {"random_state": np.random.RandomState(1), "image_shape": None, "max_seconds": 100.0, "num_inducing": np.int64(6)},
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
        # Joint draws go through everything the model holds.
        x = torch.as_tensor(X, dtype=fitted.model_.inducing.dtype)
        draws = [e.model_.sample_functions(x, 2, 8, generator=torch.Generator().manual_seed(0)) for e in (fitted, loaded)]
        assert torch.equal(*draws)

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

    @pytest.mark.parametrize("inference", ["exact", "sparse"])
    @pytest.mark.parametrize(
        "kernel",
        [
            ScaleKernel(RBFKernel(active_dims=(0, 1))),
            ScaleKernel(RBFKernel(ard_num_dims=1), active_dims=(1,)),
            ScaleKernel(RBFKernel(ard_num_dims=2) + RBFKernel(active_dims=(0,)), active_dims=(0, 1)),
            ScaleKernel(RBFKernel(active_dims=(0,))) * ScaleKernel(RBFKernel(active_dims=(1,))),
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
        assert all(word in str(caught.value) for word in ("Jitter", "OwnLikelihood", "orbit=…, likelihood=…", str(saved[1])))
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
            monkeypatch.setattr(saving.registry, name, dict(getattr(saving.registry, name)))

    @pytest.mark.usefixtures("registry")
    @pytest.mark.parametrize("arguments", [None, lambda orbit: {"times": orbit.times}], ids=["by attribute", "by function"])
    def test_registered(self, tmp_path: Path, arguments: Any) -> None:
        saving.register(Jitter, arguments)
        X, y = table()
        fitted = InvariantGPRegressor(GaussianNoise(0.2) * Jitter(3.0), **QUICK).fit(X, y)
        fitted.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert_array_equal(loaded.predict(X), fitted.predict(X))

    @pytest.mark.usefixtures("registry")
    def test_a_class_that_declares_its_arguments(self, tmp_path: Path) -> None:
        saving.register(Several)
        back = through_file(shake(Several(3)), tmp_path / "orbit.safetensors")
        assert len(back.get_parameter("widths")) == 3

    @pytest.mark.usefixtures("registry")
    def test_a_recipe_that_forgets_something_is_not_believed(self) -> None:
        saving.register(Jitter, lambda orbit: {})
        assert pack(Jitter(), {}, "orbit")["build"] is not None
        assert pack(Jitter(2.0), {}, "orbit")["build"] is None
        saving.register(Several, lambda orbit: {"count": 2})
        assert pack(Several(2), {}, "orbit")["build"] is not None
        assert "changed" in pack(Several(3), {}, "orbit")["lacks"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "model.safetensors"
    InvariantGPRegressor(GaussianNoise(0.3), RBFKernel(), **QUICK).fit(*table()).save(path)
    return path


class TestBadFiles:
    @staticmethod
    def sentence(path: Path) -> str:
        with pytest.raises(SavedFileError) as caught:
            InvariantGPRegressor.load(path)
        text = str(caught.value)
        assert str(path) in text
        assert "\n" not in text
        assert text.endswith(".")
        return text

    def test_cut_short(self, good: Path, tmp_path: Path) -> None:
        data, path = good.read_bytes(), tmp_path / "model.safetensors"
        for length in [0, 1, 7, 8, 9, *random.Random(0).sample(range(10, len(data)), 40), len(data) - 1]:
            path.write_bytes(data[:length])
            assert "cut short" in self.sentence(path)

    def test_any_byte_changed(self, good: Path, tmp_path: Path) -> None:
        data, path = good.read_bytes(), tmp_path / "model.safetensors"
        chosen = random.Random(0)
        header = int.from_bytes(data[:8], "little") + 8
        for place in [*range(8), *chosen.sample(range(8, header), 150), *chosen.sample(range(header, len(data)), 80)]:
            path.write_bytes(data[:place] + bytes([data[place] ^ (1 << chosen.randrange(8))]) + data[place + 1 :])
            self.sentence(path)

    @pytest.mark.parametrize("data", [
        b"", b"\x89PNG\r\n" * 10, b"PK\x03\x04" * 100, b"\x80\x04\x95" * 50, b"{}" * 99, b"\0" * 99,
        (2**40).to_bytes(8, "little") + b"{" * 99, (12).to_bytes(8, "little") + b"{[[[[[[[[[[[" * 9,
        (200_000).to_bytes(8, "little") + b'{"a":' + b"[" * 199_995,
    ], ids=range(9))  # fmt: skip
    def test_other_files(self, data: bytes, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(data)
        self.sentence(tmp_path / "file")

    def test_somebody_elses_safetensors(self, tmp_path: Path) -> None:
        safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "file")
        assert "not one that orbitgp wrote" in self.sentence(tmp_path / "file")

    @pytest.mark.parametrize(("version", "advice"), [(99, "install a newer one."), (1, "fit again, or use the version that")])
    def test_of_another_version(
        self, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, advice: str
    ) -> None:
        contents = read(good)
        with monkeypatch.context() as patched:
            patched.setattr("orbitgp.saving.container.FORMAT_VERSION", version)
            write(tmp_path / "file", *contents)
        said = self.sentence(tmp_path / "file")
        assert f"has format version {version}, " in said
        assert advice in said
        assert ("newer" in said) == (version > saving.FORMAT_VERSION)

    def test_of_the_other_kind(self, good: Path, tmp_path: Path) -> None:
        with pytest.raises(SavedFileError, match=r"holds a regressor: load it with InvariantGPRegressor\.load"):
            InvariantGPClassifier.load(good)
        write(tmp_path / "file", "checkpoint", {}, {})
        assert "checkpoint" in self.sentence(tmp_path / "file")

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            InvariantGPRegressor.load(tmp_path / "nothing")

    @pytest.mark.parametrize(("change", "words"), [
        (lambda c, t: t.update({"model.q_mean": t["model.q_mean"] * math.nan}), "not finite"),
        (lambda c, t: t.update({"model.inducing": t["model.inducing"] / 0}), "not finite"),
        (lambda c, t: t.update({"model.q_mean": torch.zeros(3, 1).double()}), "shape"),
        (lambda c, t: t.update({"model.orbit.scale": torch.zeros(2)}), "shape"),
        (lambda c, t: t.pop("model.orbit.scale"), "orbit.scale"),
        (lambda c, t: t.update({"model.orbit.more": torch.zeros(2)}), "orbit.more"),
        (lambda c, t: t.update({"model.orbit.scale": torch.tensor(3)}), "floating point"),
        (lambda c, t: c["modules"]["learned.orbit"].update(build={"$object": ["os.system", {"*": ["ls"]}]}), "os.system"),
        (lambda c, t: c["modules"]["learned.orbit"]["build"]["$object"][1].update(colour=1), "colour"),
        (lambda c, t: c["modules"]["learned.orbit"].update(build=3), "module"),
        (lambda c, t: c["modules"]["learned.kernel"].update(build=c["modules"]["learned.orbit"]["build"]), "cannot be loaded"),
        (lambda c, t: c.pop("model"), "model"),
        (lambda c, t: c["noted"].update(predict=3), "predict"),
        (lambda c, t: c["given"].update(colour="red"), "colour"),
        (lambda c, t: c.update(evidence={"value": 1.0}), "loaded"),
    ])  # fmt: skip
    def test_whole_but_wrong(self, good: Path, tmp_path: Path, change: Any, words: str) -> None:
        kind, config, tensors = read(good)
        change(config, tensors)
        write(tmp_path / "file", kind, config, tensors)
        assert words in self.sentence(tmp_path / "file")

    @pytest.mark.parametrize("change", [lambda noise: noise[:3], lambda noise: -noise, lambda noise: noise.repeat(1, 2)])
    def test_noise_of_an_exact_model(self, tmp_path: Path, change: Any) -> None:
        InvariantGPRegressor(max_steps=3).fit(*table()).save(tmp_path / "good")
        kind, config, tensors = read(tmp_path / "good")
        write(tmp_path / "file", kind, config, {**tensors, "model.noise": change(tensors["model.noise"])})
        assert "its noise must be positive, for 20 data" in self.sentence(tmp_path / "file")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match="is a folder: name the file in it"):
            InvariantGPRegressor.load(tmp_path)

    def test_unharmed(self, good: Path, tmp_path: Path) -> None:
        """What the tests above change is all that is wrong with their files."""
        write(tmp_path / "file", *read(good))
        InvariantGPRegressor.load(tmp_path / "file")


class TestWriting:
    @pytest.mark.parametrize("where", ["os.fsync", "os.replace", "safetensors.torch.save", "pathlib.Path.open"])
    def test_a_full_disk_loses_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        path = tmp_path / "model.safetensors"
        fitted = InvariantGPRegressor(**QUICK).fit(*table())
        fitted.save(path)
        before = path.read_bytes()
        fitted.target_mean_ = fitted.target_mean_ + 1

        def full(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(where, full)
        with pytest.raises(OSError, match="No space left"):
            fitted.save(path)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        fitted.save(path)
        assert path.read_bytes() != before

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            InvariantGPRegressor(**QUICK).fit(*table()).save(tmp_path / "nothing" / "model.safetensors")

    def test_the_header_is_plain_json(self, tmp_path: Path) -> None:
        X, y = pictures()
        InvariantGPClassifier(Rotation(20.0), **QUICK).fit(X, np.array(["a", "b", "c"])[y]).save(tmp_path / "model.safetensors")
        with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
            metadata = file.metadata()
            assert "model.inducing" in file.keys()  # noqa: SIM118
        assert metadata["orbitgp"] == "2"
        assert metadata["kind"] == "classifier"
        config = json.loads(metadata["config"])
        assert config["modules"]["learned.orbit"]["build"] == {"$object": ["orbitgp:Rotation", {}]}
        assert config["noted"]["classes_"]["$object"][1]["data"] == ["a", "b", "c"]
        assert config["versions"]["torch"] == torch.__version__
        assert config["versions"]["gpytorch"] == gpytorch.__version__


class TestTrainingOptions:
    def test_come_back(self, tmp_path: Path) -> None:
        options = TrainingOptions(posterior_samples=6, start_rows=20, num_predict_samples=8, local="kept")
        InvariantGPRegressor(**{**QUICK, "training": options}).fit(*table()).save(tmp_path / "file")
        assert InvariantGPRegressor.load(tmp_path / "file").training == options
        InvariantGPRegressor(**{**QUICK, "training": None}).fit(*table()).save(tmp_path / "file")
        assert InvariantGPRegressor.load(tmp_path / "file").training is None

    def test_of_another_version(self, good: Path, tmp_path: Path) -> None:
        kind, config, tensors = read(good)
        config["given"]["training"]["$object"][1]["colour"] = "red"
        write(tmp_path / "file", kind, config, tensors)
        with pytest.raises(SavedFileError, match="has no option 'colour'"):
            InvariantGPRegressor.load(tmp_path / "file")


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


def test_an_error_of_the_system_names_the_file_that_the_user_knows(tmp_path: Path) -> None:
    def full(beside: Path) -> None:
        raise OSError(28, "No space left on device", str(beside), None, "elsewhere")

    with pytest.raises(OSError, match="No space left on device") as error:
        replace(tmp_path / "model.safetensors", full)
    assert str(error.value) == f"[Errno 28] No space left on device: '{tmp_path / 'model.safetensors'}'"


def test_so_does_an_error_of_a_disk_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:  # Linux refuses even to remove what is not there
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as error:
        replace(tmp_path / "predictions.csv", lambda beside: None)
    assert error.value.filename == str(tmp_path / "predictions.csv")
