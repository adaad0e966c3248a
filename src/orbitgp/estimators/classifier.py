"""Classification with learned invariances."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from orbitgp.estimators.base import InvariantEstimator
from orbitgp.estimators.initialise import Problem
from orbitgp.inference.rows import AllInputs, fetch
from orbitgp.likelihoods import Categorical, Classification, make_likelihood
from orbitgp.planning.rungs import CHECKED_ROWS


@dataclass(eq=False, repr=False)
class InvariantGPClassifier(ClassifierMixin, InvariantEstimator):
    """Gaussian-process classification that learns from the data what it should not care about.

        >>> data = digits()
        >>> model = InvariantGPClassifier("flip", likelihood="gaussian", random_state=0)
        >>> model.fit(data.x_train[:20], data.y_train[:20]).predict(data.x_test[:3]).shape
        (3,)

    Args:
        likelihood: a name or an object. By default (``auto``) it is ``bernoulli`` for two classes and ``dirichlet`` for
            more, by measurement. The other name is ``gaussian``, on class indicators as in the paper.

    Other arguments are those of :class:`orbitgp.InvariantGPRegressor`, without ``normalize_y``. Labels have any type.

    Attributes:
        classes_ (np.ndarray): the labels, in the order of the columns of ``predict_proba``.
        evidence_: the log marginal likelihood, or bounds on it. It compares orbits and kernels under one likelihood,
            never two likelihoods.

    The other attributes are those of :class:`orbitgp.InvariantGPRegressor`.
    """

    def predict_proba(self, X: Any) -> Float[np.ndarray, "rows classes"]:
        """The probability of each class in each row, averaged over the posterior of f.

        A row's prediction does not depend on the other rows, up to rounding (about 1e-12, or 1e-5 in float32).
        """
        mean, variance = self._latent(X)
        predicted = self.likelihood_.predictive(mean, variance)
        assert isinstance(predicted, Categorical)
        return predicted.probs.numpy()

    def predict(self, X: Any) -> Shaped[np.ndarray, " rows"]:
        """The most probable class in each row. Variances are computed only for rows whose class may depend on them."""
        check_is_fitted(self)
        likelihood = self.likelihood_
        assert isinstance(likelihood, Classification)
        latent = self._latent(X, lambda *given: ~likelihood.is_sure(*given))
        return self.classes_[likelihood.most_probable(*latent).numpy()]

    def _problem(self, x: AllInputs, targets: np.ndarray, sample_weight: Any) -> Problem:
        if targets.dtype == object and any(label is None for label in targets):
            raise ValueError("y contains None: every row needs a label.")
        try:
            self.classes_ = np.unique(targets)
        except TypeError:
            kinds = ", ".join(sorted({type(label).__name__ for label in targets}))
            raise ValueError(f"y has labels of several types, {kinds}: make them alike, as by y.astype(str).") from None
        check_classification_targets(targets)
        labels = np.searchsorted(self.classes_, targets)  # in less memory than np.unique would take for them
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {self.classes_[0]}.")
        likelihood = self._likelihood(len(self.classes_))
        encoded = torch.from_numpy(labels).to(x.device)  # which has more room than the host has for many data
        some = torch.arange(len(x), device=x.device)
        if not isinstance(x, Tensor):
            some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:CHECKED_ROWS].to(x.device)
        likelihood.prepare(x if isinstance(x, Tensor) else fetch(x, some), encoded[some])
        y = likelihood.encode(encoded)
        return Problem(y, likelihood, *likelihood.start(y[some]))

    def _likelihood(self, num_classes: int) -> Classification:
        likelihood = self.likelihood
        if isinstance(likelihood, str):
            auto = "bernoulli" if num_classes == 2 else "dirichlet"
            likelihood = make_likelihood(auto if likelihood == "auto" else likelihood, num_classes=num_classes)
        if not isinstance(likelihood, Classification):
            raise TypeError(f"likelihood must be a name or a likelihood for classification, got {self.likelihood!r}.")
        if likelihood.num_classes != num_classes:
            raise ValueError(f"the likelihood has {likelihood.num_classes} classes, but y has {num_classes}.")
        return deepcopy(likelihood)
