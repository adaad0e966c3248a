"""The slack of the sparse bound: over the width of the orbit, inducing points M and the samples P that each averages
over.

The exact evidence and the bound at its best q(u) are those of one model: S fixed draws stand for the orbit. The
lengthscale is learned by the exact evidence of some of the data. Variance and noise are at their best for each bound,
as training would have them, so that a loose bound is not charged for a noise that only a tight one can afford. With the
ratio r of the two, Q = a a^T and T = tr(K_f - Q) for unit variance, and L outputs, the bound is, up to the best noise,

    -1/2 [N L log(2 pi noise) + L log|I + r Q| + y.(I + r Q)^-1 y / noise + L r T].

No model is trained, so the whole study takes minutes. ``python -m experiments slack`` takes embedded digits, and with
``--mnist --device cuda`` all of MNIST, too, where the exact evidence comes from Cholesky factors instead of
eigenvalues.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp.datasets import digits, mnist
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.inducing_points import Method, initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.parse import make_orbit
from orbitgp.orbits.sampling import Draws, Elements, Inputs, base_draws
from orbitgp.planning.plan import INDUCING_SAMPLES

CLASSES, PADDING = 10, 2
JITTER = 1e-6  # of the variance
LEARN, LEARN_SAMPLES = 300, 8  # data and draws that the lengthscale is learned from
MOST_EIGENVALUES = 12_000  # beyond that, factors for some ratios take less time
SHIFTS = "nine shifts"
WIDTHS = {
    "none": 0,
    "rotation(5)": 5,
    "rotation(15)": 15,
    "rotation(60)": 60,
    "rotation(120)": 120,
    "rotation(180)": 180,
}
ORBITS = (SHIFTS, *WIDTHS)
NO_FACTOR = 1e12  # nats: so large a variance that rounding of K_f is no longer small against the noise
OF_MNIST = ("none", "rotation(15)", "rotation(60)", "rotation(180)")
VARIABLES: tuple[tuple[int, Method], ...] = (
    (1, "random"),
    (1, "greedy"),
    (4, "greedy"),
    (8, "random"),
    (8, "greedy"),
    (16, "greedy"),
    (0, "greedy"),
)
RATIOS = tuple(10.0**power for power in np.arange(-1, 8.01, 0.25))


class Shifts(FiniteOrbit):
    """The nine shifts by up to one pixel."""

    size = 9

    def elements(self, x: Inputs) -> Elements:
        steps = (-1, 0, 1)
        return torch.stack([x.roll((down, right), (-2, -1)) for down in steps for right in steps], 1)


@dataclass(frozen=True)
class Slack(harness.Run):
    """All bounds of one orbit: ``variables`` are pairs of P (0 for all S) and how the inducing points are chosen."""

    orbit: str
    dataset: str = "digits"
    num_data: int = 1347
    num_samples: int = 32
    inducing: tuple[int, ...] = (64, 128, 256, 512)
    variables: tuple[tuple[int, Method], ...] = VARIABLES
    seed: int = 0

    def name(self) -> str:
        return harness.slug(self.dataset, self.orbit, self.num_data, self.seed)

    def measure(self, device: str) -> Record:
        x, y = data(self.dataset, self.num_data, device)
        orbit = orbit_of(self.orbit).to(device)
        lengthscale = learned_lengthscale(self.orbit, self.dataset, device)
        targets = y - y.mean(0)
        samples = None if isinstance(orbit, FiniteOrbit) else self.num_samples
        size = orbit.size if isinstance(orbit, FiniteOrbit) else self.num_samples
        begin = time.perf_counter()
        gram = (
            ExactGP(unit_kernel(lengthscale), orbit, x, num_samples=samples, seed=self.seed).to(device).gram().double()
        )
        exact = exact_evidence(gram, targets)
        seconds = time.perf_counter() - begin
        del gram  # it fills a fifth of a GPU
        bounds = [
            self.bound(x, targets, orbit, lengthscale, samples, size, m, p, method)
            for p, method in self.variables
            for m in self.inducing
            if p <= size and m <= self.num_data and (p, method) != (size, "greedy")  # that is "all"
        ]
        return {"lengthscale": lengthscale, "exact": exact, "seconds_exact": seconds, "bounds": bounds}

    @torch.no_grad()
    def bound(
        self,
        x: Inputs,
        targets: Float[Tensor, "rows outputs"],
        orbit: Orbit,
        lengthscale: float,
        samples: int | None,
        size: int,
        inducing: int,
        averaged: int,
        method: Method,
    ) -> Record:
        """The best bound, how long Kuu and K_fu took, and how many values of the kernel they hold."""
        points, kernel = averaged or size, unit_kernel(lengthscale).to(x.device)
        generator = torch.Generator(x.device).manual_seed(self.seed)
        begin = time.perf_counter()
        z = initial_inducing(x, orbit, kernel, inducing, method, generator, points)
        chosen = float(z.sum()) and time.perf_counter()  # a sum makes the host wait for a GPU
        model = InvariantGP(kernel, orbit, z, mean="zero", jitter=JITTER, inducing_samples=points).to(x.device)
        if averaged == 0 and samples is not None:
            model.inducing_draws = draws_of_data(orbit, z, samples, self.seed)
        factor = model.factor()
        rows = max(1, 2**26 // (size * inducing * points))
        parts = [model.whitened_means(orbit.shared_samples(part, samples, self.seed), factor) for part in x.split(rows)]
        a, variance = torch.cat([part.a[:, 0] for part in parts]), torch.cat([part.kff for part in parts])
        after = float(a.sum()) and time.perf_counter()
        values, vectors = torch.linalg.eigh(a.mT @ a)
        values = values.clamp_min(1e-12)
        projected = ((a @ vectors) / values.sqrt()).mT @ targets
        value = best(values, projected.square().sum(1), targets, float(variance.sum() - values.sum()))
        return {
            "inducing": inducing,
            "samples": points,
            "method": method,
            "bound": value,
            "entries": len(x) * size * inducing * points + (inducing * points) ** 2 // 2,
            "seconds": {"choose": chosen - begin, "kernel": after - chosen},
        }


def best(
    values: Float[Tensor, " directions"],
    powers: Float[Tensor, " directions"],
    targets: Float[Tensor, "rows outputs"],
    left: float,
) -> float:
    """The bound at its best variance and noise.

    ``values`` are the eigenvalues of Q for unit variance, ``powers`` the squares of the targets along them, and
    ``left`` is the trace of what Q lacks of K_f.
    """
    rows, outputs = targets.shape
    rest = float(targets.square().sum() - powers.sum())
    ratio = torch.tensor(RATIOS, dtype=values.dtype, device=values.device)[:, None]
    for _ in range(3):
        fit = rest + (powers / (1 + ratio * values)).sum(1)
        noise = fit / (rows * outputs)
        logdet = torch.log1p(ratio * values).sum(1)
        total = -0.5 * (rows * outputs * (1 + torch.log(2 * math.pi * noise)) + outputs * (logdet + ratio[:, 0] * left))
        top = int(total.argmax())
        low, high = ratio[max(0, top - 1)], ratio[min(len(ratio) - 1, top + 1)]
        ratio = torch.logspace(float(low.log10()), float(high.log10()), 30, dtype=ratio.dtype, device=ratio.device)[
            :, None
        ]
    return float(total.max())


def exact_evidence(gram: Float[Tensor, "rows rows"], targets: Float[Tensor, "rows outputs"]) -> float:
    """The log marginal likelihood at the best variance and noise; ``gram`` is K_f for unit variance."""
    if len(gram) <= MOST_EIGENVALUES:
        values, vectors = torch.linalg.eigh(gram)
        return best(values.clamp_min(0.0), (vectors.mT @ targets).square().sum(1), targets, 0.0)

    def below(power: float) -> float:
        shifted = gram * 10.0**power
        shifted.diagonal().add_(1.0)
        factor, failed = torch.linalg.cholesky_ex(shifted)
        if failed:
            return NO_FACTOR
        del shifted
        fit = torch.linalg.solve_triangular(factor, targets, upper=False).square().sum()
        each = 1 + torch.log(2 * math.pi * fit / targets.numel())
        return float(0.5 * targets.numel() * each + targets.shape[1] * factor.diagonal().log().sum())

    found = minimize_scalar(below, bounds=np.log10([RATIOS[0], RATIOS[-1]]), method="bounded", options={"xatol": 0.01})
    return -float(found.fun)


def draws_of_data(orbit: Orbit, z: Inputs, samples: int, seed: int) -> Draws:
    """The base draws that all data share (:meth:`Orbit.shared_samples`), for each inducing point."""
    generator = torch.Generator().manual_seed(seed)
    draws = base_draws("qmc", 1, 1, samples, orbit.draws_for(z.shape[1:]), generator=generator, dtype=z.dtype)
    return draws[0].to(z.device).expand(len(z), -1, -1).contiguous()


def unit_kernel(lengthscale: float) -> ScaleKernel:
    """An RBF kernel of variance one."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, lengthscale
    return kernel


