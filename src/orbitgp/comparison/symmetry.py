"""``orbitgp.find_symmetry``: which exchanges of columns and changes of sign do the data support?

Generators are tried one at a time: each is a small group, whose evidence is compared with that of no invariance. Then
those that hold are joined, the best first, into the group that they generate. One more holds if it is certain that the
larger group is better: a swap may beat no invariance because it comes close to a circle that holds. What holds only in
part, with a learned weight (:mod:`orbitgp.orbits.weighted`), is better than no invariance, and no symmetry.

A model that is fixed beforehand beats the true one by t nats with a probability of at most exp(-t). So a generator
holds, or does not hold, only if the evidence differs by more than all tries together allow
(:func:`orbitgp.report.finding.nats_needed`), where later joins count, too. Between the two nothing can be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial, sqrt
from typing import Any, Literal, cast

import numpy as np
from scipy.stats import ks_2samp

from orbitgp.comparison.parallel import Estimator, column_names
from orbitgp.comparison.verdict import Difference, Standing
from orbitgp.datasets.base import Task, task_of
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import FiniteOrbit, FiniteProduct, Orbit, Permutation, SignChange, Weighted
from orbitgp.orbits.description import listed
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.finding import nats_needed
from orbitgp.training.progress import Progress, is_watched

_CLOSE = 0.1  # the largest difference of cumulative distributions of columns that look alike
_MOST_COLUMNS, _MOST_LIKELY = 20, 4  # columns whose distributions are compared, and generators of these to try
_MOST_ELEMENTS = 5_040  # a joined group may have: all orders of seven columns


@dataclass(frozen=True)
class Symmetry:
    """What was found. ``print`` it.

    Attributes:
        orbit: the group that the generators which hold generate, or no invariance.
        model: an estimator with this orbit, fitted to all data.
        holds, fails, unknown: the generators that hold (better than no invariance and than in part), those that do not
            (no invariance is better), and those of which neither can be told.
        nats: the evidence of each generator over no invariance.
        needed: how many of these chance alone may give, with as many tries.
    """

    orbit: Orbit
    model: Estimator
    holds: list[str]
    fails: list[str]
    unknown: list[str]
    nats: dict[str, float]
    needed: float

    def __str__(self) -> str:
        rows = [f"{name:<{max(map(len, self.nats))}}  {value:+z8.1f} nats" for name, value in self.nats.items()]
        said = [("What holds", self.holds), ("What does not", self.fails), ("What cannot be told", self.unknown)]
        needed = f"More than {self.needed:.1f} nats over, or below, no invariance are needed to tell."
        return "\n".join([*rows, "", *(f"{what}: {listed(names) or 'nothing'}." for what, names in said), needed])


def find_symmetry(
    X: Any,
    y: Any,
    generators: Sequence[str] | None = None,
    *,
    task: Task | Literal["auto"] = "auto",
    random_state: int = 0,
    **settings: Any,
) -> Symmetry:
    """Find the group of exchanged columns and changed signs that the data support.

        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> find_symmetry(x, np.sin(2 * x.sum(1))).holds
        ['swap(0, 1)']

    Args:
        X, y: as for the estimators, with a table for X. Columns are compared as they are: give them units in which they
            can be exchanged, and zeros about which signs can change.
        generators: finite orbits in words. By default the exchange of each two columns, the change of each sign, three
            and all columns moved round in a circle, and exchanges of blocks of equal size.
        task: ``classification`` or ``regression``; ``auto`` looks at y.
        random_state: as for the estimators.
        settings: arguments of the estimator; ``verbose`` is for one bar.
    """
    columns, values, y = column_names(X), np.asarray(X), np.asarray(y)
    if values.ndim != 2:
        raise ValueError(f"find_symmetry takes a table (rows, columns), got an array of shape {values.shape}.")
    given = default_generators([*columns] or [*range(values.shape[1])]) if generators is None else list(generators)
    orbits = {text: make_orbit(text, values.shape[1:], columns) for text in given}
    finite = {name: orbit for name, orbit in orbits.items() if isinstance(orbit, FiniteOrbit)}
    if len(finite) < len(orbits) or not orbits:
        raise ValueError(f"generators must be finite orbits in words, as in swap(0, 1), and at least one, got {given}.")
    task = task_of(y) if task == "auto" else task
    kind = InvariantGPClassifier if task == "classification" else InvariantGPRegressor
    tried = 3 * len(orbits) - 1  # each on its own, in part, and joined with those before
    verbose = settings.get("verbose")
    settings = {"inference": "exact", "random_state": random_state, **settings, "verbose": False}
    shown = is_watched() if verbose is None else bool(verbose)
    planned = [kind(orbit, **settings).plan(values, y).seconds or 0.0 for orbit in (None, *orbits.values()) if shown]
    bar = Progress(planned, lines=shown, show=shown and verbose)

    def fitted(name: str, orbit: Orbit | None, learned: int = 0) -> tuple[Estimator, Standing]:
        model = kind(orbit, **settings).fit(values, y, callback=bar.teller(name))
        bar.end(name)
        found = model.evidence_
        return model, Standing(name, found.value, *found.interval_of_best, learned=learned, tried=tried)

    with bar:
        model, plain = fitted("none", None)
        trials = {name: fitted(name, orbit) for name, orbit in orbits.items()}
        best, found = plain, cast(FiniteOrbit, make_orbit(None))
        holds: list[str] = []
        for name, (alone, standing) in sorted(trials.items(), key=lambda trial: -trial[1][1].value):
            if not Difference(standing, plain).certain:
                break
            in_part = fitted(name, Weighted(finite[name]), learned=1)[1] if finite[name].size > 1 else standing
            if Difference(in_part, standing).certain:
                continue  # it comes close to a symmetry, and is none
            group = joined([finite[one] for one in (*holds, name)]) if holds else finite[name]
            if group is None:
                continue
            if holds and group.size == found.size:  # it is among the elements already
                holds.append(name)
                continue
            larger, value = fitted(name, group) if holds else (alone, standing)
            if not holds or Difference(value, best).certain:
                model, best, found = larger, value, group
                holds.append(name)
    fails = [name for name, (_, standing) in trials.items() if Difference(plain, standing).certain]
    unknown = [name for name in trials if name not in (*holds, *fails)]
    nats = {name: standing.value - plain.value for name, (_, standing) in trials.items()}
    return Symmetry(found, model, holds, fails, unknown, nats, nats_needed(0, tried))


def default_generators(names: Sequence[str | int]) -> list[str]:
    """Exchanges of two columns, sign changes, circular moves of three and of all columns, exchanges of blocks."""
    count = len(names)
    found = [f"swap({a!r}, {b!r})" for a, b in combinations(names, 2)] + [f"sign({name!r})" for name in names]
    sizes = [n for n in range(2, count // 2 + 1) if count % n == 0 and factorial(count // n) <= _MOST_ELEMENTS]
    found += [f"cyclic({a!r}, {b!r}, {c!r})" for a, b, c in combinations(names, 3)]
    return found + [f"cyclic({count})"] * (count > 3) + [f"blocks({count // size}, {size})" for size in sizes]


def likely_generators(x: np.ndarray, names: Sequence[str] = ()) -> list[str]:
    """Exchanges of columns that look alike, and sign changes of those symmetric about zero: the likeliest."""
    known = [name if name.isidentifier() else repr(name) for name in names] or [str(i) for i in range(x.shape[1])]
    columns = {name: column for name, column in zip(known, x.T, strict=True) if len(np.unique(column)) > 2}
    columns = dict(list(columns.items())[:_MOST_COLUMNS])
    pairs = {f"swap({a}, {b})": (columns[a], columns[b]) for a, b in combinations(columns, 2)}
    pairs |= {f"sign({name})": (column, -column) for name, column in columns.items()}
    apart = {orbit: ks_2samp(*pair).statistic for orbit, pair in pairs.items()}
    close = max(_CLOSE, 1.36 * sqrt(2 / len(x)))  # 5 % of equal distributions are further apart
    return sorted((orbit for orbit in apart if apart[orbit] <= close), key=apart.__getitem__)[:_MOST_LIKELY]


def joined(orbits: Sequence[FiniteOrbit]) -> FiniteOrbit | None:
    """The group that these generate; None where it has too many elements.

    A permutation takes a change of sign along with its column. So signs of all columns that are exchanged with one
    whose sign changes can change, and permutations followed by changes of these signs are a group.
    """
    parts = [part for orbit in orbits for part in orbit.modules() if isinstance(part, Permutation | SignChange)]
    moves = [tuple(row) for part in parts if isinstance(part, Permutation) for row in part.index.tolist()]
    length = max((len(row) for row in moves), default=0)
    moves = [(*row, *range(len(row), length)) for row in moves]
    try:
        group = Permutation(moves, close=True, any_length=True) if moves else None
    except ValueError:  # too many elements to be listed
        return None
    index = group.index.tolist() if group is not None else []
    signs = {tuple(part.coordinates) for part in parts if isinstance(part, SignChange)}
    for move in index:
        signs |= {tuple(sorted(move[i] if i < length else i for i in sign)) for sign in signs}
    if max(1, len(index)) * 2 ** len(signs) > _MOST_ELEMENTS:
        return None
    changes = [SignChange(*sign) for sign in sorted(signs)]
    return FiniteProduct([*([] if group is None else [group]), *changes])
