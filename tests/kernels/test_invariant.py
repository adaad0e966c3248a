"""InvariantKernel against loops, against the algebra of groups, and inside the models that it is made for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior

from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.orbits import FiniteOrbit, Flip, GaussianNoise, Identity, Permutation, Rotate90

CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
LOPSIDED = [[0, 1, 2], [1, 0, 2], [2, 1, 0]]  # not a group: the orbit of x_a is not the orbit of x


pytestmark = pytest.mark.usefixtures("double")


def rbf(lengthscale: list[float] | float = 0.8, variance: float = 1.7, **kwargs: Any) -> Any:
    kernel = ScaleKernel(RBFKernel(**kwargs))
    kernel.outputscale = variance
    kernel.base_kernel.lengthscale = lengthscale
    return kernel


def rbf_value(x: Any, y: Any, lengthscale: list[float] | float = 0.8, variance: float = 1.7) -> torch.Tensor:
    """The oracle's k_g, written out."""
    return variance * torch.exp(-0.5 * (((x - y) / torch.as_tensor(lengthscale)) ** 2).sum())


def brute_force(k_g: Callable[..., Any], elements: Any, x: torch.Tensor, y: Any) -> torch.Tensor:
    """The double mean of the paper, one pair at a time; ``elements`` lists the orbit of one input."""
    out = torch.empty(len(x), len(y))
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            terms = [k_g(ai, bj) for ai in elements(a) for bj in elements(b)]
            out[i, j] = sum(terms) / len(terms)
    return out


def permuted(permutations: list[list[int]]) -> Callable[..., Any]:
    return lambda a: [a[p] for p in permutations]


@pytest.mark.parametrize("permutations", [CYCLE, LOPSIDED])
@pytest.mark.parametrize("lengthscale", [0.8, [0.5, 1.0, 2.0]])
def test_equals_the_double_mean_of_loops(permutations: list[list[int]], lengthscale: list[float] | float) -> None:
    ard = None if isinstance(lengthscale, float) else 3
    kernel = InvariantKernel(rbf(torch.tensor(lengthscale), ard_num_dims=ard), Permutation(permutations))
    x, y = torch.randn(6, 3), torch.randn(4, 3)
    truth = brute_force(lambda a, b: rbf_value(a, b, lengthscale), permuted(permutations), x, y)
    torch.testing.assert_close(kernel(x, y).to_dense(), truth)
    gram = kernel(x).to_dense()
    square = brute_force(lambda a, b: rbf_value(a, b, lengthscale), permuted(permutations), x, x)
    torch.testing.assert_close(gram, square)
    assert torch.equal(gram, gram.mT)
    torch.testing.assert_close(kernel(x, diag=True), square.diagonal())
    torch.testing.assert_close(kernel(x).diagonal(), square.diagonal())
    torch.testing.assert_close(kernel(x[:4], y, diag=True), truth[:4].diagonal())
    assert torch.linalg.eigvalsh(gram).min() > -1e-12


def test_identity_is_the_base_kernel() -> None:
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    torch.testing.assert_close(InvariantKernel(rbf(), Identity())(x, y).to_dense(), rbf()(x, y).to_dense())


def test_mean_not_sum_keeps_the_variance_of_a_repeated_element() -> None:
    """An orbit that lists one element four times is no orbit at all: a mean says so, a sum would multiply by
    sixteen."""
    x = torch.randn(5, 2)
    kernel = InvariantKernel(rbf(), Permutation([[0, 1]] * 4))
    torch.testing.assert_close(kernel(x).to_dense(), rbf()(x).to_dense())


@pytest.mark.parametrize("permutations", [CYCLE, LOPSIDED])
def test_normalised_is_the_correlation_of_f(permutations: list[list[int]]) -> None:
    kernel = InvariantKernel(rbf(), Permutation(permutations), normalise=True)
    x, y = torch.randn(6, 3), torch.randn(4, 3)
    both = brute_force(rbf_value, permuted(permutations), torch.cat([x, y]), torch.cat([x, y]))
    truth = both / both.diagonal().sqrt().outer(both.diagonal().sqrt())
    torch.testing.assert_close(kernel(x, y).to_dense(), truth[:6, 6:])
    torch.testing.assert_close(kernel(x).to_dense(), truth[:6, :6])
    torch.testing.assert_close(kernel(x, diag=True), torch.ones(6))
    torch.testing.assert_close(kernel(x[:4], y, diag=True), truth[:4, 6:].diagonal())


