"""The bound against GPyTorch's, against the collapsed bound, against exact log marginal likelihoods, and its
gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel

from experiments.stick_breaking import StickBreaking
from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation

LENGTHSCALE, VARIANCE, NOISE = 0.9, 1.4, 0.05
CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


pytestmark = pytest.mark.usefixtures("double")


def make_kernel(base: type[Kernel] = RBFKernel, **kwargs: Any) -> Any:
    kernel = ScaleKernel(base(**kwargs))
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    return kernel


def randomise(model: InvariantGP) -> Any:
    with torch.no_grad():
        model.q_mean.normal_()
        model.q_sqrt.copy_((0.3 * torch.randn_like(model.q_sqrt)).tril(-1) + 0.5 * torch.eye(len(model.inducing)))
        model.prior_mean.bias.normal_()
    return model


def optimal(model: InvariantGP, likelihood: Likelihood, x: torch.Tensor, y: torch.Tensor) -> Any:
    """q(u) at its best, from exact statistics; the bound there."""
    samples = model.orbit.sample(x, None)
    stats = statistics(model, model.whitened_means(samples), likelihood.quadratic(y, None), len(x))
    assert set_posterior(model, stats) == 0.0
    return elbo(model, likelihood, samples, y, len(x)).item()


def rbf(a: torch.Tensor, b: torch.Tensor) -> Any:
    return VARIANCE * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / LENGTHSCALE**2)


def orbit_means(x: torch.Tensor, z: torch.Tensor, permutations: list[list[int] | tuple[int, int, int]]) -> Any:
    """k_fu (N, M) and k_ff (N, N) of a set of permutations, one pair of elements at a time."""
    elements = [x[:, list(p)] for p in permutations]
    kfu = sum(rbf(e, z) for e in elements) / len(elements)
    kff = sum(rbf(a, b) for a in elements for b in elements) / len(elements) ** 2
    return kfu, kff


def log_normal(y: torch.Tensor, covariance: torch.Tensor) -> Any:
    """log N(y; 0, covariance), summed over the columns of y."""
    law = torch.distributions.MultivariateNormal(torch.zeros(len(y)), covariance)
    return sum(law.log_prob(column) for column in y.mT).item()


# No orbit: GPyTorch's SVGP


class SVGP(gpytorch.models.ApproximateGP):
    """GPyTorch's own stochastic variational GP, whitened; a batch of them for several outputs."""

    def __init__(self, inducing: torch.Tensor, kernel: ScaleKernel, outputs: int | None = None) -> None:
        batch = torch.Size([] if outputs is None else [outputs])
        q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing), batch_shape=batch)
        strategy = gpytorch.variational.VariationalStrategy(self, inducing, q, jitter_val=1e-10)
        strategy.variational_params_initialized.fill_(1)
        if outputs is not None:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=outputs)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        self.covar_module = kernel
        self.q = q

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel])
def test_without_an_orbit_it_is_gpytorchs_bound_and_gradient(outputs: int | None, base: type[Kernel]) -> None:
    count, latents = 40, outputs or 1
    x, y = torch.randn(count, 2), torch.randn(count, latents)
    z = torch.randn(7, 2)
    mine = randomise(InvariantGP(make_kernel(base), Identity(), z, latents, "constant", outputs is None, jitter=1e-10))
    likelihood = Gaussian(latents, noise=NOISE, min_noise=1e-9)

    svgp = SVGP(z.clone(), make_kernel(base), outputs)
    with torch.no_grad():
        q_mean = mine.q_mean.detach().mT if outputs else mine.q_mean.detach()[:, 0]
        svgp.q.variational_mean.copy_(q_mean)
        svgp.q.chol_variational_covar.copy_(mine.q_sqrt.detach() if outputs else mine.q_sqrt.detach()[0])
        svgp.mean_module.constant.copy_(mine.prior_mean.bias.detach().reshape(svgp.mean_module.constant.shape))
    if outputs is None:
        noise = gpytorch.likelihoods.GaussianLikelihood()
    else:
        noise = gpytorch.likelihoods.MultitaskGaussianLikelihood(outputs, has_task_noise=False)
    noise.noise = NOISE
    objective = gpytorch.mlls.VariationalELBO(noise, svgp, num_data=count)
    truth = count * objective(svgp(x), y if outputs else y[:, 0])
    bound = elbo(mine, likelihood, mine.orbit.sample(x, None), y, count)
    assert bound.item() == pytest.approx(truth.item(), rel=1e-6)

    truth.backward()
    bound.backward()
    strategy = svgp.variational_strategy if outputs is None else svgp.variational_strategy.base_variational_strategy
    assert noise.noise.item() == pytest.approx(likelihood.noise.item())
    pairs = [
        (mine.inducing.grad, strategy.inducing_points.grad),
        (mine.q_mean.grad, svgp.q.variational_mean.grad.mT if outputs else svgp.q.variational_mean.grad[:, None]),
        (mine.q_sqrt.grad.tril(), svgp.q.chol_variational_covar.grad.tril().reshape(mine.q_sqrt.shape)),
        (mine.prior_mean.bias.grad, svgp.mean_module.constant.grad.reshape(-1)),
        (mine.kernel.raw_outputscale.grad, svgp.covar_module.raw_outputscale.grad),
        (mine.kernel.base_kernel.raw_lengthscale.grad, svgp.covar_module.base_kernel.raw_lengthscale.grad),
    ]
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


