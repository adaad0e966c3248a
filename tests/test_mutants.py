"""The mutants that ``python -m tests.mutants`` draws from, and those that have names."""

from __future__ import annotations

import pytest

from tests.mutants import NAMED, Mutant, equivalent, functions, known, mutants_of, named, possible

SOURCE = """
def f(a: int, b=3):
    if not a < b:
        raise ValueError(f"{a + b} and {a - b}.")
    return max(a + 1, g(b, key=a))
"""


def test_mutants_change_one_thing_that_is_computed() -> None:
    found = mutants_of("room/module.py", SOURCE)
    assert {mutant.after for mutant in found} == {
        "def f(a: int, b=6):",
        "if (a < b):",
        "if not (a >= b):",
        "return",
        "return min(a + 1, g(b, key=a))",
        "return max((a - 1), g(b, key=a))",
        "return max(a + 2, g(b, key=a))",
        "return max(a + 1, g(b))",
    }
    assert all(mutant.function == 2 and mutant.before in SOURCE for mutant in found)
    for mutant in found:
        compile(mutant.source, "module.py", "exec")


def test_functions_are_found_without_their_decorators() -> None:
    namespace = {"__name__": "module"}
    source = "import torch\n@torch.no_grad()\ndef f(): pass\nclass A:\n    @property\n    def g(self): pass\n"
    exec(compile(source, "module.py", "exec"), namespace)
    assert {name: function.__code__.co_name for name, function in functions(namespace, "module")} == {
        "f": "f",
        "A.g": "g",
    }


@pytest.mark.parametrize("one", NAMED)
def test_named_mutants_are_of_the_present_code(one: tuple[str, str, str]) -> None:
    mutant = named(*one)
    assert isinstance(mutant, Mutant)
    compile(mutant.source, mutant.module, "exec")


def test_equivalent_mutants_are_of_the_present_code() -> None:
    present = {known(mutant.module, mutant.before, after) for mutant in possible() for after in (mutant.after, "*")}
    assert equivalent() - present == set()


def test_what_returns_nothing_is_not_made_to_return_nothing() -> None:
    assert mutants_of("room/module.py", "def f():\n    return None\n") == []
