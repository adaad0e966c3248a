"""Pictures of orbits: they are made of what they say they show. How they look is for eyes to judge."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from PIL import Image

from orbitgp.orbits import (
    Affine,
    Brightness,
    Flip,
    GaussianNoise,
    LocalDeformation,
    Rotation,
    TimeShift,
)
from orbitgp.plotting import show


def images(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def framed(figure: Figure) -> list[np.ndarray]:
    """The images with the widest frame."""
    widest = max(axes.spines["left"].get_linewidth() for axes in figure.axes if axes.images)
    return [
        np.asarray(axes.images[0].get_array())
        for axes in figure.axes
        if axes.images and axes.spines["left"].get_linewidth() == widest
    ]


def drawn(figure: Figure) -> None:
    figure.canvas.draw()


@pytest.mark.parametrize("shape", [(8, 8), (1, 9, 6), (3, 7, 10)], ids=str)
def test_the_original_stands_framed_among_its_samples(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    x[..., 0, :] = 0
    figure = show(Affine() * LocalDeformation(), x, num_samples=8, title="an orbit")
    drawn(figure)
    assert len(images(figure)) == 9
    (original,) = framed(figure)
    scaled = (x - x.min()) / (x.max() - x.min())
    expected = scaled.permute(1, 2, 0).squeeze(-1) if x.ndim == 3 else scaled
    np.testing.assert_allclose(original, expected, atol=1e-6)


def test_dark_pixels_are_dark() -> None:
    x = torch.zeros(9, 9)
    x[3:6, 3:6] = 1.0
    for shown in (axes.images[0] for axes in show(Rotation(), x, num_samples=4).axes if axes.images):
        assert shown.cmap(shown.norm(0.0))[:3] == (0, 0, 0)
        assert shown.cmap(shown.norm(1.0))[:3] == (1, 1, 1)


def test_a_notebook_shows_the_figure_as_it_stands() -> None:
    """A notebook asks the last line of a cell for ``_repr_png_``."""
    figure: Any = show(Rotation(), torch.rand(6, 6), num_samples=4)
    width, height = Image.open(BytesIO(figure._repr_png_())).size
    assert width / height == pytest.approx(np.divide(*figure.get_size_inches()), rel=0.02)
    assert not hasattr(Figure(), "_repr_png_")  # with this it would not be needed


def test_samples_run_through_the_original() -> None:
    x = torch.zeros(9, 9)
    x[4, 4] = 1.0
    figure = show(Brightness(0.5), x, num_samples=24)
    means = [image.mean() for image in images(figure)]
    assert means == sorted(means)
    assert means[12] == pytest.approx(x.mean().item())


@pytest.mark.slow
def test_finite_orbits_signals_and_several_panels() -> None:
    drawn(show(Flip(), torch.rand(6, 6)))
    figure = show(GaussianNoise(), torch.rand(20), num_samples=5)
    assert len(figure.axes[0].lines) == 6
    figure = show(Rotation(), [torch.rand(6, 6)] * 3, num_samples=8)
    drawn(figure)
    assert len(framed(figure)) == 3
    drawn(show(Rotation(), np.random.default_rng(0).random((6, 6))))


@pytest.mark.parametrize(
    ("orbit", "label"),
    [
        (TimeShift(interval=0.01, unit="s"), "time in s"),
        (TimeShift(interval=2, unit="nm"), "position in nm"),
        (TimeShift(), "samples"),
    ],
    ids=["s", "nm", "samples"],
)
def test_the_axis_of_a_signal_says_what_it_is(orbit: TimeShift, label: str) -> None:
    assert show(orbit, torch.rand(20), num_samples=3).axes[0].get_xlabel() == label


def test_bad_input_in_one_sentence() -> None:
    x = torch.rand(6, 6)
    for make, message in (
        (lambda: show(Rotation(), x, num_samples=0), "num_samples must be positive"),
        (lambda: show(Rotation(), torch.rand(2, 3, 4, 5)), "needs one input"),
    ):
        with pytest.raises(Exception, match=message):  # the shape checker may be first to refuse
            make()