# The best q(u): the collapsed bound, the exact marginal likelihood


def problem(count: int = 12, outputs: int | None = 2, dim: int = 3) -> Any:
    x = torch.randn(count, dim)
    y = torch.stack([torch.sin(2 * x.sum(1)), x.prod(1)], 1)[:, :outputs] + 0.1 * torch.randn(count, outputs)
    return x, y


@pytest.mark.parametrize("permutations", [[[0, 1, 2]], CYCLE, [[0, 1, 2], [1, 0, 2]]])
@pytest.mark.parametrize("shared", [True, False])
def test_with_the_best_q_it_is_the_collapsed_bound(
    permutations: list[list[int] | tuple[int, int, int]], shared: bool
) -> None:
    """Titsias 2009: log N(y; 0, Q + noise I) - tr(K - Q) / (2 noise)."""
    x, y = problem()
    z = torch.randn(6, 3)
    model = InvariantGP(make_kernel(), Permutation(permutations), z, 2, "zero", shared, jitter=1e-10)
    kfu, kff = orbit_means(x, z, permutations)
    q = kfu @ torch.linalg.solve(rbf(z, z) + 1e-10 * torch.eye(6), kfu.mT)
    truth = log_normal(y, q + NOISE * torch.eye(12)) - 2 * (kff - q).trace().item() / (2 * NOISE)
    likelihood = Gaussian(2, noise=NOISE, min_noise=1e-9)
    assert optimal(model, likelihood, x, y) == pytest.approx(truth, rel=1e-9)


def test_no_other_q_is_better() -> None:
    x, y = problem()
    model = InvariantGP(make_kernel(), Permutation(CYCLE), torch.randn(6, 3), 2, jitter=1e-10)
    likelihood = Gaussian(2, noise=NOISE)
    best = optimal(model, likelihood, x, y)
    samples = model.orbit.sample(x, None)
    gradients = torch.autograd.grad(elbo(model, likelihood, samples, y, len(x)), [model.q_mean, model.q_sqrt])
    torch.testing.assert_close(gradients[0], torch.zeros_like(gradients[0]), rtol=0, atol=1e-8)
    torch.testing.assert_close(gradients[1].tril(), torch.zeros_like(gradients[1]), rtol=0, atol=1e-8)
    state = {name: p.detach().clone() for name, p in model.named_parameters()}
    for scale in (0.01, 0.3):
        for _ in range(5):
            model.load_state_dict(state, strict=False)
            with torch.no_grad():
                model.q_mean.add_(scale * torch.randn_like(model.q_mean))
                model.q_sqrt.add_(scale * torch.randn_like(model.q_sqrt).tril())
            assert elbo(model, likelihood, samples, y, len(x)).item() < best


