"""Bayesian optimisation of functions with a symmetry: told, found by evidence as data arrive, in part, and false.

The tasks are those of Brown, Cioba and Bogunovic (NeurIPS 2024): functions drawn from a Matérn-5/2 kernel of
lengthscale 0.12, averaged over a group, on the unit cube: two columns exchanged, three moved in a circle, three in
any order plus a tenth of a function without symmetry, and six in any order. Noise has standard deviation 0.01.
BoTorch's own loop maximises an upper confidence bound with beta 2. Theirs is one function with 32 starts and more
steps, and every seed here has a function of its own (in six dimensions one drawn at 128 points, and not 512).
Lengthscale and noise are known to all models, and each takes the variance with the highest evidence at every step.
What differs is the kernel:

- *standard*: no symmetry;
- *told*: the average over the group;
- *found*: nobody says which columns may be exchanged. :func:`orbitgp.find_symmetry` tries generators at 10, 20 and 40
  observations, and says which do not hold. Of the groups that the others generate, the largest is taken whose
  evidence is at most three nats below the best one's. So a symmetry is assumed until data speak against it. A false
  one would hide where it is false: the optimiser does not look where it believes to know. So an image of a good input
  is observed, too, one of which the next smaller group knows little, at most three times, and only while the two
  cannot be told apart;
- *weights*: the average with the weight of the identity that has the highest evidence
  (:class:`orbitgp.orbits.Weighted`);
- *correlation*: the average, scaled to unit variance everywhere (``InvariantKernel(..., normalise=True)``);
- *max*: the largest value of the kernel over the group, which is no covariance: negative eigenvalues of that of the
  data are cut off.

In the task ``false`` the function has no symmetry, and *told* is told of six orders that do not hold. *Handed* is
told of them, too, and observes images as *found* does. When the evidence of the six orders is three nats below that
of no symmetry, it goes on as *found*.

Each record is written when its run has ended, and runs that are recorded are not repeated:
``python -m experiments regret --jobs 16 --seconds 450``
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable, Sequence
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

from experiments import harness
from orbitgp import InvariantKernel, find_symmetry
from orbitgp.comparison.symmetry import joined
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import FiniteOrbit, Identity, Weighted
from orbitgp.orbits.parse import make_orbit

NOISE, LENGTHSCALE, BETA, OPTIMISM = 0.01, 0.12, 2.0, 3.0
VARIANCES = tuple(4.0**power for power in range(-3, 4))
SHARES = (0.03, 0.1, 0.3, 0.6, 1.0)  # of the largest weight that a further element can have
SEARCHES = (10, 20, 40)  # numbers of observations with which symmetries are searched for
PROBES = (4, 8, 16)  # those after which an image of the best input may be observed


class Task(NamedTuple):
    """A family of functions, and the generators among which some are to be found."""

    columns: int
    group: str
    generators: tuple[str, ...]
    steps: int
    drawn: int = 256  # values that make a function
    broken: float = 0.0  # variance of the part that is not symmetric
    true: bool = True
    methods: tuple[str, ...] = ("standard", "told", "found", "weights", "correlation", "max")


_THREE = ("swap(0, 1)", "swap(0, 2)", "swap(1, 2)", "cyclic(3)")
_SIX = (*(f"swap({i}, {i + 1})" for i in range(5)), "cyclic(6)", "blocks(3, 2)", "blocks(2, 3)")
TASKS = {
    "cyclic, 3-D": Task(3, "cyclic(3)", _THREE, steps=60),
    "almost, 3-D": Task(3, "permutations(3)", _THREE, steps=60, broken=0.1),
    "orders, 2-D": Task(2, "permutations(2)", ("swap(0, 1)",), steps=40, drawn=64),
    "false, 3-D": Task(
        3, "permutations(3)", _THREE, steps=60, true=False, methods=("standard", "told", "found", "handed")
    ),
    "orders, 6-D": Task(6, "permutations(6)", _SIX, steps=20, drawn=128, methods=("standard", "told", "found")),
}


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
    """k(x, x') = max_g k_g(x, g x'), as if it were a covariance, without the negative eigenvalues of the data's."""

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


Groups = dict[str, FiniteOrbit]


def groups_of(task: Task, generators: Sequence[str]) -> Groups:
    """No symmetry, the group of each generator, and those that the first ones generate together, by name."""
    found: Groups = {"none": group_of("none")}
    known = {elements_of(group_of(name)): name for name in (*generators, task.group, f"permutations({task.columns})")}
    together = [generators[:count] for count in range(2, len(generators) + 1)]
    for names in [*([name] for name in generators), *together]:
        group = joined([group_of(name) for name in names])
        if group is not None:
            found[known.get(elements_of(group), f"{group.size} orders")] = group
    return found


