"""What the fast paths in float32 lose: relative errors of the bound and of all gradients against plain float64.

The reference is the same model with GPyTorch's own evaluation of the kernel and automatic differentiation, in float64,
on the same draws. q(u) is the best one for these data, where gradients are small and errors show.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Tensor

from benchmarks.problem import LENGTHSCALE, NUM_DATA, Orbitgp, Problem, Shape, kernel, problem
from orbitgp.inference.elbo import elbo
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.kernels.covariance import Covariance
from orbitgp.orbits import Pairing, Samples


def matern() -> Kernel:
    k = ScaleKernel(MaternKernel(nu=2.5))
    k.base_kernel.lengthscale = LENGTHSCALE
    return k


KERNELS = {"RBF": kernel, "Matérn 5/2": matern}


def accuracy(shape: Shape, device: torch.device) -> dict[str, dict[str, float]]:
    """Relative errors by kernel and by what they are errors of."""
    return {name: _errors(shape, problem(shape, device), make) for name, make in KERNELS.items()}


def _errors(shape: Shape, data: Problem, make: object) -> dict[str, float]:
    assert callable(make)
    fast = Orbitgp(shape, data, make())
    draws = torch.rand(2, shape.rows, shape.samples, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    first, second = draws.to(data.x)
    with torch.no_grad():
        means = fast.model.whitened_means(_samples(fast, data.x, first))
        set_posterior(fast.model, statistics(fast.model, means, fast.likelihood.quadratic(data.y), NUM_DATA))
    q = fast.model.q_mean.detach(), fast.model.q_sqrt.detach()
    slow = Orbitgp(shape, Problem(data.x.double(), data.y, data.inducing.double(), *q), make())
    slow.model.double()
    slow.model.covariance = Covariance(slow.model.kernel)
    bound, gradients = _bound_and_gradients(fast, _samples(fast, data.x, second), data.y)
    truth, references = _bound_and_gradients(slow, _samples(slow, data.x.double(), second.double()), data.y)
    errors = {name: float((gradients[name] - g).norm() / g.norm()) for name, g in references.items()}
    return {"bound": abs(bound - truth) / abs(truth), **errors}


def _samples(contestant: Orbitgp, x: Tensor, u: Tensor) -> Samples:
    xa = contestant.model.orbit.transform(x, u)
    return Samples(xa.reshape(len(x), 2, -1, *x.shape[1:]), Pairing.groups(2))


def _bound_and_gradients(contestant: Orbitgp, samples: Samples, y: Tensor) -> tuple[float, dict[str, Tensor]]:
    model, likelihood = contestant.model, contestant.likelihood
    named = [(n, p) for m in (model, likelihood) for n, p in m.named_parameters() if p.requires_grad]
    bound = elbo(model, likelihood, samples, y, NUM_DATA)
    gradients = torch.autograd.grad(bound, [p for _, p in named])
    return bound.item(), {n.rsplit(".", 1)[-1]: g.double() for (n, _), g in zip(named, gradients, strict=True)}
