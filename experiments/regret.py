"""Bayesian optimisation of functions with a symmetry: told, found by evidence as data arrive, in part, and false.

The tasks are those of Brown, Cioba and Bogunovic (NeurIPS 2024): functions drawn from a Matérn-5/2 kernel of
lengthscale 0.12, averaged over a group, on the unit cube: two columns exchanged, three moved in a circle, three in any
order plus a tenth of a function without symmetry, and six in any order. Noise has standard deviation 0.01. BoTorch's
own loop maximises an upper confidence bound with beta 2. Theirs is one function with 32 starts and two to three times
the steps, and every seed here has a function of its own (in six dimensions one drawn at 128 points, and not 512).
Lengthscale and noise are known to all models, and each takes the variance with the highest evidence at every step. What
differs is the kernel:

- *standard*: no symmetry;
- *told*: the average over the group;
- *found*: the largest of several groups whose evidence is at most three nats below the best one's. So a symmetry is
  assumed until data speak against it;
- *weights*: the average with the weight of the identity that has the highest evidence
  (:class:`orbitgp.orbits.Weighted`);
- *correlation*: the average, scaled to unit variance everywhere (``InvariantKernel(..., normalise=True)``);
- *max*: the largest value of the kernel over the group, which is no covariance: negative eigenvalues of that of the
  data are cut off.

In the task ``false`` the function has no symmetry, and *told* is told of six orders that do not hold.

``python -m experiments.regret --jobs 14 --seconds 380``
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from orbitgp import InvariantKernel
from orbitgp.orbits import FiniteOrbit, Identity, Weighted
from orbitgp.orbits.parse import make_orbit

NOISE, LENGTHSCALE, BETA, OPTIMISM = 0.01, 0.12, 2.0, 3.0
VARIANCES = tuple(4.0**power for power in range(-3, 4))
SHARES = (0.03, 0.1, 0.3, 0.6, 1.0)  # of the largest weight that a further element can have


class Task(NamedTuple):
    """A family of functions, and the groups among which one is to be found, the smallest first."""

    columns: int
    group: str
    candidates: tuple[str, ...]
    steps: int
    drawn: int = 256  # values that make a function
    broken: float = 0.0  # variance of the part that is not symmetric
    true: bool = True
    methods: tuple[str, ...] = ("standard", "told", "found", "weights", "correlation", "max")


_THREE = ("none", "swap(0, 1)", "swap(0, 2)", "swap(1, 2)", "cyclic(3)", "permutations(3)")
TASKS = {
    "cyclic, 3-D": Task(3, "cyclic(3)", _THREE, steps=80),
    "almost, 3-D": Task(3, "permutations(3)", _THREE, steps=80, broken=0.1),
    "orders, 2-D": Task(2, "permutations(2)", ("none", "permutations(2)"), steps=40, drawn=64),
    "false, 3-D": Task(
        3, "permutations(3)", ("none", "permutations(3)"), steps=80, true=False, methods=("standard", "told", "found")
    ),
    "orders, 6-D": Task(
        6, "permutations(6)", ("none", "blocks(3, 2)", "blocks(2, 3)", "permutations(6)"),
        steps=40, drawn=128, methods=("standard", "told", "found"),
    ),
}  # fmt: skip


def group_of(name: str) -> FiniteOrbit:
    """The group of this name."""
    made = make_orbit(name)
    assert isinstance(made, FiniteOrbit)
    return made


def kernel_of(orbit: FiniteOrbit | str, **settings: Any) -> Kernel:
    """The known kernel, averaged over a group, with a variance of one that can be changed."""
    base = MaternKernel(nu=2.5)
    base.lengthscale = LENGTHSCALE
    made = group_of(orbit) if isinstance(orbit, str) else orbit
    averaged = base if isinstance(made, Identity) else InvariantKernel(base, made, **settings)
    return ScaleKernel(averaged.double()).requires_grad_(False)


class Fitted(NamedTuple):
    """The best variance of a kernel given some observations, and its evidence."""

    kernel: Kernel
    evidence: float


@torch.no_grad()
def fitted(kernel: Kernel, x: Tensor, y: Tensor) -> Fitted:
    """Profile the evidence over variances."""
    kernel.outputscale = 1.0
    gram, found = kernel(x).to_dense(), []
    for variance in VARIANCES:
        factor = torch.linalg.cholesky(variance * gram + (NOISE**2 + 1e-8) * torch.eye(len(x)))
        alpha = torch.cholesky_solve(y[:, None], factor)[:, 0]
        found.append(float(-0.5 * (y @ alpha) - factor.diagonal().log().sum() - len(x) / 2 * np.log(2 * np.pi)))
    best = int(np.argmax(found))
    kernel.outputscale = VARIANCES[best]
    return Fitted(kernel, found[best])


class Aligned(Model):
    """k(x, x') = max_g k_g(x, g x'), as if it were a covariance; negative eigenvalues of that of the data are cut
    off."""

    num_outputs = 1

    def __init__(self, group: str, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.kernel, self.x = kernel_of("none"), x
        self.images = group_of(group).elements(x).transpose(0, 1)
        values, vectors = torch.linalg.eigh(self._largest(x))
        best = []
        for variance in VARIANCES:
            spectrum = variance * values.clamp(min=0) + NOISE**2 + 1e-8
            projected = vectors.mT @ y
            best.append(float(-0.5 * (projected.square() / spectrum).sum() - 0.5 * spectrum.log().sum()))
        self.variance = VARIANCES[int(np.argmax(best))]
        self.inverse = (vectors / (self.variance * values.clamp(min=0) + NOISE**2 + 1e-8)) @ vectors.mT
        self.alpha = self.inverse @ y

    def _largest(self, x: Tensor) -> Tensor:
        return self.kernel(x[..., None, :, :], self.images).to_dense().amax(-3)

    def posterior(self, X: Tensor, *_: Any, **__: Any) -> GPyTorchPosterior:
        across = self.variance * self._largest(X)
        variance = self.variance - (across @ self.inverse * across).sum(-1)
        covariance = torch.diag_embed(variance.clamp(min=1e-10))
        return GPyTorchPosterior(MultivariateNormal(across @ self.alpha, covariance))


class Chosen(NamedTuple):
    """The model of a step, and the group that it takes."""

    model: Model
    group: str


def choose(task: Task, method: str, x: Tensor, y: Tensor) -> Chosen:
    """What the method makes of the observations so far."""
    if method == "max":
        return Chosen(Aligned(task.group, x, y), task.group)
    if method == "found":
        fits = {group: fitted(kernel_of(group), x, y) for group in task.candidates}
        best = max(fit.evidence for fit in fits.values())
        plausible = [group for group, fit in fits.items() if fit.evidence > best - OPTIMISM]
        group = max(plausible, key=lambda name: (group_of(name).size, fits[name].evidence))
        fit = fits[group]
    elif method == "weights":
        whole = group_of(task.group)
        orbits = {share: Weighted(whole, share / whole.size, learn=False) for share in SHARES}
        weighed = {f"{share:g}": fitted(kernel_of(orbit), x, y) for share, orbit in orbits.items()}
        group, fit = max(weighed.items(), key=lambda item: item[1].evidence)
    else:
        group = "none" if method == "standard" else task.group
        fit = fitted(kernel_of(group, **({"normalise": True} if method == "correlation" else {})), x, y)
    known = torch.full_like(y, NOISE**2)[:, None]
    model = SingleTaskGP(x, y[:, None], known, covar_module=fit.kernel, mean_module=ZeroMean(), outcome_transform=None)
    return Chosen(model, group)


def function(task: Task, seed: int) -> tuple[Callable[[Tensor], Tensor], float]:
    """A function of the task, and its maximum."""
    generator, size = torch.Generator().manual_seed(seed), group_of(task.group).size
    x = torch.rand(task.drawn, task.columns, generator=generator)
    plain, symmetric = kernel_of("none"), kernel_of(task.group if task.true else "none")

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        found = symmetric(a, b).to_dense()
        return found + task.broken * plain(a, b).to_dense() if task.broken else found

    factor = torch.linalg.cholesky(covariance(x, x) + 1e-6 * torch.eye(len(x)))
    weights = torch.cholesky_solve(factor @ torch.randn(len(x), 1, generator=generator), factor)

    def values(points: Tensor) -> Tensor:
        return (covariance(points, x) @ weights)[..., 0]

    with torch.no_grad():
        candidates = torch.cat([x, torch.rand(max(200, 24_000 // size), task.columns, generator=generator)])
        some = torch.cat([values(part) for part in candidates.split(500)])
    tops = candidates[some.topk(10).indices].clone().requires_grad_()
    climb = torch.optim.LBFGS([tops], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        climb.zero_grad()
        loss = -values(tops.clamp(0, 1)).sum()
        loss.backward()
        return loss

    climb.step(closure)
    return lambda points: values(points).detach(), float(values(tops.detach().clamp(0, 1)).max())


class Job(NamedTuple):
    """One run, and when all have to end."""

    task: str
    method: str
    seed: int
    steps: int
    deadline: float  # by the clock


def run(job: Job) -> dict[str, Any] | None:
    """The regret of every step, and the groups that were taken; None if the time was over."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")  # a climb that ends early is begun again
    if time.time() > job.deadline:
        return None
    task, begin = TASKS[job.task], time.process_time()
    f, most = function(task, job.seed)
    torch.manual_seed(job.seed)  # all methods begin with the same observation
    x = torch.rand(1, task.columns)
    y = f(x) + NOISE * torch.randn(1)
    bounds, regrets, groups = torch.tensor([[0.0, 1.0]]).mT.expand(2, task.columns), [], []
    for _ in range(min(job.steps, task.steps)):
        if time.time() > job.deadline:
            return None
        chosen = choose(task, job.method, x, y)
        acquisition = UpperConfidenceBound(chosen.model, beta=BETA)
        new, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=3, raw_samples=128, options={"maxiter": 40})
        value = f(new)
        x, y = torch.cat([x, new]), torch.cat([y, value + NOISE * torch.randn(1)])
        regrets.append(most - float(value))
        groups.append(chosen.group)
    seconds = time.process_time() - begin
    return {
        **job._asdict(),
        "regrets": np.round(regrets, 4).tolist(),
        "groups": groups,
        "cpu_seconds": round(seconds, 1),
    }


