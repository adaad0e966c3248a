"""Values as JSON and tensors: what comes back is what was saved, types and bits."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor, nn

from orbitgp.saving.registry import decode, encode


def through_json(value: Any) -> Any:
    tensors: dict[str, Tensor] = {}
    text = json.dumps(encode(value, tensors, "x"))
    return decode(json.loads(text), tensors)


class TestValues:
    @pytest.mark.parametrize("value", [
        None, True, False, 0, -3, 2**70, 0.1, 1e-320, math.inf, -math.inf, "a", "", "\ud800 ü", b"\xff\x00", (), [1, (2,)],
        (1, (2.0, "b")), {"a": (1, 2)}, {0: {"step": 1.5}, (1, 2): None}, {"$tuple": 1}, {}, [], torch.Size([2, 3]),
        torch.device("cpu"),
    ], ids=repr)  # fmt: skip
    def test_come_back_as_they_were(self, value: Any) -> None:
        back = through_json(value)
        assert back == value
        assert type(back) is type(value)
        assert repr(back) == repr(value)

    def test_not_a_number(self) -> None:
        assert math.isnan(through_json(math.nan))

    @pytest.mark.parametrize("array", [
        np.array(["b", "ccc", ""]), np.array([b"x", b"yy"]), np.array([True, False]), np.array([1, -2], dtype=np.int8),
        np.array([2**63], dtype=np.uint64), np.array([0.1, math.inf, -0.0], dtype=np.float32), np.array([[0.1, 0.2]]),
        np.array(["a", 1, None, 2.5, b"x"], dtype=object), np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        np.array([0.1, 2.0], dtype=">f8"), np.array([], dtype="<U3"), np.array(3.0), np.array([1.5], dtype=np.float16),
    ], ids=lambda a: f"{a.dtype}{a.shape}")  # fmt: skip
    def test_arrays_keep_their_type(self, array: np.ndarray) -> None:
        back = through_json(array)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert_array_equal(back, array)
        assert array.dtype == object or back.tobytes() == array.tobytes()

    @pytest.mark.parametrize("tensor", [
        torch.randn(3, 4), torch.randn(3, 4).mT, torch.randn(2, 3, 4).permute(1, 2, 0), torch.randn(4, 6)[:, ::2],
        torch.tensor(1.0), torch.ones(1).expand(1), torch.empty(0, 3), torch.arange(4), torch.tensor([True]),
        torch.randn(1, 5).mT,
    ], ids=lambda t: f"{t.dtype}{tuple(t.shape)}{t.stride()}")  # fmt: skip
    def test_tensors_keep_the_order_in_which_their_axes_lie(self, tensor: Tensor) -> None:
        back = through_json([tensor])[0]
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)
        if tensor.is_contiguous() or tensor.mT.is_contiguous() or tensor.ndim == 3:
            assert back.stride() == tensor.stride()

    def test_random_state(self) -> None:
        state = np.random.RandomState(3)
        state.normal(size=5)
        back = through_json(state)
        assert_array_equal(back.normal(size=7), state.normal(size=7))

    @pytest.mark.parametrize("value", [object(), {1, 2}, lambda x: x, nn.Linear(2, 2)], ids=lambda v: type(v).__name__)
    def test_what_cannot_be_said_is_an_error(self, value: Any) -> None:
        with pytest.raises(TypeError):
            encode(value, {}, "x")

    def test_unknown_words_are_errors(self) -> None:
        for value in (
            {"$object": ["os.system", {}]},
            {"$object": ["exp"]},
            {"$object": ["tuple", {"*": [3]}]},
            {"$tensor": ["missing"]},
        ):
            with pytest.raises((ValueError, KeyError, TypeError)):
                decode(value, {})
