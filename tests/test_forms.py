"""Forms: type hints say what a value from a JSON file must look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest

from orbitgp.forms import misfit


@dataclass
class Inner:
    seed: int
    name: str | None = None
    pairs: tuple[tuple[float, str], ...] = ()
    fills: dict[str, float] = field(default_factory=dict)


class Open(TypedDict):
    kind: Literal["a", 1]
    inner: Inner
    more: NotRequired[list[bool]]


class Named(NamedTuple):
    steps: Annotated[int, "of training"]
    state: Any
    size: tuple[int, int] = (1, 1)


GOOD = {"kind": "a", "inner": {"seed": 3, "pairs": [[1, "m"]], "fills": {"a": 1.5}}, "more": [True], "other": [[[]]]}


def test_what_fits():
    assert misfit(GOOD, Open) is None
    assert misfit({"kind": 1, "inner": {"seed": 3, "name": None}}, Open) is None
    assert misfit({"steps": 3, "state": {}, "size": [2, 2]}, Named) is None
    assert misfit({"steps": 3, "state": None}, Named) is None


@pytest.mark.parametrize(
    ("value", "form", "problem"),
    [
        ({**GOOD, "kind": "b"}, Open, "'kind' is of the wrong kind"),
        ({**GOOD, "kind": True}, Open, "'kind' is of the wrong kind"),  # though True == 1
        ({**GOOD, "kind": []}, Open, "'kind' is of the wrong kind"),
        ({"kind": "a"}, Open, "'inner' is missing"),
        ({**GOOD, "more": [1]}, Open, "'more.0' is of the wrong kind"),
        ({**GOOD, "inner": {}}, Open, "'inner.seed' is missing"),
        ({**GOOD, "inner": {"seed": True}}, Open, "'inner.seed' is of the wrong kind"),
        ({**GOOD, "inner": {"seed": 1.0}}, Open, "'inner.seed' is of the wrong kind"),
        ({**GOOD, "inner": {"seed": 1, "name": 3}}, Open, "'inner.name' is of the wrong kind"),
        ({**GOOD, "inner": {"seed": 1, "pairs": [[1.0]]}}, Open, "'inner.pairs.0' is of the wrong kind"),
        ({**GOOD, "inner": {"seed": 1, "fills": {"a": "b"}}}, Open, "'inner.fills.a' is of the wrong kind"),
        ({**GOOD, "inner": {"seed": 1, "x" * 90: 1}}, Open, f"'inner.{'x' * 34}' is unknown"),
        ({**GOOD, "inner": [1]}, Open, "'inner' is of the wrong kind"),
        ({"steps": 3, "state": 0, "size": [1]}, Named, "'size' is of the wrong kind"),
        ({"steps": 3, "state": 0, "more": 1}, Named, "'more' is unknown"),
        ({**GOOD, "inner": {"seed": 1, "pairs": 3}}, Open, "'inner.pairs' is of the wrong kind"),
        ({**GOOD, "more": {}}, Open, "'more' is of the wrong kind"),
        ([], Open, "it is of the wrong kind"),
        (None, Named, "it is of the wrong kind"),
    ],
)
def test_what_does_not_fit(value, form, problem):
    assert misfit(value, form) == problem