@pytest.mark.parametrize("permutations", [[[0, 1, 2]], CYCLE, list(itertools.permutations(range(3)))])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel])
def test_with_inducing_points_everywhere_it_is_the_log_marginal_likelihood(
    permutations: list[list[int] | tuple[int, int, int]], base: type[Kernel]
) -> None:
    x, y = problem(count=8)
    orbit = Permutation(permutations)
    every = orbit.elements(x).reshape(-1, 3)
    likelihood = Gaussian(2, noise=NOISE, min_noise=1e-9)
    invariant = InvariantKernel(make_kernel(base), orbit)
    truth = log_normal(y, invariant(x).to_dense().detach() + NOISE * torch.eye(8))
    bounds = {}
    for size in (len(every), len(every) // 2, 2):
        model = InvariantGP(make_kernel(base), orbit, every[torch.randperm(len(every))[:size]], 2, "zero", jitter=1e-10)
        bounds[size] = optimal(model, likelihood, x, y)
    full, half, few = bounds.values()
    assert full == pytest.approx(truth, rel=1e-6)
    assert few < half - 0.1 < truth - 0.2


def test_with_a_mean_it_is_the_log_marginal_likelihood_of_the_residuals() -> None:
    x, y = problem(count=8)
    orbit = Permutation(CYCLE)
    every = orbit.elements(x).reshape(-1, 3)
    model = InvariantGP(make_kernel(), orbit, every, 2, "linear", jitter=1e-10)
    with torch.no_grad():
        model.prior_mean.weight.normal_()
        model.prior_mean.bias.normal_()
    prior = model.prior_mean
    means = [((x[:, p] - prior.centre) / prior.unit) @ prior.weight + prior.bias for p in CYCLE]
    covariance = InvariantKernel(make_kernel(), orbit)(x).to_dense().detach() + NOISE * torch.eye(8)
    truth = log_normal((y - sum(means) / 3).detach(), covariance)
    assert optimal(model, Gaussian(2, noise=NOISE, min_noise=1e-9), x, y) == pytest.approx(truth, rel=1e-6)


# Minibatches and orbit samples


def test_minibatches_average_to_the_whole() -> None:
    x, y = problem(count=12)
    model = randomise(InvariantGP(make_kernel(), Permutation(CYCLE), torch.randn(5, 3), 2))
    likelihood = Gaussian(2, noise=NOISE)
    whole = elbo(model, likelihood, model.orbit.sample(x, None), y, 12).item()
    parts = [
        elbo(model, likelihood, model.orbit.sample(x[i], None), y[i], 12).item() for i in torch.arange(12).split(3)
    ]
    assert sum(parts) / 4 == pytest.approx(whole)
    assert max(parts) - min(parts) > 1.0


def noise_bound(model: InvariantGP, likelihood: Likelihood, x: torch.Tensor, y: torch.Tensor) -> Any:
    """The ELBO under Gaussian noise from closed forms, differentiable in the scale, the lengthscale and q(u)."""
    dim, z = x.shape[1], model.inducing
    l2, s2 = model.kernel.base_kernel.lengthscale[0, 0] ** 2, model.orbit.scale**2
    variance = model.kernel.outputscale

    def gaussian(a: torch.Tensor, b: torch.Tensor, width2: Any) -> Any:
        return variance * (l2 / width2) ** (dim / 2) * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / width2)

    kfu = gaussian(x, z, l2 + s2)
    root = torch.linalg.cholesky(gaussian(z, z, l2) + model.jitter * torch.eye(len(z)))
    a = torch.linalg.solve_triangular(root, kfu.mT, upper=False).mT
    mean = model.prior_mean.bias + a @ model.q_mean
    var = variance * (l2 / (l2 + 2 * s2)) ** (dim / 2) - a.square().sum(1) + (a @ model.q_sqrt[0]).square().sum(1)
    noise = likelihood.noise
    terms = -0.5 * torch.log(2 * math.pi * noise) - 0.5 * ((y - mean).square() + var[:, None]) / noise
    return terms.sum() - model.kl()


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "groups"), [("iid", 4), ("iid", 2), ("qmc", 2)])
def test_bound_and_gradient_are_unbiased_under_gaussian_noise(draws: str, groups: int) -> None:
    x, y = problem(count=4, outputs=2, dim=2)
    model = InvariantGP(make_kernel(), GaussianNoise(0.6).double(), torch.randn(4, 2), 2, "constant", True, jitter=1e-8)
    randomise(model)
    likelihood = Gaussian(2, noise=0.5)
    wanted = [p for p in (*model.parameters(), *likelihood.parameters()) if p.requires_grad]
    exact = noise_bound(model, likelihood, x, y)
    truth = torch.cat([exact.detach().reshape(1), *(g.reshape(-1) for g in torch.autograd.grad(exact, wanted))])
    generator = torch.Generator().manual_seed(0)
    repeats, copies = 50, 60

    def once() -> Any:
        # Several draws of the same four data at a time: the bound of N data from copies * N of them.
        samples = model.orbit.sample(x.repeat(copies, 1), 4, groups, draws, generator)
        bound = elbo(model, likelihood, samples, y.repeat(copies, 1), 4)
        return torch.cat([bound.detach().reshape(1), *(g.reshape(-1) for g in torch.autograd.grad(bound, wanted))])

    found = torch.stack([once() for _ in range(repeats)])
    stderr = found.std(0) / repeats**0.5
    noisy = stderr > 1e-12
    assert ((found.mean(0) - truth).abs()[noisy] < 4 * stderr[noisy]).all()
    torch.testing.assert_close(found.mean(0)[~noisy], truth[~noisy])  # the upper triangle of the root
    scale = sum(p.numel() for p in itertools.takewhile(lambda p: p is not model.orbit.scale, wanted)) + 1
    assert truth[scale].abs() > 10 * stderr[scale]  # the gradient in the orbit's scale is seen


