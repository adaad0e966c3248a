"""A dictionary of patches, against loops over pixels, and in an estimator."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.kernels import Frame, PatchDictionary, SideBySide
from orbitgp.kernels.feature_maps import FeatureMapKernel, prepare
from orbitgp.orbits.parse import make_orbit

CONSTANTS = {"whitening": 0.3, "bias": 0.4, "level": 0.2, "window": 0.6}


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def prepared(x: Tensor, *args: int, **kwargs: Any) -> PatchDictionary:
    feature_map = PatchDictionary(*args, **kwargs)
    feature_map.prepare(x)
    return feature_map


def by_loops(feature_map: PatchDictionary, image: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The docstring in loops: one image, and all training images to whiten by. The dictionary is the map's own."""
    size, cells, values = feature_map.size, feature_map.cells, feature_map.named_constants()
    assert size is not None

    def patches(images: np.ndarray) -> np.ndarray:
        rows, columns = images.shape[2] - size + 1, images.shape[3] - size + 1
        places = [(n, r, c) for n in range(len(images)) for r in range(rows) for c in range(columns)]
        return np.array([images[n, :, r : r + size, c : c + size].ravel() for n, r, c in places])

    centre = train.mean((0, 2, 3))[:, None, None]
    everything = patches(train - centre)
    everything -= everything.mean(1, keepdims=True)
    c, covariance = everything.mean(0), np.cov(everything.T, bias=True)
    lam, e = np.linalg.eigh(covariance)
    root = e @ np.diag((lam + values["whitening"] * lam.mean()) ** -0.5) @ e.T

    def unit(p: np.ndarray) -> np.ndarray:
        w = (p - p.mean() - c) @ root
        return w / np.linalg.norm(w)

    def relu(v: float) -> float:
        return max(v, 0.0)

    dictionary = [unit(d) for d in feature_map.dictionary.numpy()]
    r = float(feature_map.similarity)
    height, width = image.shape[1] - size + 1, image.shape[2] - size + 1
    found = np.zeros((2 * len(dictionary), cells, cells))
    here = [
        [unit((image - centre)[:, i : i + size, j : j + size].ravel()) for j in range(width)] for i in range(height)
    ]
    for a in range(cells):
        for b in range(cells):
            weight = np.zeros((height, width))
            for i in range(height):
                for j in range(width):
                    y, x = (i + 0.5) * cells / height - 0.5 - a, (j + 0.5) * cells / width - 0.5 - b
                    weight[i, j] = math.exp(-0.5 * (y**2 + x**2) / values["window"] ** 2)
            weight /= weight.sum()
            for k, d in enumerate(dictionary):
                for sign, row in ((1, k), (-1, len(dictionary) + k)):
                    terms = [
                        weight[i, j] * relu(sign * here[i][j] @ d / r - values["bias"])
                        for i in range(height)
                        for j in range(width)
                    ]
                    found[row, a, b] = math.log(1 + sum(terms) / values["level"])
    return found / np.linalg.norm(found)


