"""The estimators pass scikit-learn's own checks."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import GaussianNoise
from tests.estimators.quick import QUICK

QUICKER: dict[str, Any] = {**QUICK, "max_steps": 1}

# Weights divide the noise, which is no repetition of rows.
NO_COPIES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "weights are not copies" for kind in ("dense", "sparse")
}


# One orbit is enumerated, the other sampled. Both estimators share the code that does either.
@pytest.mark.slow
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        InvariantGPRegressor(**QUICKER),
        InvariantGPClassifier(GaussianNoise(), likelihood="gaussian", **QUICKER),
    ],
    expected_failed_checks=lambda estimator: NO_COPIES if isinstance(estimator, InvariantGPRegressor) else {},
)
@pytest.mark.usefixtures("one_start", "short_ends")
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
