"""Orbits, kernels and likelihoods in a file: how each is built, and the tensors that it holds.

What is built from a name and arguments is compared with the original before the file is written: if any of its parts or plain
attributes differ, the file says that this object must be handed in when it is loaded, as it does for classes that nobody
registered. So what is rebuilt is always what was saved, and never something that looks like it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from orbitgp.saving.container import SavedFileError
from orbitgp.saving.registry import class_name, recipe_for
from orbitgp.saving.values import Inexpressible, Tensors, decode, encode

Module = TypeVar("Module", bound=nn.Module)

_BOOKKEEPING = frozenset(vars(nn.Module()))
# Where a constraint let its parameter start: of no use once there is a value. GPyTorch's note to itself.
_PASSING = frozenset({"_initial_value", "distance_module"})


def pack(module: nn.Module, tensors: Tensors, path: str) -> dict[str, Any]:
    """``module`` as JSON; its tensors go into ``tensors`` under names that start with ``path``."""
    names: dict[int, str] = {}
    shared: dict[str, str] = {}
    state = module.state_dict(keep_vars=True)
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{class_name(type(module))} cannot be saved: its {name!r} is not a tensor.")
        first = names.setdefault(id(tensor), name)
        if first != name:
            shared[name] = first
            continue
        tensors[f"{path}.{name}"] = tensor.detach().cpu().contiguous()
    packed: dict[str, Any] = {"class": class_name(type(module)), "build": None}
    packed["fixed"] = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    packed["shared"] = shared
    arguments: Tensors = {}
    try:
        packed["build"] = encode(module, arguments, f"{path}!")
        rebuilt = unpack(packed, {**tensors, **arguments}, path)
        if outline(rebuilt) != outline(module):
            packed["build"] = None
    except Inexpressible as error:
        packed["lacks"] = str(error)
    except (TypeError, ValueError, RuntimeError):
        packed["build"] = None
    if packed["build"] is not None:
        tensors.update(arguments)
    elif recipe_for(module) is not None:
        packed.setdefault("lacks", f"{class_name(type(module))}, changed after it was made")
    return packed


def unpack(packed: Mapping[str, Any], tensors: Tensors, path: str, given: nn.Module | None = None) -> nn.Module:
    """The module that was packed, or a copy of ``given``, with the tensors of the file in it."""
    if given is not None:
        module = deepcopy(given)
    else:
        module = decode(packed["build"], tensors)
        if not isinstance(module, nn.Module):
            raise ValueError(f"{packed['class']} is no module")
    for name, first in packed["shared"].items():
        owner, attribute = _owner(module, name)
        setattr(owner, attribute, module.get_parameter(first))
    put(module, {name.removeprefix(f"{path}."): t for name, t in tensors.items() if name.startswith(f"{path}.")})
    fixed = set(packed["fixed"])
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in fixed)
    return module


def put(module: nn.Module, state: Tensors) -> None:
    """Put these tensors into the module: the same names and shapes, whatever their precision."""
    here = module.state_dict(keep_vars=True)
    # Names of tensors that occur twice are stored once.
    first = {id(tensor): name for name, tensor in reversed(here.items())}
    names = {first[id(tensor)] for tensor in here.values()}
    for name in sorted(names ^ set(state)):
        where = "the file has none" if name in names else f"{class_name(type(module))} has none"
        raise SavedFileError(f"{name!r} does not fit: {where}.")
    for name in names:
        tensor, value = here[name], state[name]
        if tensor.shape != value.shape:
            raise SavedFileError(
                f"{name!r} does not fit: its shape is {tuple(value.shape)} in the file and {tuple(tensor.shape)} "
                f"in {class_name(type(module))}."
            )
        if tensor.is_floating_point() != value.is_floating_point():
            raise SavedFileError(f"{name!r} does not fit: it is of {value.dtype} in the file.")
        if isinstance(tensor, nn.Parameter):
            tensor.data = value.clone()
        else:
            # Not in place: GPyTorch's priors also keep the tensor elsewhere, in another precision.
            owner, attribute = _owner(module, name)
            owner.register_buffer(attribute, value.clone())


def outline(module: nn.Module) -> list[str]:
    """What a module is, apart from its parameters and buffers: the classes of its parts and their plain attributes."""
    lines = []
    for path, part in module.named_modules(remove_duplicate=False):
        attributes = {n: v for n, v in vars(part).items() if n not in _BOOKKEEPING and n not in _PASSING}
        shown = ", ".join(f"{name}={_show(attributes[name])}" for name in sorted(attributes))
        lines.append(f"{path}: {class_name(type(part))} {shown}")
    return lines


def _show(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.Size | torch.dtype | torch.device):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_show, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_show, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_show(k)}: {_show(v)}' for k, v in value.items())}}}"
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)} {value.tolist()}"
    # Functions and methods by name; of other objects, the class alone.
    return getattr(value, "__qualname__", None) or class_name(type(value))


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return module.get_submodule(path), attribute
