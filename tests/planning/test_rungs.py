"""The ladder of fidelities: it only rises, and ends with what was asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, MOST_DRAWS, NEIGHBOUR_ROWS, Rung, for_neighbours, rungs


@pytest.mark.parametrize("rows", [1, 5, 99, 100, 300, 2_000, 60_000])
@pytest.mark.parametrize("draws", [None, 2, FIRST_DRAWS, 24, 48, MOST_DRAWS])
@pytest.mark.parametrize("several", [True, False])
def test_it_rises_step_by_step_to_all_rows_and_draws(rows: int, draws: int | None, several: bool) -> None:
    ladder = rungs(rows, draws, several)
    assert ladder[-1] == Rung(rows, draws)
    for lower, upper in pairwise(ladder):
        assert (lower.rows, lower.draws or 0) < (upper.rows, upper.draws or 0)  # something grows
    rising = (
        [rung for rung in ladder if rung != for_neighbours(ladder)]
        if several and rows >= 2 * NEIGHBOUR_ROWS
        else ladder
    )
    for lower, upper in pairwise(rising):
        assert upper.draws == lower.draws or (
            lower.rows == rows and upper.draws <= 2 * lower.draws
        )  # rows first, then draws
    assert len({rung.draws for rung in rising if rung.rows < rows}) <= 1


@pytest.mark.parametrize(
    ("rows", "draws", "fixed", "expected"),
    [
        (100, MOST_DRAWS, False, Rung(100, LEAST_DRAWS)),
        (100, FIRST_DRAWS, False, Rung(100, FIRST_DRAWS)),
        (100, None, False, Rung(100, None)),
        (100, 200, True, Rung(100, 200)),
        (60_000, MOST_DRAWS, False, Rung(NEIGHBOUR_ROWS, LEAST_DRAWS)),
        (60_000, None, False, Rung(NEIGHBOUR_ROWS, None)),
        (60_000, 200, True, Rung(NEIGHBOUR_ROWS, 200)),
    ],
)
def test_neighbours_are_tried_with_few_rows_and_draws_that_suffice(
    rows: int, draws: int | None, fixed: bool, expected: Rung
) -> None:
    ladder = rungs(rows, draws, several=True, fixed_draws=fixed)
    assert for_neighbours(ladder) == expected
    later = ladder[ladder.index(expected) + 1 :]
    work = expected.rows * (expected.draws or 1)
    assert all(rung.rows * (rung.draws or 1) > work for rung in later)  # so that neighbours cost less than what follows


def test_few_rows_tell_starts_apart_where_there_are_several() -> None:
    for draws in (None, FIRST_DRAWS):
        alone, several = rungs(2_000, draws, several=False), rungs(2_000, draws, several=True)
        assert several[0].rows < alone[0].rows
        assert set(alone) <= set(several)
        assert len(rungs(20, draws, several=True)) == 1


def test_very_few_rows_tell_starts_apart_only_where_all_would_be_dear() -> None:
    """50 of 200 signals lost the better lengthscale and constants of a feature map, and up to 117 nats."""
    assert rungs(200, None, several=True) == [Rung(200, None)]
    assert rungs(200, FIRST_DRAWS, several=True) == [Rung(50, FIRST_DRAWS), Rung(200, FIRST_DRAWS)]


def test_draws_that_the_user_fixed_are_those_of_every_rung() -> None:
    for draws in (3, 200):
        ladder = rungs(2_000, draws, several=True, fixed_draws=True)
        assert {rung.draws for rung in ladder} == {draws}
        assert [rung.rows for rung in ladder] == [rung.rows for rung in rungs(2_000, FIRST_DRAWS, several=True)]