def orbit_of(name: str) -> Orbit:
    """The orbit of this name, which is not learned."""
    return Shifts() if name == SHIFTS else make_orbit(name).requires_grad_(False)


def data(dataset: str, count: int, device: str) -> tuple[Inputs, Float[Tensor, "rows outputs"]]:
    """Digits with a margin that shifts leave empty, and indicators of their classes."""
    whole = mnist() if dataset == "mnist" else digits()
    x = torch.from_numpy(whole.x_train[:count])
    x = x if dataset == "mnist" else torch.nn.functional.pad(x, (PADDING,) * 4)
    y = torch.nn.functional.one_hot(torch.from_numpy(whole.y_train[:count]).long(), CLASSES).double()
    return x.to(device), y.to(device)


@cache
def learned_lengthscale(orbit: str, dataset: str, device: str) -> float:
    """The lengthscale at the top of the exact evidence of some of the data."""
    x, y = data(dataset, LEARN, device)
    fixed = orbit_of(orbit)
    model = InvariantGPClassifier(
        fixed,
        likelihood="gaussian",
        inference="exact",
        num_samples=None if isinstance(fixed, FiniteOrbit) else LEARN_SAMPLES,
        device=device,
        random_state=0,
    )
    model.fit(x.cpu().numpy(), y.argmax(1).cpu().numpy())
    return float(model.kernel_.base_kernel.lengthscale.detach())