def elements_of(group: FiniteOrbit) -> frozenset[tuple[float, ...]]:
    """The orders of six numbers, as a name of the group."""
    return frozenset(tuple(row) for row in group.elements(torch.arange(6.0)[None])[0].tolist())


class Search:
    """The groups that :func:`orbitgp.find_symmetry` leaves, and one of them by its evidence."""

    def __init__(self, task: Task, handed: bool = False) -> None:
        self.task, self.probes = task, 0
        self.generators = (task.group,) if handed else task.generators
        self.keep(self.generators)

    def keep(self, generators: Sequence[str]) -> None:
        self.groups = groups_of(self.task, generators)
        self.kernels = {name: kernel_of(group) for name, group in self.groups.items()}

    def search(self, x: Tensor, y: Tensor) -> None:
        """Leave out the groups of generators that do not hold."""
        kernel = ScaleKernel(MaternKernel(nu=2.5))
        kernel.base_kernel.lengthscale = LENGTHSCALE
        kernel.base_kernel.requires_grad_(False)
        noise = Gaussian(noise=NOISE**2).requires_grad_(False)
        settings: dict[str, Any] = {"kernel": kernel, "likelihood": noise, "normalize_y": False, "verbose": False}
        found = find_symmetry(x.numpy(), y.numpy(), self.generators, **settings)
        kept = sorted(set(self.generators) - set(found.fails), key=lambda name: -found.nats[name])
        self.keep(kept)

    def choose(self, x: Tensor, y: Tensor) -> tuple[str, Fitted, Tensor | None]:
        """The largest group that is plausible, its model, and an image to observe, if that is due and would tell."""
        fits = {name: fitted(kernel, x, y) for name, kernel in self.kernels.items()}
        best = max(fit.evidence for fit in fits.values())
        plausible = [name for name, fit in fits.items() if fit.evidence > best - OPTIMISM]

        def order(name: str) -> tuple[int, float]:
            return self.groups[name].size, fits[name].evidence

        group = max(plausible, key=order)
        if group == "none" and self.generators != self.task.generators:  # what was handed over is refuted
            self.generators = self.task.generators
            self.search(x, y)
            return self.choose(x, y)
        rivals = [name for name in fits if name != group and fits[name].evidence > fits[group].evidence - OPTIMISM]
        if not rivals or self.probes == len(PROBES) or len(x) < PROBES[self.probes]:
            return group, fits[group], None
        self.probes += 1
        images = self.groups[group].elements(x)
        unknown = model_of(fits[max(rivals, key=order)], x, y).posterior(images.flatten(0, 1)[:, None]).variance
        unknown = unknown.detach().reshape(images.shape[:2])
        best_of = torch.where(unknown > unknown.max() / 2, y[:, None], -torch.inf)
        return group, fits[group], images.flatten(0, 1)[best_of.argmax()][None]


class Chosen(NamedTuple):
    """The model of a step, the group that it takes, and an input to observe whatever the model says."""

    model: Model
    group: str
    probe: Tensor | None = None


def model_of(fit: Fitted, x: Tensor, y: Tensor) -> SingleTaskGP:
    """BoTorch's model with this kernel."""
    known = torch.full_like(y, NOISE**2)[:, None]
    return SingleTaskGP(x, y[:, None], known, covar_module=fit.kernel, mean_module=ZeroMean(), outcome_transform=None)


def choose(task: Task, method: str, x: Tensor, y: Tensor, search: Search) -> Chosen:
    """What the method makes of the observations so far."""
    if method == "max":
        return Chosen(Aligned(task.group, x, y), task.group)
    probe = None
    if method in ("found", "handed"):
        if len(x) in SEARCHES:
            search.search(x, y)
        group, fit, probe = search.choose(x, y)
    elif method == "weights":
        whole = group_of(task.group)
        orbits = {share: Weighted(whole, share / whole.size, learn=False) for share in SHARES}
        weighed = {f"{share:g}": fitted(kernel_of(orbit), x, y) for share, orbit in orbits.items()}
        group, fit = max(weighed.items(), key=lambda item: item[1].evidence)
    else:
        group = "none" if method == "standard" else task.group
        fit = fitted(kernel_of(group, **({"normalise": True} if method == "correlation" else {})), x, y)
    return Chosen(model_of(fit, x, y), group, probe)


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
    probes: list[int] = []  # numbers of observations before an image was observed
    search = Search(task, handed=job.method == "handed")
    for _ in range(min(job.steps, task.steps)):
        if time.time() > job.deadline:
            return None
        chosen = choose(task, job.method, x, y, search)
        if chosen.probe is None:
            acquisition = UpperConfidenceBound(chosen.model, beta=BETA)
            new, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=3, raw_samples=128, options={"maxiter": 40})
        else:
            new = chosen.probe
            probes.append(len(x))
        value = f(new)
        x, y = torch.cat([x, new]), torch.cat([y, value + NOISE * torch.randn(1)])
        regrets.append(most - float(value))
        groups.append(chosen.group)
    return {
        **{name: value for name, value in job._asdict().items() if name != "deadline"},
        "regrets": np.round(regrets, 4).tolist(),
        "groups": groups,
        "probes": probes,
        "cpu_seconds": round(time.process_time() - begin, 1),
    }


