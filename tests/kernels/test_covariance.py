"""The kernel layer against written-out formulas, loops, GPyTorch's own evaluation and finite differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior, LogNormalPrior

from orbitgp.inference import orbit_gram
from orbitgp.kernels.covariance import Covariance, Stationary, covariance
from orbitgp.orbits import Pairing
from tests.kernels.kuu import kuu

DIM = 3
# name: (pairing, blocks, samples in a block)
PAIRINGS = {
    "all pairs": (Pairing.groups(4), 4, 1),
    "two groups": (Pairing.groups(2), 2, 3),
    "two groups of one": (Pairing.groups(2), 2, 1),
    "three groups": (Pairing.groups(3), 3, 2),
    "without replacement": (Pairing.without_replacement(3, 5), 3, 1),
    "two without replacement": (Pairing.without_replacement(2, 5), 2, 1),
    "exact": (Pairing.exact(), 1, 4),
    "one element": (Pairing.exact(), 1, 1),
}
SHAPES = {"rbf": None, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def make(shape: str, ard: bool, scaled: bool) -> Any:
    nu = SHAPES[shape]
    dims = DIM if ard else None
    base = RBFKernel(ard_num_dims=dims) if nu is None else MaternKernel(nu=nu, ard_num_dims=dims)
    base.lengthscale = torch.tensor([[0.7, 1.1, 1.9]]) if ard else 0.9
    if not scaled:
        return base.double()
    kernel = ScaleKernel(base)
    kernel.outputscale = 1.7
    return kernel.double()


def written_out(kernel: Any, shape: str, a: torch.Tensor, b: Any) -> Any:
    """k_g between rows of a and of b from its formula, by differences: no cancellation, and no gradient at distance
    zero."""
    nu = SHAPES[shape]
    base, variance = (kernel.base_kernel, kernel.outputscale) if isinstance(kernel, ScaleKernel) else (kernel, 1.0)
    d2 = ((a[..., :, None, :] - b[..., None, :, :]) / base.lengthscale[0]).square().sum(-1)
    if nu is None:
        return variance * torch.exp(-0.5 * d2)
    r = math.sqrt(2 * nu) * torch.where(d2 > 0, d2, 1.0).sqrt() * (d2 > 0)
    polynomial = {0.5: 1.0, 1.5: 1 + r, 2.5: 1 + r + r.square() / 3}[nu]
    return variance * polynomial * torch.exp(-r)


def pair_weights(pairing: Pairing, blocks: int, size: int) -> torch.Tensor:
    """The weight of each pair of samples, straight from the words of Pairing."""
    weights = torch.zeros(blocks * size, blocks * size, dtype=torch.float64)
    for i, j in itertools.product(range(blocks * size), repeat=2):
        weights[i, j] = (pairing.diag if i // size == j // size else pairing.off) / size**2
    return weights


def oracle_sums(evaluate: Callable[..., Any], xa: Any, z: Any, pairing: Any) -> tuple[Any, torch.Tensor]:
    """Kfu and kff by the definition, with ``evaluate(a, b)`` for the kernel."""
    rows, blocks, size, dim = xa.shape
    kfu = evaluate(xa.reshape(-1, dim), z).reshape(rows, blocks, size, -1).mean(2)
    weights = pair_weights(pairing, blocks, size)
    kff = torch.stack([(evaluate(x.reshape(-1, dim), x.reshape(-1, dim)) * weights).sum() for x in xa])
    return kfu, kff


def inputs(name: str, rows: int = 3, inducing: int = 5, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    _, blocks, size = PAIRINGS[name]
    xa = torch.randn(rows, blocks, size, DIM, dtype=torch.float64) + offset
    z = torch.randn(inducing, DIM, dtype=torch.float64) + offset
    return xa.requires_grad_(), z.requires_grad_()


def values_and_gradients(
    evaluate: Callable[..., Any], kernel: Any, xa: Any, z: Any
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """Kfu, kff, Kuu and the gradients of a random combination of all their entries in everything."""
    outputs = evaluate(xa, z)
    generator = torch.Generator().manual_seed(5)
    loss = sum((torch.randn(o.shape, generator=generator, dtype=torch.float64) * o).sum() for o in outputs)
    return outputs, torch.autograd.grad(loss, [xa, z, *kernel.parameters()])


EVERY = pytest.mark.parametrize("pairing", PAIRINGS)
KERNELS = [(shape, *has) for shape in SHAPES for has in ((False, True), (True, False))]
SOME_KERNELS = [("rbf", False, True), ("matern12", True, False)]  # with all pairings; all kernels are with some
SOME_PAIRINGS = ["three groups", "exact"]


@pytest.mark.parametrize(
    ("shape", "ard", "scaled", "pairing"),
    [(*k, p) for k in KERNELS for p in PAIRINGS if k in SOME_KERNELS or p in SOME_PAIRINGS],
)
def test_fast_path_equals_the_formula_and_gpytorch_with_all_gradients(
    shape: str, ard: bool, scaled: bool, pairing: str
) -> None:
    kernel = make(shape, ard, scaled)
    rule = PAIRINGS[pairing][0]
    xa, z = inputs(pairing)
    fast, generic = covariance(kernel), Covariance(kernel)
    assert isinstance(fast, Stationary)

    def through(module: Covariance) -> Any:
        return values_and_gradients(lambda xa, z: (*module.expectations(xa, z, rule), kuu(module, z)), kernel, xa, z)

    def formula(a: Any, b: Any) -> Any:
        return written_out(kernel, shape, a, b)

    truth = values_and_gradients(lambda xa, z: (*oracle_sums(formula, xa, z, rule), formula(z, z)), kernel, xa, z)
    torch.testing.assert_close(through(fast), truth, rtol=1e-9, atol=1e-10)
    # GPyTorch takes the root of a rounding error at distance zero, so that its Matern has an error of 1e-8 there.
    torch.testing.assert_close(through(generic), truth, rtol=1e-6, atol=1e-6 if shape == "matern12" else 1e-9)


@pytest.mark.parametrize(
    ("shape", "pairing"), [(s, p) for s in SHAPES for p in PAIRINGS if s == "rbf" or p in SOME_PAIRINGS]
)
def test_gradcheck_of_sums(shape: str, pairing: str) -> None:
    kernel = make(shape, False, True)
    rule = PAIRINGS[pairing][0]
    xa, z = inputs(pairing, rows=2, inducing=3)
    module = covariance(kernel)
    raw = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}

    def sums(xa: Any, z: Any, *values: Any) -> Any:
        class Call(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.owner = module

            def forward(self, xa: Any, z: Any) -> Any:
                return self.owner.expectations(xa, z, rule)

        return torch.func.functional_call(Call(), {f"owner.{n}": v for n, v in zip(raw, values, strict=True)}, (xa, z))

    assert torch.autograd.gradcheck(sums, (xa, z, *raw.values()), fast_mode=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ard", [False, True])
def test_gradcheck_of_gram(shape: str, ard: bool) -> None:
    module = covariance(make(shape, ard, True))
    z = torch.randn(4, DIM, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: kuu(module, z), (z,))


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("pairing", ["two groups", "three groups", "exact"])
def test_a_gradient_does_not_depend_on_which_others_are_wanted(pairing: str, needed: tuple[bool, bool, bool]) -> None:
    """The backward pass takes shortcuts where inputs, inducing points or hyperparameters are fixed."""
    if not any(needed):
        return
    rule = PAIRINGS[pairing][0]
    kernel = make("rbf", False, True)
    xa, z = inputs(pairing)

    def gradients(wanted: tuple[bool, bool, bool]) -> list[Any]:
        ends = (xa.detach().requires_grad_(wanted[0]), z.detach().requires_grad_(wanted[1]))
        kernel.requires_grad_(wanted[2])
        kfu, kff = covariance(kernel).expectations(*ends, rule)
        loss = (kfu * torch.arange(1.0, 1 + kfu.numel()).reshape(kfu.shape)).sum() + kff.square().sum()
        tensors = [*ends, *kernel.parameters()]
        kept = [t for t in tensors if t.requires_grad]
        found = iter(torch.autograd.grad(loss, kept))
        return [next(found) if t.requires_grad else None for t in tensors]

    full = gradients((True, True, True))
    for part, whole in zip(gradients(needed), full, strict=True):
        if part is not None:
            torch.testing.assert_close(part, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("pairing", ["two groups", "three groups", "exact"])
@pytest.mark.parametrize("shape", ["rbf", "matern32"])
def test_many_data_are_done_in_pieces_that_fit_together(shape: str, pairing: str) -> None:
    """More samples than one piece holds, and a number of data that is no multiple of a piece."""
    kernel = make(shape, True, True)
    rule = PAIRINGS[pairing][0]
    xa, z = inputs(pairing, rows=607)

    def formula(a: Any, b: Any) -> Any:
        return written_out(kernel, shape, a, b)

    def oracle(xa: Any, z: Any) -> tuple[Any, Any]:
        weights = pair_weights(*PAIRINGS[pairing])
        flat = xa.flatten(1, 2)
        kfu = formula(flat, z).reshape(*xa.shape[:3], -1).mean(2)
        return kfu, (formula(flat, flat) * weights).sum((1, 2))

    truth = values_and_gradients(oracle, kernel, xa, z)
    found = values_and_gradients(lambda xa, z: covariance(kernel).expectations(xa, z, rule), kernel, xa, z)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(covariance(kernel).expectations(xa, z, rule), truth[0], rtol=1e-9, atol=1e-9)


def test_only_one_of_the_two_results_in_the_loss() -> None:
    xa, z = inputs("two groups")
    kernel = make("matern32", False, True)
    rule = PAIRINGS["two groups"][0]

    def formula(a: Any, b: Any) -> Any:
        return written_out(kernel, "matern32", a, b)

    for which in (0, 1):
        mine = torch.autograd.grad(
            covariance(kernel).expectations(xa, z, rule)[which].sum(), [xa, *kernel.parameters()]
        )
        truth = torch.autograd.grad(oracle_sums(formula, xa, z, rule)[which].sum(), [xa, *kernel.parameters()])
        torch.testing.assert_close(mine, truth, rtol=1e-9, atol=1e-11)


def test_second_derivatives_are_refused_not_wrong() -> None:
    xa, z = inputs("exact")
    kfu, _ = covariance(make("rbf", False, True)).expectations(xa, z, Pairing.exact())
    (gradient,) = torch.autograd.grad(kfu.square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("shape", SHAPES)
def test_gram_is_symmetric_with_the_variance_on_its_diagonal(shape: str) -> None:
    z = torch.randn(6, DIM, dtype=torch.float64) + 1000
    kernel = make(shape, False, True)
    gram = kuu(covariance(kernel), z).detach()
    torch.testing.assert_close(gram, gram.mT, rtol=1e-14, atol=0)
    assert torch.equal(gram.diagonal(), kernel.outputscale.detach().expand(6))
    assert torch.linalg.eigvalsh(gram).min() > 0


@pytest.mark.parametrize("module", [covariance, Covariance])
def test_cross_is_the_mean_over_all_pairs_of_samples(module: Callable[..., Any] | type[Covariance]) -> None:
    xa, xb = torch.randn(3, 4, DIM, dtype=torch.float64), torch.randn(2, 4, DIM, dtype=torch.float64)
    kernel = make("matern52", True, True)
    truth = torch.stack([torch.stack([written_out(kernel, "matern52", a, b).mean() for b in xb]) for a in xa])
    torch.testing.assert_close(module(kernel).cross(xa, xb), truth)


# Single precision


@torch.no_grad()
def error_in_float32(shape: str, name: str, offset: float, ard: bool = False) -> Any:
    """The largest error of Kfu and kff in float32, relative to the variance; the inputs themselves are the same
    numbers."""
    kernel = make(shape, ard, False)
    kernel.lengthscale = torch.tensor([1.5, 1.9, 2.7]) if ard else 2.0
    rule = PAIRINGS[name][0]
    xa, z = inputs(name, rows=20, inducing=20, offset=offset)
    xa, z = xa.detach().float(), z.detach().float()
    single = covariance(kernel).expectations(xa, z, rule)
    assert all(s.dtype == torch.float32 for s in single)
    truth = oracle_sums(lambda a, b: written_out(kernel, shape, a, b), xa.double(), z.double(), rule)
    return max((s - t).abs().max().item() for s, t in zip(single, truth, strict=True))


@EVERY
@pytest.mark.parametrize("shape", ["rbf", "matern32", "matern52"])
def test_single_precision_is_good_to_six_digits_far_from_the_origin(shape: str, pairing: str) -> None:
    assert error_in_float32(shape, pairing, 1000.0) < 1e-6
    assert error_in_float32(shape, pairing, 1000.0, ard=True) < 1e-6


@pytest.mark.parametrize("pairing", ["exact", "one element", "without replacement"])
def test_a_sample_with_itself_has_the_full_variance_even_where_the_kernel_has_a_kink(pairing: str) -> None:
    """Matern 1/2 turns a rounding error e of the squared distance into sqrt(e): 1e-3 in float32."""
    kernel = make("matern12", False, False)
    _, blocks, size = PAIRINGS[pairing]
    x = 10 * torch.randn(20, 1, 1, DIM).expand(-1, blocks, size, -1)
    if pairing == "one element":
        kff = covariance(kernel).expectations(x, x[:4, 0, 0], PAIRINGS[pairing][0])[1]
        assert torch.equal(kff, torch.ones(20))
    xa = torch.randn(20, blocks, size, DIM)
    kff = covariance(kernel).expectations(xa, xa[:4, 0, 0], PAIRINGS[pairing][0])[1]
    truth = oracle_sums(
        lambda a, b: written_out(kernel, "matern12", a, b), xa.double(), xa[:4, 0, 0].double(), PAIRINGS[pairing][0]
    )[1]
    torch.testing.assert_close(kff.double(), truth, rtol=0, atol=3e-6)


def test_gradients_of_the_kinked_kernel_in_single_precision() -> None:
    kernel = make("matern12", False, False)
    xa = torch.randn(10, 1, 4, DIM).requires_grad_()
    z = torch.randn(4, DIM)
    grad = torch.autograd.grad(covariance(kernel).expectations(xa, z, Pairing.exact())[1].sum(), xa)[0]
    double = xa.detach().double().requires_grad_()
    kff = oracle_sums(lambda a, b: written_out(kernel, "matern12", a, b), double, z.double(), Pairing.exact())[1]
    torch.testing.assert_close(grad.double(), torch.autograd.grad(kff.sum(), double)[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("module", [covariance, Covariance])
@pytest.mark.parametrize("shape", ["rbf", "matern52"])
def test_single_samples_with_double_hyperparameters(module: Callable[..., Any] | type[Covariance], shape: str) -> None:
    """The samples decide the precision of the products; hyperparameters stay double, and so do their gradients."""
    kernel = make(shape, True, True)
    xa, z = inputs("two groups")
    results = {}
    for dtype in (torch.float64, torch.float32):
        x, inducing = xa.detach().to(dtype).requires_grad_(), z.detach().to(dtype).requires_grad_()
        kfu, kff = module(kernel).expectations(x, inducing, Pairing.groups(2))
        gram = kuu(module(kernel), inducing)
        assert kfu.dtype == kff.dtype == gram.dtype == dtype
        loss = kfu.square().sum() + kff.sum() + gram.square().sum()
        gradients = torch.autograd.grad(loss, [x, inducing, *kernel.parameters()])
        assert all(g.dtype == torch.float64 for g in gradients[2:])
        results[dtype] = [t.double() for t in (kfu, kff, gram, *gradients)]
    torch.testing.assert_close(results[torch.float32], results[torch.float64], rtol=1e-4, atol=1e-5)
    assert all(p.dtype == torch.float64 for p in kernel.parameters())


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("shape", ["rbf", "matern32"])
def test_double_kuu_of_single_points(shape: str, ard: bool, offset: float) -> None:
    """Kuu is factored, so it has all the digits that the points have; gradients come back in the dtype of the
    points."""
    kernel = make(shape, ard, True)
    z = (torch.randn(30, DIM) + offset).requires_grad_()
    double = z.detach().double().requires_grad_()
    weights = torch.randn(30, 30, dtype=torch.float64)
    truth = written_out(kernel, shape, double, double)
    gradients = torch.autograd.grad((truth * weights).sum(), [double, *kernel.parameters()])
    for module in (covariance, Covariance):
        gram = kuu(module(kernel), z.double())
        assert gram.dtype == torch.float64
        torch.testing.assert_close(gram, truth, rtol=0, atol=1e-6)
        assert torch.linalg.eigvalsh(gram.detach()).min() > -1e-13
        found = torch.autograd.grad((gram * weights).sum(), [z, *kernel.parameters()])
        assert found[0].dtype == torch.float32
        torch.testing.assert_close(found[0].double(), gradients[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found[1:], gradients[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "ard", "scaled", "tile", "kept"),
    [(*k, t, kept) for k in KERNELS for t in (1, 2, 9) for kept in (False, True, None) if k in SOME_KERNELS or t == 2],
)
def test_kuu_of_sets_is_the_mean_over_pairs_with_all_gradients(
    shape: str, ard: bool, scaled: bool, tile: int, kept: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are computed at a time, and whether its values are kept for the gradient or computed again.

    Or, None, whether they never leave the cache.
    """
    if kept is not None:
        monkeypatch.setattr(Stationary, "sums_in_cache", Covariance.sums_in_cache)
    monkeypatch.setattr(orbit_gram, "chunk_elements", lambda device: tile * 5 * 3 * 3)
    monkeypatch.setattr(orbit_gram, "_KEPT_CHUNKS", math.inf if kept else 0)
    kernel = make(shape, ard, scaled)
    z = torch.randn(5, 3, DIM, dtype=torch.float64).requires_grad_()
    weights = torch.randn(5, 5, dtype=torch.float64)
    written = written_out(kernel, shape, z.flatten(0, 1), z.flatten(0, 1)).view(5, 3, 5, 3).mean((1, 3))
    truth = torch.autograd.grad((written * weights).sum(), [z, *kernel.parameters()])
    for module, tolerance in ((covariance(kernel), 1e-9), (Covariance(kernel), 1e-6)):
        gram = kuu(module, z)
        torch.testing.assert_close(gram, written, rtol=tolerance, atol=tolerance)
        found = torch.autograd.grad((gram * weights).sum(), [z, *kernel.parameters()])
        torch.testing.assert_close(found, truth, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", ["rbf", "matern32"])
def test_double_kuu_of_sets_of_single_points(shape: str) -> None:
    kernel = make(shape, False, True)
    z = (torch.randn(30, 4, DIM) + 100).requires_grad_()
    double = z.detach().double().requires_grad_()
    weights = torch.randn(30, 30, dtype=torch.float64)
    truth, gram = kuu(covariance(kernel), double), kuu(covariance(kernel), z.double())
    torch.testing.assert_close(
        gram, truth, rtol=0, atol=1e-4
    )  # of points that far out, single precision keeps five digits
    assert torch.linalg.eigvalsh(gram.detach()).min() > -1e-13
    gradients = torch.autograd.grad((truth * weights).sum(), [double, *kernel.parameters()])
    found = torch.autograd.grad((gram * weights).sum(), [z, *kernel.parameters()])
    torch.testing.assert_close(found[0].double(), gradients[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[1:], gradients[1:], rtol=1e-4, atol=1e-4)


# Kernels of the user


class Wiggly(RBFKernel):
    """A user's own kernel that inherits from one with a fast path: its own forward must be the one that counts."""

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> Any:
        return torch.cos(x1[..., :1] - x2[..., :1].mT) * super().forward(x1, x2, diag=False, **params)


def shared_twice() -> Any:
    part = RQKernel()
    return AdditiveKernel(part, ProductKernel(part, RBFKernel()))


USER = {
    "rational quadratic": lambda: ScaleKernel(RQKernel()),
    "periodic": lambda: ScaleKernel(PeriodicKernel()),
    "linear": lambda: LinearKernel(),
    "polynomial": lambda: PolynomialKernel(power=2),
    "additive": lambda: AdditiveKernel(ScaleKernel(RBFKernel()), LinearKernel()),
    "product": lambda: ScaleKernel(ProductKernel(RBFKernel(active_dims=(0, 1)), PeriodicKernel(active_dims=(2,)))),
    "active dims": lambda: ScaleKernel(RBFKernel(active_dims=(0, 2))),
    "active dims outside": lambda: ScaleKernel(RBFKernel(), active_dims=(1,)),
    "twice scaled": lambda: ScaleKernel(ScaleKernel(RBFKernel())),
    "prior and constraint": lambda: ScaleKernel(
        RQKernel(lengthscale_prior=GammaPrior(3.0, 6.0), lengthscale_constraint=Interval(0.1, 5.0)),
        outputscale_prior=LogNormalPrior(0.0, 1.0),
        outputscale_constraint=GreaterThan(0.01),
    ),
    "one part used twice": shared_twice,
    "subclass": Wiggly,
}


@pytest.mark.parametrize("name", USER)
@pytest.mark.parametrize("pairing", ["two groups of one", "exact"])
def test_kernels_of_the_user_equal_loops_with_gradients_to_their_hyperparameters(name: str, pairing: str) -> None:
    kernel = USER[name]().double()
    module = covariance(kernel)
    assert not isinstance(module, Stationary)
    xa, z = inputs(pairing, rows=2, inducing=3)
    rule = PAIRINGS[pairing][0]

    def one_by_one(a: Any, b: Any) -> torch.Tensor:
        with gpytorch.settings.lazily_evaluate_kernels(False):
            return torch.stack([torch.cat([kernel(p[None], q[None]).to_dense()[0] for q in b]) for p in a])

    def mine(xa: Any, z: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (*module.expectations(xa, z, rule), kuu(module, z))

    def loops(xa: Any, z: Any) -> tuple[Any, ...]:
        return (*oracle_sums(one_by_one, xa, z, rule), one_by_one(z, z))

    found, truth = (values_and_gradients(f, kernel, xa, z) for f in (mine, loops))
    torch.testing.assert_close(found, truth, rtol=1e-7, atol=1e-8)
    assert any(g.abs().max() > 0 for g in found[1][2:])


@pytest.mark.parametrize("name", ["additive", "product", "prior and constraint", "one part used twice"])
def test_kernels_of_the_user_in_single_precision(name: str) -> None:
    kernel = USER[name]().double()
    xa, z = inputs("two groups")
    single = covariance(kernel).expectations(xa.detach().float(), z.detach().float(), Pairing.groups(2))
    double = covariance(kernel).expectations(xa, z, Pairing.groups(2))
    for s, d in zip(single, double, strict=True):
        assert s.dtype == torch.float32
        torch.testing.assert_close(s.double(), d, rtol=1e-4, atol=1e-5)


def test_which_kernels_are_fast() -> None:
    fast = [RBFKernel(), MaternKernel(0.5), ScaleKernel(RBFKernel(ard_num_dims=3)), ScaleKernel(MaternKernel(2.5))]
    batch = torch.Size([2])
    slow = [ScaleKernel(RBFKernel(batch_shape=batch), batch_shape=batch), *(maker() for maker in USER.values())]
    assert all(isinstance(covariance(k), Stationary) for k in fast)
    assert not any(isinstance(covariance(k), Stationary) for k in slow)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_many_lengthscales_apart_do_not_cancel(shape: str, dtype: torch.dtype) -> None:
    """Close pairs far from each other: distances from products are all rounding there, and gave infinite
    covariances."""
    kernel = make(shape, ard=False, scaled=True)
    far = 1e9 if dtype == torch.float64 else 1e4
    z = torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [far, 1.0, 0], [far, 0.0, 0]], dtype=dtype)
    x = z.clone().requires_grad_()
    k = covariance(kernel)
    expected = written_out(kernel, shape, z.double(), z.double())
    torch.testing.assert_close(kuu(k, z.double()), expected, rtol=1e-6, atol=1e-6)
    kfu, kff = k.expectations(x[:, None, None], z, Pairing.exact())
    torch.testing.assert_close(kfu[:, 0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kff.double(), expected.diagonal(), rtol=1e-6, atol=1e-6)
    kfu.sum().backward()
    assert x.grad.isfinite().all()


def test_a_lengthscale_that_has_run_away_is_no_error() -> None:
    """Above 1e154 its square is infinite: then all points are alike."""
    kernel = make("rbf", False, True)
    kernel.base_kernel.lengthscale = 1e160
    xa = torch.randn(5, 1, 4, DIM, dtype=torch.float64)
    kfu, kff = covariance(kernel).expectations(xa, xa[:3, 0, 0], Pairing.exact())
    for found in (kfu, kff, kuu(covariance(kernel), xa[:3, 0, 0])):
        torch.testing.assert_close(found, torch.full_like(found, 1.7))


@pytest.mark.parametrize(("dtype", "lengthscale"), [(torch.float32, 1e25), (torch.float64, 1e170)])
def test_a_lengthscale_whose_inverse_square_underflows_has_a_gradient_of_zero(
    dtype: torch.dtype, lengthscale: float
) -> None:
    kernel = make("rbf", False, True).double()
    kernel.base_kernel.raw_lengthscale.data.fill_(lengthscale)
    xa = torch.randn(5, 1, 4, DIM, dtype=dtype)
    kfu, kff = covariance(kernel).expectations(xa, xa[:3, 0, 0], Pairing.exact())
    (kfu.sum() + kff.sum() + kuu(covariance(kernel), xa[:3, 0, 0]).sum()).backward()
    # d/dl exp(-1/2 d^2 / l^2) = d^2 / l^3 exp(...): nothing, in any precision
    assert kernel.base_kernel.raw_lengthscale.grad.abs().max() < 1e-70
