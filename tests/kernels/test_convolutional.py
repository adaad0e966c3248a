"""Convolutional Gaussian processes, against means over all pairs of patches, and in an estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor, nn

from orbitgp import InvariantGPClassifier
from orbitgp.kernels import ConvolutionalKernel, PatchDictionary, PatchVectors, covariance
from orbitgp.kernels.feature_maps import prepare
from orbitgp.orbits.sampling import Pairing

pytestmark = pytest.mark.usefixtures("one_start")


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("base", [ScaleKernel(RBFKernel()), MaternKernel(1.5)], ids=["RBF", "Matern"])
def test_covariances_are_means_over_pairs_of_patches_and_samples(base: ScaleKernel) -> None:
    kernel = ConvolutionalKernel(base, places=4).double()
    rows, others = rand(5, 2, 12), rand(3, 2, 12, seed=1)

    def mean(a: Tensor, b: Tensor) -> float:
        pairs = [kernel.base_kernel(p[None], q[None]).to_dense().item() for p in a.view(-1, 3) for q in b.view(-1, 3)]
        return float(np.mean(pairs))

    fast = covariance(kernel)
    cross = torch.tensor([[mean(a, b) for b in others] for a in rows], dtype=torch.float64)
    torch.testing.assert_close(fast.cross(rows, others), cross)
    own = torch.tensor([mean(a, a) for a in rows], dtype=torch.float64)
    torch.testing.assert_close(fast.own(rows[:, None], Pairing.exact()), own)
    dense = kernel(rows.flatten(0, 1), others.flatten(0, 1)).to_dense()
    torch.testing.assert_close(dense.unflatten(0, (5, 2)).unflatten(2, (3, 2)).mean((1, 3)), cross)
    torch.testing.assert_close(kernel(rows[:, 0], diag=True), kernel(rows[:, 0]).to_dense().diagonal())
    with pytest.raises(ValueError, match="4 places"):
        kernel.patches(rand(3, 6))


def test_vectors_are_whitened_patches_of_unit_length_with_their_places() -> None:
    images = rand(40, 2, 7, 5)
    vectors = PatchVectors(dim=50, size=3, whitening=0.5, reach=0.25, stride=2)
    vectors.prepare(images)
    found = vectors(images)
    assert found.shape == (40, 3 * 2, 18 + 2)
    patches = torch.stack([images[:, :, r : r + 3, c : c + 3].flatten(1) for r in range(5) for c in range(3)], 1)
    level = (patches - patches.mean(-1, keepdim=True)).flatten(
        0, 1
    )  # fewer than a sample: all of them tell the covariance
    values, axes = torch.linalg.eigh(torch.cov(level.mT, correction=0))
    whitened = (level - level.mean(0)) @ (axes * (values + 0.5 * values.mean()).rsqrt()) @ axes.mT
    unit = nn.functional.normalize(whitened, dim=-1).view(40, 5, 3, 18)[:, ::2, ::2].flatten(1, 2)
    u = found[..., :-2]
    torch.testing.assert_close(u @ u.mT, unit @ unit.mT)  # the same but for a rotation
    places = [[-4.0, -4.0], [-4.0, 4.0], [0.0, -4.0], [0.0, 4.0], [4.0, -4.0], [4.0, 4.0]]
    torch.testing.assert_close(found[7, :, -2:], torch.tensor(places, dtype=torch.float64))
    few = PatchVectors(dim=4, size=3, whitening=0.5)
    few.prepare(images)
    torch.testing.assert_close(few(images)[..., :4].norm(dim=-1), torch.ones(40, 15, dtype=torch.float64))
    with pytest.raises(ValueError, match="stride must be at least 1"):
        PatchVectors(stride=0)


def test_constants_have_gradients() -> None:
    images = rand(6, 1, 5, 5)
    vectors = PatchVectors(dim=6, size=3)
    vectors.prepare(images)
    raws = list(vectors.parameters())

    def of(*values: Tensor) -> Tensor:
        return torch.func.functional_call(
            vectors, dict(zip(dict(vectors.named_parameters()), values, strict=True)), (images,)
        )

    assert torch.autograd.gradcheck(of, [raw.detach().requires_grad_() for raw in raws])


def test_an_estimator_learns_from_patches_of_a_layer_and_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1, 12, 12)).astype(np.float32) * 0.1
    y = np.arange(40) % 2
    for image, label, (row, column) in zip(x, y, rng.integers(0, 9, (40, 2)), strict=True):
        image[0, row + np.arange(4), column + (np.arange(4) if label else np.arange(4)[::-1])] += (
            1.0  # / or \, anywhere
        )
    layers = nn.Sequential(PatchDictionary(8, size=3, cells=8), PatchVectors(dim=12, size=3))
    prepare(layers, torch.from_numpy(x))
    kernel = ConvolutionalKernel(ScaleKernel(RBFKernel()), places=36)
    settings = {"likelihood": "gaussian", "max_steps": 15, "random_state": 0}
    model = InvariantGPClassifier("none", kernel=kernel, feature_map=layers, **settings).fit(x[:30], y[:30])
    assert model.score(x[30:], y[30:]) > 0.75
    model.save(tmp_path / "model.orbitgp")
    again = InvariantGPClassifier.load(tmp_path / "model.orbitgp")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
