"""GPyTorch's kernels, constraints and priors in the register.

These classes keep each argument in an attribute: under its own name (``nu``, ``base_kernel``, ``lengthscale_prior``), with an
underscore (``_transform``, ``_batch_shape``) or, a constraint, under the name of its parameter
(``raw_lengthscale_constraint``). So one rule reads the arguments of all of them. A class that it does not fit cannot do harm:
:func:`orbitgp.saving.modules.pack` compares what is rebuilt with the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any

import torch
from gpytorch import constraints, kernels, priors
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor, nn

from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.saving.registry import FUNCTIONS, Arguments, register, register_all

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


def _random_features(kernel: Any) -> Arguments:
    # Drawn when the kernel first sees an input, unless it was told the number of features.
    drawn = getattr(kernel, "randn_weights", None)
    return {**_arguments(kernel), "num_dims": None if drawn is None else drawn.shape[-2]}


register_all(kernels, kernels.Kernel, "kernel", _arguments)
register_all(constraints, constraints.Interval, "constraint", _arguments)
register_all(priors, priors.Prior, "prior", _arguments)
register(kernels.RFFKernel, _random_features, "kernel:RFFKernel")
register(InvariantKernel, _arguments, "kernel:InvariantKernel")
register(FeatureMapKernel, _arguments, "kernel:FeatureMapKernel")
register(nn.Softplus, _arguments, "function:Softplus")
FUNCTIONS.update(
    {
        "exp": torch.exp,
        "log": torch.log,
        "sigmoid": torch.sigmoid,
        "softplus": nn.functional.softplus,
        "inverse-sigmoid": inv_sigmoid,
        "inverse-softplus": inv_softplus,
    }
)
