"""The first job: learn from data by how much digits may be rotated.

scikit-learn's embedded digits, each rotated by a random angle within ±60°, go to two Gaussian processes: a plain RBF one, and
one that averages over rotations within ±alpha and learns alpha, from a start of 5°, by maximising a bound on the marginal
likelihood of the training data. There is no validation set. ``python -m experiments demo`` prints a table and writes one
picture.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from experiments import harness
from orbitgp.datasets import digits, rotate
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.orbits import Identity, Rotation

ROTATED = 60.0
START = 5.0
ROWS, COLUMNS = 4, 7
# The paper's likelihood for many classes, which is also the fastest.
SETTINGS: dict[str, Any] = {"likelihood": "gaussian", "num_inducing": 150, "num_samples": 16, "max_steps": 120}
SETTINGS |= {"random_state": 0, "verbose": True}


def fit() -> tuple[dict[str, InvariantGPClassifier], dict[str, float], tuple[np.ndarray, np.ndarray]]:
    """Both models, their test errors, and some training images with their labels."""
    data = digits()
    x_train, _ = rotate(data.x_train, ROTATED, seed=0)
    x_test, _ = rotate(data.x_test, ROTATED, seed=1)
    models = {
        "RBF": InvariantGPClassifier(Identity(), **SETTINGS),
        "RBF, rotations learned": InvariantGPClassifier(Rotation(START), **SETTINGS),
    }
    errors = {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(x_train, data.y_train)
        errors[name] = float((model.predict(x_test) != data.y_test).mean())
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return models, errors, (x_train[:ROWS], data.y_train[:ROWS])


def table(models: dict[str, InvariantGPClassifier], errors: dict[str, float]) -> str:
    """Bound, test error and learned angle of each model."""
    lines = [f"{'model':<24}{'evidence (bound, nats)':>24}{'test error':>12}{'rotations within':>18}"]
    for name, model in models.items():
        angle = model.orbit_.describe().get("degrees")
        learned = "-" if angle is None else f"±{angle:.0f}°"
        lines.append(f"{name:<24}{model.evidence_.value:>24,.0f}{100 * errors[name]:>10.1f} %{learned:>18}")
    return "\n".join(lines)


def figure(
    models: dict[str, InvariantGPClassifier],
    errors: dict[str, float],
    examples: tuple[np.ndarray, np.ndarray],
    path: Path,
) -> None:
    """What was learned (orbits of some digits), how (the angle over training), and the evidence for it."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    plain, learned = models.values()
    images, labels = examples
    angle = float(learned.orbit_.describe()["degrees"])  # type: ignore[arg-type]
    fig = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = cast(np.ndarray, fig.subfigures(1, 2, width_ratios=(1.15, 1)))
    left.suptitle(f"insensitive to rotations within ±{angle:.0f}°: the pictures of a row count as nearly the same", fontsize=10)
    along = torch.linspace(1e-3, 1 - 1e-3, COLUMNS)[:, None].expand(ROWS, -1, -1)
    with torch.no_grad():
        orbits = learned.orbit_.transform(torch.tensor(images), along).numpy()
    panels = left.subplots(ROWS, COLUMNS)
    for row, label, orbit in zip(panels, labels, orbits, strict=True):
        row[0].set_ylabel(f"a {label}", rotation=0, ha="right", va="center")
        for i, (ax, image) in enumerate(zip(row, orbit, strict=True)):
            ax.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            original = i == COLUMNS // 2
            for spine in ax.spines.values():
                spine.set(color="tab:orange" if original else "0.8", linewidth=2.5 if original else 0.8)
    for ax, text in zip(
        panels[-1, :: COLUMNS // 2], (f"\N{MINUS SIGN}{angle:.0f}°", "the digit", f"+{angle:.0f}°"), strict=True
    ):
        ax.set_xlabel(text)

    over_time, bars = right.subplots(2, 1, height_ratios=(1.4, 1))
    history = learned.history_
    steps, angles = [0, *(r["step"] for r in history)], [START, *(r["orbit"]["degrees"] for r in history)]
    over_time.plot(steps, angles, color="tab:orange", lw=2)
    over_time.axhspan(0, ROTATED, color="tab:blue", alpha=0.08, lw=0)
    over_time.text(
        history[-1]["step"], 3, f"the data were rotated within ±{ROTATED:.0f}°", ha="right", color="tab:blue", fontsize=9
    )
    over_time.set(xlabel="training step", ylabel="learned angle (degrees)", ylim=(0, None))
    over_time.set_title(f"learned from the training data alone, from a start of {START:.0f}°", fontsize=10)
    values = [plain.evidence_.value, learned.evidence_.value]
    bars.barh([1, 0], values, color=["0.65", "tab:orange"], height=0.6)
    bars.set_yticks([1, 0], ["no invariance", "rotations\nlearned"])
    for y, value, error in zip([1, 0], values, errors.values(), strict=True):
        bars.text(value, y, f" {value:,.0f} nats, {100 * error:.1f} % test error", va="center", fontsize=9)
    bars.set_xlim(min(0, *values), max(values) * 1.75)
    bars.set_xlabel("evidence (bound on the log marginal likelihood)")
    for ax in (over_time, bars):
        ax.spines[["top", "right"]].set_visible(False)
    harness.save_figure(fig, path)


def main(arguments: list[str] | None = None) -> None:
    """Fit both models, print the table, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m experiments demo", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for demo.png (default: out)")
    options = parser.parse_args(arguments)
    print(
        f"1,797 digits of 8x8 pixels, each rotated by a random angle within ±{ROTATED:.0f}°; 1,347 to learn from.", flush=True
    )
    models, errors, examples = fit()
    print("\n" + table(models, errors))
    figure(models, errors, examples, options.out / "demo.png")
    print(f"\nThe picture: {options.out / 'demo.png'}")
