"""Objects in a file: constructor arguments in JSON, and the ``state_dict`` of orbits, kernels and likelihoods.

Two things are written that JSON does not have: a tensor, ``{"$tensor": [name]}``, which lies in the file under this
name, and an object, ``{"$object": [class, arguments]}``. A saved object is a name and arguments, never code. Only
registered classes can be rebuilt: those at the end of this module, and what a user adds::

    @orbitgp.saving.register
    class Jitter(Orbit):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.widths = nn.Parameter(torch.full((dim,), 0.1))

        def saved_arguments(self) -> dict[str, Any]:
            return {"dim": len(self.widths)}

A class whose plain attributes and parts have the names of its arguments needs no such method. The arguments say only
how the object is built (how many parameters of what shape): the values of parameters are stored as tensors.

What they build is first compared with the original. If any parts or plain attributes differ, the file says that this
object must be handed in when it is loaded, as for classes that nobody registered. What is rebuilt is what was saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
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
from orbitgp.saving.container import SavedFileError, Tensors

Arguments = dict[str, Any]
Kind = TypeVar("Kind")

# PyTorch's own, how a kernel prints, where a constraint let its parameter start (of no use once there is a value), and
# notes of GPyTorch and of InvariantKernel to themselves.
_NOT_SAVED = {*vars(nn.Module()), "extra_repr", "_initial_value", "distance_module", "_single_sums"}
_UNUSED = ("validate_args", "initial_value")  # arguments that were checked before, and the start of a constraint

_builders: dict[str, Any] = {}
_recipes: dict[Any, tuple[str, Callable[[Any], Arguments]]] = {}


class Inexpressible(TypeError):
    """A value that the file format has no words for."""


def register(
    kind: Kind, arguments: Callable[[Any], Arguments] | None = None, name: str | None = None, build: Any = None
) -> Kind:
    """Let files hold objects of this class: ``arguments(obj)`` are those with which the constructor builds one like it.

    By default they are ``obj.saved_arguments()``, or else the attributes named like arguments. The class must be
    registered, under the same name, where a file is written and where it is read. Serves as a decorator. ``build``
    takes the place of the constructor; a function in place of the class stands for itself.
    """
    name = name or class_name(kind)
    _builders[name] = build or kind
    _recipes[kind] = name, getattr(kind, "saved_arguments", _same_names) if arguments is None else arguments
    return kind


def encode(value: Any, tensors: Tensors, path: str) -> Any:
    """``value`` as JSON; its tensors go into ``tensors`` under names that start with ``path``."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        # Safetensors are laid out row by row. In which order the axes of a tensor lie can change the last bit of a
        # product, so it is kept: the axes are stored in the order in which they lie.
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
    if "per_axis" in arguments:  # files of earlier versions list the scales of a deformation
        if arguments.pop("per_axis") or len(arguments["amplitude"]) > 1:
            raise ValueError("deformations of several scales are gone: fit again, or use the version that wrote it")
        arguments |= {name: arguments[name][0] for name in ("amplitude", "smoothness")}
    return _builders[name](*arguments.pop("*", ()), **arguments)


def class_name(cls: Any) -> str:
    """Where a class comes from, for people to read."""
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def pack(module: nn.Module, tensors: Tensors, path: str, state: bool = True) -> dict[str, Any]:
    """How to build a module like this, or what of it cannot be built; and its ``state``, unless it is another module's.

    Tensors go into ``tensors`` under names that start with ``path``.
    """
    arguments: Tensors = {}
    lacks = f"{class_name(type(module))}, changed after it was made"
    packed: dict[str, Any] = pack_state(module, tensors, path) if state else {}
    try:
        saved = encode(module, arguments, f"{path}!")
        if outline(decode(saved, arguments)) == outline(module):
            tensors.update(arguments)
            return {"build": saved, **packed}
    except Inexpressible as error:
        lacks = str(error)
    except (TypeError, ValueError, RuntimeError):
        pass
    return {"build": None, "lacks": lacks, **packed}


def unpack(packed: Mapping[str, Any], tensors: Tensors, path: str, given: nn.Module | None = None) -> nn.Module:
    """The module that was packed, or a copy of ``given``, with its state where the file has one."""
    module = decode(packed["build"], tensors) if given is None else deepcopy(given)
    if not isinstance(module, nn.Module):
        raise ValueError(f"{path} is no module")
    if "fixed" in packed:
        load_state(module, packed, tensors, path)
    return module


