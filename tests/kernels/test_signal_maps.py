"""Feature maps of signals: against loops over samples, numpy and polynomials, and inside the estimators."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.kernels import SNV, ShapeHistograms, SideBySide, SmoothDerivative
from orbitgp.kernels.signal_maps import derivatives
from orbitgp.orbits import TimeShift

pytestmark = pytest.mark.usefixtures("one_start")


def signals(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_snv_is_what_numpy_computes() -> None:
    x = signals(4, 3, 30)
    array = x.numpy()
    expected = (array - array.mean(-1, keepdims=True)) / array.std(-1, keepdims=True)
    np.testing.assert_allclose(SNV()(x), expected)
    assert SNV()(torch.ones(2, 5)).eq(0).all()


@pytest.mark.parametrize("feature_map", [SNV(), SideBySide(SNV(), SmoothDerivative(1))])
def test_maps_of_several_channels_give_one_vector(feature_map: torch.nn.Module) -> None:
    x = signals(12, 2, 30).numpy()
    model = InvariantGPRegressor(TimeShift(), feature_map=feature_map, max_steps=2).fit(x, x[:, 0, 3])
    assert model.predict(x).shape == (12,)
    features = model.kernel_.map(torch.tensor(x).flatten(1))
    assert features.shape == (12, 60 * (2 if isinstance(feature_map, SideBySide) else 1))


def test_derivatives_of_a_sine() -> None:
    """Under a Gaussian of width s, sin(k t) becomes exp(-(s k)^2 / 2) sin(k t), and so do its derivatives."""
    t, k, widths = torch.arange(200, dtype=torch.float64), 0.2, torch.tensor([3.0, 1.0], dtype=torch.float64)
    damped = math.exp(-0.5 * (3 * k) ** 2)
    inside = slice(40, 160)
    value, first, second = derivatives((k * t).sin()[None], widths)[:, 0, 0, inside]
    assert torch.allclose(value, damped * (k * t).sin()[inside], atol=1e-6)
    assert torch.allclose(first, 3 * k * damped * (k * t).cos()[inside], atol=1e-6)
    assert torch.allclose(second, -((3 * k) ** 2) * damped * (k * t).sin()[inside], atol=1e-6)
    value, *others = derivatives(torch.ones(1, 200, dtype=torch.float64), widths)
    assert torch.allclose(value, torch.ones_like(value))
    assert all((other.abs() < 1e-12).all() for other in others)


def test_power_goes_from_the_signal_to_snv() -> None:
    x = signals(3, 30)
    for order in (0, 1, 2):
        full, none = (SmoothDerivative(order, width=1.5, power=p)(x) for p in (1.0, 1e-9))
        assert torch.allclose(full - full.mean(1, keepdim=True), SNV()(none), atol=1e-6)


def shapes_of_one(
    x: np.ndarray,
    directions: int = 6,
    scales: int = 4,
    windows: int = 4,
    width: float = 1.0,
    spread: float = 1.0,
    sharpness: float = 6.0,
    rare: float = 0.01,
) -> np.ndarray:
    """From the definition, sample by sample."""
    x = x - x.mean(-1, keepdims=True)
    x = x / math.sqrt((x**2).mean())
    found = []
    for signal in np.atleast_2d(x):
        length = len(signal)
        weights = np.zeros((scales, directions, length))
        for scale in range(scales):
            for t in range(length):
                r = (np.arange(length) - t) / (width * 2**scale)
                bell = np.exp(-0.5 * r**2) / np.exp(-0.5 * r**2).sum()
                mean = bell @ signal
                slope, curvature = bell @ (r * (signal - mean)), -(bell @ (r**2 * (signal - mean))) / math.sqrt(2)
                strength = math.sqrt(slope**2 + curvature**2 + 1e-6)
                for d in range(directions):
                    angle = 2 * math.pi * d / directions
                    cosine = (slope * math.cos(angle) + curvature * math.sin(angle)) / strength
                    weights[scale, d, t] = math.exp(sharpness * (cosine - 1)) * math.sqrt(strength)
        for scale in range(scales - 1):
            for window in range(windows):
                centre = (window + 0.5) * length / windows - 0.5
                bell = np.exp(-0.5 * ((np.arange(length) - centre) / (spread * length / windows)) ** 2)
                bell /= bell.sum()
                for d in range(directions):
                    for e in range(directions):
                        found.append(math.log1p((bell * weights[scale, d] * weights[scale + 1, e]).sum() / rare))
    return np.array(found)


@pytest.mark.parametrize("shape", [(17,), (2, 12), (90,)], ids=str)
def test_shapes_by_hand(shape: tuple[int, ...]) -> None:
    settings = {"directions": 3, "scales": 3, "windows": 2, "width": 0.6, "spread": 0.7, "sharpness": 4.0, "rare": 0.05}
    x = signals(2, *shape)
    found = ShapeHistograms(**settings)(x)
    for row, signal in zip(found, x, strict=True):
        np.testing.assert_allclose(row.detach(), shapes_of_one(signal.numpy(), **settings), atol=1e-10)


def test_shapes_ignore_gain_and_offset_and_with_wide_windows_the_place() -> None:
    x = torch.zeros(1, 200, dtype=torch.float64)
    x[0, 60:80] = torch.hann_window(20, dtype=torch.float64)
    shapes = ShapeHistograms()
    assert torch.allclose(shapes(x), shapes(3 * x + 2), atol=1e-6)
    near, far = ((s(x) - s(x.roll(70, 1))).norm() for s in (shapes, ShapeHistograms(spread=100.0)))
    assert far < 0.02 * near


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (lambda: SmoothDerivative(2), 9),
        (lambda: ShapeHistograms(2, 2, 2), 9),
        (lambda: ShapeHistograms(3, 3, 2, width=0.3), 70),
    ],
)
def test_gradcheck(make: Callable[..., Any], length: int) -> None:
    mapped = make()
    x = signals(2, 2, length).requires_grad_()
    assert gradcheck(lambda x, *_: mapped(x), (x, *mapped.parameters()), fast_mode=True)
    grads = torch.autograd.grad(mapped(x).square().sum(), mapped.parameters())
    assert all(grad != 0 for grad in grads)


@pytest.mark.slow
def test_inside_estimators_and_through_a_file(tmp_path: Path) -> None:
    """Signals with two kinds of bump, anywhere: shapes tell them apart, and the constants are learned, saved and
    loaded."""
    rng = np.random.default_rng(0)
    t, place, label = np.arange(60), rng.uniform(10, 50, 60), rng.integers(0, 2, 60)
    X = np.exp(-0.5 * ((t - place[:, None]) / np.where(label, 4.0, 2.0)[:, None]) ** 2) + 0.02 * rng.normal(
        size=(60, 60)
    )
    model = InvariantGPClassifier(TimeShift(), feature_map=ShapeHistograms(3, 3, 2), max_steps=4, random_state=0)
    model.fit(X[:40], label[:40])
    assert model.score(X[40:], label[40:]) > 0.8
    model.save(tmp_path / "model.safetensors")
    again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    chain = nn.Sequential(SNV(), SmoothDerivative(1))
    regressor = InvariantGPRegressor(feature_map=chain, max_steps=3, random_state=0).fit(X, place)
    regressor.save(tmp_path / "regressor.safetensors")
    np.testing.assert_array_equal(
        regressor.predict(X), InvariantGPRegressor.load(tmp_path / "regressor.safetensors").predict(X)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothDerivative(3), "order must be 0, 1 or 2, got 3"),
        (lambda: SmoothDerivative(width=0.0), "width must be positive and finite, got 0.0"),
        (lambda: ShapeHistograms(scales=1), "scales must be at least 2, got 1"),
        (lambda: ShapeHistograms()(torch.rand(2, 3, 4, 5)), r"takes signals \(T,\) or \(C, T\)"),
    ],
)
def test_bad_arguments(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
