"""Exact against variational: does the bound select the invariance that the log marginal likelihood selects?

Few digits of 8x8 pixels, each turned by a random number of quarter turns, and four finite orbits: none, mirror images,
quarter turns, and both. With few data and a finite orbit the log marginal likelihood is exact, one Cholesky factor of
the double-mean kernel; hyperparameters maximise it. The bound is maximised in the same way over the number M of
inducing points. These are M of the data for u = f(z), the mean of g over the whole orbit of z; for u = g(z), the
paper's inducing variables, they are M of all elements of the orbits of the data. Either way, with as many as there are,
nothing is left between bound and evidence: N for f, N times the size of the orbit for g. So with u = g(z) and an M in
between, the smaller orbit has the smaller gap.

``python -m experiments exact`` takes a minute or two on two cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from experiments import harness
from experiments.harness import Claims, Record, Records
from experiments.toy import maximise
from orbitgp.datasets import digits
from orbitgp.inference.elbo import elbo
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import FiniteOrbit, Identity
from orbitgp.orbits.parse import make_orbit

ORBITS = ("none", "flip", "rotate90", "flip*rotate90")
SIZES: dict[str, tuple[int, ...]] = {"f": (25, 50, 100, 150), "g": (25, 50, 150, 300, 600, 1200)}
QUICK_SIZES: dict[str, tuple[int, ...]] = {"f": (20, 60), "g": (20, 60, 480)}
ITERATIONS = 30  # of L-BFGS
JITTER = 1e-8

Images = Float[Tensor, "rows height width"]
Targets = Float[Tensor, "rows outputs"]


def data(num_data: int, seed: int = 0) -> tuple[Images, Targets]:
    """Digits in random orientations, and their class indicators less the mean."""
    some = digits(seed=seed)
    turns = np.random.default_rng(seed).integers(4, size=num_data)
    images = np.stack([np.rot90(image, k) for image, k in zip(some.x_train, turns, strict=False)])
    targets = torch.nn.functional.one_hot(torch.from_numpy(some.y_train[:num_data]), 10).double()
    return torch.from_numpy(images.copy()).double(), targets - 0.1


def start(x: Images) -> tuple[Kernel, Gaussian]:
    """The kernel and the noise that every model starts from."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.pdist(x.flatten(1)).median()
    kernel.outputscale = 0.1
    return kernel, Gaussian(10, noise=0.03)


def exact(x: Images, y: Targets, orbit: FiniteOrbit, kernel: Kernel, likelihood: Gaussian) -> float:
    """The log marginal likelihood at its maximum over the kernel and the noise."""
    invariant, flat = InvariantKernel(kernel, orbit, image_shape=tuple(x.shape[1:])), x.flatten(1)

    def objective() -> Tensor:
        factor = torch.linalg.cholesky(invariant(flat).to_dense() + likelihood.noise * torch.eye(len(x), dtype=x.dtype))
        half = torch.linalg.solve_triangular(factor, y, upper=False)
        # The sum over outputs of log N(y; 0, K + noise I).
        log_det = 2 * factor.diagonal().log().sum()
        return -0.5 * (half.square().sum() + y.shape[1] * (log_det + len(x) * math.log(2 * math.pi)))

    return maximise(objective, [*kernel.parameters(), *likelihood.parameters()], ITERATIONS)


def bound(
    x: Images, y: Targets, orbit: FiniteOrbit, kernel: Kernel, likelihood: Gaussian, size: int, variable: str
) -> float:
    """The bound at its maximum over q(u), the kernel and the noise."""
    generator = torch.Generator().manual_seed(0)
    inducing = initial_inducing(x, orbit if variable == "g" else Identity(), kernel, size, generator=generator)
    averaged = orbit.size if variable == "f" else 1
    model = InvariantGP(kernel, orbit, inducing, y.shape[1], "zero", jitter=JITTER, inducing_samples=averaged)
    samples = orbit.sample(x, None)

    def objective() -> Tensor:
        # With q(u) at its best, the gradient of the bound is that of the bound maximised over q(u).
        with torch.no_grad():
            set_posterior(model, statistics(model, model.whitened_means(samples), likelihood.quadratic(y), len(x)))
        return elbo(model, likelihood, samples, y, len(x))

    return maximise(objective, [*kernel.parameters(), *likelihood.parameters()], ITERATIONS)


@cache
def evidence(orbit_name: str, inference: str, size: int | None, num_data: int) -> float:
    """The exact evidence, or the bound with this many inducing points; there are no more than elements of all
    orbits."""
    x, y = data(num_data)
    orbit = make_orbit(orbit_name)
    assert isinstance(orbit, FiniteOrbit)
    if size is None:
        return exact(x, y, orbit, *start(x))
    elements = num_data * (orbit.size if inference == "g" else 1)
    if size > elements:
        return evidence(orbit_name, inference, elements, num_data)
    return bound(x, y, orbit, *start(x), size, inference)


