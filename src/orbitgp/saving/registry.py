"""Objects as the arguments of their constructors, in JSON.

Two things are written that JSON does not have: a tensor, ``{"$tensor": [name]}``, which lies in the file under this name, and
an object, ``{"$object": [class, arguments]}``. A saved object is a name and arguments, never code. Only registered classes can
be rebuilt: those of :mod:`orbitgp.saving.known`, and what a user adds::

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
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Arguments = dict[str, Any]
Tensors = dict[str, Tensor]
Kind = TypeVar("Kind", bound=type)

_builders: dict[str, Callable[..., Any]] = {}
_recipes: dict[Any, tuple[str, Callable[[Any], Arguments]]] = {}


class Inexpressible(TypeError):
    """A value that the file format has no words for."""


def register(kind: Kind, arguments: Callable[[Any], Arguments] | None = None, name: str | None = None) -> Kind:
    """Let files hold objects of this class: ``arguments(obj)`` are those with which the constructor builds one like it.

    By default they are ``obj.saved_arguments()``, or else the attributes named like arguments. The class must be registered,
    under the same name, where a file is written and where it is read. Serves as a decorator.
    """
    declared = getattr(kind, "saved_arguments", _same_names) if arguments is None else arguments
    add(kind, name or class_name(kind), declared, kind)
    return kind


def add(key: Any, name: str, arguments: Callable[[Any], Arguments], build: Callable[..., Any]) -> None:
    """Write objects of the class ``key``, or this very function, by a name and arguments, and rebuild them by ``build``."""
    _builders[name], _recipes[key] = build, (name, arguments)


def encode(value: Any, tensors: Tensors, path: str) -> Any:
    """``value`` as JSON; its tensors go into ``tensors`` under names that start with ``path``."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        # Safetensors are laid out row by row. In which order the axes of a tensor lie can change the last bit of a product, so
        # it is kept: the axes are stored in the order in which they lie.
        order = sorted(range(value.ndim), key=value.stride().__getitem__, reverse=True)
        dense = order != sorted(order) and value.permute(order).is_contiguous()
        tensors[path] = value.permute(order) if dense else value
        return {"$tensor": [path, order] if dense else [path]}
    if isinstance(value, list):
        return [encode(item, tensors, f"{path}.{i}") for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: encode(item, tensors, f"{path}.{key}") for key, item in value.items()}
    key: Any = value if isinstance(value, FunctionType | BuiltinFunctionType) else type(value)
    key = next((plain for plain in (torch.Size, tuple, dict) if isinstance(value, plain)), key)
    if key not in _recipes:  # exactly this class: a subclass of others may do anything else
        raise Inexpressible(f"the function {value!r}" if key is value else class_name(key))
    name, arguments = _recipes[key]
    return {"$object": [name, encode(arguments(value), tensors, path)]}


def decode(value: Any, tensors: Tensors) -> Any:
    """The inverse of :func:`encode`; ValueError, TypeError or KeyError where the JSON says something else."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        path, *order = value["$tensor"]
        return tensors[path].permute(*np.argsort(order[0]).tolist()) if order else tensors[path]
    if "$object" not in value:
        return {key: decode(item, tensors) for key, item in value.items()}
    name, saved = value["$object"]
    if name not in _builders:
        raise ValueError(f"nothing is registered by the name {name!r}")
    arguments = decode(saved, tensors)
    return _builders[name](*arguments.pop("*", ()), **arguments)


def class_name(kind: type) -> str:
    """Where a class comes from, for people to read."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _same_names(value: object) -> Arguments:
    return {name: vars(value)[name] for name in signature(type(value)).parameters if name in vars(value)}