def table(records: list[dict[str, Any]]) -> str:
    """Cumulative regrets, and what was found after all steps."""
    lines = [
        "| task | method | seeds | steps | cumulative regret | a late step | ends with | CPU s |",
        "|---" * 8 + "|",
    ]
    for task in TASKS:
        for method in TASKS[task].methods:
            if not (found := [r for r in records if (r["task"], r["method"]) == (task, method)]):
                continue
            total = np.array([sum(r["regrets"]) for r in found])
            late = np.mean([np.mean(r["regrets"][-10:]) for r in found])
            last = [r["groups"][-1] for r in found]
            ends = (
                ", ".join(f"{name}: {last.count(name)}" for name in sorted(set(last)))
                if method in ("found", "weights")
                else ""
            )
            error = total.std(ddof=1) / len(total) ** 0.5 if len(total) > 1 else 0.0
            seconds = np.mean([r["cpu_seconds"] for r in found])
            cells = [
                task,
                method,
                len(found),
                len(found[0]["regrets"]),
                f"{total.mean():.1f} ± {error:.1f}",
                f"{late:.3f}",
            ]
            lines.append("| " + " | ".join(map(str, [*cells, ends, f"{seconds:.0f}"])) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments regret", description="Regret of optimisers with symmetries."
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the records")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10_000, help="of each run at most")
    parser.add_argument("--seconds", type=float, default=1e6, help="after which no step is made")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    args = parser.parse_args(arguments)
    deadline, path = time.time() + args.seconds, args.out / "regret.jsonl"
    jobs = [
        Job(task, method, seed, args.steps, deadline)
        for task in args.tasks
        for seed in range(args.seeds)
        for method in TASKS[task].methods
    ]
    records = []
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for record in pool.imap_unordered(run, jobs):
            if record is not None:
                records.append(record)
                print(record["task"], record["method"], record["seed"], f"{sum(record['regrets']):.1f}", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(record) + "\n" for record in sorted(records, key=lambda r: (r["task"], r["seed"])))
    )
    print(table(records))


if __name__ == "__main__":
    main()