@dataclass(frozen=True)
class Exact(harness.Run):
    """One orbit: the exact evidence, or the bound with ``size`` inducing variables that are values of f or of g."""

    orbit: str
    inference: str  # exact, f or g
    size: int | None
    num_data: int
    seed: int = 0

    def name(self) -> str:
        return harness.slug(self.orbit, self.inference, self.size or "")

    def measure(self, device: str) -> Record:
        begin = time.perf_counter()
        value = evidence(self.orbit, self.inference, self.size, self.num_data)
        return {"evidence": {"value": value, "stderr": 0.0}, "seconds": {"fit": time.perf_counter() - begin}}


def all_runs(sizes: Mapping[str, Sequence[int]]) -> list[Exact]:
    """All orbits, exact and for every number of inducing points; as many data as the largest M of u = f(z)."""
    each: list[tuple[str, int | None]] = [
        ("exact", None),
        *((variable, m) for variable in sizes for m in sizes[variable]),
    ]
    return [Exact(name, *inference, max(sizes["f"])) for name in ORBITS for inference in each]


def values(records: Records, inference: str) -> dict[str, dict[int | None, float]]:
    """By orbit and number of inducing points, few to many."""
    chosen = [(r["settings"], r["evidence"]["value"]) for r in records if r["settings"]["inference"] == inference]
    chosen.sort(key=lambda one: one[0]["size"] or 0)
    return {
        name: {settings["size"]: value for settings, value in chosen if settings["orbit"] == name} for name in ORBITS
    }


def check(records: Records) -> Claims:
    """The same selection, a bound that is one, and a gap that shrinks to nothing."""
    best = {name: value[None] for name, value in values(records, "exact").items()}
    selected = max(ORBITS, key=best.__getitem__)
    claims = {"the exact evidence selects the quarter turns that were put in": selected == "rotate90"}
    for variable in SIZES:
        found = values(records, variable)
        sizes = list(found["none"])
        picked = {size: max(ORBITS, key=lambda name: found[name][size]) for size in sizes}
        asked = sizes if variable == "f" else sizes[-1:]
        claims[f"u = {variable}(z): the bound selects the same with M = {', '.join(map(str, asked))}"] = all(
            picked[size] == selected for size in asked
        )
        gaps = [[best[name] - found[name][size] for size in sizes] for name in ORBITS]
        claims[f"u = {variable}(z): no bound is above the exact evidence"] = all(min(gap) > -0.1 for gap in gaps)
        falls = all(later < sooner + 0.1 for gap in gaps for sooner, later in pairwise(gap))
        claims[f"u = {variable}(z): the gap shrinks with M for every orbit, to less than a nat"] = falls and all(
            gap[-1] < 1.0 for gap in gaps
        )
    return claims


def table(records: Records) -> str:
    """Evidence in nats, one column for each orbit; the highest of each row in bold."""
    lines = []
    for inference in ("exact", *SIZES):
        found = values(records, inference)
        for size in found["none"]:
            title = "exact" if size is None else f"bound, u = {inference}(z), M = {size}"
            highest = max(found[name][size] for name in ORBITS)
            cells = [f"{found[name][size]:,.1f}" for name in ORBITS]
            cells = [f"**{c}**" if found[n][size] == highest else c for n, c in zip(ORBITS, cells, strict=True)]
            lines.append([title, *cells])
    return harness.markdown(["", *ORBITS], lines)


def figure(records: Records, path: Path) -> None:
    """The bounds over M, with the exact evidence of each orbit as a line."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    fig = Figure(figsize=(9.0, 3.9), layout="constrained")
    axes = fig.subplots(1, 2, sharey=True)
    best = values(records, "exact")
    for ax, variable in zip(axes, SIZES, strict=True):
        for i, (name, found) in enumerate(values(records, variable).items()):
            sizes = [size for size in found if size is not None]
            ax.axhline(best[name][None], color=f"C{i}", lw=0.9, ls=(0, (5, 3)))
            ax.plot(sizes, [found[size] for size in sizes], "o-", ms=4, lw=1.3, color=f"C{i}", label=name)
        ax.set_title(f"inducing variables u = {variable}(z)", fontsize=11)
        ax.set_xscale("log")
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set_xlabel("M, inducing points")
        ax.spines[["top", "right"]].set_visible(False)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}"))
    axes[0].set_ylabel("evidence (nats); dashed: exact")
    axes[1].legend(frameon=False, fontsize=9, loc="lower right")
    harness.save_figure(fig, path)


EXPERIMENT = harness.Experiment(
    "exact",
    __doc__,
    lambda options: all_runs(QUICK_SIZES if options.quick else SIZES),
    table,
    check,
    figure,
    seeds=1,
    on_gpu=False,
)
