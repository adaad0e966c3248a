"""Modules whose pickles hold values and nothing else.

PyTorch pickles a tensor together with the address of its memory, so two equal modules have different bytes. But
scikit-learn and joblib compare bytes: they check that ``fit`` left its arguments alone, and whether a cached step of a
pipeline can be used again. Here tensors are pickled as NumPy arrays. Equal modules then have equal bytes, and a pickle
from a GPU opens on a CPU.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn


class Portable(nn.Module):
    """A module whose pickle holds values only. Copies keep device and shared parameters, as those of any module do."""

    def __getstate__(self) -> dict[str, Any]:
        tensors = [t for t in (*self.parameters(), *self.buffers()) if isinstance(t, Tensor)]
        # A copy of the state, children included, with a stand-in for each tensor.
        return deepcopy(self.__dict__, {id(t): _Stored(t) for t in tensors})

    def __copy__(self) -> Portable:
        copied = self.__class__.__new__(self.__class__)
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Portable:
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied


class _Stored:
    """Stands for a tensor in a state that is about to be pickled; unpickling gives the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> _Stored:
        return self  # the state of a child is copied again when the child is pickled

    def __reduce__(self) -> tuple[Any, ...]:
        tensor = self.tensor
        return _restore, (tensor.detach().cpu().numpy(), isinstance(tensor, nn.Parameter), tensor.requires_grad)


def _restore(array: Shaped[np.ndarray, "..."], parameter: bool, requires_grad: bool) -> Tensor:
    tensor = torch.tensor(array)
    return nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)
