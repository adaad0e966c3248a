"""The rules of the learner, and how each is left out: a line of the code is replaced, and no more.

A rule names the cases to which it can matter (``experiments.ablation_cases`` says what the tags mean), and its edits.
An edit is a function, a text that occurs in it once, and what stands there without the rule. Code that has changed
since must be told here: an edit whose text is not found is an error.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from orbitgp.planning import rungs
from orbitgp.training import contenders, maximise, objective, starts
from orbitgp.training.ladder import Ladder

Edit = tuple[Callable[..., Any], str, str]


class Rule(NamedTuple):
    """A rule that may be left out. ``needs``: tags that a case must have."""

    needs: str
    edits: tuple[Edit, ...]


@contextmanager
def left_out(rule: Rule) -> Iterator[None]:
    """The learner without the rule. Functions get other code, so whoever has imported them sees it."""
    functions: dict[Any, str] = {}
    for function, old, new in rule.edits:
        source = functions.get(function) or textwrap.dedent(inspect.getsource(function))
        if source.count(old) != 1:
            raise ValueError(f"{function.__qualname__} has {source.count(old)} times {old!r}: mend the rule.")
        functions[function] = source.replace(old, new)
    before = {function: function.__code__ for function in functions}
    try:
        for function, source in functions.items():
            made: dict[str, Any] = {}
            exec(f"from __future__ import annotations\n{source}", function.__globals__, made)
            function.__code__ = made[function.__name__].__code__
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def of(function: Callable[..., Any], needs: str, **texts: tuple[str, str]) -> dict[str, Rule]:
    """Rules of one function: for each, a text and what replaces it."""
    return {name.replace("_", " "): Rule(needs, ((function, *text),)) for name, text in texts.items()}


_STARTS = "starts = neighbours(best, self.learned, score, self._narrow if at_end else None)"
_FOLLOWED = "max((one, _followed(one, best, learned)), key=value_at)"
_AT_END = "for one in (*scaled, narrow) if"
_KERNEL = "max((vector, self.learned.with_reaches(vector, self._best)), key=score)"
_SHARES = "for share in (NARROW, MIDDLE, WIDE)"
_MARGIN = "DRAWS_MARGIN if sees_all else ROWS_MARGIN"
_HESSIAN = "None if start.inverse_hessian is None else start.inverse_hessian * (last.rows / rung.rows)"
_SLOW = "if self._slow == 2 or (self._slow and self._left(self._last[2]) < self.tolerance):"

NEIGHBOURS = {
    **of(
        Ladder._beside_neighbours,
        "reach",
        neighbours=(_STARTS, "starts = []"),
        Hessian_of_the_best=("start, best.inverse_hessian)", "start)"),
    ),
    **of(
        Ladder._beside_neighbours,
        "reach drawn",
        neighbours_midway=(_STARTS, f"{_STARTS} if at_end else []"),
        neighbours_at_the_end=(_STARTS, f"{_STARTS} if not at_end else []"),
    ),
    **of(
        Ladder._beside_neighbours,
        "shape",
        shapes_as_given=("if self.learned.is_shape.any() and not at_end:", "if False:"),
    ),
    **of(
        contenders.neighbours,
        "reach drawn",
        near_ones_at_the_end=(_AT_END, "for one in (narrow,) if"),
        the_narrow_start_at_the_end=(_AT_END, "for one in scaled if"),
    ),
    **of(
        contenders.neighbours,
        "reach",
        kernels_that_follow=(_FOLLOWED, "one"),
        kernels_that_stay=(_FOLLOWED, "_followed(one, best, learned)"),
    ),
    **of(
        maximise._first_guess,
        "reach",
        short_first_steps=("inverse_hessian / np.abs(inverse_hessian @ slope).max(initial=1.0)", "inverse_hessian"),
    ),
}
FIDELITIES = {
    **of(Ladder._supported, "drawn", cutting_back=("for share in (0.25, 0.5, 1.0):", "for share in ():")),
    **of(
        Ladder.objective,
        "drawn",
        corrected_draws=("if not model.gains_by_correction:", "if True:"),
        few_draws_as_they_are=("(rung.draws or 0) <= LEAST_DRAWS", "(rung.draws or 0) <= 1"),
    ),
    **of(
        Ladder._climb_ladder,
        "drawn",
        an_end_by_doubling=("if abs(gain) < DRAWS_TOLERANCE and abs", "if abs"),
        an_end_by_fresh_draws=("and abs(self.draw_shift) < DRAWS_MARGIN", ""),
    ),
    **of(rungs.rungs, "drawn", sixteen_draws_first=("min(FIRST_DRAWS, draws)", "min(LEAST_DRAWS, draws)")),
    **of(rungs.rungs, "sketch", rows_of_the_sketch=("rows >= 2 * SKETCH_ROWS else", "False else")),
    **of(rungs.rungs, "enumerated", no_sketch_without_draws=("draws is not None and rows >=", "rows >=")),
    **of(rungs.rungs, "middle", a_rung_in_the_middle=("rows >= 2 * NEIGHBOUR_ROWS else", "False else")),
    **of(
        objective.representative_order,
        "sketch",
        labels_in_proportion=("if len(distinct) > len(y) // 2:", "if True:"),
    ),
}
STARTS = {
    **of(
        Ladder._candidates,
        "reach",
        the_narrow_start=("for vector in vectors]", "for vector in vectors if vector is not self._narrow]"),
        kernels_as_given=(_KERNEL, "self.learned.with_reaches(vector, self._best)"),
        kernels_without_the_orbit=(_KERNEL, "vector"),
    ),
    **of(
        Ladder._candidates,
        "reach sketch",
        more_rows_without_the_orbit=("self.rungs[min(1, len(self.rungs) - 1)]", "self.rungs[0]"),
    ),
    **of(
        starts.possible_starts,
        "reach",
        middle_reaches=(_SHARES, "for share in (NARROW, WIDE)"),
        wide_reaches=(_SHARES, "for share in (NARROW, MIDDLE)"),
    ),
    "the start as given": Rule(
        "reach",
        (
            (starts.possible_starts, "[given, *(", "[*("),
            (Ladder._candidates, "vectors[min(1, len(vectors) - 1)]", "vectors[0]"),
        ),
    ),
    **of(starts.possible_starts, "simpler", simpler_orbits=("in orbit.simpler()", "in ()")),
    **of(
        starts._Ruler.start,
        "turn",
        the_whole_turn=("multiple if multiple < end / 2 or share < WIDE else end", "multiple"),
    ),
    **of(starts._Ruler.multiple, "turn", where_an_orbit_ends=("if further < _GROWS * moved:", "if False:")),
    **of(starts.natural_units, "reach", natural_units=("size * ruler.multiple((i,), MIDDLE)", "size")),
    **of(starts.kernel_starts, "", other_lengthscales=("for length in LENGTHS", "for length in ()")),
    **of(
        starts.kernel_starts,
        "map",
        constants_of_a_feature_map=("for multiple in CONSTANTS if learned", "for multiple in ()"),
    ),
}
CONTENDERS = {
    **of(contenders.contenders, "", only_the_best=("if len(found) == MOST_CONTENDERS or", "if True or")),
    **of(contenders.contenders, "reach sketch", a_margin_of_rows=(_MARGIN, "DRAWS_MARGIN")),
    **of(
        contenders._same_hill,
        "",
        hills_of_their_own=("return value_at(middle) >", "return False and"),
    ),
}
CLIMBS = {
    **of(
        Ladder._tolerance,
        "drawn",
        tolerance_of_draws=("_FINE * abs(self.draw_shift), ", ""),
        tolerance_of_coarse_rungs=("_FINE if is_fine else DRAWS_TOLERANCE", "_FINE"),
    ),
    **of(Ladder._tolerance, "bound", tolerance_of_slack=(", objective.resolution())", ")")),
    **of(Ladder._climb, "drawn", inherited_Hessians=(_HESSIAN, "start.inverse_hessian if rung == last else None")),
    **of(Ladder._climb, "sketch", Hessians_that_grow_with_rows=(_HESSIAN, "start.inverse_hessian")),
    **of(
        maximise._Search._after_iteration,
        "",
        two_slow_iterations=(_SLOW, "if self._slow:"),
        an_end_by_slow_iterations=("self._slow == 2 or ", ""),
    ),
    **of(
        maximise._Search._evaluate,
        "",
        ends_of_line_searches=("if self._in_line > _MAX_LINE_SEARCH:", "if False:"),
    ),
}
RULES = {**NEIGHBOURS, **FIDELITIES, **STARTS, **CONTENDERS, **CLIMBS}
