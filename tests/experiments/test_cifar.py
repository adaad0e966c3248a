"""Photographs are read from parts, and the claims are about what the evidence chose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments import cifar
from experiments.cifar import EXPERIMENT, MODELS, ONE, TWO, WIDE, Photographs, check, feature_map, read, rescale, table
from orbitgp import InvariantGPClassifier
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


def test_layers_side_by_side_see_images_of_32_pixels() -> None:
    x = torch.rand(3, 3, 32, 32)
    for stacks, patches in (((ONE,), 8), ((ONE, TWO), 8 + 32), ((WIDE,), 32)):
        seen = feature_map(stacks, 8)
        prepare(seen, x)
        assert seen(x).flatten(1).shape == (3, 2 * 16 * patches)


def test_the_chosen_model_starts_from_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3)).astype(np.uint8)
    np.savez(tmp_path / "all.npz", x_train=images, y_train=[0, 1] * 3 + [0], x_test=images[:2], y_test=[0, 1])
    asked, rescaled = [], []

    class Fitted:
        def __init__(self, seen: nn.Module) -> None:
            self.kernel_, self.classes_ = self, np.array([0, 1])
            self.feature_map, self.base_kernel, self.likelihood_ = seen, nn.Linear(1, 1), nn.Linear(1, 1)
            for name, parameter in seen.named_parameters():
                if "log_weights" not in name:
                    parameter.data += 0.5

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return np.array([[0.9, 0.1], [0.6, 0.4]])

    def fitted(self: Photographs, orbit: str, seen: nn.Module, x: Any, *_: Any, **__: Any) -> tuple[Fitted, dict[str, Any]]:
        patches = next(part for part in seen.modules() if isinstance(part, PatchDictionary))
        asked.append((orbit, len(x), round(patches.named_constants()["bias"], 4), patches.raw_bias.requires_grad))
        nats = {"none": 1.0, "flip": 2.0}[orbit] + len(list(seen.modules()))
        return Fitted(seen), {"evidence": {"value": nats}, "seconds": 1.0, "constants": [], "learned": {}}

    monkeypatch.setattr(Photographs, "fitted", fitted)
    monkeypatch.setattr(cifar, "rescale", lambda model, x, *_: rescaled.append(len(x)))
    record = Photographs(str(tmp_path), choice_rows=4, choice_patches=8, patches=16, learn_rows=5, noise_rows=6).run()
    assert {one[1:] for one in asked[: len(MODELS)]} == {(4, 2.3, True), (4, 1.2, True)}
    of_learned, *others = asked[len(MODELS) :]
    assert of_learned == ("flip", 5, round(2.3 * np.exp(0.5), 4), False)
    assert [one[1] for one in others] == [4, 4, 7]
    assert rescaled == [6]
    assert record["chosen"] == "one and two layers, flip"
    assert record["metrics"]["error_rate"] == 0.5
    assert "50.00 %" in table([record])
    assert check([record]) == {"seed 0: the evidence wants reflections": True}


def test_a_map_in_tf32_is_the_same_map() -> None:
    x, seen = torch.rand(3, 3, 32, 32), feature_map((ONE, TWO), 8)
    prepare(wrapped := cifar.InTF32(seen), x)
    torch.testing.assert_close(wrapped(x), seen(x))
    assert torch.get_float32_matmul_precision() == "highest"


def test_variance_and_noise_have_the_most_evidence() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = (x[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(int)
    model = InvariantGPClassifier(likelihood="gaussian", inference="exact", max_steps=2, random_state=0).fit(x, y)
    kernel, likelihood, names = model.kernel_, model.likelihood_, ("model_", "likelihood_", "classes_")
    seen = SimpleNamespace(kernel_=SimpleNamespace(base_kernel=kernel), **{name: getattr(model, name) for name in names})
    rescale(seen, x, y, "cpu")  # type: ignore[arg-type]
    exact, noise = model.model_.restricted(torch.from_numpy(x), None), likelihood.gaussian
    exact.prior_mean.bias.requires_grad_(False)
    targets = likelihood.encode(torch.from_numpy(y))
    best, variance, before = exact.log_evidence(likelihood, targets), kernel.outputscale.item(), noise.noise.item()
    for by in (0.9, 1.1):
        kernel.outputscale = by * variance
        assert exact.log_evidence(likelihood, targets) < best
        kernel.outputscale = variance
        noise.set_noise(by * before)
        assert exact.log_evidence(likelihood, targets) < best
        noise.set_noise(before)


def test_goals_are_asked_of_all_images() -> None:
    choice = {name: {"evidence": {"value": float(k)}} for k, name in enumerate(MODELS)}
    record = {"choice": choice, "settings": {"seed": 0}, "data": {"train": 50_000}, "metrics": {"error_rate": 0.115}}
    assert list(check([record]).values()) == [True, True, True, False]
    assert EXPERIMENT.parser().parse_args(["--folder", "x"]).folder == Path("x")
