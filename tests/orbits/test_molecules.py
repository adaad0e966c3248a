"""Coulomb matrices and their noisy orders against loops, and the noise that the evidence finds without a gradient."""

from __future__ import annotations

from math import dist
from typing import Any

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.orbits import GaussianNoise, NoisySort, coulomb_matrices


def molecules(rows: int = 6, atoms: int = 5, elements: tuple[int, ...] = (0, 1, 6), seed: int = 0) -> Any:
    """Charges, 0 for no atom, and places that are an ångström or two apart."""
    rng = np.random.default_rng(seed)
    return rng.choice(elements, (rows, atoms)), 1.5 * rng.normal(size=(rows, atoms, 3))


def matrices(**kwargs: Any) -> torch.Tensor:
    return torch.from_numpy(coulomb_matrices(*molecules(**kwargs)))


def test_coulomb_matrices_are_those_of_the_definition() -> None:
    numbers, positions = molecules()
    for matrix, z, r in zip(coulomb_matrices(numbers, positions), numbers, positions, strict=True):
        for i in range(5):
            for j in range(5):
                wanted = 0.5 * z[i] ** 2.4 if i == j else z[i] * z[j] / dist(r[i], r[j])
                assert matrix[i, j] == pytest.approx(wanted)


def test_orders_are_permutations_of_rows_and_columns_alike() -> None:
    x, u = matrices(), torch.rand(6, 8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = NoisySort(3.0).double().transform(x, u)
    exchanged = 0
    for n in range(6):
        norms = x[n].norm(dim=1).tolist()
        plain = sorted(range(5), key=lambda i: -norms[i])
        for s in range(8):
            noise = 3.0 * torch.special.ndtri(u[n, s])
            sums = [norms[i] + float(noise[place]) if norms[i] else -np.inf for place, i in enumerate(plain)]
            order = [plain[place] for place in sorted(range(5), key=lambda place: -sums[place])]
            wanted = torch.stack([torch.stack([x[n, i, j] for j in order]) for i in order])
            assert torch.equal(found[n, s].detach(), wanted)
            exchanged += order != plain
    assert 10 < exchanged < 48


def test_noise_zero_is_the_plain_sort() -> None:
    x = matrices()
    drawn = NoisySort(0.0, learn=False).sample(x, 4).points.flatten(1, 2)
    assert (drawn == drawn[:, :1]).all()
    norms = drawn[:, 0].norm(dim=-1)
    assert (norms.diff(dim=-1) <= 0).all()
    torch.testing.assert_close(norms, x.norm(dim=-1).sort(descending=True).values)


def test_the_order_of_the_input_does_not_matter_and_rows_without_an_atom_stay_last() -> None:
    x, order, orbit = matrices(), [3, 0, 4, 2, 1], NoisySort(100.0).double()
    same = orbit.shared_samples(x[:, order][:, :, order], 16).points
    found = orbit.shared_samples(x, 16).points
    torch.testing.assert_close(same, found)
    atoms = (found.diagonal(dim1=-2, dim2=-1) > 0).long()
    assert (atoms.diff(dim=-1) <= 0).all()
    assert (atoms == 0).any()


def test_the_gradient_is_that_of_the_entries_and_zero_in_the_noise() -> None:
    orbit, x = NoisySort(2.0).double(), matrices().requires_grad_()
    orbit.transform(x, torch.rand(6, 3, 5, dtype=torch.float64)).sum().backward()
    assert orbit.noise.grad == 0
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


def test_without_noise_it_is_the_plain_sort_and_not_the_matrix_as_it_is() -> None:
    x = matrices()
    orders = [np.argsort(-np.linalg.norm(matrix, axis=1), kind="stable") for matrix in x.numpy()]
    expected = np.stack([matrix[np.ix_(order, order)] for matrix, order in zip(x.numpy(), orders, strict=True)])
    left = (NoisySort(2.0) * GaussianNoise(0.1)).without_reach()
    np.testing.assert_array_equal(left.sample(x, None).points[:, 0, 0].numpy(), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NoisySort(0.0), "noise must be positive, or 0 with learn=False"),
        (lambda: NoisySort(-1.0, learn=False), "noise must be positive"),
        (lambda: NoisySort(float("nan")), "noise must be positive"),
        (lambda: NoisySort().sample(torch.zeros(2, 5, 4), 4), r"acts on matrices \(atoms, atoms\)"),
        (lambda: NoisySort().check(torch.Size([9])), r"acts on matrices \(atoms, atoms\)"),
        (lambda: coulomb_matrices(-np.ones((1, 2)), np.zeros((1, 2, 3))), "charges of nuclei must be positive"),
        (lambda: coulomb_matrices(np.ones((1, 2)), np.zeros((1, 2, 3))), "atoms 0 and 1 of molecule 0 are at the same"),
    ],
)
def test_what_cannot_be_meant(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_the_evidence_finds_the_noise_and_prefers_it_to_the_plain_sort() -> None:
    numbers, positions = molecules(120, 4, (1, 1, 1, 6), seed=1)
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1) + 1e3 * np.eye(4)
    energy = (np.sqrt(numbers[:, :, None] * numbers[:, None]) * np.exp(-apart)).sum((1, 2))  # in any order
    y = energy + 0.1 * np.random.default_rng(9).normal(size=120)
    common: Any = {"inference": "exact", "num_samples": 8, "max_steps": 300, "random_state": 0}
    plain, noisy = (
        InvariantGPRegressor(orbit, training=TrainingOptions(dtype="float64"), **common).fit(
            coulomb_matrices(numbers, positions), y
        )
        for orbit in (NoisySort(0.0, learn=False), NoisySort(1.0))
    )
    assert plain.orbit_.noise == 0
    assert abs(noisy.orbit_.noise) > 1.5
    assert noisy.evidence_.value > plain.evidence_.value + 4
