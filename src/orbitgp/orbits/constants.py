"""Tables that depend on their arguments alone: made once, and kept in each precision and on each device where they are used.

A copy from the host to a GPU waits until the GPU has done everything before it. A table that were copied in every step would
make every step wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, wraps

import torch
from torch import Tensor


def constant(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``make(*args)`` in float64, or else in ``dtype`` on ``device``, kept for the next call. Not to be written to."""

    @cache  # a recorded step goes on using those it was recorded with
    @wraps(make)
    def kept(*args: Hashable, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
        with torch.inference_mode(False):  # what is kept may be needed by a backward pass later
            return make(*args).to(dtype=dtype, device=device)

    return kept
