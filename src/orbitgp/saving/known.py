"""What files may hold from the start: orbits, likelihoods, feature maps, GPyTorch's kernels, and Python's and NumPy's values.

GPyTorch's classes keep each argument in an attribute: under its own name (``nu``, ``base_kernel``, ``lengthscale_prior``), with
an underscore (``_transform``, ``_batch_shape``) or, a constraint, under the name of its parameter
(``raw_lengthscale_constraint``). So one rule reads the arguments of all of them. A class that it does not fit cannot do harm:
:func:`orbitgp.saving.modules.pack` compares what is rebuilt with the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

import numpy as np
import torch
from gpytorch import constraints, kernels, priors
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor, nn

from orbitgp import kernels as own_kernels
from orbitgp import likelihoods, orbits
from orbitgp.saving.registry import Arguments, add, register

_ELSEWHERE = {"a": "low", "b": "high"}  # the ends of a uniform prior
# Checks of arguments that were checked before, and where a constraint let its parameter start: of no use once there is a value.
_PASSING = ("validate_args", "initial_value")


def _arguments(value: Any) -> Arguments:
    """The arguments of the constructor that are not its defaults."""
    found: Arguments = {}
    for parameter in _parameters(type(value)):
        name = parameter.name
        places = (f"_{name}", f"raw_{name}", name, _ELSEWHERE.get(name, name))
        kept = [getattr(value, place) for place in places if hasattr(value, place)]
        if parameter.kind is Parameter.VAR_POSITIONAL:
            found["*"] = list(kept[0])
        elif kept and name not in _PASSING and (isinstance(kept[0], Tensor) or kept[0] != parameter.default):
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
