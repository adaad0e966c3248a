"""A step as a CUDA graph: fresh draws in every replay, inputs copied, gradients where they were."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.capture import Captured
from orbitgp.elbo import elbo
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Affine
from orbitgp.variational import InvariantGP

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_step_is_replayed():
    torch.manual_seed(0)
    x, y = torch.rand(30, 8, 8, device="cuda"), torch.randn(30, 2, dtype=torch.float64, device="cuda")
    model = InvariantGP(ScaleKernel(RBFKernel()), Affine(), x[:10].cpu(), num_latents=2).cuda()
    likelihood = Gaussian(2).cuda()
    generator = torch.Generator("cuda").manual_seed(0)

    def step(x, y):
        for parameter in (*model.parameters(), *likelihood.parameters()):
            parameter.grad = None
        bound = elbo(model, likelihood, model.orbit.sample(x, 8, generator=generator), y, 30)
        bound.backward()
        return bound.detach()

    captured = Captured(step, (x, y), [generator])
    bounds = torch.stack([captured(x, y).clone() for _ in range(50)])
    assert len(bounds.unique()) > 40
    fresh = torch.stack([step(x, y) for _ in range(50)])
    spread = (bounds.var() / 50 + fresh.var() / 50).sqrt()
    assert (bounds.mean() - fresh.mean()).abs() < 5 * spread
    assert (captured(x, 10 * y) - bounds.mean()).abs() > 100 * bounds.std()