def pack_state(module: nn.Module, tensors: Tensors, path: str) -> dict[str, Any]:
    """The tensors of a module, which of its parameters are fixed or shared, and which parts are in evaluation mode."""
    for name, tensor in module.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{class_name(type(module))} cannot be saved: its {name!r} is not a tensor.")
        tensors[f"{path}.{name}"] = tensor
    first: dict[int, str] = {}
    named = list(module.named_parameters(remove_duplicate=False))
    return {
        "fixed": [name for name, parameter in named if not parameter.requires_grad],
        "shared": {name: first[id(p)] for name, p in named if first.setdefault(id(p), name) != name},
        "evaluating": [name for name, part in module.named_modules() if not part.training],
    }


def load_state(module: nn.Module, packed: Mapping[str, Any], tensors: Tensors, path: str) -> None:
    """The inverse of :func:`pack_state`; the precision is that of the file."""
    state = {name.removeprefix(f"{path}."): tensor for name, tensor in tensors.items() if name.startswith(f"{path}.")}
    try:
        state |= {n: state[n].reshape(t.shape) for n, t in module.state_dict().items() if t.numel() == 1 and n in state}
        module.load_state_dict(state)  # in the module's own precision
    except RuntimeError as error:
        last = str(error).splitlines()[-1].strip()
        raise SavedFileError(f"{class_name(type(module))} does not fit: {last}") from error
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, nn.Parameter):
            tensor.data = state[name]
        else:  # not in place: GPyTorch's priors also keep the tensor elsewhere, in another precision
            owner, attribute = _owner(module, name)
            owner.register_buffer(attribute, state[name])
    for name, first in packed["shared"].items():
        setattr(*_owner(module, name), getattr(*_owner(module, first)))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in packed["fixed"])
    for name in packed["evaluating"]:
        module.get_submodule(name).training = False


def outline(module: nn.Module) -> list[str]:
    """What a module is but for the values of tensors: its parts, their plain attributes, and the shapes of tensors."""
    lines = [f"{name} {tuple(getattr(tensor, 'shape', ()))}" for name, tensor in module.state_dict().items()]
    for path, part in module.named_modules(remove_duplicate=False):
        attributes = {name: value for name, value in vars(part).items() if name not in _NOT_SAVED}
        lines.append(f"{path}: {class_name(type(part))} {json.dumps(attributes, default=_name, sort_keys=True)}")
    return lines


def _name(value: Any) -> Any:
    """What JSON has no words for: functions and methods by name; of other objects, the class alone."""
    if isinstance(value, Tensor):
        return [*value.shape], value.tolist()
    if isinstance(value, set | frozenset | bytes | torch.dtype | torch.device):
        return repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
    return getattr(value, "__qualname__", None) or class_name(type(value))


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return module.get_submodule(path), attribute


def _same_names(value: object) -> Arguments:
    known = {**vars(value), **getattr(value, "_modules", {})}
    return {name: known[name] for name in signature(type(value)).parameters if name in known}


def _arguments(value: Any) -> Arguments:
    """The arguments of the constructor that are not its defaults, of an object of GPyTorch.

    It keeps each in an attribute: under its name (``nu``, ``base_kernel``, ``lengthscale_prior``), with an
    underscore (``_transform``, ``_batch_shape``) or, a constraint, under the name of its parameter
    (``raw_lengthscale_constraint``). Other classes do no harm: :func:`pack` compares the result with the original.
    """
    found: Arguments = {}
    for parameter in _parameters(type(value)):
        name = parameter.name
        places = (f"_{name}", f"raw_{name}", name, {"a": "low", "b": "high"}.get(name, name))  # ends of a uniform prior
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


register(tuple, lambda value: {"*": [list(value)]}, "tuple", lambda items: tuple(items))
register(torch.Size, lambda value: {"*": [list(value)]}, "size")
register(dict, lambda value: {"*": [[list(item) for item in value.items()]]}, "dict")
register(bytes, lambda value: {"hex": value.hex()}, "bytes", lambda hex: bytes.fromhex(hex))
register(torch.device, lambda value: {"*": [str(value)]}, "device")
register(np.ndarray, _array, "array", _rebuild_array)
register(np.random.RandomState, lambda value: value.get_state(legacy=False), "random state", _rebuild_random_state)
for _function in (torch.exp, torch.log, torch.sigmoid, nn.functional.softplus, inv_sigmoid, inv_softplus):
    register(_function, lambda _: {}, _function.__name__, lambda _function=_function: _function)

_register([*_classes(orbits, orbits.Orbit), *_classes(likelihoods, likelihoods.Likelihood), nn.Flatten])
_register(_classes(own_kernels, nn.Module))
_register([nn.Sequential], lambda parts: {"*": list(parts)})
_register([*_classes(kernels, kernels.Kernel), *_classes(own_kernels, kernels.Kernel)], _arguments)
_register([*_classes(constraints, constraints.Interval), *_classes(priors, priors.Prior), nn.Softplus], _arguments)
_register([kernels.RFFKernel], _random_features)