class TestMap:
    @pytest.mark.parametrize("shape", [(3, 7, 6), (1, 5, 5), (2, 4, 8)], ids=str)
    def test_equals_its_docstring_in_loops(self, shape: tuple[int, ...]) -> None:
        x = rand(6, *shape)
        feature_map = prepared(x, 4, size=3, cells=2, **CONSTANTS)
        mapped = feature_map(x[:2]).detach().numpy()
        for image, found in zip(x[:2].numpy(), mapped, strict=True):
            np.testing.assert_allclose(found, by_loops(feature_map, image, x.numpy()), rtol=1e-9, atol=1e-11)

    def test_similarities_have_unit_mean_square(self) -> None:
        x = rand(8, 2, 6, 6)
        feature_map = prepared(x, 5, size=3)
        unit = feature_map._whitening(x)
        patches = torch.nn.functional.unfold(x - x.mean((0, 2, 3), keepdim=True), 3).mT.flatten(0, 1)
        products = (unit(patches) @ unit(feature_map.dictionary).mT).detach()
        assert float(products.square().mean().sqrt() / feature_map.similarity) == pytest.approx(1.0, rel=1e-9)

    def test_the_dictionary_holds_training_patches_that_are_not_flat(self) -> None:
        x = torch.zeros(5, 8, 8, dtype=torch.float64)
        x[0, 2:5, 3:6] = rand(3, 3)
        feature_map = prepared(x, 1000, size=3)
        assert feature_map.patches == len(feature_map.dictionary) == 25  # that overlap with what is not flat
        assert (feature_map.dictionary.var(1) > 0).all()
        assert feature_map.named_constants().keys() == CONSTANTS.keys()

    def test_brightness_and_contrast_do_not_count(self) -> None:
        """They do where images are their own measure: with another mean the whitening sees other patches."""
        x = rand(10, 3, 9, 9)
        feature_map, other = prepared(x, 6), prepared(0.2 * x + 3, 6)
        torch.testing.assert_close(other(0.2 * x[:3] + 3), feature_map(x[:3]), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(feature_map(x[:3] + 0.7), feature_map(x[:3]), rtol=1e-10, atol=1e-12)

    def test_reflected_images_with_reflected_patches_have_reflected_maps(self) -> None:
        x = rand(6, 2, 7, 7)
        straight = prepared(x, 4, size=3)
        turned = prepared(x.flip(-1), 4, size=3)
        turned.dictionary = straight.dictionary.reshape(-1, 2, 3, 3).flip(-1).flatten(1).contiguous()
        turned.similarity = straight.similarity  # of the same patches, turned
        torch.testing.assert_close(turned(x.flip(-1)), straight(x).flip(-1), rtol=1e-9, atol=1e-11)

    def test_a_row_does_not_depend_on_its_company_or_its_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = rand(7, 3, 8, 8)
        feature_map = prepared(x, 5)
        whole = feature_map(x)
        torch.testing.assert_close(feature_map(x[2:3]), whole[2:3], rtol=1e-12, atol=1e-14)
        slopes = torch.autograd.grad(whole.square().mul(rand(*whole.shape)).sum(), list(feature_map.parameters()))
        monkeypatch.setattr("orbitgp.kernels.patches.chunk_elements", lambda device: 1)
        parts = feature_map(x)
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)
        again = torch.autograd.grad(parts.square().mul(rand(*whole.shape)).sum(), list(feature_map.parameters()))
        torch.testing.assert_close(again, slopes, rtol=1e-10, atol=1e-12)

    def test_gradcheck_in_the_image_and_all_constants(self) -> None:
        x = rand(2, 2, 5, 5, seed=1).requires_grad_()
        feature_map = prepared(rand(8, 2, 5, 5), 3, size=3, cells=2, **CONSTANTS)
        raw = {name: p.detach().clone().requires_grad_() for name, p in feature_map.named_parameters()}
        assert set(raw) == {f"raw_{name}" for name in CONSTANTS}

        def features(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(feature_map, dict(zip(raw, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(features, (x, *raw.values()))

    def test_single_precision(self) -> None:
        x = rand(9, 3, 8, 8)
        feature_map = prepared(x, 6)
        mapped = feature_map(x.float())
        assert mapped.dtype == torch.float32
        torch.testing.assert_close(mapped.double(), feature_map(x), rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize(("shape", "size"), [((8, 8), 3), ((28, 28), 6), ((3, 96, 96), 6), ((3, 2, 9), 2)], ids=str)
    def test_the_default_size_suits_the_image(self, shape: tuple[int, ...], size: int) -> None:
        x = rand(2, *shape).float()
        feature_map = prepared(x, 3)
        assert feature_map.size == size
        assert feature_map(x).shape == (2, 6, 4, 4)

    def test_layers_and_reduced_channels(self) -> None:
        """A second layer sees the principal components of the maps of the first; rotations of channels do not
        matter."""
        x = rand(12, 3, 12, 12)
        first = prepared(x, 10, size=3, cells=8)
        maps = first(x).detach()
        reduced, full = prepared(maps, 5, size=3, components=20), prepared(maps, 5, size=3, components=4)
        assert reduced.basis.shape == (20, 20, 1, 1)
        assert full.basis.shape == (4, 20, 1, 1)
        values = np.linalg.eigvalsh(np.cov(maps.movedim(1, 0).flatten(1).numpy(), bias=True))[::-1]
        seen = torch.nn.functional.conv2d(maps - full.centre, full.basis)
        np.testing.assert_allclose(seen.movedim(1, 0).flatten(1).var(1, correction=0), values[:4], rtol=1e-8)

    def test_refuses_what_it_cannot_use(self) -> None:
        x = rand(4, 3, 8, 8)
        with pytest.raises(ValueError, match="has no patches yet"):
            PatchDictionary()(x)
        with pytest.raises(ValueError, match="has patches of 3 channels"):
            prepared(x, 3)(x[:, :2])
        with pytest.raises(ValueError, match="9 by 9 pixels do not fit"):
            prepared(x, 3, size=9)
        with pytest.raises(ValueError, match="every patch of the training images is flat"):
            prepared(torch.ones(3, 8, 8), 3)
        with pytest.raises(ValueError, match="patches must be at least 1"):
            PatchDictionary(0)


class TestPrepare:
    def test_every_part_sees_what_reaches_it(self) -> None:
        x = rand(9, 3, 10, 10)
        first, second, alone, framed = (
            PatchDictionary(4, cells=6),
            PatchDictionary(3, size=3),
            PatchDictionary(5),
            PatchDictionary(2),
        )
        prepare(SideBySide(nn.Sequential(first, second), alone, Frame(framed, width=0.5, learn=False)), x)
        torch.testing.assert_close(first.dictionary, prepared(x, 4, cells=6).dictionary)
        torch.testing.assert_close(second.dictionary, prepared(first(x), 3, size=3).dictionary)
        torch.testing.assert_close(framed.dictionary, prepared(Frame(width=0.5)(x).reshape(x.shape), 2).dictionary)
        assert alone.channels == 3

    def test_maps_without_the_method_are_left_alone(self) -> None:
        prepare(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(3, 2, 2))


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=3, return_X_y=True)
    return images[:count].reshape(-1, 8, 8) / 16, labels[:count]


class TestEstimators:
    def fitted(self, **settings: Any) -> InvariantGPClassifier:
        model = InvariantGPClassifier(
            feature_map=PatchDictionary(4, cells=2), likelihood="gaussian", random_state=0, max_steps=6, **settings
        )
        return model.fit(*digits(40))

    def test_learns_its_constants_and_is_saved_with_its_dictionary(self, tmp_path: Path) -> None:
        x, y = digits(60)
        model = self.fitted(training=TrainingOptions(start_rows=0))
        assert isinstance(model.feature_map, PatchDictionary)
        assert model.feature_map.channels is None  # the user's own is untouched
        seen = model.kernel_.feature_map
        assert seen.dictionary.shape == (4, 9)
        assert seen.named_constants() != PatchDictionary().named_constants()
        assert np.mean(model.predict(x[40:]) == y[40:]) > 0.8
        model.save(tmp_path / "model.safetensors")
        again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        torch.testing.assert_close(again.kernel_.feature_map.dictionary, seen.dictionary, rtol=0, atol=0)
        np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))

    def test_a_fit_with_the_same_seed_has_the_same_dictionary(self) -> None:
        one, other = (self.fitted(training=TrainingOptions(start_rows=0)) for _ in range(2))
        assert one.evidence_.value == other.evidence_.value

    def test_goes_on_from_a_checkpoint(self, tmp_path: Path) -> None:
        x, y = digits(30)
        path = tmp_path / "run.checkpoint"

        def model() -> InvariantGPClassifier:
            maps = SideBySide(
                PatchDictionary(3, cells=2), nn.Sequential(PatchDictionary(2, cells=5), PatchDictionary(2, size=3))
            )
            training = TrainingOptions(start_rows=0)
            return InvariantGPClassifier(
                feature_map=maps, likelihood="gaussian", random_state=0, max_steps=3, training=training
            )

        whole = model().fit(x, y, checkpoint=path, checkpoint_every=0.0)
        resumed = model().fit(x, y, checkpoint=path, resume=True)
        assert resumed.evidence_.value == whole.evidence_.value

    def test_a_kernel_of_ones_own_and_an_orbit(self) -> None:
        from gpytorch.kernels import MaternKernel

        x, y = digits(30)
        kernel, feature_map = MaternKernel(nu=2.5), PatchDictionary(3, cells=2)
        model = InvariantGPRegressor("flip", kernel, feature_map=feature_map, max_steps=3, random_state=0).fit(
            x, y.astype(float)
        )
        assert isinstance(model.kernel_, FeatureMapKernel)
        assert np.isfinite(model.evidence_.value)

    def test_ranges_of_an_orbit_have_the_slope_of_the_map(self) -> None:
        """By central differences of the width of all shifts."""
        x, orbit = rand(6, 8, 8), make_orbit("translation").double()
        feature_map = prepared(x, 4, cells=2)

        def value() -> Tensor:
            return feature_map(orbit.shared_samples(x, 5).points.flatten(0, 2))[:, 0].sum()

        parameter = next(orbit.parameters())
        (slope,) = torch.autograd.grad(value(), [parameter])
        step = torch.zeros_like(parameter)
        step.view(-1)[0] = 1e-6
        with torch.no_grad():
            parameter += step
            above = value()
            parameter -= 2 * step
            assert float(slope.view(-1)[0]) == pytest.approx(float(above - value()) / 2e-6, rel=1e-4)