def test_normalised_kernel_of_a_function_that_is_zero_has_no_nan() -> None:
    kernel = InvariantKernel(LinearKernel(), Permutation.swap(0, 1), normalise=True)
    gram = kernel(torch.tensor([[0.0, 0.0], [1.0, 2.0]])).to_dense()
    torch.testing.assert_close(gram, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))


def test_a_group_makes_f_strictly_invariant() -> None:
    x = torch.randn(5, 3)
    kernel = InvariantKernel(rbf(), Permutation(CYCLE))
    moved = torch.stack([row[CYCLE[i % 3]] for i, row in enumerate(x)])
    torch.testing.assert_close(kernel(x, moved).to_dense(), kernel(x).to_dense())
    lopsided = InvariantKernel(rbf(), Permutation(LOPSIDED))
    assert (lopsided(x, moved).to_dense() - lopsided(x).to_dense()).abs().max() > 1e-3


@pytest.mark.parametrize(("orbit", "size"), [(Flip(True, True), 4), (Rotate90(), 4), (Flip() * Rotate90(), 8)])
def test_images_by_their_shape(orbit: FiniteOrbit, size: int) -> None:
    x, y = torch.rand(3, 9), torch.rand(2, 9)

    def elements(a: Any) -> list[Any] | torch.Tensor:
        image = a.reshape(3, 3)
        turned = [image.rot90(k) for k in range(4)]
        flipped = [image, image.flip(1), image.flip(0), image.flip(0, 1)]
        chosen = (
            turned + [t.flip(1) for t in turned] if size == 8 else turned if isinstance(orbit, Rotate90) else flipped
        )
        return [c.flatten() for c in chosen]

    kernel = InvariantKernel(rbf(), orbit, image_shape=(3, 3))
    torch.testing.assert_close(kernel(x, y).to_dense(), brute_force(rbf_value, elements, x, y))


def test_batches_of_inputs_and_of_kernels() -> None:
    orbit = Permutation(LOPSIDED)
    x, y = torch.randn(2, 4, 5, 3), torch.randn(4, 6, 3)
    kernel = InvariantKernel(rbf(), orbit)
    out, diag = kernel(x, y).to_dense(), kernel(x, diag=True)
    assert out.shape == (2, 4, 5, 6)
    assert diag.shape == (2, 4, 5)
    for i in range(2):
        for j in range(4):
            torch.testing.assert_close(out[i, j], brute_force(rbf_value, permuted(LOPSIDED), x[i, j], y[j]))
            torch.testing.assert_close(
                diag[i, j], brute_force(rbf_value, permuted(LOPSIDED), x[i, j], x[i, j]).diagonal()
            )

    scales = torch.tensor([0.3, 0.6, 1.2, 2.4])
    batched = ScaleKernel(RBFKernel(batch_shape=torch.Size([4])), batch_shape=torch.Size([4]))
    batched.base_kernel.lengthscale = scales[:, None, None]
    batched.outputscale = torch.arange(1.0, 5.0)
    kernel = InvariantKernel(batched, orbit)
    assert kernel.batch_shape == (4,)
    flat = x[0, 0]  # one set of inputs, four kernels
    out, diag = kernel(flat).to_dense(), kernel(flat, diag=True)
    normalised = InvariantKernel(batched, orbit, normalise=True)(flat).to_dense()
    for j in range(4):
        truth = brute_force(lambda a, b, j=j: rbf_value(a, b, scales[j], j + 1.0), permuted(LOPSIDED), flat, flat)
        torch.testing.assert_close(out[j], truth)
        torch.testing.assert_close(diag[j], truth.diagonal())
        torch.testing.assert_close(normalised[j], truth / truth.diagonal().outer(truth.diagonal()).sqrt())
    # Indexing a lazily evaluated kernel indexes its parameters too.
    torch.testing.assert_close(kernel(flat)[1].to_dense(), out[1])
    torch.testing.assert_close(kernel(flat)[..., :2, 1:].to_dense(), out[:, :2, 1:])


def test_active_dims_of_the_base_kernel_act_after_the_orbit() -> None:
    x = torch.randn(5, 3)
    kernel = InvariantKernel(rbf(active_dims=(0, 2)), Permutation(CYCLE))
    truth = brute_force(lambda a, b: rbf_value(a[[0, 2]], b[[0, 2]]), permuted(CYCLE), x, x)
    torch.testing.assert_close(kernel(x).to_dense(), truth)
    torch.testing.assert_close(kernel(x, diag=True), truth.diagonal())


