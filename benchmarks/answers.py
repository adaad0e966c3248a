"""Time to answer: a dozen default fits, here and at an earlier commit, and what a user would take instead.

Every fit runs in a process of its own, on one thread, and its CPU seconds count. Fits of this checkout and of the
earlier one take turns, or run at the same time, so that a busy machine slows both. This file is the program of those
processes, too: it imports nothing but the library that ``PYTHONPATH`` names, and speaks to its public interface alone.

    python -m benchmarks --only answers                      # small fits
    python -m benchmarks --only answers --full               # all of them
    python -m benchmarks --only answers --against COMMIT  # beside those of an earlier commit or a folder with its src
    python -m benchmarks --only answers --jobs 14            # fourteen fits at a time
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # to learn from, and to test

ROOT = Path(__file__).parents[1]
PAIRS = ("gram", "cross")  # of orbit_gram: all that computes pairs of an exact fit, but their gradient
TURNS, ANGLES, STEPS = 32, 90.0, 40  # of the plain GPyTorch model: its rotations, their range, and steps of Adam
EPOCHS = 60  # of the network
SMALL = (
    "digits 100 rotation", "digits 100 affine", "digits 100 deformation", "digits 300 rotation",
    "signals 100 timeshift", "table 331", "table 2499",
)  # fmt: skip
LARGE = (
    "digits 300 affine",
    "digits 300 deformation",
    "digits 1347 rotation",
    "digits 1347 affine",
    "signals 100 timewarp",
)
GPU = ("digits 7291 rotation", "digits 60000 affine")
RIVALS = {  # those that take minutes are left out
    "digits 100 rotation": ("scikit-learn", "GPyTorch", "network"),
    "digits 300 rotation": ("scikit-learn", "network"),
    "signals 100 timeshift": ("scikit-learn",),
    "table 331": ("scikit-learn",),
    "table 2499": ("scikit-learn",),
}


def data_of(case: str) -> Data:
    """The data of a case: embedded digits or MNIST, movements of a generated limb, or a table."""
    kind, rows = case.split()[0], int(case.split()[1])
    rng = np.random.default_rng(0)
    if kind == "digits":
        from orbitgp import datasets

        found = datasets.digits() if rows <= 1347 else datasets.mnist()
        few = rng.permutation(len(found.x_train))[:rows] if rows > 1347 else np.arange(rows)
        return found.x_train[few], found.y_train[few], found.x_test, found.y_test
    if kind == "signals":
        time_, labels = np.linspace(0, 1, 275), np.arange(2 * rows) % 3
        late, width = rng.uniform(-0.1, 0.1, 2 * rows), rng.uniform(0.04, 0.08, 2 * rows)
        bumps = np.exp(-0.5 * ((time_ - 0.3 - late[:, None] - 0.2 * labels[:, None]) / width[:, None]) ** 2)
        x = bumps + 0.05 * rng.normal(size=bumps.shape)
        return x[:rows], labels[:rows], x[rows:], labels[rows:]
    from sklearn.datasets import load_diabetes, make_friedman1

    x, y = load_diabetes(return_X_y=True) if rows <= 331 else make_friedman1(rows + 500, noise=1.0, random_state=0)
    return x[:rows], y[:rows], x[rows:], y[rows:]


def orbitgp_fit(case: str, device: str) -> dict[str, Any]:
    """A default fit, with the share of its time that pairs of orbit points took."""
    import orbitgp

    x, y, x_test, y_test = data_of(case)
    orbit = case.split()[2] if len(case.split()) > 2 else None
    kind = orbitgp.InvariantGPRegressor if case.startswith("table") else orbitgp.InvariantGPClassifier
    model: Any = kind(orbit, random_state=0, device=device)
    with pairs_timed() as spent:
        start = time.process_time(), time.perf_counter()
        model.fit(x, y)
        cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    evidence = model.evidence_
    return {
        "seconds": cpu, "wall": wall, "pairs": sum(spent) / wall, "evaluations": model.history_[-1]["step"],
        "evidence": evidence.value, "error": evidence.stderr, "draws": evidence.num_samples,
        "score": model.score(x_test, y_test),
    }  # fmt: skip


@contextmanager
def pairs_timed() -> Iterator[list[float]]:
    """Seconds of each computation of pairs, where this version of the library has the module that makes them."""
    spent: list[float] = []
    try:
        module = importlib.import_module("orbitgp.inference.orbit_gram")
    except ImportError:
        yield spent
        return

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **settings)
            finally:
                spent.append(time.perf_counter() - start)

        return call

    before = {name: getattr(module, name) for name in PAIRS if hasattr(module, name)}
    for name, function in before.items():
        setattr(module, name, timed(function))
    yield spent
    for name, function in before.items():
        setattr(module, name, function)


def scikit_learn_fit(case: str, device: str) -> dict[str, Any]:
    """scikit-learn's Gaussian process with one RBF kernel and no orbit."""
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    x, y, x_test, y_test = (part.reshape(len(part), -1) if part.ndim > 1 else part for part in data_of(case))
    if case.startswith("table"):
        model: Any = GaussianProcessRegressor(1.0 * RBF(1.0) + WhiteKernel(0.1), normalize_y=True)
    else:
        model = GaussianProcessClassifier(1.0 * RBF(np.median(np.linalg.norm(x[:50, None] - x[None, :50], axis=-1))))
    start = time.process_time()
    model.fit(x, y)
    return {"seconds": time.process_time() - start, "score": model.score(x_test, y_test)}


