"""The rungs of a ladder: how many rows and draws each climb sees, from a rough sketch to what the user gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST_DRAWS = 16  # of an infinite orbit, on all rungs but the last ones
LEAST_DRAWS, MOST_DRAWS = 32, 128  # between which learning ends, on the last rung
SKETCH_ROWS = 50  # of the first rung; the evidence of fewer rows has its optima elsewhere
MOST_CONTENDERS = 4  # optima that go on to the next rung, at most
NEIGHBOUR_ROWS = 3 * SKETCH_ROWS  # on which neighbours are tried
LEAST_ROWS = 300  # fewer say too little to learn an orbit from
CHECKED_ROWS = 1000  # that stand for all: what fresh draws change, distances, pixels, and examples among them


class Rung(NamedTuple):
    """One fidelity of the evidence. ``draws`` is None where the orbit is enumerated."""

    rows: int
    draws: int | None

    def __str__(self) -> str:
        return f"{self.rows:,} rows" + ("" if self.draws is None else f" x {self.draws} draws")


def rungs(rows: int, draws: int | None, several: bool, fixed_draws: bool = False) -> list[Rung]:
    """The ladder up to all ``rows`` to learn from and ``draws`` at most; ``several``: if several candidates begin it.

    Rows grow first, then draws; but where rows are many, one rung in the middle has few rows and more draws
    (:func:`for_neighbours`). Without draws, no rung needs as few rows as the sketch, which may lose the best start.
    ``fixed_draws``: every rung has ``draws`` of them, as the user said.
    """
    first = draws if draws is None or fixed_draws else min(FIRST_DRAWS, draws)
    few = [SKETCH_ROWS] if several and draws is not None and rows >= 2 * SKETCH_ROWS else []
    more = [rows // times for times in (64, 16, 4) if rows // times >= LEAST_ROWS]
    enough = first if draws is None or fixed_draws else min(LEAST_DRAWS, draws)
    middle = [Rung(NEIGHBOUR_ROWS, enough)] if several and rows >= 2 * NEIGHBOUR_ROWS else []
    found = [*(Rung(count, first) for count in few), *middle, *(Rung(count, first) for count in (*more, rows))]
    while first is not None and draws is not None and first < draws:
        first = min(2 * first, draws)
        found.append(Rung(rows, first))
    return found


def for_neighbours(ladder: Sequence[Rung]) -> Rung:
    """The rung on which neighbours of the best candidate are tried: the first with enough rows and draws."""
    last = ladder[-1]
    rows, draws = min(last.rows, NEIGHBOUR_ROWS), min(last.draws or 0, LEAST_DRAWS)
    return next(rung for rung in ladder if rung.rows >= rows and (rung.draws or 0) >= draws)
