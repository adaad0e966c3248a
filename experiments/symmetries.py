"""Symmetries found by ``orbitgp.find_symmetry`` in generated problems, with planted ones and with none.

Thirty problems come from a seed: three to five columns, 40 to 100 rows, and a function drawn from a Gaussian process of
another kernel (Matérn-5/2) that is averaged over a planted group: two or three columns in any order, all moved round in
a circle, changes of one sign, both, or none. A generator is true if the function does not change under it. The result
is wrong if it is certain of a generator that is not true, or against one that is.

A generator of a group may be nearly as good as all of it: where three columns can change places in any order, a swap
beats no symmetry by 20 nats because it comes close to the circle, and adds two to six to it. So what a generator alone
explains is counted, too: how far the whole group is ahead of the best without it.

120 problems (``--some 120 --first 6000``, at ``b3438929``, 30 seconds on 11 cores): none wrong. Of 47 true generators
that are ahead of all the rest by 20 nats all were found, and of 85 ahead of no symmetry by 20 nats 71: the others
are swaps beside a circle that was found.

``python -m experiments symmetries [--some 5] [--jobs 2]``
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.gaussian_process.kernels import Matern

import orbitgp
from orbitgp.comparison.symmetry import default_generators, joined
from orbitgp.orbits import FiniteOrbit
from orbitgp.orbits.parse import make_orbit

PLANTED = ("none", "swap(0, 1)", "permutations(3)", "cyclic(3)", "sign(0)", "swap(1, 2)*sign(0)")
COUNT, NOISE, CLEAR = 30, 0.05, 20.0

Elements = frozenset[tuple[float, ...]]


def problem(seed: int) -> tuple[str, Float[np.ndarray, "rows columns"], Float[np.ndarray, " rows"], set[str]]:
    """The planted group, inputs, targets, and the generators that do not change the function."""
    rng = np.random.default_rng(seed)
    planted, columns, rows = PLANTED[seed % len(PLANTED)], int(rng.integers(3, 5)), int(rng.integers(40, 101))
    group, X = make_orbit(planted, (columns,)), rng.normal(size=(rows, columns))
    assert isinstance(group, FiniteOrbit)
    centres, weights = rng.normal(size=(200, columns)), rng.normal(size=200)

    def function(x: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, " n"]:
        moved = group.elements(torch.from_numpy(x)).numpy()
        return np.asarray(
            np.mean([Matern(1.5, nu=2.5)(moved[:, i], centres) @ weights for i in range(group.size)], axis=0)
        )

    y = function(X)
    scale = y.std()
    true = set()
    for text in default_generators(list(range(columns))):
        moved = make_orbit(text).elements(torch.from_numpy(X)).numpy()  # type: ignore[operator]
        if all(np.allclose(function(moved[:, i]), y) for i in range(moved.shape[1])):
            true.add(text)
    return planted, X, y / scale + NOISE * rng.normal(size=rows), true


def ahead(X: Float[np.ndarray, "rows columns"], y: Float[np.ndarray, " rows"], true: set[str]) -> dict[str, float]:
    """Nats of the group that all true generators make, over the best that some make and that lacks this one."""
    probe, nats, elements = torch.randn(1, X.shape[1], dtype=torch.float64), dict[Elements, float](), {}
    for some in (some for count in range(len(true) + 1) for some in combinations(sorted(true), count)):
        group = joined([make_orbit(name) for name in some]) if some else make_orbit(None)  # type: ignore[misc]
        assert isinstance(group, FiniteOrbit)
        moved = elements[some] = frozenset(tuple(row) for row in group.elements(probe)[0].tolist())
        if moved not in nats:
            nats[moved] = orbitgp.InvariantGPRegressor(group, inference="exact").fit(X, y).evidence_.value
    whole = elements[tuple(sorted(true))]
    return {name: nats[whole] - max(nats[e] for e in nats if not elements[name,] <= e) for name in sorted(true)}


def measured(seed: int) -> dict[str, Any]:
    """What is found of one problem, and what there is to find."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    planted, X, y, true = problem(seed)
    start = time.process_time()
    found = orbitgp.find_symmetry(X, y, verbose=False)
    seconds = time.process_time() - start
    wrong = [name for name in found.holds if name not in true] + [name for name in found.fails if name in true]
    over_none = {name: found.nats[name] for name in sorted(true)}
    return {
        "seed": seed,
        "planted": f"{planted}, {X.shape[0]} × {X.shape[1]}",
        "holds": found.holds,
        "wrong": wrong,
        "missed": sorted(true - set(found.holds)),
        "over none": over_none,
        "over the rest": ahead(X, y, true) if max(over_none.values(), default=0.0) > CLEAR else over_none,
        "seconds": seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments symmetries", description="Symmetries found, not told.")
    parser.add_argument("--some", type=int, default=COUNT, help="how many problems")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args(arguments)
    titles = "planted, rows × columns | holds | wrong | true, not found | nats over none, over the rest | CPU s"
    print(f"| {titles} |\n|{'---|' * 6}", flush=True)
    rows = []
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for row in pool.map(measured, range(args.first, args.first + args.some)):
            rows.append(row)
            nats = [f"{name} {row['over none'][name]:.0f}, {nats:.0f}" for name, nats in row["over the rest"].items()]
            texts = [", ".join(row[key]) for key in ("holds", "wrong", "missed")]
            cells = [row["planted"], *texts, "; ".join(nats), f"{row['seconds']:.0f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nCertain and wrong: {sum(len(row['wrong']) for row in rows)}.")
    for kind in ("over none", "over the rest"):
        clear = [(row, name) for row in rows for name, nats in row[kind].items() if nats > CLEAR]
        found = sum(name in row["holds"] for row, name in clear)
        print(f"Of {len(clear)} true ones by {CLEAR:.0f} nats {kind}, {found} were found.")


if __name__ == "__main__":
    main()