class Bound(torch.nn.Module):
    """The ELBO as a function of every parameter, with the same draws at each call."""

    def __init__(
        self,
        model: InvariantGP,
        likelihood: Likelihood,
        x: torch.Tensor,
        y: torch.Tensor,
        num_samples: int | None,
        local: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model, self.likelihood = model, likelihood
        self.data = x, y, num_samples, local

    def forward(self) -> Any:
        x, y, num_samples, local = self.data
        samples = self.model.orbit.sample(x, num_samples, 2, "iid", torch.Generator().manual_seed(0))
        return elbo(self.model, self.likelihood, samples, y, 10, local)


@pytest.mark.parametrize(
    "name", ["noise", "noise per feature", "noise, any kernel", "without replacement", "exact", "bernoulli"]
)
def test_gradcheck_in_everything(name: str) -> None:
    x, y = torch.randn(2, 2), torch.randn(2, 2)
    orbit: Orbit = GaussianNoise(0.5, num_features=2 if name == "noise per feature" else None)
    num_samples: int | None = 4
    if name in ("without replacement", "exact"):
        orbit, num_samples = Permutation([[0, 1], [1, 0], [0, 1]]), 2 if name == "without replacement" else None
    kernel = ScaleKernel(RQKernel()) if name == "noise, any kernel" else make_kernel(ard_num_dims=2)
    likelihood: Likelihood = Gaussian(2, noise=0.3)
    local = None
    if name == "bernoulli":
        likelihood = Bernoulli()
        y, local = likelihood.encode(torch.tensor([0, 1])), torch.rand(2, 1) + 0.5
    model = InvariantGP(
        kernel, orbit.double(), torch.randn(3, 2), likelihood.num_latents, "linear", name == "exact", jitter=1e-6
    )
    bound = Bound(randomise(model), likelihood, x, y, num_samples, local)
    names = [n for n, p in bound.named_parameters() if p.requires_grad]
    for part in ("inducing", "q_mean", "q_sqrt", "prior_mean.weight", "prior_mean.bias", "lengthscale", "outputscale"):
        assert any(part in n for n in names)
    assert any("orbit" in n for n in names) == ("noise" in name or name == "bernoulli")
    values = [p.detach().clone().requires_grad_() for n, p in bound.named_parameters() if n in names]
    assert torch.autograd.gradcheck(
        lambda *tensors: torch.func.functional_call(bound, dict(zip(names, tensors, strict=True)), ()),
        values,
        fast_mode=name != "noise",
    )


@pytest.mark.parametrize("orbit", [Identity, lambda: Permutation(CYCLE), lambda: GaussianNoise(0.5)])
@pytest.mark.parametrize("far", [0.0, 100.0])
def test_single_precision_data_cost_few_digits(orbit: Callable[..., Any] | type[Identity], far: float) -> None:
    x, y = problem(count=20)
    x, z = (x + far).float(), torch.randn(8, 3).float() + far
    results = {}
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(1)
        model = InvariantGP(make_kernel(), orbit().to(dtype), z.to(dtype), 2, "linear", jitter=1e-6)
        randomise(model)
        # The same draws for both: those that single precision can hold.
        draws = torch.Generator().manual_seed(0)
        samples = model.orbit.float().sample(x, 4, 2, "iid", draws)
        model.orbit.to(dtype)
        samples = samples._replace(points=samples.points.to(dtype))
        bound = elbo(model, Gaussian(2, noise=NOISE), samples, y, 20)
        assert bound.dtype == torch.float64
        kept = [model.inducing, model.q_mean, model.q_sqrt, *model.kernel.parameters()]
        results[dtype] = [bound.detach(), *(g.double() for g in torch.autograd.grad(bound, kept))]
    assert results[torch.float32][0].item() == pytest.approx(results[torch.float64][0].item(), rel=1e-5)
    for single, double in zip(results[torch.float32][1:], results[torch.float64][1:], strict=True):
        assert (single - double).abs().max() < 1e-3 * double.abs().max()


# Other likelihoods


@pytest.mark.parametrize("likelihood", [Bernoulli(), StickBreaking(3)], ids=lambda one: type(one).__name__)
def test_below_the_expected_log_likelihood_for_any_local_parameter(likelihood: Any) -> None:
    """One datum at a time: the quadratic's expectation is below E log p(y | f), here by sampling f."""
    classes = likelihood.num_classes
    x = torch.randn(6, 3)
    y = likelihood.encode(torch.randint(classes, (6,)))
    model = randomise(
        InvariantGP(make_kernel(), Permutation(CYCLE), torch.randn(5, 3), likelihood.num_latents, "zero", False)
    )
    samples = model.orbit.sample(x, None)
    with torch.no_grad():
        mean, variance = model.predict(x)
        f = mean + variance.sqrt() * torch.randn(20_000, *mean.shape)
        truth = likelihood.log_prob(y, f)
        moments = model.moments(model.whitened_means(samples))
        best = likelihood.local(y, moments)
        for local in (best, best + 0.5, torch.ones_like(best)):
            found = likelihood.quadratic(y, local).expectation(moments)
            assert (found < truth.mean(0) + 4 * truth.std(0) / len(f) ** 0.5).all()
        found = likelihood.quadratic(y, best).expectation(moments)
        assert (found > truth.mean(0) - 1.0 * classes).all()
        total = elbo(model, likelihood, samples, y, 6, best)
        torch.testing.assert_close(total, found.sum() - model.kl())