def test_active_dims_of_the_kernel_act_before_the_orbit() -> None:
    x = torch.randn(5, 4)
    kernel = InvariantKernel(rbf(), Permutation.swap(0, 1), active_dims=(3, 1))
    part = x[:, [3, 1]]
    truth = brute_force(rbf_value, permuted([[0, 1], [1, 0]]), part, part)
    torch.testing.assert_close(kernel(x).to_dense(), truth)
    torch.testing.assert_close(kernel(x).diagonal(), truth.diagonal())
    torch.testing.assert_close(ScaleKernel(kernel)(x).to_dense(), truth * torch.log(torch.tensor(2.0)))  # softplus(0)


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch argument is deprecated")
def test_last_dim_is_batch_makes_one_kernel_for_each_coordinate_of_the_elements() -> None:
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    kernel = InvariantKernel(rbf(), Permutation(CYCLE))
    out = kernel(x, y, last_dim_is_batch=True).to_dense()
    diag = kernel(x, diag=True, last_dim_is_batch=True)
    for d in range(3):
        pick = lambda a, d=d: a[d : d + 1]  # noqa: E731
        value = lambda a, b, pick=pick: rbf_value(pick(a), pick(b))  # noqa: E731
        torch.testing.assert_close(out[d], brute_force(value, permuted(CYCLE), x, y))
        torch.testing.assert_close(diag[d], brute_force(value, permuted(CYCLE), x, x).diagonal())


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_few_rows_at_a_time_changes_nothing(normalise: bool, batch: tuple[int, ...]) -> None:
    x = torch.randn(*batch, 7, 3)
    y = torch.randn(5, 3)
    results = []
    for max_entries in (2**25, 100, 1):
        inputs = x.clone().requires_grad_()
        kernel = InvariantKernel(rbf(), Permutation(LOPSIDED), normalise=normalise, max_entries=max_entries)
        out, diag = kernel(inputs, y).to_dense(), kernel(inputs, diag=True)
        ((out**2).sum() + (diag**3).sum()).backward()
        results.append((out, diag, inputs.grad, kernel.base_kernel.base_kernel.raw_lengthscale.grad))
    for chunked in results[1:]:
        torch.testing.assert_close(chunked, results[0])


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel, PeriodicKernel])
def test_gradients_in_inputs_and_hyperparameters(base: type[Kernel], normalise: bool) -> None:
    kernel = InvariantKernel(ScaleKernel(base()), Permutation(LOPSIDED), normalise=normalise)
    raw = kernel.base_kernel.base_kernel.raw_lengthscale
    x, y = torch.randn(4, 3).requires_grad_(), torch.randn(3, 3).requires_grad_()

    def matrices(x: Any, y: Any, lengthscale: list[float] | float) -> tuple[Any, Any]:
        parameters = {"base_kernel.base_kernel.raw_lengthscale": lengthscale}
        full = torch.func.functional_call(kernel, parameters, (x, y)).to_dense()
        diag = torch.func.functional_call(kernel, parameters, (x,), {"diag": True})
        return full, diag

    def evaluated(*args: Any) -> Any:
        with gpytorch.settings.lazily_evaluate_kernels(False):  # the substituted parameters are there for one call only
            return matrices(*args)

    assert torch.autograd.gradcheck(evaluated, (x, y, raw.detach().clone().requires_grad_()))


def test_equal_inputs_keep_their_own_gradients() -> None:
    kernel = InvariantKernel(rbf(), Permutation(LOPSIDED))
    x = torch.randn(4, 3).requires_grad_()
    y = x.detach().clone().requires_grad_()
    weights = torch.randn(4, 4)
    (kernel(x, y).to_dense() * weights).sum().backward()
    step = 1e-6 * torch.eye(4, 3)
    up, down = ((kernel(x, y + sign * step).to_dense() * weights).sum().item() for sign in (1, -1))
    assert (up - down) / 2 == pytest.approx((y.grad * step).sum().item(), rel=1e-6)


class Shift(FiniteOrbit):
    """x and x + shift, with a learned shift: a finite orbit that has a parameter."""

    size = 2

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float32))

    def elements(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x + self.shift], dim=1)


def test_parameters_of_the_orbit_are_parameters_of_the_kernel() -> None:
    kernel = InvariantKernel(rbf(), Shift())
    assert kernel.dtype == torch.float64  # though the shift is single
    x = torch.randn(4, 2)
    value = kernel(x).to_dense()
    torch.testing.assert_close(value, brute_force(rbf_value, lambda a: [a, a + kernel.orbit.shift], x, x).detach())
    value[0, 1].backward()
    assert kernel.orbit.shift.grad.abs() > 0
    assert "orbit.shift" in dict(kernel.named_parameters())


