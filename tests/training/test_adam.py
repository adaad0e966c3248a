"""Adam: the same numbers as PyTorch's own, and a first use that imports no compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn import Parameter

from orbitgp.training.adam import Adam

pytestmark = pytest.mark.slow  # PyTorch's own Adam imports for seconds, and so does a new process

BETAS, EPS = (0.9, 0.99), 1e-15


def parameters() -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in ((3,), (2, 4), ())]


def groups(of: list[Parameter]) -> list[dict[str, object]]:
    return [{"params": of[:2], "lr": 0.0}, {"params": of[2:], "lr": 0.0}]


def bend(of: list[Parameter], step: int) -> None:
    """Gradients of a bent surface. The second parameter has none at odd steps."""
    sum((p**4).sum() + p.sin().sum() for p in of).backward()  # type: ignore[union-attr]
    if step % 2:
        of[1].grad = None


@pytest.mark.parametrize("interrupted_at", [None, 0, 7])
def test_every_step_is_that_of_torch(interrupted_at: int | None) -> None:
    mine, theirs = parameters(), parameters()
    adam = Adam(groups(mine), BETAS, EPS, fused=False)
    reference = torch.optim.Adam(groups(theirs), betas=BETAS, eps=EPS)
    for step in range(20):
        if step == interrupted_at:
            state, adam = adam.state_dict(), Adam(groups(mine), BETAS, EPS, fused=False)
            adam.load_state_dict(state)
        for optimizer, of in ((adam, mine), (reference, theirs)):
            for group, rate in zip(optimizer.param_groups, (0.1, 0.03), strict=True):
                group["lr"] = rate * 0.9**step
            optimizer.zero_grad()
            bend(of, step)
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_new_process_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch; from orbitgp.training.adam import Adam; p = torch.nn.Parameter(torch.ones(2))\n"
        "adam = Adam([{'params': [p], 'lr': 0.1}], (0.9, 0.99), 1e-15, False)\n"
        "adam.zero_grad(); p.sum().backward(); adam.step(); print(float(p[0]) < 1, 'torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False"]
