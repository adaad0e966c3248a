"""Classes by name: what a file may ask for, and the arguments with which each object is built.

A saved object is a name and the arguments of a constructor, never code. Only registered classes can be rebuilt: the orbits and
likelihoods of this library, GPyTorch's kernels, constraints and priors, and what a user adds::

    @orbitgp.saving.register
    class Jitter(Orbit):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.widths = nn.Parameter(torch.full((dim,), 0.1))

        def saved_arguments(self) -> dict[str, Any]:
            return {"dim": len(self.widths)}

A class whose plain attributes have the names of its arguments needs no such method. The arguments say only how the object is
built (how many parameters of what shape): the values of parameters are stored as tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from orbitgp import likelihoods, orbits
from orbitgp.kernels import SNV, Frame, OrientedGradients, SavitzkyGolay, ShapeHistograms, SideBySide, SmoothDerivative

Arguments = dict[str, Any]
Kind = TypeVar("Kind", bound=type)

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # that files may name, such as the transform of a constraint
_kinds: dict[str, type] = {}
_recipes: dict[type, tuple[str, Callable[[Any], Arguments]]] = {}


def register(kind: Kind, arguments: Callable[[Any], Arguments] | None = None, name: str | None = None) -> Kind:
    """Let files hold objects of this class: ``arguments(obj)`` are those with which the constructor builds one like it.

    By default they are ``obj.saved_arguments()``, or else the attributes named like arguments. The class must be registered,
    under the same name, where a file is written and where it is read. Serves as a decorator.
    """
    name = class_name(kind) if name is None else name
    declared = getattr(kind, "saved_arguments", _same_names) if arguments is None else arguments
    _kinds[name], _recipes[kind] = kind, (name, declared)
    return kind


def register_all(package: ModuleType, base: type, prefix: str, arguments: Callable[[Any], Arguments] | None = None) -> None:
    """Register all classes of a package that derive from ``base``, by the names ``prefix:Class``."""
    for kind in vars(package).values():
        if isinstance(kind, type) and issubclass(kind, base):
            register(kind, arguments, f"{prefix}:{kind.__name__}")


def described(value: object) -> tuple[str, Arguments] | None:
    """The name and the arguments of this object, if exactly its class is registered: a subclass may do anything else."""
    if type(value) not in _recipes:
        return None
    name, arguments = _recipes[type(value)]
    return name, arguments(value)


def build(name: str, arguments: Arguments) -> Any:
    """The object of this name and these arguments; ``*`` holds positional ones."""
    if name not in _kinds:
        raise ValueError(f"nothing is registered by the name {name!r}")
    named = dict(arguments)
    return _kinds[name](*named.pop("*", ()), **named)


def class_name(kind: type) -> str:
    """Where a class comes from, for people to read."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _same_names(value: object) -> Arguments:
    return {name: vars(value)[name] for name in signature(type(value)).parameters if name in vars(value)}


register_all(orbits, orbits.Orbit, "orbit")
register_all(likelihoods, likelihoods.Likelihood, "likelihood")
for feature_map in (OrientedGradients, Frame, SideBySide, SNV, SavitzkyGolay, SmoothDerivative, ShapeHistograms):
    register(feature_map, name=f"feature_map:{feature_map.__name__}")
register(nn.Flatten, name="torch:Flatten")
register(nn.Sequential, lambda parts: {"*": list(parts)}, "torch:Sequential")
