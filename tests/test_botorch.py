"""The BoTorch model against Gaussian conditioning written out, finite differences, and BoTorch's own fit and loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from orbitgp.botorch import InvariantGPModel
from orbitgp.orbits import FiniteOrbit, Shuffle

pytestmark = pytest.mark.usefixtures("double", "one_start")

BOUNDS = torch.tensor([[0.0] * 3, [2.0] * 3], dtype=torch.float64)
ORDERS = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]

Data = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def data() -> Data:
    torch.manual_seed(0)
    x = 2 * torch.rand(18, 3, dtype=torch.float64)
    return x, (7 * (torch.sin(3 * x).sum(1) + x.prod(1)) + 3 + 0.3 * torch.randn(18, dtype=torch.float64))[:, None]


@pytest.fixture(scope="module")
def model(data: Data) -> InvariantGPModel:
    return InvariantGPModel(*data, "cyclic(3)", input_transform=Normalize(3, bounds=BOUNDS))


def written_out(model: Any, x: torch.Tensor, y: Any, new: Any, noisy: bool = False) -> Any:
    """Mean and covariance of f at new inputs in units of y, with hyperparameters of the model and a loop over the
    group."""
    kernel, centre, scale = model.covar_module.base_kernel, model.outcome_transform.means, model.outcome_transform.stdvs
    length, variance = kernel.base_kernel.lengthscale, kernel.outputscale

    def covariance(a: Any, b: Any) -> Any:
        values = [
            torch.exp(-0.5 * torch.cdist(a[..., p] / 2, b[..., q] / 2) ** 2 / length**2) for p in ORDERS for q in ORDERS
        ]
        return variance * sum(values) / 9

    mean, noise = model.mean_module.constant, model.likelihood.noise
    weights = torch.linalg.solve(covariance(x, x) + noise * torch.eye(len(x)), covariance(x, new)).mT
    found = mean + weights @ ((y - centre) / scale - mean)
    spread = covariance(new, new) - weights @ covariance(x, new) + noise * noisy * torch.eye(new.shape[-2])
    return (centre + scale * found).detach(), (scale**2 * spread).detach()


def test_posterior_is_that_of_gaussian_conditioning(model: Any, data: Any) -> None:
    new = 2 * torch.rand(4, 5, 3)
    for noisy in (False, True):
        posterior = model.posterior(new, observation_noise=noisy)
        assert posterior.mean.shape == (4, 5, 1)
        for i in range(4):
            mean, covariance = written_out(model, data[0], data[1], new[i], noisy)
            torch.testing.assert_close(posterior.mean[i], mean, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(posterior.covariance_matrix[i], covariance, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.posterior(new).mean, model.posterior(new[..., [1, 2, 0]]).mean)


def test_posterior_is_differentiable_in_x(model: Any) -> None:
    def moments(x: Any) -> tuple[Any, Any]:
        posterior = model.posterior(x)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, (0.5 + torch.rand(2, 2, 3)).requires_grad_(), atol=1e-4)


def test_new_observations_and_fantasies_are_conditioned_on(model: Any, data: Any) -> None:
    x, y = data
    new, outcomes, at = 2 * torch.rand(2, 3), torch.tensor([[3.0], [8.0]]), 2 * torch.rand(4, 3)
    conditioned = model.condition_on_observations(new, outcomes)
    mean, covariance = written_out(model, torch.cat([x, new]), torch.cat([y, outcomes]), at)
    torch.testing.assert_close(conditioned.posterior(at).mean, mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(conditioned.posterior(at).covariance_matrix, covariance, rtol=1e-2, atol=1e-2)
    fantasies = model.fantasize(new, SobolQMCNormalSampler(torch.Size([4])))
    assert fantasies.posterior(at).mean.shape == (4, 4, 1)
    torch.testing.assert_close(
        fantasies.posterior(at).variance[0], conditioned.posterior(at).variance, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("standardised", [True, False])
def test_it_keeps_what_botorch_asks_of_its_models(data: Data, outputs: int, standardised: bool) -> None:
    """Shapes and equalities that BoTorch's own tests ask of ``SingleTaskGP``, without batches of training data."""
    x, y = data[0], torch.cat([data[1], data[1].square()], 1)[:, :outputs]
    transform = Standardize(m=outputs) if standardised else None
    model = InvariantGPModel(x, y, "cyclic(3)", outcome_transform=transform)
    for batch in ((), (2,), (3, 2)):
        at = torch.rand(*batch, 4, 3)
        posterior, noisy = model.posterior(at), model.posterior(at, observation_noise=True)
        assert isinstance(posterior, GPyTorchPosterior | TransformedPosterior)
        assert posterior.mean.shape == posterior.variance.shape == noisy.variance.shape == (*batch, 4, outputs)
        assert posterior.rsample(torch.Size([5])).shape == (5, *batch, 4, outputs)
        assert (noisy.variance > posterior.variance).all()
    new, outcomes = torch.rand(2, 3, 3), torch.randn(2, 3, outputs)
    apart = model.condition_on_observations(new, outcomes)
    same = model.condition_on_observations(new[0].expand(2, 3, 3), outcomes)
    first = model.condition_on_observations(new[0], outcomes[0])
    for shape in ((4, 3), (2, 4, 3)):
        at = torch.rand(shape)
        assert apart.posterior(at).mean.shape == same.posterior(at).mean.shape == (2, 4, outputs)
        alone = first.posterior(at if at.ndim == 2 else at[0])
        for fantasies in (apart, same):
            torch.testing.assert_close(fantasies.posterior(at).mean[0], alone.mean, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(fantasies.posterior(at).variance[0], alone.variance, rtol=1e-3, atol=1e-3)
    for settings in ({}, {"observation_noise": torch.full((4, outputs), 0.1)}):
        made = model.fantasize(torch.rand(4, 3), SobolQMCNormalSampler(torch.Size([3])), **settings)
        assert isinstance(made, InvariantGPModel)
        assert made.posterior(torch.rand(5, 3)).mean.shape == (3, 5, outputs)
    at = torch.rand(4, 3)
    for chosen in ([0], [outputs - 1], list(range(outputs))):
        part = model.subset_output(chosen).posterior(at)
        torch.testing.assert_close(part.mean, model.posterior(at).mean[:, chosen], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(part.variance, model.posterior(at).variance[:, chosen], rtol=1e-4, atol=1e-4)


def evidence(model: InvariantGPModel) -> Any:
    model.train()
    found = ExactMarginalLogLikelihood(model.likelihood, model)(model(*model.train_inputs), model.train_targets)
    model.eval()
    return float(found.detach().sum()) * model.train_targets.shape[-1]


def test_botorchs_own_fit_ends_where_the_evidence_does(data: Data) -> None:
    model = InvariantGPModel(*data, "cyclic(3)")
    learned = evidence(model)
    assert learned == pytest.approx(model.regressor.evidence_.value, abs=1e-3)
    model.covar_module.base_kernel.base_kernel.lengthscale = 1.0
    model.likelihood.noise = 0.3
    model.train()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert evidence(model) == pytest.approx(learned, abs=0.02)


def test_the_loop_of_bayesian_optimisation(model: Any, data: Any) -> None:
    acquisition = qLogExpectedImprovement(
        model, best_f=data[1].max(), sampler=SobolQMCNormalSampler(torch.Size([16]), seed=0)
    )
    candidates, value = optimize_acqf(acquisition, BOUNDS, q=2, num_restarts=2, raw_samples=8)
    assert candidates.shape == (2, 3)
    assert (candidates >= BOUNDS[0]).all()
    assert (candidates <= BOUNDS[1]).all()
    turned = acquisition(candidates[:, [1, 2, 0]][None])
    torch.testing.assert_close(turned[0], value, rtol=1e-4, atol=1e-4)
    assert value > acquisition(torch.tensor([[[1.0, 1.0, 1.0], [0.5, 1.5, 1.0]]]))


def test_known_noise_several_outcomes_and_drawn_orbits(data: Data) -> None:
    x, y = data
    noisy = InvariantGPModel(x, y, "swap(0, 1)", train_Yvar=torch.linspace(0.1, 2.0, 18)[:, None])
    assert evidence(noisy) == pytest.approx(noisy.regressor.evidence_.value, abs=1e-3)
    two = InvariantGPModel(x, torch.cat([y, y.sin()], 1), kernel=ScaleKernel(MaternKernel()), outcome_transform=None)
    assert two.posterior(x).mean.shape == (18, 2)
    assert evidence(two) == pytest.approx(two.regressor.evidence_.value, abs=1e-3)
    drawn = InvariantGPModel(x, y, Shuffle([[0], [1], [2]]), kernel=RBFKernel(), num_samples=8)
    assert drawn.covar_module.orbit.size == 8
    means = torch.from_numpy(drawn.regressor.predict(x.numpy())) * y.std() + y.mean()
    torch.testing.assert_close(drawn.posterior(x).mean, means, rtol=1e-4, atol=1e-4)


def test_batches_of_training_data_are_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="without batches, got"):
        InvariantGPModel(data[0][None], data[1][None])


def test_ax_makes_the_model_from_its_data_and_options(data: Data) -> None:
    """Ax asks a class for its arguments, given a data set and the options of the model, and calls it with these."""
    x, y = data
    given = SupervisedDataset(x, y, feature_names=list("abc"), outcome_names=["y"])
    expected = InvariantGPModel(x, y, "swap(0, 2)").posterior(x).mean
    for orbit in ("swap(0, 2)", "swap(a, c)"):
        made = InvariantGPModel(**InvariantGPModel.construct_inputs(training_data=given, orbit=orbit))
        assert isinstance(made.regressor.orbit_, FiniteOrbit)
        torch.testing.assert_close(made.posterior(x).mean, expected)
    with pytest.raises(ValueError, match="there is no column 'd'; they are a, b, c"):
        InvariantGPModel.construct_inputs(training_data=given, orbit="swap(a, d)")
