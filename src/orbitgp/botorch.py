"""An invariant Gaussian process for Bayesian optimisation with BoTorch.

    model = InvariantGPModel(X, Y, "cyclic(3)", input_transform=Normalize(3))
    improvement = qLogExpectedImprovement(model, best_f=Y.max())
    candidate, _ = optimize_acqf(improvement, bounds, q=1, num_restarts=4, raw_samples=64)

It is BoTorch's ``SingleTaskGP`` whose covariance is an :class:`~orbitgp.InvariantKernel`, so that posteriors, their
gradients in X, batches, conditioning and fantasies are BoTorch's own. Kernel, noise, mean and orbit are learned by the
exact evidence of :class:`~orbitgp.InvariantGPRegressor`, of transformed inputs and outcomes. It needs ``botorch``.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean
from jaxtyping import Float
from torch import Tensor

from orbitgp.estimators import InvariantGPRegressor
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import InvariantKernel
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.parse import make_orbit
from orbitgp.orbits.sampling import Elements, Inputs


class FixedDraws(FiniteOrbit):
    """The draws of an infinite orbit that exact inference has learned with, as the elements of a finite one."""

    def __init__(self, orbit: Orbit, size: int, seed: int) -> None:
        super().__init__()
        self.orbit, self.size, self.seed = orbit, size, seed

    def check(self, features: torch.Size) -> None:
        self.orbit.check(features)

    def elements(self, x: Inputs) -> Elements:
        return self.orbit.shared_samples(x, self.size, self.seed).points[:, 0]


class InvariantGPModel(SingleTaskGP):
    """A BoTorch model of a function that is insensitive to an orbit, learned by its exact evidence when it is made.

    An optimiser makes a new model after each observation, as with BoTorch's own. Of a finite orbit the posterior is
    exactly invariant if the orbit is a group; an infinite orbit stands for the draws that it was learned with.

    Args:
        train_X: inputs, n x d.
        train_Y: outcomes, n x m. Several share kernel, orbit and noise.
        orbit: an orbit, its name as in ``"swap(0, 1)"``, or None. It acts on inputs as ``input_transform`` leaves them.
            So coordinates that it exchanges need equal bounds there.
        train_Yvar: known variances of the noise, n x m with m = 1, to which a learned one is added.
        kernel: k_g; by default an RBF kernel with one lengthscale for all inputs.
        outcome_transform: by default outcomes are standardised, as in ``SingleTaskGP``; None leaves them.
        input_transform: a transform of BoTorch, such as ``Normalize(d)``.
        settings: further arguments of :class:`orbitgp.InvariantGPRegressor`.

    Attributes:
        regressor: the fitted :class:`orbitgp.InvariantGPRegressor`; ``regressor.evidence_`` compares orbits, and
            ``regressor.orbit_`` says what was learned.
    """

    def __init__(
        self,
        train_X: Float[Tensor, "..."],
        train_Y: Float[Tensor, "..."],
        orbit: Orbit | str | None = None,
        train_Yvar: Float[Tensor, "n 1"] | None = None,
        kernel: Kernel | None = None,
        outcome_transform: OutcomeTransform | str | None = "standardize",
        input_transform: InputTransform | None = None,
        **settings: Any,
    ) -> None:
        if train_X.ndim != 2 or train_Y.ndim != 2:
            shapes = f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}"
            raise ValueError(f"InvariantGPModel takes train_X (n, d) and train_Y (n, m) without batches, got {shapes}.")
        outputs = train_Y.shape[1]
        outcomes: Any = Standardize(m=outputs) if isinstance(outcome_transform, str) else outcome_transform
        with torch.no_grad():
            x = self.transform_inputs(train_X, input_transform)
            y, known = (train_Y, train_Yvar) if outcomes is None else outcomes(train_Y, train_Yvar, X=x)
        settings = {"random_state": 0, "inference": "exact", "normalize_y": False, **settings}
        alpha = 0.0 if known is None else known[:, 0].cpu().numpy()
        regressor = InvariantGPRegressor(orbit, kernel, alpha=alpha, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "few rows")  # an optimiser begins with few
            regressor.fit(x.double().cpu().numpy(), y.double().cpu().numpy())
        model = regressor.model_
        assert isinstance(model, ExactGP)
        drawn = None if isinstance(model.orbit, FiniteOrbit) else model.num_samples
        learned = model.orbit if drawn is None else FixedDraws(model.orbit, drawn, model.seed)
        batch = torch.Size([outputs] if outputs > 1 else [])
        mean = ConstantMean(batch_shape=batch)
        mean.constant = model.prior_mean.bias.detach().reshape(mean.constant.shape)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=_likelihood(regressor.likelihood_, known, batch),
            covar_module=deepcopy(InvariantKernel(model.kernel, learned)),
            mean_module=mean,
            outcome_transform=outcomes,
            input_transform=input_transform,
        )
        # Outputs share the kernel; of several, each has a mean and a noise of its own to BoTorch.
        self._subset_batch_dict = {"mean_module.raw_constant": -1, "likelihood.noise_covar.raw_noise": -2}
        self.regressor = regressor
        self.eval()

    @classmethod
    def construct_inputs(cls, training_data: Any, orbit: Orbit | str | None = None, **settings: Any) -> dict[str, Any]:
        """What Ax makes this model from: its data, and the options of the model, whose orbit may name parameters."""
        made = make_orbit(orbit, columns=training_data.feature_names) if isinstance(orbit, str) else orbit
        return {**super().construct_inputs(training_data), "orbit": made, **settings}


def _likelihood(learned: Any, known: Tensor | None, batch: torch.Size) -> Likelihood:
    """The noise that was learned, on top of what is known of it, as a likelihood of GPyTorch."""
    above = {"noise_constraint": GreaterThan(learned.min_noise), "batch_shape": batch}
    if known is not None:
        likelihood = FixedNoiseGaussianLikelihood(known[:, 0], learn_additional_noise=True, **above)
        likelihood.second_noise = learned.noise.detach()
        return likelihood
    likelihood = GaussianLikelihood(**above)
    likelihood.noise = learned.noise.detach().expand(likelihood.noise.shape)
    return likelihood
