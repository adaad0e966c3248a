"""The two pictures of README.md and of the first page: the idea, and the evidence over the angle; for light and dark
pages.

The first is computed from two embedded digits, the second is drawn from the records of ``rotated_digits``.
``python -m experiments pictures`` in the root of the repository.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from experiments import harness, profiles
from orbitgp.datasets import digits
from orbitgp.datasets.images import rotate_by
from orbitgp.orbits import Rotation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWS = 64
LENGTHSCALE = 2.0  # in units of the pixels of 8x8: that of models of these digits
TURNS = np.arange(0.0, 181.0, 5.0)
COLUMNS = 7


class Ink(NamedTuple):
    """The colours of lines on a transparent ground."""

    text: str
    soft: str
    accent: str


INKS = {"light": Ink("#1b1b1f", "#8a8a94", "#c2410c"), "dark": Ink("#e4e4e9", "#8f8f9b", "#fb923c")}


def correlations(digit: Tensor, others: Tensor, degrees: float) -> Tensor:
    """Correlation of f at a digit with f at each of the others, where the orbit is rotations within ± this angle."""
    images = torch.cat([digit[None], others])
    samples = images[:, None]
    if degrees > 0:
        torch.manual_seed(0)
        samples = Rotation(degrees).sample(images, DRAWS).points.flatten(1, 2).detach()
    vectors = samples.flatten(2).double()
    covariance = torch.stack([_rbf(vectors[0], other).mean() for other in vectors])
    variance = torch.stack([_rbf(other, other).mean() for other in vectors])
    return (covariance / (variance[0] * variance).sqrt())[1:]


def _rbf(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-0.5 * torch.cdist(a, b).square() / LENGTHSCALE**2)


def idea(ink: Ink) -> Figure:
    """The orbit of one digit, and what averaging over it does to the kernel."""
    data = digits()
    image = data.x_train[np.flatnonzero(data.y_train == 4)[0]]
    turned = torch.tensor(rotate_by(np.stack([image] * len(TURNS)), TURNS))
    figure, axes = _orbit_above(ink, image, 90.0, "the orbit of a digit: its rotations within ±90°")
    for degrees, colour, style in ((0.0, ink.soft, ":"), (30.0, ink.soft, "-"), (90.0, ink.accent, "-")):
        curve = correlations(torch.tensor(image), turned, degrees)
        axes.plot(TURNS, curve, style, color=colour, lw=2.2)
        name = f"average over ±{degrees:.0f}°" if degrees else "no average"
        axes.text(182, float(curve[-1]), name, color=colour, va="center")
    axes.set(xlim=(0, 180), ylim=(0, 1.03), xticks=range(0, 181, 30))
    axes.set(xlabel="the digit is turned by (degrees)", ylabel="correlation of f")
    return figure


def evidence(ink: Ink, records: Path) -> Figure:
    """The evidence over fixed angles, and where learning began and ended."""
    found = profiles.by_title(harness.load(records).values())  # type: ignore[arg-type]
    summary = found["digits rotated within ±60°"]["exact"]
    none = float(summary.curve[1, 0])
    data = digits()
    learned = summary.learned[0]
    image = data.x_train[np.flatnonzero(data.y_train == 4)[0]]
    figure, axes = _orbit_above(
        ink, image, learned.value, f"learned: insensitive to rotations within ±{learned.value:.0f}°"
    )
    angles, nats = summary.curve[0], summary.curve[1] - none
    axes.plot(angles, nats, "o-", color=ink.soft, lw=2, ms=5)
    top = summary.top[1] - none - learned.behind
    for reached in summary.learned:
        start = float(np.interp(reached.start, angles, nats))
        bend = f"arc3,rad={0.3 if reached.start > reached.value else -0.3}"
        arrow = {"arrowstyle": "-|>", "color": ink.accent, "lw": 1.4, "shrinkB": 9, "connectionstyle": bend}
        axes.annotate("", (learned.value, top), (reached.start, start), arrowprops=arrow)
        axes.plot(reached.start, start, "o", color=ink.accent, ms=7, mfc="none", mew=1.8)
        side = (9, -4) if reached.start < reached.value else (4, 8)
        text = f"began at ±{reached.start:.0f}°"
        axes.annotate(text, (reached.start, start), side, textcoords="offset points", color=ink.accent)
    axes.plot(learned.value, top, "*", color=ink.accent, ms=17)
    axes.annotate(
        f"ended at ±{learned.value:.0f}°",
        (learned.value, top),
        (0, 26),
        textcoords="offset points",
        ha="center",
        color=ink.accent,
    )
    axes.set(xlim=(0, 185), ylim=(-0.04 * top, 1.25 * top), xticks=range(0, 181, 30))
    axes.set(xlabel="rotations within ± this angle (degrees)", ylabel="nats of evidence\nover no invariance")
    return figure


def _orbit_above(ink: Ink, image: np.ndarray, degrees: float, title: str) -> tuple[Figure, Axes]:
    """A row of samples of an orbit, and axes below it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    above, below = cast(np.ndarray, figure.subfigures(2, 1, height_ratios=(1, 2.3)))
    above.suptitle(title, color=ink.text, fontsize=11)
    turns = np.linspace(-degrees, degrees, COLUMNS)
    row = rotate_by(np.stack([image] * COLUMNS), turns)
    for axes, picture, turn in zip(above.subplots(1, COLUMNS), row, turns, strict=True):
        axes.imshow(picture, cmap="gray")
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(f"{turn:+.0f}°" if turn else "0°", color=ink.text, fontsize=9)
        axes.spines[:].set(color=ink.soft if turn else ink.accent, linewidth=0.8 if turn else 3)
    axes = below.subplots()
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(ink.soft)
    axes.tick_params(colors=ink.text)
    axes.xaxis.label.set_color(ink.text)
    axes.yaxis.label.set_color(ink.text)
    axes.yaxis.set_major_formatter("{x:,g}")
    return figure, axes


def main(arguments: list[str] | None = None) -> None:
    """Draw both pictures for both kinds of pages."""
    parser = argparse.ArgumentParser(prog="python -m experiments pictures", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(), help="of the repository (default: here)")
    root = parser.parse_args(arguments).root
    for theme, ink in INKS.items():
        drawn = {"idea": idea(ink), "evidence": evidence(ink, root / "results" / "rotated_digits.jsonl")}
        for name, figure in drawn.items():
            figure.savefig(root / "docs" / "pictures" / f"{name}-{theme}.png", dpi=150, transparent=True)
