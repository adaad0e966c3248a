"""Where the kernel starts.

A kernel that the user gave keeps its values, priors and constraints. Without one, k_g is an RBF kernel whose lengthscale is the
median distance between inputs and whose variance is that of the targets: the scale of the data is then no concern of the user,
and inputs need no standardising (which images, whose background is 0, could not bear).
"""

from __future__ import annotations

from copy import deepcopy

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

_MAX_ROWS = 1000  # the median of half a million distances is known well enough


def initial_kernel(
    kernel: Kernel | None, x: Float[Tensor, "rows *features"], variance: float, generator: torch.Generator
) -> Kernel:
    """A copy of the user's kernel, checked on two rows, or the default one."""
    flat = x.flatten(1).double()
    if kernel is not None:
        kernel = deepcopy(kernel).double().to(x.device)
        _check_kernel(kernel, flat[:2])
        return kernel
    # Learned on the log scale: a step of the optimiser is then the same fraction of it, whatever the units of the data.
    log_scale = {"transform": torch.exp, "inv_transform": torch.log}
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=Positive(**log_scale)), outputscale_constraint=Positive(**log_scale))
    kernel = kernel.double().to(x.device)
    kernel.base_kernel.lengthscale = median_distance(flat, generator)
    kernel.outputscale = variance if variance > 0 else 1.0
    return kernel


@torch.no_grad()
def _check_kernel(kernel: Kernel, x: Float[Tensor, "rows dim"]) -> None:
    dim = x.shape[1]
    for part in kernel.sub_kernels():
        if part.ard_num_dims not in (None, 1, dim if part.active_dims is None else len(part.active_dims)):
            raise ValueError(f"the kernel has lengthscales for {part.ard_num_dims} features, but the inputs have {dim}.")
    try:
        shape = tuple(kernel(x).to_dense().shape)
    except (RuntimeError, IndexError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the kernel cannot be evaluated on inputs of {dim} features: {reason}") from error
    if shape != (len(x), len(x)):
        raise ValueError(
            f"the kernel must be of one output, without a batch shape; for {len(x)} inputs it gives shape {shape}."
        )


def median_distance(x: Float[Tensor, "rows dim"], generator: torch.Generator) -> float:
    """The median distance between different rows (1 where there are none)."""
    if len(x) > _MAX_ROWS:
        order = torch.randperm(len(x), generator=generator, device=generator.device)
        x = x[order[:_MAX_ROWS].to(x.device)]
    distances = torch.pdist(x)
    distances = distances[distances > 0]
    return float(distances.median()) if len(distances) else 1.0


@torch.no_grad()
def prior_variance(kernel: Kernel, x: Float[Tensor, "rows *features"]) -> float:
    """The variance of g at the data, from a few of them."""
    return float(kernel(x[:16].flatten(1).double(), diag=True).mean())
