"""What atoms see against its definition in loops, under motions of space, and in a regression of energies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.kernels import FeatureMapKernel, InvariantKernel, Surroundings
from orbitgp.orbits import Atoms

ELEMENTS = (1, 6, 8)


def molecules(rows: int = 4, atoms: int = 5, absent: int = 1, seed: int = 0) -> torch.Tensor:
    """Nuclei at random places about an ångström apart, and rows of charge zero at any place."""
    rng = np.random.default_rng(seed)
    charges = rng.choice(ELEMENTS, (rows, atoms)).astype(float)
    charges[:, atoms - absent :] = 0
    return torch.tensor(np.concatenate([charges[..., None], 1.5 * rng.normal(size=(rows, atoms, 3))], -1))


def moved(x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """The same molecules turned, mirrored half of the time, elsewhere, and with their rows in another order."""
    rng = np.random.default_rng(seed)
    turn = torch.tensor(np.linalg.qr(rng.normal(size=(3, 3)))[0])
    places = x[..., 1:] @ turn + torch.tensor(rng.normal(size=3))
    return torch.cat([x[..., :1], places], -1)[:, rng.permutation(x.shape[1])]


def covariance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    mapped = FeatureMapKernel(RBFKernel(), Surroundings(ELEMENTS, shells=12), tuple(a.shape[1:])).double()
    kernel = InvariantKernel(mapped, Atoms(a.shape[1]), image_shape=tuple(a.shape[1:]))
    return kernel(a.flatten(1), b.flatten(1)).to_dense()


def test_features_are_those_of_the_definition() -> None:
    shells, reach, width, power, apart = 6, 4.0, 0.1, 1.5, 3.0
    found = Surroundings(ELEMENTS, shells, reach, width, power, apart)(x := molecules())
    radii = [0.7 * (reach / 0.7) ** (k / (shells - 1)) for k in range(shells)]
    for molecule, features in zip(x.tolist(), found.tolist(), strict=True):
        (centre, *place), others = molecule[0], molecule[1:]
        wanted = []
        for element in ELEMENTS:
            for radius in radii:
                total = 0.0
                for charge, *other in others:
                    r = math.dist(place, other)
                    if charge == element and r < reach:
                        near = math.cos(math.pi * r / (2 * reach)) ** 2
                        total += r**-power * near * math.exp(-0.5 * (math.log(r / radius) / width) ** 2)
                wanted.append(total)
        wanted += [apart * (centre == element) for element in ELEMENTS]
        np.testing.assert_allclose(features, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_kernel_does_not_notice_motions_of_space_and_the_order_of_atoms(seed: Any) -> None:
    x = molecules(seed=seed)
    torch.testing.assert_close(covariance(moved(x, seed), x), covariance(x, x), rtol=1e-9, atol=1e-12)
    stretched = torch.cat([x[..., :1], 1.02 * x[..., 1:]], -1)
    assert (covariance(stretched, x) - covariance(x, x)).abs().max() > 1e-4


def test_rows_without_an_atom_change_a_sum_by_a_constant_alone() -> None:
    x = molecules()
    other = x.clone()
    other[:, -1, 1:] += 7.0
    torch.testing.assert_close(covariance(other, x), covariance(x, x))


def test_gradients_in_places_and_constants() -> None:
    feature_map, x = Surroundings(ELEMENTS, shells=5).double(), molecules(2)
    feature_map.requires_grad_(True)
    charges, places = x[..., :1], x[..., 1:].clone().requires_grad_()
    inputs = (places, *feature_map.parameters())
    assert torch.autograd.gradcheck(lambda places, *_: feature_map(torch.cat([charges, places], -1)), inputs)


def test_atoms_each_in_turn() -> None:
    x = molecules(2)
    elements = Atoms(5).elements(x)
    for a in range(5):
        torch.testing.assert_close(elements[:, a, 0], x[:, a])
        assert {tuple(row) for row in elements[0, a].tolist()} == {tuple(row) for row in x[0].tolist()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Atoms(2), "at least 3 rows"),
        (lambda: Atoms(5).elements(torch.zeros(2, 4, 4)), r"acts on molecules \(5, 4\)"),
        (lambda: Surroundings(()), "different positive charges"),
        (lambda: Surroundings((1, 1)), "different positive charges"),
        (lambda: Surroundings(shells=1), "shells must be at least 2"),
        (lambda: Surroundings(reach=0.5), "reach above 0.7"),
        (lambda: Surroundings()(torch.zeros(1, 3, 3)), r"takes molecules \(atoms, 4\)"),
        (lambda: Surroundings((1, 6))(molecules()), "charge 8, which is not among elements"),
    ],
)
def test_what_cannot_be_meant(call: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def energies(x: torch.Tensor) -> np.ndarray:
    """A sum over pairs, which depends on both elements."""
    apart = torch.cdist(x[..., 1:], x[..., 1:]) + 10 * torch.eye(x.shape[1])
    return ((x[:, :, 0, None] * x[:, None, :, 0]).sqrt() * torch.exp(-apart)).sum((1, 2)).numpy()


@pytest.mark.usefixtures("one_start")
@pytest.mark.slow
def test_energies_are_learned_saved_and_do_not_notice_motions(tmp_path: Path) -> None:
    x = molecules(90)
    y = energies(x)
    model = InvariantGPRegressor(
        Atoms(5),
        feature_map=Surroundings(ELEMENTS, shells=12, width=0.2),
        inference="exact",
        random_state=0,
        training=TrainingOptions(dtype="float64"),
        max_steps=60,
    ).fit(x[:70].numpy(), y[:70])
    new = x[70:]
    assert np.abs(model.predict(new.numpy()) - y[70:]).mean() < 0.5 * y[:70].std()
    np.testing.assert_allclose(model.predict(moved(new).numpy()), model.predict(new.numpy()), rtol=1e-6)
    model.save(tmp_path / "model")
    again = InvariantGPRegressor.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(new.numpy()), model.predict(new.numpy()), rtol=1e-9)
