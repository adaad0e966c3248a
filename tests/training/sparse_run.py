"""A small sparse run on toy data, for the tests of training."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from experiments.stick_breaking import StickBreaking
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Classification, Gaussian, Likelihood, make_likelihood
from orbitgp.orbits import Orbit, Permutation
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer


class Slide(Orbit):
    """x with one coordinate moved by up to +-width."""

    num_draws = 1
    reach = ("width",)

    def __init__(self, axis: Any, width: Any) -> None:
        super().__init__()
        self.axis = axis
        self.width = torch.nn.Parameter(torch.tensor(float(width)))

    def transform(self, x: Any, u: Any) -> Any:
        direction = torch.nn.functional.one_hot(torch.tensor(self.axis), x.shape[1])
        return x[:, None] + self.width * (2 * u - 1) * direction


def toy_data(rows: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """A function of the first coordinate alone."""
    generator = torch.Generator().manual_seed(7)
    x = 4 * torch.rand(rows, 2, generator=generator) - 2
    return x, torch.sin(3 * x[:, :1]) + 0.1 * torch.randn(rows, 1, generator=generator)


def make_trainer(
    orbit: Orbit | None = None,
    likelihood: Likelihood | str | None = None,
    size: int = 8,
    perturbed: bool = False,
    kernel: Any = None,
    data: tuple[Any, Any] | tuple[Any, torch.Tensor] | None = None,
    hooks: dict[Any, Any] | None = None,
    **options: Any,
) -> Trainer:
    """A small run; ``perturbed`` starts it from other parameters, as someone would who is about to load a state."""
    x, y = data or toy_data()
    orbit = orbit or Slide(1, 0.5)
    if isinstance(likelihood, str):
        likelihood = make_likelihood(likelihood, num_classes={"bernoulli": 2}.get(likelihood, 3))
    if isinstance(likelihood, Classification):
        classes = likelihood.num_classes
        y = likelihood.encode((y[:, 0] > 0).long() + (y[:, 0] > 0.7).long() * (classes - 2))
    likelihood = likelihood or Gaussian(y.shape[1])
    kernel = kernel or ScaleKernel(RBFKernel())
    inducing = initial_inducing(x, orbit, kernel, size, generator=torch.Generator().manual_seed(int(perturbed)))
    shares = likelihood.shares_curvature
    model = InvariantGP(kernel, orbit, inducing, likelihood.num_latents, "constant", shares)
    if perturbed:
        with torch.no_grad():
            for parameter in (*model.parameters(), *likelihood.parameters()):
                parameter.add_(0.1)
    settings = {"max_steps": 8, "batch_size": 12, "num_samples": 4, "start_rows": 0, **options}
    trainer = Trainer(model, likelihood, x, y, TrainerSettings(**settings))
    vars(trainer).update(hooks or {})
    return trainer


def parameters(trainer: Any) -> dict[Any, Any]:
    return {**trainer.model.state_dict(), **{f"likelihood.{n}": p for n, p in trainer.likelihood.state_dict().items()}}


def assert_same(first: Any, second: Any) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def without_seconds(history: Any) -> list[Any]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


KINDS: dict[str, dict[str, Any]] = {
    "natural": {},
    "natural, part of the data": {"posterior_rows": 20, "posterior_samples": 8},
    "iid": {"sampler": "iid"},
    "bernoulli": {"likelihood": "bernoulli"},
    "stick-breaking": {"likelihood": StickBreaking(3)},
    "enumerated": {"orbit": Permutation.swap(0, 1)},
}
