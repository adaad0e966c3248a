"""Orbits of signals: borders, interpolation, monotone warps, units, and gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicHermiteSpline
from scipy.ndimage import gaussian_filter1d
from torch.autograd import gradcheck

from orbitgp.orbits import (
    Baseline,
    ChannelPermutation,
    Composition,
    FiniteProduct,
    Gain,
    Offset,
    Orbit,
    Reversal,
    SignalWarpProduct,
    Smoothing,
    TimeScale,
    TimeShift,
    TimeWarp,
)
from orbitgp.orbits.parse import make_orbit, with_axis
from orbitgp.orbits.signals.warps import interpolate
from orbitgp.saving.objects import pack, unpack

ORBITS = {
    "shift": lambda: TimeShift(1.7),
    "shift, zero": lambda: TimeShift((-1.2, 2.1), border="zero"),
    "shift, circular, cubic": lambda: TimeShift(3.3, border="circular", interpolation="cubic"),
    "scale, reflect": lambda: TimeScale(1.3, border="reflect"),
    "warp": lambda: TimeWarp(0.6, 4.0),
    "warp * shift": lambda: TimeWarp(0.6, 4.0) * TimeShift(),
    "gain": lambda: Gain((0.8, 1.4)),
    "offset": lambda: Offset(),
    "baseline": lambda: Baseline(),
    "smoothing": lambda: Smoothing(1.37),
    "everything": lambda: (
        Reversal() * TimeShift() * TimeWarp(0.6, 4.0) * TimeScale() * Smoothing(1.37) * Baseline() * Gain()
    ),
}


def sampled(orbit: Orbit, x: torch.Tensor, samples: int = 5, seed: int = 0) -> torch.Tensor:
    u = torch.rand(
        len(x), samples, orbit.draws_for(x.shape[1:]), generator=torch.Generator().manual_seed(seed), dtype=x.dtype
    )
    return orbit.transform(x, u)


@pytest.mark.parametrize("shape", [(13,), (2, 10)], ids=str)
@pytest.mark.parametrize("name", ORBITS)
def test_gradcheck(name: str, shape: tuple[int, ...]) -> None:
    orbit = ORBITS[name]().double()
    torch.manual_seed(0)
    x = torch.rand(2, *shape, dtype=torch.float64, requires_grad=True)
    u = torch.rand(2, 3, orbit.draws_for(x.shape[1:]), dtype=torch.float64)
    parameters = tuple(p for p in orbit.parameters() if p.requires_grad)
    assert parameters
    assert gradcheck(lambda x, *_: orbit.transform(x, u), (x, *parameters), fast_mode=True)
    grads = torch.autograd.grad(orbit.transform(x, u).square().sum(), parameters)
    assert all((grad != 0).all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ORBITS)
def test_shapes_and_precision(name: str, dtype: torch.dtype) -> None:
    for shape in ((13,), (3, 10)):
        orbit = ORBITS[name]().to(dtype)
        found = sampled(orbit, torch.rand(2, *shape, dtype=dtype))
        assert found.shape[0] == 2
        assert found.shape[2:] == shape
        assert found.dtype == dtype


def test_fixed_one_sided_ranges_are_rebuilt() -> None:
    for orbit in (Smoothing(2.0, learn=False), TimeShift((1.0, 3.0), learn=False)):
        tensors: dict[str, torch.Tensor] = {}
        again = unpack(pack(orbit, tensors, "orbit"), tensors, "orbit", None)
        assert str(again.describe()) == str(orbit.describe())


# Their names here, and what numpy calls them.
BORDERS: dict[str, Any] = {"zero": "constant", "edge": "edge", "reflect": "reflect", "circular": "wrap"}


@pytest.mark.parametrize("border", BORDERS)
def test_borders_are_those_of_numpy(border: str) -> None:
    x = torch.arange(1.0, 8.0, dtype=torch.float64)
    padded = np.pad(x.numpy(), 5, mode=BORDERS[border])
    for shift in (-5, -2, 0, 3, 5):
        orbit = TimeShift((shift, shift), border=border, learn=False)
        for interpolation in ("linear", "cubic"):
            orbit.interpolation = interpolation
            found = orbit.transform(x[None], torch.full((1, 1, 1), 0.5, dtype=torch.float64))
            np.testing.assert_allclose(found[0, 0], padded[5 - shift : 12 - shift], atol=1e-5)


def test_a_shift_of_zero_is_exact_in_both_precisions() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.rand(3, 427, dtype=dtype)
        for orbit in (TimeShift((0, 0), learn=False), TimeScale((1, 1), interpolation="cubic", learn=False)):
            assert torch.equal(orbit.to(dtype).transform(x, torch.full((3, 1, 1), 0.3, dtype=dtype))[:, 0], x)


def test_linear_and_cubic_between_samples() -> None:
    """Against numpy's interpolation, and against scipy's Hermite spline with central differences for slopes (Keys)."""
    x = np.random.default_rng(0).normal(size=20)
    at = np.linspace(2.0, 16.9, 57)
    signal, position = torch.tensor(x)[None, None], torch.tensor(at)[None, None]
    linear, cubic = (interpolate(signal, position, "edge", kind)[0, 0, 0] for kind in ("linear", "cubic"))
    np.testing.assert_allclose(linear, np.interp(at, np.arange(20), x), atol=1e-12)
    np.testing.assert_allclose(cubic, CubicHermiteSpline(np.arange(20), x, np.gradient(x))(at), atol=1e-12)


def test_cubic_keeps_the_height_of_a_peak() -> None:
    t = torch.arange(41, dtype=torch.float64)
    peak = torch.exp(-0.5 * ((t - 20) / 1.5) ** 2)[None]
    heights = {
        kind: TimeShift((0.5, 0.5), interpolation=kind, learn=False)
        .transform(peak, torch.full((1, 1, 1), 0.5).double())
        .max()
        for kind in ("linear", "cubic")
    }
    expected = torch.exp(torch.tensor(-0.5 * (0.5 / 1.5) ** 2))  # the samples lie half a sample beside the top
    assert abs(heights["cubic"] - expected) < 0.01
    assert heights["linear"] < expected - 0.04


def test_signs() -> None:
    x = torch.zeros(1, 11).index_fill(1, torch.tensor([5]), 1.0)
    later = TimeShift((2, 2), learn=False).transform(x, torch.full((1, 1, 1), 0.5))
    assert later[0, 0].argmax() == 7
    x = torch.zeros(1, 21).index_fill(1, torch.tensor([14]), 1.0)
    slower = TimeScale((2.0, 2.0), learn=False).transform(x, torch.full((1, 1, 1), 0.5))
    assert slower[0, 0].argmax() == 18


@pytest.mark.parametrize(("amplitude", "smoothness"), [(0.5, 10), (2, 20), (5, 5), (60, 4)])
@pytest.mark.parametrize("length", [2, 24, 251])
def test_warps_increase_for_every_draw(amplitude: float, smoothness: int, length: int) -> None:
    """Also where the displacement is many times steeper than time, and after a shift, where times lie between the
    samples."""
    warp = TimeWarp(amplitude, smoothness, border="reflect").double()
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(4, 500, 1, warp.draws_for(torch.Size([length])), generator=generator, dtype=torch.float64)
    u[0, 0], u[0, 1] = 1e-15, 1 - 1e-15  # the farthest draws
    t = torch.arange(length, dtype=torch.float64) - (length - 1) / 2
    steps = warp.times(t, u).diff(dim=-1)
    assert (steps >= 0).all()
    if amplitude <= 2:
        assert (steps > 0).all()
    between = warp.times(t * 1.1 + torch.rand(4, 500, 1, generator=generator, dtype=torch.float64), u)
    assert (between.diff(dim=-1) >= 0).all()
    # t + d(t), the obvious warp, goes back.
    if amplitude >= 5 and length > 2:
        s, phase = warp.field.deviations((length,)), warp.field.waves((length,), t) * t
        z = torch.special.ndtri(u[:, :, 0])[2:]
        d = (s * z)[..., 1::2] @ phase.cos() + (s * z)[..., 2::2] @ phase.sin()
        assert ((t + d).diff(dim=-1) < 0).any()


def test_displacement_has_the_amplitude_and_the_smoothness() -> None:
    """The covariance of small displacements is amplitude^2 exp(-r^2 / (2 smoothness^2)), and their mean is zero."""
    warp = TimeWarp(0.5, 12.0).double()
    length = 100
    u = torch.rand(
        1, 40000, 1, warp.draws_for(torch.Size([length])), generator=torch.Generator().manual_seed(0)
    ).double()
    t = torch.arange(length, dtype=torch.float64) - (length - 1) / 2
    d = (warp.times(t, u) - t)[0].detach()
    covariance = d.T @ d / len(d)
    lag = torch.arange(30)
    expected = 0.25 * torch.exp(-(lag**2) / (2 * 12.0**2))
    assert (covariance[50, 50 - lag] - expected).abs().max() < 0.012
    assert (d.mean(0).abs() < 4 * d.std(0) / len(d) ** 0.5).all()


def test_composed_warps_interpolate_once() -> None:
    """A shift and the shift back are the signal itself; one after the other, two interpolations would smooth it."""
    x = torch.rand(1, 30, dtype=torch.float64)
    there, back = (TimeShift((s, s), border="circular", learn=False) for s in (2.5, -2.5))
    both = there * back
    assert isinstance(both, SignalWarpProduct)
    u = torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    assert torch.allclose(both.transform(x, u)[:, 0], x)
    apart = Composition([there, back])
    assert not torch.allclose(apart.transform(x, u)[:, 0], x, atol=1e-2)


def test_the_order_of_warps() -> None:
    """a * b: a acts first. A shift by 4, then a stretch by 2 moves a pulse at the centre by 8."""
    x = torch.zeros(1, 41, dtype=torch.float64).index_fill(1, torch.tensor([20]), 1.0)
    shift, scale = TimeShift((4, 4), learn=False), TimeScale((2.0, 2.0), learn=False)
    u = torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    assert (shift * scale).transform(x, u)[0, 0].argmax() == 28
    assert (scale * shift).transform(x, u)[0, 0].argmax() == 24


def test_warps_with_other_borders_do_not_merge() -> None:
    assert isinstance(TimeShift() * TimeScale(border="zero"), Composition)
    assert isinstance(TimeShift() * TimeScale() * Gain(), Composition)


def test_smoothing_is_a_gaussian_filter() -> None:
    x = torch.rand(1, 60, dtype=torch.float64)
    orbit = Smoothing(3.0, learn=False).double()
    for part in (0.5, 0.8):
        found = orbit.transform(x, torch.full((1, 1, 1), part, dtype=torch.float64))[0, 0]
        expected = gaussian_filter1d(x[0].numpy(), 3.0 * part + 1e-3, mode="nearest", truncate=8)
        np.testing.assert_allclose(found, expected, atol=1e-3)
    assert torch.allclose(orbit.transform(x, torch.full((1, 1, 1), 1e-12, dtype=torch.float64))[0, 0], x[0])


def test_baseline_has_its_amplitude() -> None:
    orbit = Baseline(0.3, degree=3).double()
    drift = sampled(orbit, torch.zeros(1, 2, 400, dtype=torch.float64), samples=20000)[0]
    assert abs(drift.square().mean().sqrt() - 0.3) < 0.005
    third = torch.tensor(np.polynomial.polynomial.polyfit(np.linspace(-1, 1, 400), drift[:5, 0].detach().numpy().T, 3))
    fitted = torch.tensor(np.polynomial.polynomial.polyval(np.linspace(-1, 1, 400), third.numpy()))
    assert torch.allclose(fitted, drift[:5, 0])


def test_finite_orbits() -> None:
    x = torch.arange(6.0).reshape(1, 2, 3)
    assert torch.equal(Reversal().elements(x)[0, 1], torch.tensor([[2.0, 1, 0], [5, 4, 3]]))
    swapped = ChannelPermutation([[1, 0]], close=True)
    assert torch.equal(swapped.elements(x)[0], torch.stack([x[0], x[0].flip(0)]))
    assert isinstance(swapped * Reversal(), FiniteProduct)
    with pytest.raises(ValueError, match=r"acts on signals \(2, T\), but the inputs have shape \(3, 5\)"):
        swapped.check(torch.Size([3, 5]))


def test_lengths_are_in_the_unit_of_the_axis() -> None:
    """A shift of 0.05 s at 0.01 s a sample is one of five samples."""
    seconds, samples = TimeShift(0.05, interval=0.01, unit="s"), TimeShift(5)
    x = torch.rand(2, 20)
    assert torch.allclose(sampled(seconds, x), sampled(samples, x), atol=1e-5)
    assert str(seconds.describe()) == "TimeShift\n  shift  ±0.050 s"
    assert str(samples.describe()) == "TimeShift\n  shift  ±5.0 samples"
    warp = TimeWarp(4, 60, interval=2, unit="nm").describe()
    assert warp == pytest.approx({"amplitude": 4.0, "smoothness": 60.0})
    assert str(Smoothing(interval=2, unit="nm").describe()) == "Smoothing\n  width  2.0 nm"
    assert TimeShift(interval=0.5, unit="s").describe()["shift"] == pytest.approx((-1.0, 1.0))


def test_intervals_reach_all_factors_that_have_lengths() -> None:
    text = with_axis("timeshift*gain(1.2)*timewarp(0.04, interval=0.02)", 0.01, "s")
    assert text == ("timeshift(interval=0.01, unit='s')*gain(1.2)*timewarp(0.04, interval=0.02, unit='s')")
    assert str(make_orbit(text, (30,)).describe().quantities["shift"]) == "±0.020 s"
    circular = make_orbit("circularshift(3)", (30,))
    x = torch.rand(1, 30)
    assert torch.allclose(sampled(circular, x.roll(7, 1)), sampled(circular, x).roll(7, 2), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeShift(interval=0), "interval must be a positive distance between samples, got 0."),
        (lambda: TimeShift((3, 5)), "shift is a learned range and must contain"),
        (lambda: TimeScale(-1), "stretch must be a factor above 1"),
        (lambda: TimeWarp(0), "amplitude must be a positive length in samples, got 0."),
        (lambda: TimeWarp(frozen=["speed"]), "TimeWarp has no parameter 'speed'"),
        (lambda: Smoothing((1, 2)), r"width must be a positive length or a \(0, length\) pair"),
        (lambda: Baseline(0.0), "baseline must be positive"),
        (lambda: Baseline(degree=-1), "degree must be 0 or more"),
        (lambda: TimeShift().check(torch.Size([3, 8, 8])), r"TimeShift acts on signals \(T,\) or \(C, T\)"),
        (lambda: TimeWarp().check(torch.Size([1])), r"TimeWarp needs signals of two samples or more.* shape \(1,\)"),
    ],
)
def test_bad_arguments(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_widths_that_pass_through_zero_mirror() -> None:
    """A negative half-width is the same range: training may cross zero."""
    orbit = Smoothing(2.0)
    before = orbit.describe()
    with torch.no_grad():
        orbit.width.half_width.neg_()
    assert orbit.describe() == before == pytest.approx({"width": 2.0})
