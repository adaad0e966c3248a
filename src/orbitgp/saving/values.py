"""Python values as JSON and tensors, and back: the same types, the same bits.

JSON has no tuples, no infinities, no arrays and no tensors. What it lacks is written as an object with one key that starts with
``$``, such as ``{"$tuple": [1, 2]}``. Tensors are put into a dictionary beside, under a name that says where they belong.
Objects are written as the name of their class and the arguments of its constructor (:mod:`orbitgp.saving.registry`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from orbitgp.saving.registry import FUNCTIONS, build, class_name, described

Tensors = dict[str, Tensor]

_RANDOM_STATE = ("bit_generator", "key", "pos", "has_gauss", "gauss")


class Inexpressible(TypeError):
    """A value that the file format has no words for."""


def encode(value: Any, tensors: Tensors, path: str) -> Any:
    """``value`` as JSON; its tensors go into ``tensors`` under names that start with ``path``."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytes):
        return {"$bytes": value.decode("latin-1")}
    if isinstance(value, list | tuple):
        items = [encode(item, tensors, f"{path}.{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$size" if isinstance(value, torch.Size) else "$tuple": items}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item, tensors, f"{path}.{key}") for key, item in value.items()}
        pairs = [[encode(key, tensors, path), encode(item, tensors, f"{path}.{key}")] for key, item in value.items()]
        return {"$items": pairs}
    if isinstance(value, Tensor):
        return _encode_tensor(value.detach(), tensors, path)
    if isinstance(value, np.ndarray):
        return _encode_array(value, tensors, path)
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if isinstance(value, np.random.RandomState):
        state: dict[str, Any] = dict(zip(_RANDOM_STATE, value.get_state(), strict=True))
        return {"$random_state": {**state, "key": state["key"].tolist()}}
    return _encode_object(value, tensors, path)


def decode(value: Any, tensors: Tensors) -> Any:
    """The inverse of :func:`encode`; ValueError, TypeError or KeyError where the JSON says something else."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item, tensors) for key, item in value.items()}
    if tag not in _DECODERS:
        raise ValueError(f"nothing is known by the name {tag}")
    return _DECODERS[tag](value[tag], tensors)


def _encode_tensor(value: Tensor, tensors: Tensors, path: str) -> Any:
    # Safetensors are laid out row by row. In which order the axes of a tensor lie can change the last bit of a product, so it
    # is kept: the axes are stored in the order in which they lie.
    order = sorted(range(value.ndim), key=value.stride().__getitem__, reverse=True)
    dense = value.permute(order).is_contiguous() and order != sorted(order)
    tensors[path] = (value.permute(order) if dense else value).contiguous().cpu()
    return {"$tensor": [path, order] if dense else [path]}


def _decode_tensor(value: Any, tensors: Tensors) -> Tensor:
    name, *order = value
    tensor = tensors[name]
    return tensor.permute(*np.argsort(order[0]).tolist()) if order else tensor


def _encode_array(value: np.ndarray, tensors: Tensors, path: str) -> Any:
    kind, flat = value.dtype.kind, value.ravel()
    if kind in "mM":
        flat = flat.view(np.int64)
    if kind not in "biufUSTOmM" or value.dtype == np.longdouble:
        raise Inexpressible(f"an array of {value.dtype}")
    name = "T" if kind == "T" else "O" if kind == "O" else value.dtype.str
    return {"$array": [name, list(value.shape), [encode(item, tensors, path) for item in flat.tolist()]]}


def _decode_array(value: Any, tensors: Tensors) -> np.ndarray:
    name, shape, items = value
    flat = np.empty(len(items), dtype=name)
    for i, item in enumerate(items):
        flat[i] = decode(item, tensors)
    return flat.reshape(shape)


def _decode_random_state(value: Any, tensors: Tensors) -> np.random.RandomState:
    result = np.random.RandomState()
    result.set_state(tuple(value[name] for name in _RANDOM_STATE))
    return result


def _encode_object(value: Any, tensors: Tensors, path: str) -> Any:
    found = described(value)
    if found is not None:
        name, arguments = found
        return {"$object": [name, encode(arguments, tensors, path)]}
    for name, function in FUNCTIONS.items():
        if function is value:
            return {"$function": name}
    plain_function = callable(value) and not isinstance(value, nn.Module)
    raise Inexpressible(f"the function {value!r}" if plain_function else class_name(type(value)))


_DECODERS: dict[str, Callable[[Any, Tensors], Any]] = {
    "$float": lambda value, _: float(value),
    "$bytes": lambda value, _: value.encode("latin-1"),
    "$tuple": lambda value, tensors: tuple(decode(item, tensors) for item in value),
    "$size": lambda value, _: torch.Size(value),
    "$items": lambda value, tensors: {decode(key, tensors): decode(item, tensors) for key, item in value},
    "$tensor": _decode_tensor,
    "$array": _decode_array,
    "$device": lambda value, _: torch.device(value),
    "$random_state": _decode_random_state,
    "$object": lambda value, tensors: build(value[0], decode(value[1], tensors)),
    "$function": lambda value, _: FUNCTIONS[value],
}
