"""What is fast only for large problems, at sizes where it is used: many chunks, long blocks, several panels of Kuu."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.covariance import Covariance, Stationary, covariance
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Pairing, Rotation, Samples
from tests.kernels.kuu import kuu

DIM = 4


KERNELS = {"rbf": RBFKernel, "matern": lambda: MaternKernel(nu=2.5)}


def make(name: str) -> Any:
    kernel = ScaleKernel(KERNELS[name]()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, 1.7
    return kernel


def values_and_gradients(
    module: Covariance | Stationary, xa: torch.Tensor, z: Any, pairing: Pairing
) -> tuple[Any, ...]:
    xa, z = xa.clone().requires_grad_(), z.clone().requires_grad_()
    kfu, kff = module.expectations(xa, z, pairing)
    weights = torch.linspace(-1, 1, kfu.numel(), dtype=torch.float64).view_as(kfu)
    loss = (kfu * weights).sum() + kff.square().sum()
    return (kfu, kff, *torch.autograd.grad(loss, [xa, z, *module.kernel.parameters()]))


# name: pairing, data, samples in a block, inducing points. A chunk has up to 1024 samples, a long block 2^15 kernel
# values.
MANY = {
    "a chunk for every datum": (Pairing.groups(2), 3, 600, 7),
    "equal chunks": (Pairing.groups(2), 200, 8, 7),
    "a last chunk that is smaller": (Pairing.groups(2), 129, 16, 7),
    "long blocks": (Pairing.groups(2), 30, 40, 900),
    "more groups": (Pairing.groups(3), 50, 10, 7),
    "enumeration": (Pairing.exact(), 70, 20, 7),
    "long blocks of an enumeration": (Pairing.exact(), 15, 80, 500),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("case", MANY)
def test_sums_in_chunks_equal_gpytorch_with_all_gradients(name: str, case: str) -> None:
    pairing, rows, size, inducing = MANY[case]
    kernel = make(name)
    xa = torch.randn(rows, pairing.blocks, size, DIM, dtype=torch.float64)
    z = torch.randn(inducing, DIM, dtype=torch.float64)
    fast = covariance(kernel)
    assert isinstance(fast, Stationary)
    truth = values_and_gradients(Covariance(kernel), xa, z, pairing)
    torch.testing.assert_close(values_and_gradients(fast, xa, z, pairing), truth, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dim", [3, 16, 20])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel])
@pytest.mark.parametrize(
    "pairing", [Pairing.groups(2), Pairing.groups(3), Pairing.exact()], ids=["two", "three", "all"]
)
def test_sums_in_single_precision_equal_gpytorch_in_double(pairing: Pairing, base: type[Kernel], dim: int) -> None:
    kernel = ScaleKernel(base()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, dim**0.5
    generator = torch.Generator().manual_seed(0)
    xa = torch.randn(6, pairing.blocks, 5, dim, generator=generator)
    z = torch.randn(9, dim, generator=generator)

    def found(module: Covariance, dtype: torch.dtype) -> tuple[Any, ...]:
        ends = (xa.to(dtype).requires_grad_(), z.to(dtype).requires_grad_())
        kfu, kff = module.expectations(*ends, pairing)
        weights = torch.linspace(-1, 1, kfu.numel(), dtype=dtype).view_as(kfu)
        loss = (kfu * weights).sum() + kff.square().sum()
        return kfu, kff, *torch.autograd.grad(loss, [*ends, *kernel.parameters()])

    for a, b in zip(found(covariance(kernel), torch.float32), found(Covariance(kernel), torch.float64), strict=True):
        assert (a.double() - b).norm() < 2e-6 * b.norm()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("case", MANY)
def test_sums_are_the_same_where_nothing_is_learned(name: str, case: str) -> None:
    pairing, rows, size, inducing = MANY[case]
    xa, z = torch.randn(rows, pairing.blocks, size, DIM), torch.randn(inducing, DIM)
    fast = covariance(make(name))
    learned = fast.expectations(xa, z, pairing)
    assert all(result.requires_grad for result in learned)
    with torch.no_grad():
        plain = fast.expectations(xa, z, pairing)
    torch.testing.assert_close(plain, tuple(result.detach() for result in learned), rtol=1e-6, atol=1e-6)
    assert not any(result.requires_grad for result in plain)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("name", KERNELS)
def test_kuu_in_panels_equals_gpytorch_with_all_gradients(name: str, size: int) -> None:
    kernel = make(name)
    z = torch.randn(size, DIM, dtype=torch.float64)
    weights = torch.randn(size, size, dtype=torch.float64)

    def found(module: Covariance) -> tuple[Any, ...]:
        ends = z.clone().requires_grad_()
        gram = kuu(module, ends)
        return (gram, *torch.autograd.grad((gram * weights).sum(), [ends, *kernel.parameters()]))

    torch.testing.assert_close(found(covariance(kernel)), found(Covariance(kernel)), rtol=1e-8, atol=1e-8)


def test_kuu_in_double_of_single_inducing_points() -> None:
    """The value has all digits of double precision, and the gradient those of the inducing points."""
    kernel = make("rbf")
    z = torch.randn(200, DIM).requires_grad_()
    gram = kuu(covariance(kernel), z.double())
    assert gram.dtype == torch.float64
    centred = (z.double() - z.mean(0)).detach()
    torch.testing.assert_close(gram, kuu(covariance(kernel), centred), rtol=1e-12, atol=1e-12)
    truth = z.detach().double().requires_grad_()
    weights = torch.randn(200, 200, dtype=torch.float64)
    single = torch.autograd.grad((gram * weights).sum(), [z, *kernel.parameters()])
    double = torch.autograd.grad((kuu(covariance(kernel), truth) * weights).sum(), [truth, *kernel.parameters()])
    assert single[0].dtype == torch.float32
    torch.testing.assert_close(single[0].double(), double[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(single[1:], double[1:], rtol=1e-5, atol=1e-5)


ERRORS = [(torch.float64, 1e-12, 1e-9), (torch.float32, 1e-6, 1e-4)]


def bound_and_gradients(dtype: torch.dtype, fast: bool, kernel: str) -> tuple[int | float, dict[str, torch.Tensor]]:
    """The bound of a small problem and the gradient of everything that is learned, on the same draws."""
    generator = torch.Generator().manual_seed(0)
    x, inducing = (torch.rand(n, 10, 10, generator=generator, dtype=torch.float64) for n in (40, 60))
    y = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    draws = torch.rand(40, 24, 1, generator=generator, dtype=torch.float64)
    model = InvariantGP(make(kernel), Rotation(40), inducing.to(dtype), num_latents=3)
    model.kernel.base_kernel.lengthscale = 3.0
    model = model.double() if dtype == torch.float64 else model
    if not fast:
        model.covariance = Covariance(model.kernel)
    with torch.no_grad():
        model.q_mean.normal_(generator=generator)
        model.q_sqrt.mul_(0.5)
    likelihood = Gaussian(3, noise=0.05)
    points = model.orbit.transform(x.to(dtype), draws.to(dtype)).unflatten(1, (2, 12))
    bound = elbo(model, likelihood, Samples(points, Pairing.groups(2)), y, num_data=40)
    named = {n: p for m in (model, likelihood) for n, p in m.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(bound, list(named.values()))
    return bound.item(), dict(zip(named, (g.double() for g in gradients), strict=True))


@pytest.mark.parametrize(("dtype", "bound_error", "gradient_error"), ERRORS)
@pytest.mark.parametrize("name", KERNELS)
def test_bound_and_gradients_against_plain_double_precision(
    name: str, dtype: torch.dtype, bound_error: float, gradient_error: float
) -> None:
    """Relative errors of everything together: interpolation, sums, Kuu, whitening and its gradient in the dtype of the
    data."""
    bound, gradients = bound_and_gradients(dtype, True, name)
    truth, references = bound_and_gradients(torch.float64, False, name)
    assert abs(bound - truth) < bound_error * abs(truth)
    for parameter, reference in references.items():
        error = float((gradients[parameter] - reference).norm() / reference.norm())
        assert error < gradient_error, (parameter, error)
