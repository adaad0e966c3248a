"""Orbits, kernels and likelihoods in a file: how each is built, and the tensors that it holds.

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
from orbitgp.saving.registry import class_name
from orbitgp.saving.values import Inexpressible, Tensors, decode, encode

_BOOKKEEPING = frozenset(vars(nn.Module()))
# Where a constraint let its parameter start: of no use once there is a value. GPyTorch's note to itself.
_PASSING = frozenset({"_initial_value", "distance_module"})


def pack(module: nn.Module, tensors: Tensors, path: str) -> dict[str, Any]:
    """``module`` as JSON; its tensors go into ``tensors`` under names that start with ``path``."""
    names: dict[int, str] = {}
    shared: dict[str, str] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{class_name(type(module))} cannot be saved: its {name!r} is not a tensor.")
        first = names.setdefault(id(tensor), name)
        if first == name:
            tensors[f"{path}.{name}"] = tensor.detach().cpu().contiguous()
        else:
            shared[name] = first
    fixed = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    evaluating = [name for name, part in module.named_modules() if not part.training]
    packed = {"class": class_name(type(module)), "build": None, "fixed": fixed, "shared": shared, "evaluating": evaluating}
    arguments: Tensors = {}
    lacks = f"{class_name(type(module))}, changed after it was made"
    try:
        complete = {**packed, "build": encode(module, arguments, f"{path}!")}
        if outline(unpack(complete, {**tensors, **arguments}, path)) == outline(module):
            tensors.update(arguments)
            return complete
    except Inexpressible as error:
        lacks = str(error)
    except (TypeError, ValueError, RuntimeError):
        pass
    return {**packed, "lacks": lacks}


def unpack(packed: Mapping[str, Any], tensors: Tensors, path: str, given: nn.Module | None = None) -> nn.Module:
    """The module that was packed, or a copy of ``given``, with the tensors of the file in it."""
    module = decode(packed["build"], tensors) if given is None else deepcopy(given)
    if not isinstance(module, nn.Module):
        raise ValueError(f"{packed['class']} is no module")
    for name, first in packed["shared"].items():
        (owner, attribute), (first_owner, first_attribute) = _owner(module, name), _owner(module, first)
        setattr(owner, attribute, getattr(first_owner, first_attribute))
    put(module, {name.removeprefix(f"{path}."): t for name, t in tensors.items() if name.startswith(f"{path}.")})
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in packed["fixed"])
    for name in packed.get("evaluating", ()):  # older files do not say
        module.get_submodule(name).training = False
    return module


def distinct(module: nn.Module) -> Tensors:
    """The parameters and buffers of a module. One that occurs under several names has the first."""
    present = module.state_dict(keep_vars=True)
    return dict({id(tensor): (name, tensor) for name, tensor in reversed(present.items())}.values())


def put(module: nn.Module, state: Tensors) -> None:
    """Put these tensors into the module: the same names and shapes, whatever their precision."""
    present, own = module.state_dict(keep_vars=True), distinct(module)
    for name in sorted(own.keys() ^ state.keys()):
        where = "the file has none" if name in own else f"{class_name(type(module))} has none"
        raise SavedFileError(f"{name!r} does not fit: {where}.")
    for name, tensor in own.items():
        value = state[name].clone()
        if tensor.shape != value.shape or tensor.is_floating_point() != value.is_floating_point():
            raise SavedFileError(
                f"{name!r} does not fit: it has shape {tuple(value.shape)} and type {value.dtype} in the file, "
                f"and shape {tuple(tensor.shape)} and type {tensor.dtype} in {class_name(type(module))}."
            )
        if isinstance(tensor, nn.Parameter):
            tensor.data = value
        else:
            # Not in place: GPyTorch's priors also keep the tensor elsewhere, in another precision.
            for same in (other for other, one in present.items() if one is tensor):
                owner, attribute = _owner(module, same)
                owner.register_buffer(attribute, value)


def outline(module: nn.Module) -> list[str]:
    """What a module is, apart from its parameters and buffers: the classes of its parts and their plain attributes."""
    lines = []
    for path, part in module.named_modules(remove_duplicate=False):
        attributes = {n: v for n, v in vars(part).items() if n not in _BOOKKEEPING and n not in _PASSING}
        text = json.dumps(attributes, default=_name, sort_keys=True)
        lines.append(f"{path}: {class_name(type(part))} {text}")
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
