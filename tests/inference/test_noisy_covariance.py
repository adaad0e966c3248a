"""The inverses of K + diag(noise_l) together, against each of them made on its own."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.likelihoods import Dirichlet

N, L = 24, 4


def gram() -> torch.Tensor:
    x = torch.rand(N, 2, dtype=torch.float64)
    return 3.0 * torch.exp(-torch.cdist(x, x).square())


def dirichlet_noise(labels: torch.Tensor | None = None, classes: int = L) -> torch.Tensor:
    labels = torch.randint(classes, (N,)) if labels is None else labels
    return Dirichlet(classes, 0.01).observations(torch.eye(classes, dtype=torch.float64)[labels])[1]


def smaller_in(*counts: int) -> torch.Tensor:
    """Noise that is smaller in so many rows of each function, here and there, by amounts that differ."""
    noise = torch.ones(N, len(counts), dtype=torch.float64)
    for column, count in zip(noise.mT, counts, strict=True):
        column[torch.randperm(N)[:count]] = torch.rand(count, dtype=torch.float64) + 1e-3
    return noise


NOISES = {
    "one for all": lambda: torch.full((N, 1), 0.1, dtype=torch.float64),
    "one column, each its own": lambda: torch.rand(N, 1, dtype=torch.float64) + 0.01,
    "Dirichlet": dirichlet_noise,
    "Dirichlet, most of one class and none of another": lambda: dirichlet_noise(torch.tensor([0] * 20 + [1, 1, 2, 2])),
    "columns that are equal": lambda: (torch.rand(N, 1, dtype=torch.float64) + 0.01).expand(N, L),
    "smaller in rows that functions share": lambda: smaller_in(9, 12, 10, 11),
    "smaller in few, many and no rows": lambda: smaller_in(5, 0, 24, 2),
    "smaller in all rows of one": lambda: smaller_in(0, 0, 24, 0),
    "all different": lambda: torch.rand(N, L, dtype=torch.float64) + 0.01,
}


@pytest.mark.parametrize(
    "at_once", [1, 16 * N * 12, 2**24]
)  # numbers: for no inverse nor functions together, for few, for all
@pytest.mark.parametrize("invert", [True, False])
@pytest.mark.parametrize("name", NOISES)
def test_everything_equals_the_dense_inverses(
    name: str, invert: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitgp.inference.noisy_covariance.chunk_elements", lambda _: at_once)
    k, noise = gram(), NOISES[name]()
    system = NoisyCovariance(k, noise, invert)
    dense = [torch.linalg.inv(k + torch.diag(column)) for column in noise.unbind(1)]
    every = dense if len(dense) == L else dense * L
    right, cross = torch.randn(N, L, 2, dtype=torch.float64), torch.randn(N, 5, dtype=torch.float64)
    torch.testing.assert_close(
        system.solve(right), torch.stack([c @ r for c, r in zip(every, right.unbind(1), strict=True)], 1)
    )
    torch.testing.assert_close(system.logdets, torch.stack([-torch.logdet(c) for c in dense]))
    torch.testing.assert_close(system.explained(cross), torch.stack([(cross * (c @ cross)).sum(0) for c in dense], 1))
    diagonals = torch.stack([c.diagonal() for c in dense], 1)
    torch.testing.assert_close(system.diagonals(), diagonals)
    system.invert()
    weights = right[..., 0]
    torch.testing.assert_close(system.slope(weights), 0.5 * (weights @ weights.mT - torch.stack(every).sum(0)))
    torch.testing.assert_close(system.diagonals(), diagonals)
    assert system.jitter == 0.0


def test_a_dirichlet_takes_one_factorisation_for_all_classes() -> None:
    assert len(NoisyCovariance(gram(), dirichlet_noise()).factors) == 1
    assert len(NoisyCovariance(gram(), NOISES["all different"]()).factors) == L


def test_more_classes_take_no_more_operations() -> None:
    def operations(classes: int) -> int:
        k, noise, right = (
            gram(),
            dirichlet_noise(torch.arange(N) % classes, classes),
            torch.ones(N, classes, 1).double(),
        )
        with profile(activities=[ProfilerActivity.CPU]) as run:
            system = NoisyCovariance(k, noise, invert=True)
            system.solve(right)
            system.slope(right[..., 0])
        return sum(event.count for event in run.key_averages())

    assert operations(3) == operations(8)


def test_functions_with_about_as_many_rows_or_few_are_updated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(*counts: int) -> list[int]:
        return [len(update.functions) for update in NoisyCovariance(gram(), smaller_in(*counts)).updates]

    assert together(5, 0, 12, 7) == [4]
    monkeypatch.setattr("orbitgp.inference.noisy_covariance._FEW", 0)
    assert together(9, 12, 10, 11) == [4]
    assert together(5, 0, 12, 7) == [2, 1]


def test_memory_says_which_functions_are_updated_together_and_whether_they_take_the_inverse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(numbers: int, noise: torch.Tensor) -> NoisyCovariance:
        monkeypatch.setattr("orbitgp.inference.noisy_covariance.chunk_elements", lambda _: 16 * numbers)
        return NoisyCovariance(gram(), noise)

    noise = smaller_in(10, 10, 10, 10)
    assert [len(update.functions) for update in made(20 * N, noise).updates] == [2, 2]
    assert [len(update.functions) for update in made(20 * N - 1, noise).updates] == [1, 1, 1, 1]
    assert [len(made(numbers, noise).inverses) for numbers in (N * N, N * N - 1)] == [1, 0]
    assert not made(N * N, NOISES["one for all"]()).inverses
    assert len(NoisyCovariance(gram(), NOISES["all different"](), invert=True).inverses) == L