def plan(options: argparse.Namespace) -> list[Slack]:
    """Every orbit, for each number of data."""
    size: dict[str, Any] = {"num_data": 200, "num_samples": 16, "inducing": (25, 50, 100, 200)} if options.quick else {}
    runs = [Slack(orbit, **size) for orbit in ORBITS]
    if options.mnist:
        whole: dict[str, Any] = {
            "dataset": "mnist",
            "num_data": 60_000,
            "num_samples": 16,
            "inducing": (500, 1000, 2000),
        }
        runs += [Slack(orbit, variables=((1, "random"), (INDUCING_SAMPLES, "random")), **whole) for orbit in OF_MNIST]
    return runs


def lost(record: Record, bound: Record) -> float:
    """Nats below the exact evidence."""
    return float(record["exact"] - bound["bound"])


def is_all(record: Record, bound: Record) -> bool:
    """Whether these inducing variables average over all that the data average over."""
    settings = record["settings"]
    return bool(bound["samples"] == (Shifts.size if settings["orbit"] == SHIFTS else settings["num_samples"]))


def table(records: Records) -> str:
    """The slack of each kind of inducing variable, for each number of points; in brackets, millions of kernel
    values."""
    tables = []
    for r in records:
        sizes = sorted({b["inducing"] for b in r["bounds"]})
        by_kind: dict[str, dict[int, str]] = {}
        for b in r["bounds"]:
            kind = f"P = {'all' if is_all(r, b) else b['samples']}, {b['method']}"
            cell = f"{lost(r, b):,.0f} ({b['entries'] / 1e6:,.3g} M)"
            by_kind.setdefault(kind, {})[b["inducing"]] = cell
        title = f"{r['settings']['orbit']}, {r['settings']['num_data']:,} data"
        cells = [[kind, *(row.get(size, "") for size in sizes)] for kind, row in by_kind.items()]
        tables.append(harness.markdown([title, *(f"M = {size:,}" for size in sizes)], cells))
    return "\n\n".join(tables)


