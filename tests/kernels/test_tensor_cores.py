"""The sums for GPUs: off a GPU the same function runs without TF32, and must agree with the reference to rounding."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from orbitgp.kernels._expectations_cpu import Sums
from orbitgp.kernels._expectations_cuda import TensorCoreSums, _in_three, tensor_cores, with_columns
from orbitgp.kernels.stationary import Stationary
from orbitgp.orbits import Pairing

PAIRINGS = {"two groups": Pairing.groups(2), "three groups": Pairing.groups(3), "exact": Pairing.exact()}


def inputs(pairing, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    xa = torch.randn(5, pairing.blocks, 4, 6, dtype=dtype, generator=generator) + 3.0
    z = torch.randn(7, 6, dtype=dtype, generator=generator) + 3.0
    gamma = torch.tensor(0.3, dtype=dtype)
    return [t.requires_grad_() for t in (xa, z, gamma)]


def run(function, pairing, profile, dtype=torch.float64):
    xa, z, gamma = inputs(pairing, dtype)
    centre = z.detach().mean(0)
    kfu, kff = function.apply(xa, z - centre, centre, gamma, pairing, profile, True)
    weights = torch.arange(kfu.numel(), dtype=dtype).sin().view_as(kfu)
    loss = (kfu * weights).sum() + (kff * torch.arange(1.0, 1.0 + len(kff), dtype=dtype)).sum()
    return [kfu, kff, *torch.autograd.grad(loss, [xa, z, gamma])]


@pytest.mark.parametrize("pairing", PAIRINGS.values(), ids=PAIRINGS.keys())
@pytest.mark.parametrize("base", [RBFKernel(), MaternKernel(0.5), MaternKernel(1.5), MaternKernel(2.5)], ids=str)
def test_values_and_gradients_are_those_of_the_reference(pairing, base):
    profile = Stationary(ScaleKernel(base)).profile
    for ours, reference in zip(run(TensorCoreSums, pairing, profile), run(Sums, pairing, profile), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-9)


def test_three_numbers_of_few_digits_make_one_of_many():
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 1000)
    parts = _in_three(values)
    assert torch.equal(parts.double().sum(-1), values.double())
    mantissas = parts.view(torch.int32) & 0x1FFF
    assert not mantissas.any()


@pytest.mark.parametrize("dim", [3, 4, 5, 784])
def test_rows_are_whole_vectors_with_four_columns_more(dim):
    wide = with_columns(torch.ones(2, dim), dim)
    assert wide.shape[1] % 4 == 0
    assert dim + 4 <= wide.shape[1] < dim + 8
    assert not wide[:, dim:].any()


def test_a_kernel_with_a_kink_keeps_away_from_tf32():
    """Where samples come close, its slope has no bound, and TF32 does not know their distance."""
    smooth = {nu: Stationary(MaternKernel(nu)).profile.smooth for nu in (0.5, 1.5, 2.5)}
    assert smooth == {0.5: False, 1.5: True, 2.5: True}
    assert Stationary(RBFKernel()).profile.smooth


def test_only_what_is_learned_gets_a_gradient():
    pairing, profile = PAIRINGS["two groups"], Stationary(RBFKernel()).profile
    xa, z, gamma = (t.detach() for t in inputs(pairing))
    for wanted in (xa, z, gamma):
        wanted.requires_grad_()
        kfu, kff = TensorCoreSums.apply(xa, z, torch.zeros(6, dtype=z.dtype), gamma, pairing, profile, True)
        (kfu.sum() + kff.sum()).backward()
        assert [t.grad is not None for t in (xa, z, gamma)] == [t is wanted for t in (xa, z, gamma)]
        wanted.requires_grad_(False).grad = None


def test_precision_is_put_back():
    before = torch.get_float32_matmul_precision()
    with tensor_cores():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
