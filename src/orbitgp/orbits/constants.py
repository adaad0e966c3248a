"""Tables that depend only on their arguments: computed once, and cached for each precision and device.

A copy from the host to a GPU waits until the GPU has finished all earlier work. So a table that is copied in every step makes
every step wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, wraps

import torch
from torch import Tensor


def constant(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cache ``make(*args)``, in float64 by default, else in ``dtype`` on ``device``. Do not write to the result."""

    @cache
    @wraps(make)
    def kept(*args: Hashable, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
        with torch.inference_mode(False):  # a later backward pass may need the table
            return make(*args).to(dtype=dtype, device=device)

    return kept
