"""Orbits, kernels, likelihoods and values in a file: what is rebuilt is what was saved, or it is not rebuilt."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    CylindricalKernel,
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
from torch import Tensor, nn

from experiments.infinimnist import TangentDeformation
from orbitgp import InvariantKernel, orbits
from orbitgp.likelihoods import CLASSIFICATION, Dirichlet, Gaussian, StudentT
from orbitgp.orbits import (
    Affine,
    Baseline,
    Brightness,
    ChannelPermutation,
    Contrast,
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
    Shuffle,
    SignChange,
    Smoothing,
    Thickness,
    TimeScale,
    TimeShift,
    TimeWarp,
    Translation,
    Weighted,
)
from orbitgp.saving.container import read, write
from orbitgp.saving.objects import decode, encode, pack, unpack


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


ORBITS: dict[str, Any] = {
    "Identity": lambda: Identity(),
    "Rotate90": lambda: Rotate90(),
    "Flip": lambda: Flip(horizontal=False, vertical=True),
    "SignChange": lambda: SignChange(3, 1, names=("d", "b")),
    "Permutation": lambda: Permutation([[1, 0, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5]], close=True),
    "Shuffle": lambda: Shuffle([[0, 1], [4, 3]], names=("a", "b")),
    "Weighted": lambda: Weighted(Rotate90(), 0.1, each=True),
    "FiniteProduct": lambda: Flip() * Rotate90() * Flip(vertical=True),
    "Rotation": lambda: Rotation(20.0),
    "Scale": lambda: Scale((0.9, 1.3)),
    "Shear": lambda: Shear(0.3),
    "Translation": lambda: Translation(shift_x=None),
    "Affine": lambda: Affine(shear=None, shift_y=None, angle=(3, 3), frozen=["angle"]),
    "Brightness": lambda: Brightness(0.2),
    "Contrast": lambda: Contrast(pivot=0),
    "Thickness": lambda: Thickness((-0.2, 0.8)),
    "Saturation": lambda: orbits.Saturation((0.7, 1.2)),
    "Hue": lambda: orbits.Hue(20),
    "Gamma": lambda: orbits.Gamma(1.3, white=255),
    "Blur": lambda: orbits.Blur(1.5),
    "Stain": lambda: orbits.Stain(1.3, (0.8, 1.1), frozen=("eosin",), dab=1.4),
    "Cutout": lambda: orbits.Cutout(2.0),
    "Atoms": lambda: orbits.Atoms(6),
    "NoisySort": lambda: orbits.NoisySort(0.3),
    "GaussianNoise": lambda: GaussianNoise(0.2, num_features=36, columns=(1, 35)),
    "LocalDeformation": lambda: LocalDeformation(0.5, 3.0, finest=2.0),
    "WarpProduct": lambda: Rotation(10.0) * Affine() * LocalDeformation(),
    "TimeShift": lambda: TimeShift((-1.0, 2.0), border="circular", interpolation="cubic", interval=0.5, unit="s"),
    "TimeScale": lambda: TimeScale((0.9, 1.3)),
    "TimeWarp": lambda: TimeWarp(0.5, 4.0, interval=0.5, unit="s", finest=1.0),
    "Gain": lambda: Gain((0.9, 1.4)),
    "Offset": lambda: Offset((-0.2, 0.1)),
    "Baseline": lambda: Baseline(0.2, degree=1),
    "Smoothing": lambda: Smoothing(1.5, learn=False, interval=0.5, unit="s"),
    "Reversal": lambda: Reversal(),
    "ChannelPermutation": lambda: ChannelPermutation([[1, 0, 2, 3, 4, 5]], close=True),
    "SignalWarpProduct": lambda: TimeShift() * TimeWarp(0.5, 4.0) * TimeScale(),
    "Composition": lambda: Flip() * Rotation(10.0) * Brightness() * GaussianNoise(),
}

COLOUR = ("Saturation", "Hue", "Stain")


class TestOrbits:
    def test_every_orbit_of_the_library_is_here(self) -> None:
        abstract = {"Orbit", "FiniteOrbit", "ImageOrbit", "Warp", "SignalOrbit", "SignalWarp"}
        kinds = {
            n for n in orbits.__all__ if isinstance(getattr(orbits, n), type) and issubclass(getattr(orbits, n), Orbit)
        }
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
        shape = (6,) if name in ("Permutation", "SignChange", "Shuffle") else (3, 6, 6) if name in COLOUR else (6, 6)
        shape = (6, 4) if name == "Atoms" else shape
        x = torch.rand(3, *shape, dtype=dtype)
        samples = [
            o.sample(x, None if hasattr(o, "size") else 8, generator=torch.Generator().manual_seed(0))
            for o in (orbit, back)
        ]
        assert torch.equal(samples[0].points, samples[1].points)
        assert orbit.describe().to_dict() == back.describe().to_dict()
        learned = [[(n, p.requires_grad, p.dtype) for n, p in o.named_parameters()] for o in (orbit, back)]
        assert learned[0] == learned[1]

    def test_frozen_and_of_width_zero(self, tmp_path: Path) -> None:
        orbit = Affine(angle=(3, 3), frozen=["angle"]).requires_grad_(False)
        back = through_file(orbit, tmp_path / "orbit.safetensors")
        assert back.describe()["angle"] == orbit.describe()["angle"]
        assert not any(p.requires_grad for p in back.parameters())

    @pytest.mark.parametrize("make", [
        lambda: Affine(angle=(-3, 12), scale_x=(0.9, 1.3), scale_y=None, shift_y=(0, 2)),
        lambda: Scale((1, 1.3)), lambda: Shear((-0.2, 0.1)), lambda: Translation(1, (-2, 1)),
        lambda: Brightness((0, 0.3)), lambda: Contrast((0.9, 1.4), pivot=0), lambda: Thickness((-0.5, 0)),
        lambda: TangentDeformation(thickness=(-0.1, 0.4)),
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
    "rbf": lambda: RBFKernel(
        ard_num_dims=2, active_dims=(2, 0), lengthscale_prior=GammaPrior(2.0, torch.tensor([[1.0, 2.0]]))
    ),
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
    "piecewise": lambda: PiecewisePolynomialKernel(
        q=1, lengthscale_constraint=Positive(transform=nn.functional.softplus)
    ),
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
        assert {n: v.dtype for n, v in kernel.state_dict().items()} == {
            n: v.dtype for n, v in back.state_dict().items()
        }

    @pytest.mark.parametrize("change", [
        lambda k: setattr(k, "nu", 0.5),  # a recipe knows this one
        lambda k: k.register_constraint(
            "raw_lengthscale", Positive(transform=lambda t: t.exp(), inv_transform=torch.log)
        ),
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
        *(make(2) for make in CLASSIFICATION.values()), Gaussian(2, noise=0.3, min_noise=0.1),
        Gaussian(min_noise=0.0), StudentT(2, df=5.0), Dirichlet(4, concentration=0.01),
    ], ids=lambda likelihood: type(likelihood).__name__)  # fmt: skip
    def test_predictions_are_the_same(self, tmp_path: Path, likelihood: Any) -> None:
        shake(likelihood)
        back = through_file(likelihood, tmp_path / "likelihood.safetensors")
        mean, variance = torch.randn(3, likelihood.num_latents).double(), torch.rand(3, likelihood.num_latents).double()
        laws = [vars(one.predictive(mean, variance)) for one in (likelihood, back)]
        for name, value in laws[0].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(laws[1][name])), name


def through_json(value: Any) -> Any:
    tensors: dict[str, Tensor] = {}
    text = json.dumps(encode(value, tensors, "x"))
    return decode(json.loads(text), tensors)


class TestValues:
    @pytest.mark.parametrize("value", [
        None, True, False, 0, -3, 2**70, 0.1, 1e-320, math.inf, -math.inf, "a", "", "\ud800 ü", b"\xff\x00", (),
        [1, (2,)], (1, (2.0, "b")), {"a": (1, 2)}, {0: {"step": 1.5}, (1, 2): None}, {"$tuple": 1}, {}, [],
        torch.Size([2, 3]), torch.device("cpu"),
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
