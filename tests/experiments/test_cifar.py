"""Photographs are read from parts, and the claims are about what the evidence chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments.cifar import EXPERIMENT, MODELS, Photographs, check, feature_map, read, table
from orbitgp.kernels import PatchDictionary
from orbitgp.kernels.feature_maps import prepare


def test_parts_are_joined_in_the_order_of_their_names(tmp_path: Path) -> None:
    images = np.arange(5 * 8 * 8 * 3, dtype=np.uint8).reshape(5, 8, 8, 3)
    np.savez(tmp_path / "train2.npz", x_train=images[2:], y_train=np.arange(2, 5))
    np.savez(tmp_path / "train1.npz", x_train=images[:2], y_train=np.arange(2))
    x, y = read(tmp_path, "train", 4)
    np.testing.assert_array_equal(y, [0, 1, 2, 3])
    np.testing.assert_allclose(x[3, 1], images[3, :, :, 1] / 255, rtol=1e-6)
    with pytest.raises(FileNotFoundError, match="x_test"):
        read(tmp_path, "test", 4)


def test_two_layers_see_images_of_32_pixels() -> None:
    x = torch.rand(3, 3, 32, 32)
    for layers, dims in ((1, 8 * 2 * 16), (2, (8 + 16) * 2 * 16)):
        both = feature_map(layers, 8)
        prepare(both, x)
        assert both(x).shape == (3, dims)


def test_the_chosen_model_starts_from_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
    np.savez(tmp_path / "all.npz", x_train=images, y_train=[0, 1] * 3, x_test=images[:2], y_test=[0, 1])
    asked, learns = [], []

    class Fitted:
        def __init__(self, seen: nn.Module) -> None:
            self.kernel_, self.classes_ = self, np.array([0, 1])
            self.feature_map, self.base_kernel, self.likelihood_ = seen, None, None
            for parameter in seen.parameters():
                parameter.data += 0.5

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return np.array([[0.9, 0.1], [0.6, 0.4]])

    def fitted(self: Photographs, orbit: str, seen: nn.Module, x: Any, y: Any, *_: Any) -> tuple[Fitted, dict[str, Any]]:
        bias = next(part.named_constants()["bias"] for part in seen.modules() if isinstance(part, PatchDictionary))
        asked.append((orbit, len(x), round(bias, 6)))
        learns.append(any(parameter.requires_grad for parameter in seen.parameters()))
        nats = {"none": 1.0, "flip": 2.0}[orbit] + len(list(seen.modules()))
        return Fitted(seen), {"evidence": {"value": nats}, "seconds": 1.0, "constants": []}

    monkeypatch.setattr(Photographs, "fitted", fitted)
    run = Photographs(str(tmp_path), choice_rows=4, choice_patches=4, patches=8)
    record = run.run()
    assert [one[:2] for one in asked] == [("none", 4), ("flip", 4), ("flip", 4), ("flip", 6)]
    assert asked[-1][2] == round(np.exp(0.5), 6)
    assert learns == [True, True, True, False]
    assert record["chosen"] == list(MODELS)[2]
    assert record["metrics"]["error_rate"] == 0.5
    assert "50.00 %" in table([record])
    assert check([record]) == {"seed 0: the evidence wants reflections": True}


def test_goals_are_asked_of_all_images() -> None:
    choice = {name: {"evidence": {"value": float(k)}} for k, name in enumerate(MODELS)}
    record = {"choice": choice, "settings": {"seed": 0}, "data": {"train": 50_000}, "metrics": {"error_rate": 0.115}}
    assert list(check([record]).values()) == [True, True, True, False]
    assert EXPERIMENT.parser().parse_args(["--folder", "x"]).folder == Path("x")
