"""Sums of a kernel over pairs on tensor cores, against plain sums in double precision.

Without a GPU, Triton's interpreter runs the same programs. Where Triton is not installed, nothing can be tested.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when programs are defined
pytest.importorskip("triton")
pair_sums = pytest.importorskip("orbitgp.kernels.pair_sums")


def plain_sums(x: Tensor, z: Tensor, nu: float | None, s: int, t: int) -> Tensor:
    """The definition."""
    squares = (x[:, None] - z).square().sum(-1)
    root = (2 * (nu or 0.5) * squares).clamp_min(1e-30).sqrt()
    values = {None: torch.exp(-0.5 * squares), 1.5: (1 + root) * torch.exp(-root)}
    values[2.5] = (1 + root + root.square() / 3) * torch.exp(-root)
    return values[nu].unflatten(0, (-1, s)).unflatten(2, (-1, t)).sum((1, 3))


@pytest.mark.parametrize(
    ("nu", "s", "t", "rows", "others"),
    [(None, 16, 16, 10, 17), (2.5, 12, 4, 11, 20), (1.5, 1, 1, 140, 30), (None, 16, 1, 9, 140)],
    ids=["draws", "elements", "points", "inducing points"],
)
def test_sums_and_gradients_are_those_of_double_precision(
    nu: float | None, s: int, t: int, rows: int, others: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    x, z = (0.3 * torch.randn(count, 40, generator=generator) for count in (rows * s, others * t))
    slope = 1e-5 * torch.randn(rows, others, generator=generator)  # far below what halves reach
    found = differentiated(pair_sums.PairSums.apply, x.to(DEVICE), z.to(DEVICE), slope.to(DEVICE), nu, s, t)
    truth = differentiated(plain_sums, x.double(), z.double(), slope.double(), nu, s, t)
    for mine, theirs in zip(found, truth, strict=True):
        assert float((mine.cpu() - theirs).abs().max() / theirs.abs().max()) < 2e-6  # halves alone: 1e-3


def differentiated(
    function: object, x: Tensor, z: Tensor, slope: Tensor, nu: float | None, s: int, t: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums, and the gradients of their product with slopes."""
    assert callable(function)
    x, z = x.requires_grad_(), z.requires_grad_()
    sums = function(x, z, nu, s, t)
    return sums.detach(), *torch.autograd.grad(sums, (x, z), slope)


def test_gradients_of_many_points_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(24, 5, generator=generator).to(DEVICE) for _ in range(2))
    slope = torch.randn(6, 6, generator=generator).to(DEVICE)
    whole = differentiated(pair_sums.PairSums.apply, x.clone(), z.clone(), slope, None, 4, 4)
    monkeypatch.setattr(pair_sums, "_VALUES", 200)  # eight rows of 24
    parts = differentiated(pair_sums.PairSums.apply, x, z, slope, None, 4, 4)
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-6)


def test_sums_of_very_many_features_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.rand(count, 2500, generator=generator) / 40 for count in (6, 8))
    found = pair_sums.PairSums.apply(x.to(DEVICE), z.to(DEVICE), None, 2, 2)
    truth = plain_sums(x.double(), z.double(), None, 2, 2)
    assert float((found.cpu() - truth).abs().max() / truth.abs().max()) < 2e-6


def test_points_of_half_precision_take_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, z = ((0.3 * torch.randn(count, 40, generator=generator)).half().float().to(DEVICE) for count in (24, 36))
    asked, launch = [], pair_sums._launch
    monkeypatch.setattr(
        pair_sums, "_launch", lambda *args, **kwargs: (asked.append(kwargs["LOW"]), launch(*args, **kwargs))
    )
    found = pair_sums.PairSums.apply(x, z, None, 4, 6).cpu().double()
    torch.testing.assert_close(found, plain_sums(x.cpu().double(), z.cpu().double(), None, 4, 6), rtol=2e-6, atol=0.0)
    assert asked == [False]
    pair_sums.PairSums.apply(x + 1e-5, z, None, 4, 6)
    assert asked == [False, True]
