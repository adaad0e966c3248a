"""What a fitted estimator says of itself: evidence, what it learned, a summary, a report, and what a notebook shows."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from orbitgp.estimators.session import StrPath
from orbitgp.inference.evidence import Evidence
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.signals.warps import SignalWarp
from orbitgp.report.summary import html, summary


class Presents(BaseEstimator):
    """The words of both estimators."""

    orbit_: Orbit
    evidence_: Evidence
    plausible_: dict[str, Any]
    examples_: tuple[np.ndarray, np.ndarray]
    input_shape_: tuple[int, ...]

    def _orbit_for(self, x: Tensor) -> Orbit:
        """The orbit before it learned anything from inputs like these."""
        raise NotImplementedError

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The number of ``evidence_``, by the name that it has in scikit-learn."""
        return self.evidence_.value

    def log_marginal_likelihood(self) -> float:
        """The log marginal likelihood of the training targets at the learned parameters, in the units of y.

        It is exact under a Gaussian likelihood and exact inference without an orbit, or with a finite one. Of an
        infinite orbit it is estimated by draws that nothing was fitted to. Of two classes and of counts it is that of
        expectation propagation. Sparse inference and other likelihoods have a lower bound. ``evidence_`` says which it
        is, and how far it may be off.
        """
        check_is_fitted(self)
        return self.log_marginal_likelihood_value_

    def describe(self) -> Description:
        """What the orbit has learned, in physical units, and what else is plausible, where that is known."""
        check_is_fitted(self)
        intervals = [part.interval for part in self.orbit_.modules() if isinstance(part, SignalWarp)]
        extent = self.input_shape_[-1] * intervals[0] if intervals else float(max(self.input_shape_[-2:]))
        described = self.orbit_.describe().within(extent)
        quantities = {name: described.quantities[name] for name in self.plausible_}
        ends = {name: self.plausible_[name] or (q.neutral, inf) for name, q in quantities.items()}  # or not determined
        units = {name: q.unit for name, q in quantities.items()}
        pairs = {name: (Quantity.of(a, units[name]), Quantity.of(b, units[name])) for name, (a, b) in ends.items()}
        return described.with_plausible(pairs)

    def summary(self, over_plain: float | None = None) -> str:
        """What was learned, in few lines. ``over_plain``: its evidence less that of the same model without an orbit."""
        check_is_fitted(self)
        return summary(self, over_plain)

    def report(
        self, path: StrPath, *, test: tuple[Any, Any] | None = None, title: str = "", plain: float | None = None
    ) -> None:
        """Write an HTML page that says and shows what was learned; ``orbitgp learn`` writes the same.

        It shows the error on ``test``, held-out inputs and targets. ``title`` names the data, and ``plain`` is the
        evidence of the same model without an orbit.
        """
        from orbitgp.report.page import Content, write_report

        check_is_fitted(self)
        x, y = self.examples_
        start = self._orbit_for(torch.as_tensor(x)).describe()
        write_report(Path(path), Content(title or str(path), self, x, y, start, test=test, plain=plain))

    def _html_repr(self) -> str:
        """What a notebook shows: what was learned, and scikit-learn's diagram of the arguments."""
        return f"{html(self) if hasattr(self, 'examples_') else ''}{estimator_html_repr(self)}"