def table(records: list[dict[str, Any]]) -> str:
    """Cumulative regrets, also over those of the told in the same seeds, and what was assumed after all steps."""
    titles = ["task", "method", "seeds", "steps", "cumulative regret", "over told", "a late step", "ends with", "CPU s"]
    lines = []
    for task in TASKS:
        runs = {(r["method"], r["seed"]): r for r in records if r["task"] == task}
        totals = {key: sum(r["regrets"]) for key, r in runs.items()}
        for method in TASKS[task].methods:
            found = [r for (name, _), r in runs.items() if name == method]
            if not found:
                continue
            total = np.array([totals[method, r["seed"]] for r in found])
            error = total.std(ddof=1) / len(total) ** 0.5 if len(total) > 1 else 0.0
            both = [
                (totals[method, r["seed"]], totals["told", r["seed"]]) for r in found if ("told", r["seed"]) in runs
            ]
            ratio = f"{np.sum(both, 0)[0] / np.sum(both, 0)[1]:.2f}" if both else ""
            late = f"{np.mean([np.mean(r['regrets'][-10:]) for r in found]):.3f}"
            cells = [
                task,
                method,
                len(found),
                len(found[0]["regrets"]),
                f"{total.mean():.1f} ± {error:.1f}",
                ratio,
                late,
            ]
            seconds = np.mean([r["cpu_seconds"] for r in found])
            lines.append([str(cell) for cell in [*cells, ends(method, found), f"{seconds:.0f}"]])
    return harness.markdown(titles, lines)


def ends(method: str, found: list[dict[str, Any]]) -> str:
    """What was assumed in the end, how often; and after how many observations the first assumption was given up."""
    if method not in ("found", "weights", "handed"):
        return ""
    last = [r["groups"][-1] for r in found]
    said = ", ".join(f"{name}: {last.count(name)}" for name in sorted(set(last)))
    changed = [r["groups"] for r in found if len(set(r["groups"])) > 1]
    if method == "weights" or not changed:
        return said
    after = np.median([next(i for i, name in enumerate(groups, 1) if name != groups[0]) for groups in changed])
    return f"{said}; {len(changed)} left the first after {after:.0f} observations"


Key = tuple[str, str, int, int]  # task, method, seed, steps


def recorded(path: Path) -> dict[Key, dict[str, Any]]:
    """The records of runs that have ended."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [json.loads(line) for line in lines]
    return {(r["task"], r["method"], r["seed"], len(r["regrets"])): r for r in found}


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
    begin, path = time.time(), args.out / "regret.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = recorded(path)
    jobs = [
        Job(task, method, seed, min(args.steps, TASKS[task].steps), begin + args.seconds)
        for seed in range(args.seeds)  # so that a run that is stopped has all methods of some seeds
        for task in args.tasks
        for method in TASKS[task].methods
    ]
    wanted = [job[:4] for job in jobs]
    jobs = [job for job in jobs if job[:4] not in records]
    print(f"{len(wanted) - len(jobs)} of {len(wanted)} runs are recorded", flush=True)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool, path.open("a", encoding="utf-8") as file:
        for done, record in enumerate(pool.imap_unordered(run, jobs), 1):
            if record is None:
                continue
            records[record["task"], record["method"], record["seed"], record["steps"]] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            said = [record["task"], record["method"], record["seed"], f"{sum(record['regrets']):.1f}"]
            print(f"{time.time() - begin:.0f} s, {done} of {len(jobs)}:", *said, flush=True)
    path.write_text("".join(json.dumps(records[key]) + "\n" for key in sorted(records)), encoding="utf-8")
    print(table([records[key] for key in wanted if key in records]))


if __name__ == "__main__":
    main()
