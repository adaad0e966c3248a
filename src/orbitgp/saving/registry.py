"""Classes by name: what a file may ask for, and how to say it.

A saved object is a name and the arguments of a constructor, never code. So only what stands in this register can be rebuilt:
the orbits and likelihoods of this library, GPyTorch's kernels, constraints and priors, and what a user adds::

    orbitgp.saving.register(Jitter, lambda orbit: {"dim": orbit.dim})

The arguments need to say only how the object is built (how many parameters of what shape): their values are stored as tensors.
Functions, such as the transform of a constraint, are known by name too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How objects of one class are written: under which name, and with which arguments (``*`` holds positional ones)."""

    name: str
    kind: type
    arguments: Callable[[Any], Arguments]

    def build(self, arguments: Arguments) -> Any:
        named = dict(arguments)
        return self.kind(*named.pop("*", ()), **named)


_by_name: dict[str, Recipe] = {}
_by_kind: dict[type, Recipe] = {}
_functions: dict[str, Callable[..., Any]] = {}


def register(kind: type, arguments: Callable[[Any], Arguments] | None = None, name: str | None = None) -> None:
    """Let files hold objects of this class: ``arguments(obj)`` are those with which the constructor builds one like it.

    The class must be registered, under the same name, where a file is written and where it is read.
    """
    name = class_name(kind) if name is None else name
    recipe = Recipe(name, kind, arguments or (lambda _: {}))
    _by_name[name] = _by_kind[kind] = recipe


def register_function(name: str, function: Callable[..., Any]) -> None:
    """Let files name this function."""
    _functions[name] = function


def recipe_for(value: object) -> Recipe | None:
    """The recipe of exactly this object's class: a subclass may do anything else."""
    return _by_kind.get(type(value))


def recipe_named(name: str) -> Recipe | None:
    return _by_name.get(name)


def function_named(name: str) -> Callable[..., Any] | None:
    return _functions.get(name)


def name_of_function(value: object) -> str | None:
    return next((name for name, function in _functions.items() if function is value), None)


def class_name(kind: type) -> str:
    """Where a class comes from, for the eyes of a person."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
