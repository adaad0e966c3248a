"""Orbits, kernels and likelihoods in a file: the arguments of the constructor, and the ``state_dict``.

What is built from a name and arguments is compared with the original before the file is written. If any of its parts or plain
attributes differ, the file says that this object must be handed in when it is loaded, as it does for classes that nobody
registered. So what is rebuilt is always what was saved, and never something that looks like it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from orbitgp.saving.container import SavedFileError
from orbitgp.saving.registry import Inexpressible, Tensors, class_name, decode, encode

# PyTorch's own, how a kernel prints, where a constraint let its parameter start (of no use once there is a value), and a note
# of GPyTorch's to itself.
_PASSING = {*vars(nn.Module()), "extra_repr", "_initial_value", "distance_module"}


def pack(module: nn.Module, tensors: Tensors, path: str, state: bool = True) -> dict[str, Any]:
    """How to build a module like this one, or what of it cannot be built; and its ``state``, unless that is another module's.

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
    """What a module is, apart from the values of its tensors: its parts, their plain attributes, and the shapes of tensors."""
    lines = [f"{name} {tuple(getattr(tensor, 'shape', ()))}" for name, tensor in module.state_dict().items()]
    for path, part in module.named_modules(remove_duplicate=False):
        attributes = {name: value for name, value in vars(part).items() if name not in _PASSING}
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
