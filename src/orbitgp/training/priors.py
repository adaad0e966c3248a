"""The priors that a user put on the kernel's hyperparameters."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP


def log_prior(model: InvariantGP | ExactGP) -> Float[Tensor, ""]:
    """The log density of the priors that the user put on the kernel's hyperparameters (zero without any)."""
    total = torch.zeros((), dtype=torch.float64, device=model.prior_mean.bias.device)
    for _, module, prior, closure, _ in model.kernel.named_priors():
        total = total + prior.log_prob(closure(module)).sum()
    return total