def gpytorch_fit(case: str, device: str) -> dict[str, Any]:
    """An exact GP of class indicators in GPyTorch; its kernel is a mean over rotations, written plainly."""
    import gpytorch
    import torch
    from scipy.ndimage import rotate

    x, y, x_test, y_test = data_of(case)
    turned = [
        np.stack(
            [
                rotate(images, angle, axes=(1, 2), reshape=False, order=1)
                for angle in np.linspace(-ANGLES, ANGLES, TURNS)
            ],
            1,
        )
        for images in (x, x_test)
    ]
    seen, new = (torch.from_numpy(part.reshape(len(part), -1)).double() for part in turned)

    class Averaged(gpytorch.kernels.Kernel):
        """The mean of a kernel over all pairs of rotations."""

        def __init__(self) -> None:
            super().__init__()
            self.base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            self.base.base_kernel.lengthscale = np.median(np.linalg.norm(x[:50, None] - x[:50], axis=(2, 3)))

        def forward(self, a: Any, b: Any, diag: bool = False, **settings: Any) -> Any:
            points = [part.reshape(len(part) * TURNS, -1) for part in (a, b)]
            pairs = self.base(*points).to_dense().reshape(len(a), TURNS, len(b), TURNS).mean((1, 3))
            return pairs.diagonal() if diag else pairs

    class Model(gpytorch.models.ExactGP):
        """One latent function for each class, with the same kernel."""

        def __init__(self, targets: Any, likelihood: Any) -> None:
            super().__init__(seen, targets, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(batch_shape=targets.shape[:1]), Averaged()

        def forward(self, points: Any) -> Any:
            covariance = self.covar_module(points).to_dense()
            means = self.mean_module(points)
            return gpytorch.distributions.MultivariateNormal(means, covariance.expand(len(means), *covariance.shape))

    start = time.process_time()
    targets = torch.nn.functional.one_hot(torch.from_numpy(y).long()).double().T
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(targets, likelihood).double()
    bound, optimiser = (
        gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model),
        torch.optim.Adam(model.parameters(), 0.1),
    )
    for _ in range(STEPS):
        optimiser.zero_grad()
        (-bound(model(seen), targets).sum()).backward()
        optimiser.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        means, noise = model.mean_module(seen), likelihood.noise * torch.eye(len(seen))
        weights = torch.linalg.solve(model.covar_module(seen).to_dense() + noise, (targets - means).T)
        scores = (
            torch.cat([model.covar_module(some, seen).to_dense() @ weights for some in new.split(50)]) + means[:, 0]
        )
    return {"seconds": seconds, "score": float(np.mean(scores.argmax(1).numpy() == y_test))}


