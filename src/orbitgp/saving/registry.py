"""Objects as the arguments of their constructors, in JSON.

Two things are written that JSON does not have: a tensor, ``{"$tensor": [name]}``, which lies in the file under this name, and
an object, ``{"$object": [class, arguments]}``. A saved object is a name and arguments, never code. Only registered classes can
be rebuilt: those at the end of this module, and what a user adds::

    @orbitgp.saving.register
    class Jitter(Orbit):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.widths = nn.Parameter(torch.full((dim,), 0.1))

        def saved_arguments(self) -> dict[str, Any]:
            return {"dim": len(self.widths)}

A class whose plain attributes have the names of its arguments needs no such method. The arguments say only how the object is
built (how many parameters of what shape): the values of parameters are stored as tensors.

GPyTorch's classes keep each argument in an attribute: under its own name (``nu``, ``base_kernel``, ``lengthscale_prior``), with
an underscore (``_transform``, ``_batch_shape``) or, a constraint, under the name of its parameter
(``raw_lengthscale_constraint``). So one rule reads the arguments of all of them. A class that it does not fit cannot do harm:
:func:`orbitgp.saving.modules.pack` compares what is rebuilt with the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, signature
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from gpytorch import constraints, kernels, priors
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor, nn

from orbitgp import kernels as own_kernels
from orbitgp import likelihoods, orbits

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


# Checks of arguments that were checked before, and where a constraint let its parameter start: of no use once there is a value.
_UNUSED = ("validate_args", "initial_value")


def _arguments(value: Any) -> Arguments:
    """The arguments of the constructor that are not its defaults."""
    found: Arguments = {}
    for parameter in _parameters(type(value)):
        name = parameter.name
        places = (f"_{name}", f"raw_{name}", name, {"a": "low", "b": "high"}.get(name, name))  # the ends of a uniform prior
        kept = [getattr(value, place) for place in places if hasattr(value, place)]
        if parameter.kind is Parameter.VAR_POSITIONAL:
            found["*"] = list(kept[0])
        elif kept and name not in _UNUSED and (isinstance(kept[0], Tensor) or kept[0] != parameter.default):
            found[name] = kept[0]
    return found


def _parameters(kind: type) -> Iterator[Parameter]:
    """What a constructor takes; where it hands on further keywords, what the next class up takes too."""
    for owner in kind.__mro__:
        if "__init__" in vars(owner):
            _, *parameters = signature(vars(owner)["__init__"]).parameters.values()
            yield from (p for p in parameters if p.kind is not Parameter.VAR_KEYWORD)
            if all(p.kind is not Parameter.VAR_KEYWORD for p in parameters):
                return


def _register(kinds: Iterable[Any], arguments: Callable[[Any], Arguments] | None = None) -> None:
    """Names such as ``orbitgp:Rotation`` stay when a class moves to another module."""
    for kind in kinds:
        register(kind, arguments, f"{kind.__module__.partition('.')[0]}:{kind.__name__}")


def _classes(package: ModuleType, base: type) -> list[type]:
    return [kind for kind in vars(package).values() if isinstance(kind, type) and issubclass(kind, base)]


def _random_features(kernel: Any) -> Arguments:
    # Drawn when the kernel first sees an input, unless it was told the number of features.
    drawn = getattr(kernel, "randn_weights", None)
    return {**_arguments(kernel), "num_dims": None if drawn is None else drawn.shape[-2]}


def _array(value: np.ndarray) -> Arguments:
    """Words as words, numbers as bytes."""
    kind, flat = value.dtype.kind, value.ravel()
    words = kind in "OTU"
    data = flat.tolist() if words else torch.from_numpy(flat.view(np.uint8).copy())
    return {"dtype": kind if kind in "OT" else value.dtype.str, "shape": list(value.shape), "data": data}


def _rebuild_array(dtype: str, shape: list[int], data: list[Any] | Tensor) -> np.ndarray:
    flat = np.array(data, dtype) if isinstance(data, list) else data.numpy().view(dtype)
    return flat.reshape(shape)


def _rebuild_random_state(**state: Any) -> np.random.RandomState:
    result = np.random.RandomState()
    result.set_state(state)
    return result


add(tuple, "tuple", lambda value: {"*": [list(value)]}, lambda items: tuple(items))
add(torch.Size, "size", lambda value: {"*": [list(value)]}, torch.Size)
add(dict, "dict", lambda value: {"*": [[list(item) for item in value.items()]]}, dict)
add(bytes, "bytes", lambda value: {"hex": value.hex()}, lambda hex: bytes.fromhex(hex))
add(torch.device, "device", lambda value: {"*": [str(value)]}, torch.device)
add(np.ndarray, "array", _array, _rebuild_array)
add(np.random.RandomState, "random state", lambda value: value.get_state(legacy=False), _rebuild_random_state)
for _function in (torch.exp, torch.log, torch.sigmoid, nn.functional.softplus, inv_sigmoid, inv_softplus):
    add(_function, _function.__name__, lambda _: {}, lambda _function=_function: _function)

_register([*_classes(orbits, orbits.Orbit), *_classes(likelihoods, likelihoods.Likelihood), nn.Flatten])
_register(_classes(own_kernels, nn.Module))
_register([nn.Sequential], lambda parts: {"*": list(parts)})
_register([*_classes(kernels, kernels.Kernel), own_kernels.InvariantKernel, own_kernels.FeatureMapKernel], _arguments)
_register([*_classes(constraints, constraints.Interval), *_classes(priors, priors.Prior), nn.Softplus], _arguments)
_register([kernels.RFFKernel], _random_features)