def test_composes_copies_pickles_and_keeps_priors() -> None:
    base = ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0)), outputscale_prior=GammaPrior(2.0, 0.15))
    kernel = InvariantKernel(base, Permutation.swap(0, 1))
    assert len(list(kernel.named_priors())) == 2
    assert not kernel.is_stationary
    x = torch.randn(5, 2)
    gram = kernel(x).to_dense()
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(twin(x).to_dense(), gram)
    combined = AdditiveKernel(kernel, LinearKernel()) * ScaleKernel(kernel)
    linear = LinearKernel()(x).to_dense()
    torch.testing.assert_close(combined(x).to_dense(), (gram + linear) * gram * torch.log(torch.tensor(2.0)))
    tasks = MultitaskKernel(kernel, num_tasks=2, rank=1)
    between = tasks.task_covar_module.covar_matrix.to_dense()
    torch.testing.assert_close(tasks(x).to_dense(), torch.kron(gram, between))


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x: Any, y: Any, kernel: Any) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.likelihood.noise = 0.05

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_exact_gp_matches_the_textbook() -> None:
    """Log marginal likelihood, posterior mean and covariance of section 2 of Rasmussen & Williams, with the loops'
    matrices."""
    x, y, new = torch.randn(12, 3), torch.randn(12), torch.randn(5, 3)
    model = Exact(x, y, InvariantKernel(rbf(), Permutation(LOPSIDED)))
    k_xx, k_nx, k_nn = (brute_force(rbf_value, permuted(LOPSIDED), a, b) for a, b in ((x, x), (new, x), (new, new)))
    noisy = k_xx + 0.05 * torch.eye(12)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    truth = torch.distributions.MultivariateNormal(torch.zeros(12), noisy).log_prob(y)
    assert 12 * mll(model(x), y).item() == pytest.approx(truth.item(), rel=1e-9)
    model.eval()
    posterior = model(new)
    torch.testing.assert_close(posterior.mean, k_nx @ torch.linalg.solve(noisy, y))
    torch.testing.assert_close(posterior.covariance_matrix, k_nn - k_nx @ torch.linalg.solve(noisy, k_nx.mT))
    torch.testing.assert_close(posterior.variance, posterior.covariance_matrix.diagonal())


def test_single_task_gp_of_botorch_posterior_gradients_and_batches() -> None:
    torch.manual_seed(3)
    x = torch.rand(15, 2)
    y = (torch.sin(3 * x[:, :1]) + torch.sin(3 * x[:, 1:])).repeat(1, 2) * torch.tensor([1.0, -2.0])
    model = SingleTaskGP(x, y[:, :1], covar_module=InvariantKernel(rbf(), Permutation.swap(0, 1)))
    loss = -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), model.train_targets)
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.covar_module.parameters())
    new = torch.rand(3, 4, 2).requires_grad_()  # three batches of four candidates
    posterior = model.posterior(new)
    mirrored = model.posterior(new.flip(-1))
    assert posterior.mean.shape == (3, 4, 1)
    torch.testing.assert_close(posterior.mean, mirrored.mean)
    torch.testing.assert_close(posterior.variance, mirrored.variance)
    (posterior.mean.sum() + posterior.variance.sum()).backward()
    assert torch.isfinite(new.grad).all()
    assert new.grad.abs().sum() > 0
    # Two outputs are a batch of two kernels.
    batch = torch.Size([2])
    kernel = InvariantKernel(ScaleKernel(RBFKernel(batch_shape=batch), batch_shape=batch), Permutation.swap(0, 1))
    both = SingleTaskGP(x, y, covar_module=kernel)
    assert both.posterior(new.detach()).mean.shape == (3, 4, 2)


def test_bad_input_is_one_clear_sentence() -> None:
    with pytest.raises(TypeError, match="enumerates a finite orbit, which GaussianNoise is not"):
        InvariantKernel(rbf(), GaussianNoise())
    with pytest.raises(TypeError, match="InvariantGPRegressor"):
        InvariantKernel(rbf(), Permutation.swap(0, 1, 2) * GaussianNoise())
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match="vectors of 2 coordinates"):
        InvariantKernel(rbf(), Permutation.swap(0, 1, 2))(x).to_dense()
    with pytest.raises(ValueError, match="set image_shape"):
        InvariantKernel(rbf(), Flip())(x).to_dense()
    with pytest.raises(ValueError, match="has 4 pixels, but the inputs have 3"):
        InvariantKernel(rbf(), Flip(), image_shape=(2, 2))(x).to_dense()
    with pytest.raises(ValueError, match="inside"):
        InvariantKernel(MultitaskKernel(rbf(), num_tasks=2), Permutation(CYCLE))(x).to_dense()