def by_width(records: Records) -> str:
    """Nats for each datum below the exact evidence: values of g, and the averages of the defaults."""
    tables = []
    for (count, *inducing), group in _by_size(records).items():
        cells = []
        for r in group:
            pairs = [(before(r, m), default(r, m)) for m in inducing]
            each = [" / ".join(f"{lost(r, b) / count:.2f}" for b in pair if b is not None) for pair in pairs]
            width = WIDTHS.get(r["settings"]["orbit"])
            cells.append([f"rotations within ±{width}°" if width else r["settings"]["orbit"], *each])
        tables.append(harness.markdown([f"{count:,} digits", *(f"M = {m:,}" for m in inducing)], cells))
    return "\n\n".join(tables)


def _by_size(records: Records) -> dict[tuple[int, ...], list[Record]]:
    """The records of each number of data with the same numbers of inducing points."""
    groups: dict[tuple[int, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((r["settings"]["num_data"], *r["settings"]["inducing"]), []).append(r)
    return groups


def found(record: Record, samples: int, method: str, inducing: int) -> Record | None:
    """The bound of this kind, if there is one."""
    kind = (samples, method, inducing)
    return next((b for b in record["bounds"] if (b["samples"], b["method"], b["inducing"]) == kind), None)


def before(record: Record, inducing: int) -> Record | None:
    """The bound with values of g, at random points."""
    return found(record, 1, "random", inducing)


def default(record: Record, inducing: int) -> Record | None:
    """The bound of the defaults: means over all of a small finite orbit, else eight; greedy points, or few random
    ones."""
    orbit = record["settings"]["orbit"]
    samples = {"none": 1, SHIFTS: Shifts.size}.get(orbit, INDUCING_SAMPLES)
    return found(record, samples, "greedy" if 4 * inducing >= record["settings"]["num_data"] else "random", inducing)


def check(records: Records) -> Claims:
    """No bound lies above the exact evidence, and the default loses less than values of g, whatever the orbit."""
    claims: Claims = {}
    for r in records:
        name = f"{r['settings']['orbit']}, {r['settings']['num_data']:,} data"
        claims[f"{name}: no bound above the exact evidence"] = all(b["bound"] <= r["exact"] for b in r["bounds"])
        if r["settings"]["orbit"] == "none":
            continue
        pairs = [(before(r, m), default(r, m)) for m in r["settings"]["inducing"]]
        claims[f"{name}: the default is tighter than values of g at every M"] = all(
            new["bound"] >= old["bound"] for old, new in pairs if old is not None and new is not None
        )
    return claims


def figure(records: Records, path: Path) -> None:
    """The slack over the width of the orbit, a line for each M: values of g dashed, the default solid."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    counts = sorted({r["settings"]["num_data"] for r in records})
    fig = Figure(figsize=(5.2 * len(counts), 4.0), layout="constrained")
    for i, count in enumerate(counts):
        ax = fig.add_subplot(1, len(counts), i + 1)
        chosen = [r for r in records if r["settings"]["num_data"] == count and r["settings"]["orbit"] in WIDTHS]
        chosen.sort(key=lambda r: WIDTHS[r["settings"]["orbit"]])
        for j, inducing in enumerate(chosen[0]["settings"]["inducing"]):
            for bound_of, style, word in ((before, "o--", "values of g"), (default, "o-", "default")):
                bounds = [(r, bound_of(r, inducing)) for r in chosen]
                points = [(WIDTHS[r["settings"]["orbit"]], lost(r, b) / count) for r, b in bounds if b is not None]
                label = f"{word}, M = {inducing:,}"
                ax.plot(*zip(*points, strict=True), style, color=f"C{j}", ms=3.5, lw=1.2, label=label)
        ax.set_title(f"{count:,} digits", fontsize=11)
        ax.set_xlabel("orbit: rotations within ± (°)")
        ax.set_xticks(range(0, 181, 30))
        ax.set_ylim(bottom=0)
        if i == 0:
            ax.set_ylabel("slack of the bound, nats for each datum")
        ax.legend(fontsize=7, frameon=False, ncols=2)
        ax.spines[["top", "right"]].set_visible(False)
    harness.save_figure(fig, path)


EXPERIMENT = harness.Experiment(
    "slack",
    __doc__,
    plan,
    table,
    check,
    figure,
    seeds=1,
    options={"--mnist": {"action": "store_true", "help": "all of MNIST, too"}},
)