def network_fit(case: str, device: str) -> dict[str, Any]:
    """A small convolutional network, with small random rotations and shifts of its training images."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y, x_test, y_test = (torch.from_numpy(np.asarray(part)) for part in data_of(case))
    convolutions = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
    )
    model = nn.Sequential(convolutions, nn.Linear(576, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
    optimiser, loss = torch.optim.Adam(model.parameters(), 2e-3), nn.CrossEntropyLoss()
    start = time.process_time()
    for _ in range(EPOCHS):
        for some in torch.randperm(len(x)).split(32):
            angle, shift = 0.35 * (2 * torch.rand(len(some)) - 1), 0.2 * (2 * torch.rand(len(some), 2) - 1)
            cos, sin = angle.cos(), angle.sin()
            maps = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
            images = x[some, None].float()
            moved = nn.functional.grid_sample(
                images, nn.functional.affine_grid(maps, list(images.shape), False), align_corners=False
            )
            optimiser.zero_grad()
            loss(model(moved), y[some].long()).backward()
            optimiser.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        labels = model.eval()(x_test[:, None].float()).argmax(1)
    return {"seconds": seconds, "score": float((labels == y_test).float().mean())}


FITS = {"orbitgp": orbitgp_fit, "scikit-learn": scikit_learn_fit, "GPyTorch": gpytorch_fit, "network": network_fit}


def in_new_process(checkout: Path, who: str, case: str, device: str) -> dict[str, Any]:
    """One fit by the library of a checkout."""
    path = os.pathsep.join(filter(None, (str(checkout / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), who, case, device]
    done = subprocess.run(
        command, env=environment, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:] or ["no reason"]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def checked_out(against: str | None) -> Iterator[Path | None]:
    """The files of an earlier commit, in a folder of their own; or the folder that has them already."""
    if against is None or (Path(against) / "src").is_dir():
        yield None if against is None else Path(against).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", against, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def answers(full: bool, device: str, against: str | None, jobs: int = 1) -> list[dict[str, Any]]:
    """The fits of all cases, ``jobs`` at a time: of this checkout, of the earlier one, and of rivals."""
    cases: Sequence[str] = (*SMALL, *(LARGE if full else ()), *(GPU if device == "cuda" else ()))
    found: dict[str, dict[str, Any]] = {case: {} for case in cases}
    with checked_out(against) as before, ThreadPoolExecutor(jobs) as pool:
        asked = [(case, "orbitgp", ROOT, "orbitgp", device) for case in cases]
        if before is not None:
            asked += [(case, f"orbitgp {against}", before, "orbitgp", device) for case in cases]
        asked += [(case, who, ROOT, who, "cpu") for case in cases for who in RIVALS.get(case, ())]
        asked.sort(key=lambda fit: cases.index(fit[0]))
        fits = {pool.submit(in_new_process, *fit[2:4], fit[0], fit[4]): fit[:2] for fit in asked}
        for done in as_completed(fits):
            case, name = fits[done]
            found[case][name] = done.result()
            print(json.dumps({"case": case, "by": name, **done.result()}), flush=True)
    in_order = [(case, name) for case, name, *_ in asked]
    return [
        {"case": case, "fits": {name: found[case][name] for one, name in in_order if one == case}} for case in cases
    ]


def answers_table(found: Sequence[dict[str, Any]]) -> str:
    """Seconds, evidence and scores, a line for each fit."""
    lines = [
        "| fit | by | CPU seconds | evaluations | in pairs | draws | evidence | test score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        for who, fit in one["fits"].items():
            if "failed" in fit:
                lines.append(f"| {one['case']} | {who} | {fit['failed'][0]} | | | | | |")
                continue
            ours = "evidence" in fit
            evidence = f"{fit['evidence']:,.1f} ± {fit['error']:.2g}" if ours else ""
            pairs, evaluations = (f"{fit['pairs']:.0%}", f"{fit['evaluations']:,}") if ours else ("", "")
            draws = str(fit.get("draws") or "")
            cells = [
                one["case"],
                who,
                f"{fit['seconds']:,.1f}",
                evaluations,
                pairs,
                draws,
                evidence,
                f"{fit['score']:.3f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    ratios = [
        np.log(fits["orbitgp"]["seconds"] / fit["seconds"])
        for fits in (one["fits"] for one in found)
        for who, fit in fits.items()
        if who.startswith("orbitgp ") and "seconds" in fit and "seconds" in fits["orbitgp"]
    ]
    mean = f"\n\nGeometric mean of seconds, over those before: {np.exp(np.mean(ratios)):.2f}." if ratios else ""
    return "\n".join(lines) + mean


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    print(json.dumps(FITS[sys.argv[1]](sys.argv[2], sys.argv[3])))
