"""Random small problems, each made from one seed: data, estimator and settings.

Anything that a user may bring is among them: few rows, duplicates, constant columns, tiny and huge scales, offsets,
images of one pixel, every likelihood, most orbits, both kinds of inference. Nothing here needs more than numpy and the
library itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits.parse import make_orbit

IMAGE_ORBITS = (
    "rotation",
    "rotation(180)",
    "affine",
    "translation",
    "scale",
    "shear",
    "deformation",
    "thickness",
    "brightness",
    "contrast",
    "noise",
    "flip",
    "flip(vertical=True)",
)
CLASS_LIKELIHOODS = ("auto", "dirichlet", "gaussian")
VALUE_LIKELIHOODS = ("auto", "gaussian", "student-t")
# Steps of some problems of few rows, in which most climbs converge; the others stop after less than ten, wherever they
# are.
PATIENT, FEW = {"exact": 60, "sparse": 20}, 25


@dataclass
class Problem:
    """Data and the arguments of an estimator; ``words`` describe them in a line."""

    seed: int
    X: np.ndarray
    y: np.ndarray
    classifies: bool
    orbit: str
    arguments: dict[str, Any]
    words: list[str] = field(default_factory=list)

    def estimator(self) -> Any:
        """A new estimator for this problem."""
        kind = InvariantGPClassifier if self.classifies else InvariantGPRegressor
        return kind(make_orbit(self.orbit), **self.arguments)

    def __str__(self) -> str:
        told = {name: value for name, value in self.arguments.items() if name != "random_state" and value is not None}
        told = {
            name: type(value).__name__ if name in ("kernel", "feature_map") else value for name, value in told.items()
        }
        kind = "classes" if self.classifies else "values"
        return f"seed {self.seed}: {self.X.shape} {self.X.dtype} {kind} {self.orbit} {' '.join(self.words)} {told}"


def random_problem(seed: int) -> Problem:
    """The problem of this seed."""
    rng = np.random.default_rng(seed)
    words: list[str] = []
    rows = int(2 * 60 ** rng.random())
    images = bool(rng.random() < 0.4)
    X = _images(rng, rows, words) if images else _table(rng, rows, words)
    X = _repeated(rng, X, words)
    classifies = bool(rng.random() < 0.5)
    y = _classes(rng, X, words) if classifies else _values(rng, X, words)
    orbit = _image_orbit(rng, X.shape[-2:]) if images else _table_orbit(rng, X.shape[1])
    arguments = _arguments(rng, X, classifies, len(np.unique(y)), images)
    return Problem(seed, X, y, classifies, orbit, {**arguments, "random_state": seed}, words)


def _maybe(rng: np.random.Generator, chance: float, word: str, words: list[str]) -> bool:
    if rng.random() < chance:
        words.append(word)
        return True
    return False


def _table(rng: np.random.Generator, rows: int, words: list[str]) -> np.ndarray:
    X = rng.normal(size=(rows, int(rng.integers(1, 7))))
    if _maybe(rng, 0.2, "columns-of-many-scales", words):
        X *= 10.0 ** rng.uniform(-4, 4, X.shape[1])
    if _maybe(rng, 0.15, "constant-column", words):
        X[:, 0] = X[0, 0]
    if _maybe(rng, 0.1, "integers", words):
        return np.round(X * 3)
    if _maybe(rng, 0.2, "offset", words):
        X += 10.0 ** rng.uniform(0, 6) * rng.normal(size=X.shape[1])
    if _maybe(rng, 0.4, "scaled", words):
        X *= 10.0 ** rng.uniform(-8, 8)
    return X.astype(np.float32) if _maybe(rng, 0.1, "single", words) else X


def _images(rng: np.random.Generator, rows: int, words: list[str]) -> np.ndarray:
    height, width = rng.integers(1, 9, 2)
    if rng.random() < 0.4:
        width = height
    X = rng.random((rows, height, width))
    if rng.random() < 0.2:
        X = rng.random((rows, int(rng.integers(1, 4)), height, width))
    if _maybe(rng, 0.3, "strokes", words):
        X = (X > 0.6).astype(float)
    if _maybe(rng, 0.1, "blank", words):
        X[:] = X[0]
    if _maybe(rng, 0.2, "scaled", words):
        X *= 10.0 ** rng.uniform(-8, 8)
    if _maybe(rng, 0.1, "offset", words):
        X += 10.0 ** rng.uniform(0, 5) * X.max()
    return X


def _repeated(rng: np.random.Generator, X: np.ndarray, words: list[str]) -> np.ndarray:
    if _maybe(rng, 0.15, "duplicates", words):
        return X[rng.integers(0, max(1, len(X) // 3), len(X))]
    if _maybe(rng, 0.1, "nearly-duplicates", words):
        near = X[rng.integers(0, max(1, len(X) // 3), len(X))]
        return near * (1 + 1e-9 * rng.normal(size=near.shape))
    return X


def _values(rng: np.random.Generator, X: np.ndarray, words: list[str]) -> np.ndarray:
    flat = X.reshape(len(X), -1).astype(np.float64)
    flat = (flat - flat.mean(0)) / np.where(flat.std(0) > 0, flat.std(0), 1.0)
    outputs = 2 if rng.random() < 0.15 else 1
    y = np.sin(flat @ rng.normal(size=(flat.shape[1], outputs))) + 10.0 ** rng.uniform(-3, 0) * rng.normal(
        size=(len(X), outputs)
    )
    if _maybe(rng, 0.05, "constant-target", words):
        y[:] = y[0]
    if _maybe(rng, 0.1, "outlier", words):
        y[0] += 1000
    if _maybe(rng, 0.3, "scaled-target", words):
        y *= 10.0 ** rng.uniform(-8, 8)
    if _maybe(rng, 0.15, "offset-target", words):
        y += 10.0 ** rng.uniform(0, 4) * np.abs(y).max()
    return y if outputs == 2 else y[:, 0]


def _classes(rng: np.random.Generator, X: np.ndarray, words: list[str]) -> np.ndarray:
    count = min(len(X), int(rng.integers(2, 6)) if rng.random() < 0.6 else 2)
    flat = X.reshape(len(X), -1).astype(np.float64)
    score = flat @ rng.normal(size=flat.shape[1])
    labels = np.argsort(np.argsort(score)) * count // len(X)
    wrong = rng.random(len(X)) < rng.uniform(0, 0.3)
    labels = np.where(wrong, rng.integers(0, count, len(X)), labels)
    if _maybe(rng, 0.1, "rare-class", words):
        labels = np.where(np.arange(len(X)) == 1, count - 1, np.minimum(labels, max(0, count - 2)))
    labels[0], labels[-1] = 0, count - 1  # two classes at least
    return np.array([f"c{label}" for label in labels]) if rng.random() < 0.5 else labels


def _table_orbit(rng: np.random.Generator, features: int) -> str:
    choices = ["none", "noise"] + (["swap(0, 1)", "swap(0, 1)", "noise*swap(0, 1)"] if features > 1 else [])
    return str(rng.choice(choices))


def _image_orbit(rng: np.random.Generator, shape: tuple[int, ...]) -> str:
    choices = [*IMAGE_ORBITS, *(["rotate90"] * 2 if shape[0] == shape[1] else [])]
    if rng.random() < 0.15:
        return "none"
    first = str(rng.choice(choices))
    return f"{first}*{rng.choice(choices)}" if rng.random() < 0.2 else first


def _kernel(rng: np.random.Generator, features: int) -> Kernel | None:
    if rng.random() < 0.7:
        return None
    nu = float(rng.choice([0.5, 1.5, 2.5]))
    kernels = [MaternKernel(nu=nu), RBFKernel(), RBFKernel(ard_num_dims=features), RQKernel()]
    return ScaleKernel(kernels[int(rng.integers(len(kernels)))])


def _arguments(rng: np.random.Generator, X: np.ndarray, classifies: bool, classes: int, images: bool) -> dict[str, Any]:
    likelihood = str(rng.choice(CLASS_LIKELIHOODS if classifies else VALUE_LIKELIHOODS))
    if likelihood == "auto" and classifies and classes == 2 and rng.random() < 0.5:
        likelihood = "bernoulli"
    exact = bool(rng.random() < 0.5)
    mapped = images and bool(rng.random() < 0.25)
    options: dict[str, Any] = {
        "num_predict_samples": int(rng.integers(1, 9)),
        "dtype": str(rng.choice(["auto", "auto", "float32", "float64"])),
        "start_rows": 0 if rng.random() < 0.8 else 200,  # all rows: permuted ones must give the same
    }
    if not exact:
        options |= {
            "sampler": str(rng.choice(["qmc", "qmc", "iid"])),
            "inducing_samples": int(rng.choice([1, 1, 2, 3])),
            "local": str(rng.choice(["kept", "kept", "network"])),
        }
    arguments: dict[str, Any] = {
        "likelihood": likelihood,
        "mean": str(rng.choice(["constant", "constant", "zero", "linear"])),
        "kernel": None if mapped else _kernel(rng, int(np.prod(X.shape[1:]))),
        "feature_map": OrientedGradients() if mapped else None,
        "inference": "exact" if exact else "sparse",
        "num_samples": 4 * int(rng.integers(1, 5)),
        "max_steps": int(rng.integers(1, 9)),
        "training": TrainingOptions(**options),
    }
    if not exact:
        arguments["num_inducing"] = int(rng.integers(1, 21))
        arguments["batch_size"] = int(rng.integers(2, 65))
    if not classifies and rng.random() < 0.2:
        arguments["normalize_y"] = False
    if rng.random() < 0.3 and len(X) <= FEW:
        arguments["max_steps"] = PATIENT[arguments["inference"]]
    return arguments
