"""Data of the coverage experiment, and what is said of its records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from experiments import coverage
from experiments.coverage import Kind
from orbitgp.orbits import Rotation, Scale, Translation, Warp


@pytest.mark.parametrize(
    ("kind", "orbit"),
    [
        (coverage.turned(40.0), Rotation(40)),
        (coverage.shifted(1.5), Translation(1.5, None)),
        (coverage.scaled(1.5), Scale(1.5)),
    ],
)
def test_the_data_are_of_the_orbit_that_is_learned(kind: Kind, orbit: Warp) -> None:
    """The mean over transformations by scipy is that over draws of the library's orbit."""
    images = coverage.blobs(np.random.default_rng(0))
    found = coverage.covariance(kind, images)
    flat = images.reshape(coverage.ROWS, -1)
    length = 0.7 * np.median(cdist(flat, flat)[np.triu_indices(coverage.ROWS, 1)])
    with torch.no_grad():
        some = torch.from_numpy(images[:4]).double()
        points = orbit.double().shared_samples(some, 256).points[:, 0].flatten(2).numpy() / length
    means = np.array([[np.exp(-0.5 * cdist(a, b, "sqeuclidean")).mean() for b in points] for a in points])
    np.testing.assert_allclose(found[:4, :4] / found[0, 0], means / means[0, 0], atol=0.02)


def test_what_is_not_determined_holds_everything() -> None:
    held = {
        "true": 20.0,
        "learned": 17.0,
        "seconds": 1.0,
        "settings": {"kind": "rotation ±20°"},
        "plausible": [10.0, np.inf],
    }
    missed, unknown = {**held, "plausible": [0.0, 19.0]}, {**held, "plausible": None}
    assert [coverage.holds(record) for record in (held, missed, unknown)] == [True, False, True]
    records = [*[held] * 19, missed]
    assert list(coverage.check(records).values()) == [True]
    assert list(coverage.check(records[-2:]).values()) == [False]
    assert "| rotation ±20° | 19 of 20 | 17 | 10 to inf | 0 | 1.0 |" in coverage.table(records)
