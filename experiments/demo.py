"""The first job: learn from data by how much digits may be rotated.

300 of scikit-learn's embedded digits, each rotated by a random angle within ±60°, go to two Gaussian processes: a plain
RBF one, and one that averages over rotations within ±alpha and learns alpha, from 5° and multiples of it, by maximising
the marginal likelihood of the training data. There is no validation set, and all settings are the defaults: with so few
data, inference is exact. ``python -m experiments demo`` prints a table and writes one picture.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from experiments import harness
from orbitgp.datasets import digits, rotate
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Classification
from orbitgp.orbits import Identity, Rotation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROTATED = 60.0
START = 5.0
NUM_TRAIN = 300
ROWS, COLUMNS = 4, 7
ANGLES = np.linspace(10.0, 180.0, 18)  # whose evidence is drawn

Profile = list[float]  # the evidence at each of the angles


def fit() -> tuple[dict[str, InvariantGPClassifier], dict[str, float], tuple[np.ndarray, np.ndarray], Profile]:
    """Both models, their test errors, some training images with their labels, and the evidence of fixed angles."""
    data = digits()
    x_train, _ = rotate(data.x_train[:NUM_TRAIN], ROTATED, seed=0)
    y_train = data.y_train[:NUM_TRAIN]
    x_test, _ = rotate(data.x_test, ROTATED, seed=1)
    models = {
        "RBF": InvariantGPClassifier(Identity(), random_state=0, verbose=True),
        "RBF, rotations learned": InvariantGPClassifier(Rotation(START), random_state=0, verbose=True),
    }
    errors = {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(x_train, y_train)
        errors[name] = float((model.predict(x_test) != data.y_test).mean())
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    shown = np.unique(y_train, return_index=True)[1][1 : 1 + ROWS]  # one digit of each class
    return models, errors, (x_train[shown], y_train[shown]), profile(models["RBF, rotations learned"], y_train)


def profile(model: InvariantGPClassifier, labels: np.ndarray) -> Profile:
    """The evidence of the learned kernel with rotations within each of the angles."""
    gp, likelihood = cast(ExactGP, model.model_), cast(Classification, model.likelihood_)
    y = likelihood.encode(torch.from_numpy(np.searchsorted(model.classes_, labels)))
    views = (gp.restricted(gp.x, gp.num_samples, Rotation(float(angle))) for angle in ANGLES)
    return [view.log_evidence(likelihood, y) for view in views]


def table(models: dict[str, InvariantGPClassifier], errors: dict[str, float]) -> str:
    """Evidence, test error and learned angle of each model."""
    lines = [f"{'model':<24}{'evidence (nats)':>18}{'test error':>12}{'rotations within':>18}"]
    for name, model in models.items():
        angle = model.orbit_.describe().get("degrees")
        learned = "-" if angle is None else f"±{angle:.0f}°"
        lines.append(f"{name:<24}{model.evidence_.value:>18,.0f}{100 * errors[name]:>10.1f} %{learned:>18}")
    return "\n".join(lines)


def figure(
    models: dict[str, InvariantGPClassifier],
    errors: dict[str, float],
    examples: tuple[np.ndarray, np.ndarray],
    evidence: Profile,
    path: Path,
) -> None:
    """What was learned (orbits of some digits), why (the evidence over the angle), and what it gains."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    plain, learned = models.values()
    images, labels = examples
    angle = float(learned.orbit_.describe()["degrees"])  # type: ignore[arg-type]
    fig = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = cast(np.ndarray, fig.subfigures(1, 2, width_ratios=(1.15, 1)))
    left.suptitle(
        f"insensitive to rotations within ±{angle:.0f}°: the pictures of a row count as nearly the same", fontsize=10
    )
    along = torch.linspace(1e-3, 1 - 1e-3, COLUMNS)[:, None].expand(ROWS, -1, -1)
    with torch.no_grad():
        orbits = learned.orbit_.transform(torch.tensor(images), along).numpy()
    panels = left.subplots(ROWS, COLUMNS)
    for row, label, orbit in zip(panels, labels, orbits, strict=True):
        row[0].set_ylabel(f"a {label}", rotation=0, ha="right", va="center")
        for i, (ax, image) in enumerate(zip(row, orbit, strict=True)):
            ax.imshow(image, cmap="gray", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            original = i == COLUMNS // 2
            for spine in ax.spines.values():
                spine.set(color="tab:orange" if original else "0.8", linewidth=2.5 if original else 0.8)
    for ax, text in zip(
        panels[-1, :: COLUMNS // 2], (f"\N{MINUS SIGN}{angle:.0f}°", "the digit", f"+{angle:.0f}°"), strict=True
    ):
        ax.set_xlabel(text)

    over_angles, bars = right.subplots(2, 1, height_ratios=(1.4, 1))
    draw_profile(over_angles, evidence, angle, learned.evidence_.value)
    values = [plain.evidence_.value, learned.evidence_.value]
    over = [value - values[0] for value in values]
    bars.barh([1, 0], over, color=["0.65", "tab:orange"], height=0.6)
    bars.axvline(0, color="0.65", lw=2)
    bars.set_yticks([1, 0], ["no invariance", "rotations\nlearned"])
    for y, end, value, error in zip([1, 0], over, values, errors.values(), strict=True):
        bars.text(end, y, f"  {value:,.0f} nats, {100 * error:.1f} % test error", va="center", fontsize=9)
    bars.set_xlim(min(0, *over), max(over) * 1.9)
    bars.set_xlabel("nats of evidence over no invariance")
    for ax in (over_angles, bars):
        ax.spines[["top", "right"]].set_visible(False)
    harness.save_figure(fig, path)


def draw_profile(ax: Axes, evidence: Profile, angle: float, top: float) -> None:
    """The evidence over the angle, where learning began, and where it ended."""
    ax.plot(ANGLES, evidence, color="0.5", lw=2)
    ax.plot([angle], [top], "*", color="tab:orange", ms=14)
    ax.annotate(
        f"learned: ±{angle:.0f}°", (angle, top), (0, 10), textcoords="offset points", ha="center", color="tab:orange"
    )
    ax.axvline(START, color="tab:orange", ls=":", lw=1.5)
    ax.text(START + 2, max(*evidence, top), f"began at ±{START:.0f}°", color="tab:orange", fontsize=9, va="bottom")
    height = max(*evidence, top) - min(evidence)
    ax.set(xlim=(0, 182), ylim=(None, max(*evidence, top) + 0.25 * height))
    ax.set(xlabel="rotations within ± this angle (degrees)", ylabel="evidence (nats)\nof the learned kernel")
    ax.set_title(f"digits rotated within ±{ROTATED:.0f}°: two differ by up to {2 * ROTATED:.0f}°", fontsize=10)


def main(arguments: list[str] | None = None) -> None:
    """Fit both models, print the table, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m experiments demo", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for demo.png (default: out)")
    options = parser.parse_args(arguments)
    print(f"{NUM_TRAIN} digits of 8x8 pixels, each rotated by a random angle within ±{ROTATED:.0f}°.", flush=True)
    models, errors, examples, evidence = fit()
    print("\n" + table(models, errors))
    figure(models, errors, examples, evidence, options.out / "demo.png")
    print(f"\nThe picture: {options.out / 'demo.png'}")
