"""Subsets have as many images of each class; the table and the claims are about all subsets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments import few_photographs
from experiments.few_photographs import Few, augmented, check, network, table


def test_augmented_images_are_mirrored_and_shifted_ones() -> None:
    torch.manual_seed(0)
    ramp = torch.arange(16.0)[None, None, None, :].expand(200, 1, 16, 16)
    steps = augmented(ramp)[:, 0, :, 6:10].diff(dim=-1)  # in the middle, away from what is reflected
    assert set(steps.flatten().tolist()) == {-1.0, 1.0}
    middles = {abs(value - 7.5) for value in augmented(ramp)[:, 0, 8, 8].tolist()}
    assert len(middles) > 3


def test_a_network_learns_which_half_is_bright() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.random((60, 3, 8, 8)).astype(np.float32) * 0.3
    x[y == 1, :, :4] += 0.7
    assert (network(x, y, x, 12, 0, augment=augmented, mirrored=True).argmax(1) == y).mean() > 0.9


def test_classes_are_balanced_and_the_evidence_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3)).astype(np.uint8)
    np.savez(tmp_path / "all.npz", x_train=images, y_train=[0, 1, 2] * 4, x_test=images[:3], y_test=[0, 1, 2])
    seen = []

    def fitted(seen_map: Any, x: Any, y: Any, *_: Any) -> Any:
        seen.append(y)
        right = len(seen) >= len(few_photographs.KINDS)
        return SimpleNamespace(
            classes_=np.arange(3),
            predict_proba=lambda x: np.eye(3) if right else None,
            evidence_=SimpleNamespace(value=float(len(seen))),
            kernel_=SimpleNamespace(base_kernel=None, feature_map=nn.Identity()),
            likelihood_=None,
        )

    monkeypatch.setattr(few_photographs, "fitted", fitted)
    monkeypatch.setattr(few_photographs, "network", lambda *_, **__: np.eye(3)[[0, 1, 1]])
    record = Few(str(tmp_path), (2, 3), most=2).run()
    kinds = len(few_photographs.KINDS)  # three of each class are more than tell which model is best
    assert [np.bincount(y).tolist() for y in seen] == [[2, 2, 2]] * kinds + [[3, 3, 3]]
    last = list(few_photographs.KINDS)[-1]  # whose evidence is the largest
    assert [one["chosen"] for one in record["found"]] == [last, last]
    assert "| 2 | 1 | 100.0 % | 66.7 % |" in table([record])
    assert check([record]) == {f"{each} a class: at least as good as the network": True for each in (2, 3)}
