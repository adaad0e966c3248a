"""Photographs are read from parts, and the claims are about what the evidence chose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments import cifar
from experiments.cifar import EXPERIMENT, MODELS, ONE, TWO, Model, Photographs, check, feature_map, read, rescale, table
from orbitgp import InvariantGPClassifier
from orbitgp.kernels.feature_maps import FeatureMapKernel, prepare


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
    for stacks, patches in (((ONE,), 8), ((ONE, TWO), 8 + 32)):
        seen = feature_map(Model("flip", stacks), 8)
        prepare(seen, x)
        assert seen(x).flatten(1).shape == (3, 2 * 16 * patches)


def test_a_kernel_has_as_many_places_as_there_are_patches() -> None:
    x = torch.rand(3, 3, 32, 32)
    for size in (3, 5):
        one = Model("flip", size=size)
        seen, kernel = feature_map(one, 8), cifar.first_kernel(one)
        prepare(seen, x)
        assert kernel is not None
        assert seen(x).shape[1] == kernel.places
        whole = SimpleNamespace(kernel_=FeatureMapKernel(kernel, seen, (3, 32, 32)))
        cifar.take_patches(whole, size, 1)
        assert seen(x).shape[1] == kernel.places == (15 - size) ** 2


def test_what_fails_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with cifar.possibly("a model"):
        raise RuntimeError("out of memory")
    assert capsys.readouterr().out == "a model is left out: RuntimeError: out of memory\n"


@pytest.mark.slow
def test_a_small_run_goes_through_both_kinds_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(34) % 2
    images = (
        rng.integers(0, 40, (34, 32, 32, 3))
        + 200 * (rng.random((34, 32, 1, 1)) < 0.5) * (labels == 1)[:, None, None, None]
    )
    np.savez(tmp_path / "all.npz", x_train=images[:24], y_train=labels[:24], x_test=images[24:], y_test=labels[24:])
    kept = ("one layer, none", "one layer, flip", "mean over patches of 5, flip")
    monkeypatch.setattr(cifar, "MODELS", {name: MODELS[name] for name in kept})
    sizes = {"choice_rows": 12, "choice_patches": 8, "choice_steps": 2, "learn_rows": 14, "learn_steps": 2}
    record = Photographs(str(tmp_path), **sizes, noise_rows=8, patches=8, seconds=0.0).run()
    said = capsys.readouterr().out
    assert "it takes every second one in every second row" in said
    assert set(record["choice"]) == set(kept)
    nats = {name: found["evidence of more"] for name, found in record["larger"].items()}
    assert record["chosen"] == max(nats, key=lambda name: nats[name])
    assert "mean over patches of 5, flip" in nats
    assert record["metrics"]["error_rate"] <= 0.2
    assert record["data"]["train"] == 24
    assert "mean over patches" in table([record])
    assert f"{'seed 0: the evidence wants reflections'}" in check([record])


def test_a_map_in_tf32_is_the_same_map() -> None:
    x, seen = torch.rand(3, 3, 32, 32), feature_map(Model("flip", (ONE, TWO)), 8)
    prepare(wrapped := cifar.InTF32(seen), x)
    torch.testing.assert_close(wrapped(x), seen(x))
    assert torch.get_float32_matmul_precision() == "highest"


def test_variance_and_noise_have_the_most_evidence() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = (x[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(int)
    model = InvariantGPClassifier(likelihood="gaussian", inference="exact", max_steps=2, random_state=0).fit(x, y)
    kernel, likelihood, names = model.kernel_, model.likelihood_, ("model_", "likelihood_", "classes_")
    seen = SimpleNamespace(kernel_=kernel, **{name: getattr(model, name) for name in names})
    rescale(seen, x, y, "cpu")
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
