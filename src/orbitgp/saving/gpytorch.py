"""GPyTorch's kernels, constraints and priors in the register.

A kernel's arguments are its own (``nu``, ``power``, its parts) and those that all kernels share: ``active_dims``,
``ard_num_dims``, ``batch_shape``, and a constraint and a prior for each of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch import constraints, kernels, priors
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import nn

from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.saving.registry import Arguments, register, register_function


def _shared(kernel: Kernel) -> Arguments:
    """The arguments that every kernel takes, where they are not the default."""
    arguments: Arguments = {}
    if kernel.active_dims is not None:
        arguments["active_dims"] = tuple(kernel.active_dims.tolist())
    if kernel.ard_num_dims is not None:
        arguments["ard_num_dims"] = kernel.ard_num_dims
    # The shape of this kernel alone: the public property takes in those of its parts.
    if len(kernel._batch_shape):
        arguments["batch_shape"] = torch.Size(kernel._batch_shape)
    for name, _ in kernel.named_parameters(recurse=False):
        constraint = kernel.constraint_for_parameter_name(name)
        if constraint is not None:
            arguments[f"{name.removeprefix('raw_')}_constraint"] = constraint
    for name, owner, prior, _, _ in kernel.named_priors():
        if owner is kernel:
            arguments[name.rpartition(".")[2]] = prior
    return arguments


def _kernel(kind: type[Kernel], own: Callable[[Any], Arguments] = lambda _: {}) -> None:
    register(kind, lambda kernel: {**_shared(kernel), **own(kernel)}, name=f"kernel:{kind.__name__}")


def _random_features(kernel: Any) -> Arguments:
    # Drawn when the kernel first sees an input, unless it was told the number of features.
    drawn = getattr(kernel, "randn_weights", None)
    return {"num_samples": kernel.num_samples, "num_dims": None if drawn is None else drawn.shape[-2]}


for _kind in (kernels.RBFKernel, kernels.RQKernel, kernels.PeriodicKernel, kernels.CosineKernel, kernels.LinearKernel):
    _kernel(_kind)
_kernel(kernels.ConstantKernel)
_kernel(kernels.MaternKernel, lambda kernel: {"nu": kernel.nu})
_kernel(kernels.PolynomialKernel, lambda kernel: {"power": kernel.power})
_kernel(kernels.PiecewisePolynomialKernel, lambda kernel: {"q": kernel.q})
_kernel(kernels.SpectralMixtureKernel, lambda kernel: {"num_mixtures": kernel.num_mixtures})
_kernel(kernels.RFFKernel, _random_features)
_kernel(kernels.ScaleKernel, lambda kernel: {"base_kernel": kernel.base_kernel})
_kernel(
    kernels.CylindricalKernel,
    lambda kernel: {
        "num_angular_weights": kernel.num_angular_weights,
        "radial_base_kernel": kernel.radial_base_kernel,
        "eps": kernel.eps,
    },
)
for _kind in (kernels.AdditiveKernel, kernels.ProductKernel):
    register(_kind, lambda kernel: {"*": list(kernel.kernels)}, name=f"kernel:{_kind.__name__}")
_kernel(
    InvariantKernel,
    lambda kernel: {
        **{name: getattr(kernel, name) for name in ("base_kernel", "orbit", "normalise", "image_shape", "max_entries")}
    },
)

_kernel(
    FeatureMapKernel,
    lambda kernel: {name: getattr(kernel, name) for name in ("base_kernel", "feature_map", "image_shape")},
)


def _constraint(constraint: Interval, *bounds: str) -> Arguments:
    # GPyTorch offers no other way to ask a constraint for its transform.
    transforms = {"transform": constraint._transform, "inv_transform": constraint._inv_transform}
    return {**{bound: getattr(constraint, bound) for bound in bounds}, **transforms}


register(constraints.Interval, lambda c: _constraint(c, "lower_bound", "upper_bound"), name="constraint:Interval")
register(constraints.GreaterThan, lambda c: _constraint(c, "lower_bound"), name="constraint:GreaterThan")
register(constraints.LessThan, lambda c: _constraint(c, "upper_bound"), name="constraint:LessThan")
register(constraints.Positive, _constraint, name="constraint:Positive")
register(nn.Softplus, lambda module: {"beta": module.beta, "threshold": module.threshold}, name="function:Softplus")

for _name, _function in (
    ("exp", torch.exp),
    ("log", torch.log),
    ("sigmoid", torch.sigmoid),
    ("softplus", nn.functional.softplus),
    ("inverse-sigmoid", inv_sigmoid),
    ("inverse-softplus", inv_softplus),
):
    register_function(_name, _function)


def _prior(kind: type[Prior], **names: str) -> None:
    """Its arguments, and the attributes in which it keeps them."""

    def arguments(prior: Any) -> Arguments:
        return {**{name: getattr(prior, attribute) for name, attribute in names.items()}, "transform": prior._transform}

    register(kind, arguments, name=f"prior:{kind.__name__}")


_prior(priors.NormalPrior, loc="loc", scale="scale")
_prior(priors.LogNormalPrior, loc="loc", scale="scale")
_prior(priors.HalfNormalPrior, scale="scale")
_prior(priors.HalfCauchyPrior, scale="scale")
_prior(priors.HorseshoePrior, scale="scale")
_prior(priors.GammaPrior, concentration="concentration", rate="rate")
_prior(priors.UniformPrior, a="low", b="high")
_prior(priors.SmoothedBoxPrior, a="a", b="b", sigma="sigma")
