"""Regression with learned invariances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from math import log, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from orbitgp import likelihoods
from orbitgp.estimators.base import InvariantEstimator
from orbitgp.estimators.data import known_noise, stored
from orbitgp.estimators.initialise import Problem
from orbitgp.estimators.session import Session
from orbitgp.estimators.validation import as_numbers
from orbitgp.inference.prior import draw_normal
from orbitgp.inference.rows import AllInputs
from orbitgp.likelihoods import Likelihood, make_likelihood
from orbitgp.planning.options import whole_number

MIN_NOISE = 1e-6  # least variance of noise over that of the targets; without it constant targets have infinite evidence
FEW_ROWS = 10  # rows, at most, that determine the variance of the targets too badly


@dataclass(eq=False, repr=False)
class InvariantGPRegressor(RegressorMixin, InvariantEstimator):
    """Gaussian-process regression that learns from the data what it should not care about.

        >>> x = np.linspace(0, 1, 20)[:, None]
        >>> model = InvariantGPRegressor(random_state=0).fit(x, x[:, 0])
        >>> mean, std = model.predict([[0.5]], return_std=True)
        >>> mean.round(1)
        array([0.5])

    Args:
        orbit: what may happen to an input without changing the answer (:mod:`orbitgp.orbits`), an object or a name, as
            in ``"rotation"`` or ``"affine*deformation"``; none by default.
        kernel: any GPyTorch kernel, with values, priors and constraints; by default an RBF that starts from data.
        likelihood: ``gaussian`` (which ``auto`` stands for), ``heteroscedastic`` where the noise depends on the inputs,
            ``student-t`` for data with outliers, ``negative-binomial`` for counts, or an object. Several outputs
            share one kernel, one orbit and one noise: fit those that are unlike one by one.
        feature_map: a module from inputs to vectors, of which k_g is then a kernel (:mod:`orbitgp.kernels`), such as
            ``OrientedGradients()`` for images; by default k_g sees inputs as they are. The orbit acts first.
        mean: the prior mean, ``zero``, ``constant`` or ``linear`` in the inputs.
        num_inducing: inducing points of sparse inference; no more are made than there are places for them. By default
            256, and on a GPU up to 1,024 where there is time for them.
        num_samples: orbit samples for each datum and step. A finite orbit that they cover is enumerated, without any
            noise. Exact inference, and sparse inference without stochastic steps, enumerate every finite orbit. Of an
            infinite one they make these draws once and for all, and by default as many as they find that it needs.
        max_steps: the steps of training at most. A run ends by itself when it has converged. A step of exact inference
            is one evaluation of the evidence, and there is no limit by default. Sparse inference makes as many
            evaluations of its bound as take ten minutes at a nominal speed, from 50 to 300, or as many stochastic
            steps, from 300 to 3,000.
        max_seconds: about how long a fit may take. Training ends early enough for what follows: the posterior of all
            data, and the evidence.
        batch_size: data for each gradient of sparse inference.
        image_shape: (H, W) or (C, H, W), if the rows of X are images. Pixels are left as they are.
        device: where to compute, ``cpu`` or ``cuda``. What was fitted is kept on the CPU.
        random_state: a number makes ``fit`` reproducible.
        verbose: whether to show a progress bar in a terminal or a notebook, or plain lines elsewhere. By default there
            is a bar where one can be seen, for fits that are planned to take more than ten seconds.
        inference: ``exact`` conditions on all data, ``sparse`` goes through inducing points, and ``auto`` is exact
            where affordable, unless ``num_inducing``, ``batch_size`` or an option of sparse training is given.
        training: everything else about training and prediction, :class:`orbitgp.TrainingOptions`. ``set_params`` and
            grid searches reach its options by names such as ``training__learning_rate``.
        ard: whether each column of a table has a lengthscale of its own in the default kernel. ``auto`` fits both
            kernels and takes what the evidence prefers, by more than the further lengthscales would gain by chance.
        normalize_y: whether each target is brought to mean 0 and variance 1 for the fit. Kernel and likelihood, also
            those given as objects, then speak of normalised targets; predictions and the evidence are always in the
            units of y. Counts are never normalised.
        alpha: the known variance of the noise of y, one for all rows or one for each, in squared units of y. The
            learned noise comes on top. Predictions have the learned noise alone. For a Gaussian likelihood.

    None stands for the library's default.

    Attributes:
        evidence_: the log marginal likelihood of y or bounds on it, with its Monte-Carlo error
            (:class:`orbitgp.Evidence`).
        inference_ (str): ``exact`` or ``sparse``, whichever was used.
        plausible_: the narrowest and the widest that is plausible of each learned quantity, by name (``describe`` says
            it in units): with the other parameters at their best, the log evidence lies less than 1.92 nats below its
            top there, which holds the true value in about 95 % of all fits. An end is infinite where the data set no
            limit, and there is None of a quantity that they do not determine.
        examples_: a few training inputs and their targets, for ``report`` and notebooks.
        converged_ (bool): whether the run ended because there was little left to gain, and not at a limit.
        diagnostics_ (str): what happened in the run, in words.
        orbit_: what was learned of the orbit; ``orbit_.describe()`` says it in physical units.
        kernel_ (Kernel): the GPyTorch kernel, which prints its learned hyperparameters.
        likelihood_ (Likelihood): the likelihood, with what it learned.
        ard_ (bool): whether each column has a lengthscale; ``ard_gain_``: what these gain, in nats, if ``ard`` is auto.
        history_ (list[dict[str, Any]]): the bound, ranges and hyperparameters over time.
        interrupted_ (bool): whether Ctrl-C ended the fit before its budget.
        model_: the :class:`orbitgp.InvariantGP`, or :class:`orbitgp.inference.exact.ExactGP`, for joint predictions.
    """

    _: KW_ONLY
    normalize_y: bool = True
    alpha: Any = 0.0

    _y_checks = MappingProxyType({"multi_output": True, "y_numeric": True})

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **run: Any) -> InvariantGPRegressor:
        """Learn the posterior, the kernel, the noise and the orbit, all from the marginal likelihood.

        Args:
            X: as for the classifier.
            y: the targets, (N,) or (N, outputs).
            sample_weight: a number for each row that divides its noise variance. So a target that is the mean of four
                measurements has the weight 4. A weight is no number of copies: the learned noise is that of weight 1,
                and so is that of predictions. Rows of weight zero are left out. For a Gaussian likelihood alone.
            run: ``callback``, ``checkpoint``, ``checkpoint_every`` and ``resume``, as for the classifier.
        """
        used = np.flatnonzero(np.asarray(sample_weight))
        if sample_weight is not None and stored(X) is None and 0 < len(used) < np.asarray(sample_weight).size:
            check_consistent_length(X, y, sample_weight)
            X, y = (part.iloc[used] if hasattr(part, "iloc") else np.asarray(part)[used] for part in (X, y))
            sample_weight = np.asarray(sample_weight)[used]
        return self._fitted(X, y, Session(**run, sample_weight=sample_weight))

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean of a new observation in each row and, if asked for, its standard deviation (f and noise).

        ``return_cov`` gives the covariance of all rows in place of standard deviations: (N, N), or (N, N, outputs). The
        noise is on its diagonal, which holds the squares of the standard deviations.

        A row's prediction does not depend on others, up to rounding (about 1e-12, or 1e-5 in float32). Ten training
        rows or fewer say little of the scale of y: ``fit`` then warns, and widens standard deviations and quantiles.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("predict returns standard deviations or covariances: leave out return_std or return_cov.")
        if return_cov:
            if isinstance(self.likelihood_, likelihoods.NegativeBinomial):
                raise ValueError("return_cov is for noise added to f: draw counts of several rows with sample_y.")
            means, covariance = self._joint(X)
            variances = covariance.diagonal(dim1=1, dim2=2).mT.expand_as(means)
            predicted = self._predictive_of(means, variances, *self._noise_features(X))
            among = covariance.expand(means.shape[1], -1, -1)
            among = torch.diagonal_scatter(among, predicted.std.square().mT, dim1=1, dim2=2)
            among = among.permute(1, 2, 0).numpy() * np.square(self._interval_scale())
            return self._in_units(predicted.mean), among[..., 0] if self._flat_targets else among
        if isinstance(self.likelihood_, likelihoods.Noise) and not return_std:
            # The mean is that of f, which costs less than a variance.
            return self._in_units(torch.cat(self._for_parts(X, lambda model, *given: model.predict_mean(*given).cpu())))
        predicted = self._predictive(X)
        mean = self._in_units(predicted.mean)
        return (mean, self._shaped(predicted.std.numpy() * self._interval_scale())) if return_std else mean

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> Float[np.ndarray, "rows *outputs samples"]:
        """Draws of new observations at all rows together: f from its joint posterior, with own noise in each row.

        The shape is (N, samples), or (N, outputs, samples). A number as ``random_state`` gives the same draws again.
        """
        check_is_fitted(self)
        count = whole_number("n_samples", n_samples)
        generator = torch.Generator().manual_seed(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))
        mean, cov = self._joint(X)
        known = torch.zeros_like(mean), *self._noise_features(X)  # of f, no variance is left
        drawn = [self._predictive_of(f, *known).sample(generator) for f in draw_normal(mean, cov, count, generator)]
        middle = self._predictive_of(mean, *known).mean
        return np.stack([self._widened(y, middle) for y in drawn], axis=-1)

    def predict_quantiles(
        self, X: Any, levels: Sequence[float] | Float[np.ndarray, " levels"] = (0.05, 0.5, 0.95)
    ) -> Float[np.ndarray, "rows *outputs levels"]:
        """Values below which a new observation lies with these probabilities: (N, levels), or (N, outputs, levels)."""
        if np.ndim(levels) != 1 or not len(levels):
            raise ValueError(f"levels must be probabilities between 0 and 1, as in (0.05, 0.5, 0.95), got {levels!r}.")
        predicted = self._predictive(X)
        return np.stack([self._widened(predicted.quantile(float(level)), predicted.mean) for level in levels], axis=-1)

    def _predictive(self, X: Any) -> Any:
        return self._predictive_of(*self._latent(X), *self._noise_features(X))

    def _predictive_of(self, *given: Tensor) -> Any:
        """The distribution of new observations: given mean and variance of f, and what else the noise depends on."""
        return self.likelihood_.predictive(*given)

    def _noise_features(self, X: Any) -> list[Float[Tensor, "rows features"]]:
        """What the noise of new rows depends on; nothing, if it is the same everywhere."""
        likelihood = self.likelihood_
        if not isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
            return []
        return [torch.cat(self._for_parts(X, lambda _, x, *__: likelihood.features(x)))]

    def _joint(self, X: Any) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "anyoutputs rows rows"]]:
        """Mean and covariance of f at all rows together, which need to be in memory."""
        inputs = X if (on_disk := stored(X)) is None else on_disk.loaded()
        ((mean, covariance),) = self._for_parts(inputs, lambda model, x, *draws: model.joint(x, *draws))
        return mean.cpu(), covariance.cpu()

    def _interval_scale(self) -> Float[np.ndarray, " outputs"]:
        """Units of y for one unit of a standard deviation of the model, which few rows underestimate."""
        return self.target_scale_ * few_rows_factor(self.evidence_.num_data)

    def _widened(self, values: Tensor, middle: Tensor) -> Float[np.ndarray, "rows *outputs"]:
        """Observations in the units of y, farther from the middle where rows are few. Counts are not negative."""
        further = (values - middle).numpy() * (self._interval_scale() - self.target_scale_)
        y = values.numpy() * self.target_scale_ + self.target_mean_ + further
        return self._shaped(np.maximum(y, 0.0) if isinstance(self.likelihood_, likelihoods.NegativeBinomial) else y)

    def _in_units(self, mean: Float[Tensor, "rows outputs"]) -> Float[np.ndarray, "rows *outputs"]:
        return self._shaped(mean.numpy() * self.target_scale_ + self.target_mean_)

    def _shaped(self, values: Float[np.ndarray, "rows outputs"]) -> Float[np.ndarray, "rows *outputs"]:
        return values[:, 0] if self._flat_targets else values

    def _problem(self, x: AllInputs, targets: np.ndarray, sample_weight: Any) -> Problem:
        self._flat_targets = targets.ndim == 1
        values = as_numbers(targets).reshape(len(targets), -1)
        # A target that does not vary, up to rounding, has its own size for a unit.
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = values.mean(0), values.std(0)
        if not np.isfinite(spread).all():
            raise ValueError("the targets are so large that their variance is infinite: measure them in a larger unit.")
        varies = spread > 10 * np.finfo(np.float64).eps * np.abs(mean)
        unit = np.where(varies, spread, np.where(mean != 0, np.abs(mean), 1.0))
        counts = self.likelihood == "negative-binomial" or isinstance(self.likelihood, likelihoods.NegativeBinomial)
        if counts and not (values.any() and np.all((values >= 0) & (values == np.rint(values)))):
            raise ValueError("counts are 0, 1, 2, …, and not all zero: take another likelihood for these targets.")
        normalise = self.normalize_y and not counts
        self.target_mean_: np.ndarray = mean if normalise else np.zeros_like(mean)
        self.target_scale_: np.ndarray = unit if normalise else np.ones_like(unit)
        y = torch.tensor((values - self.target_mean_) / self.target_scale_)
        variance = float(np.square(unit / self.target_scale_).mean())
        likelihood, start = self._likelihood(y, variance), y.mean(0)
        if isinstance(likelihood, likelihoods.NegativeBinomial):
            likelihood.unit.fill_(float(y.mean()))
            logs = torch.log((y + 0.5) / likelihood.unit)
            variance, start = float(logs.var(correction=0)) or 1.0, logs.mean(0)
        if len(y) <= FEW_ROWS:
            warnings.warn(
                f"few rows ({len(y)}) hardly determine a kernel and its noise: standard deviations and quantiles are "
                f"widened by a factor of {few_rows_factor(len(y)):.2g}, which more than {FEW_ROWS} rows do not need."
            )
        seen = torch.cat([y, known_noise(likelihood, x, self.alpha, sample_weight, self.target_scale_)], 1)
        return Problem(seen, likelihood, variance, start, log_scale=float(np.log(self.target_scale_).sum()))

    def _likelihood(self, y: Float[Tensor, "rows outputs"], variance: float) -> Likelihood:
        outputs = y.shape[1]
        if isinstance(self.likelihood, str):
            name = "gaussian" if self.likelihood == "auto" else self.likelihood
            likelihood = make_likelihood(name, num_outputs=outputs)
            _start_noise(likelihood, variance, MIN_NOISE if len(y) > FEW_ROWS else 0.5 / len(y))
            return likelihood
        if not isinstance(self.likelihood, Likelihood) or isinstance(self.likelihood, likelihoods.Classification):
            raise TypeError(f"likelihood must be a name or a likelihood for regression, got {self.likelihood!r}.")
        if (latents := self.likelihood.num_latents) != outputs:
            raise ValueError(f"the likelihood has {latents} latent functions, but y has {outputs} outputs.")
        return deepcopy(self.likelihood)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def few_rows_factor(rows: int) -> float:
    """By how much standard deviations of few rows are widened; 1 where there are more.

    Evidence that is maximised takes the scale of the targets for known. Integrated over an unknown mean and scale,
    predictions are Student's: 90 % of new values lie within t s sqrt((n + 1) / (n - 1)), where the targets have
    standard deviation s and t is a quantile with n - 1 degrees of freedom. One row counts as two.
    """
    if rows > FEW_ROWS:
        return 1.0
    rows = max(rows, 2)
    return float(stats.t.ppf(0.95, rows - 1) / stats.norm.ppf(0.95) * sqrt((rows + 1) / (rows - 1)))


@torch.no_grad()
def _start_noise(likelihood: Likelihood, variance: float, least: float) -> None:
    """Named likelihoods start for unit variance of y: move them to the variance there is, above a ``least`` share."""
    if isinstance(likelihood, likelihoods.Gaussian):
        likelihood.log_noise.add_(log(variance))
        likelihood.min_noise = least * variance
    elif isinstance(likelihood, likelihoods.StudentT):
        likelihood.log_scale.add_(0.5 * log(variance))
        likelihood.min_scale = sqrt(least * variance)
