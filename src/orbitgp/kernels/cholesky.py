"""The one way to factorise a covariance: L L^T = K, with as much jitter on its diagonal as it takes.

Inputs that are equal, or nearly so, make a covariance singular, and rounding makes it indefinite. Whether a
factorisation succeeds depends on the matrix scaled to a unit diagonal (Demmel), so jitter is a share of each diagonal
entry: 1e-10 of it, ten times as much after each failure, and at most 1e-2. The share is returned with the factor, so
that callers can report it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_SHARES = tuple(10.0**power for power in range(-10, -1))


class Factor(NamedTuple):
    """The lower factor, and the share of the diagonal that was added to it."""

    lower: Float[Tensor, "*batch size size"]
    jitter: float


def cholesky(matrix: Float[Tensor, "*batch size size"]) -> Factor:
    """The factor of a symmetric matrix, or of each of a batch; NaN where it is not finite. The host waits for it."""
    # A symmetric matrix equals its transpose, and the transpose has the memory layout that the factorisation needs.
    lower, info = torch.linalg.cholesky_ex(matrix.mT)
    if not info.any():
        return Factor(lower, 0.0)
    if not matrix.isfinite().all():
        return Factor(torch.full_like(lower, torch.nan), 0.0)
    diagonal = matrix.detach().diagonal(dim1=-2, dim2=-1)
    positive = diagonal[diagonal > 0]
    scale = diagonal.clamp_min(float(positive.min()) if len(positive) else 1.0)
    for share in _SHARES:
        lower, info = torch.linalg.cholesky_ex((matrix + torch.diag_embed(share * scale)).mT)
        if not info.any():
            return Factor(lower, share)
    raise FloatingPointError(
        f"a covariance of {matrix.shape[-1]} points is not positive definite: its kernel is no covariance function."
    )


def cholesky_without_waiting(matrix: Float[Tensor, "size size"]) -> Float[Tensor, "size size"]:
    """The factor without jitter, or NaN where there is none: a check would make the host wait for a GPU."""
    lower, info = torch.linalg.cholesky_ex(matrix.mT)
    return torch.where(info == 0, lower, torch.nan)
