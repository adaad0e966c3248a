"""What may be said of a run; how much evidence is chance, against simulated maxima of Gaussian likelihoods."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from orbitgp.inference.evidence import Evidence, rounded
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.finding import FALSE_SUPPORT, finding, is_certain, nats_needed


@pytest.mark.parametrize("learned", [1, 2, 6])
@pytest.mark.parametrize("tried", [1, 3])
def test_false_support_is_as_rare_as_it_says(learned: int, tried: int) -> None:
    """Log likelihood of k means at their best, less that of the true ones: half the squared length of k normal
    numbers."""
    rng = np.random.default_rng(0)
    gains = 0.5 * np.square(rng.normal(size=(40_000, tried, learned))).sum(-1).max(-1)
    share = np.mean(gains > nats_needed(learned, tried))
    assert share <= FALSE_SUPPORT + 4 * np.sqrt(FALSE_SUPPORT / len(gains))
    assert np.mean(gains > nats_needed(learned, tried) - 3.0) > FALSE_SUPPORT  # three nats less would not do


def test_a_fixed_model_needs_the_odds_of_a_false_word() -> None:
    """P(likelihood ratio > t) <= 1 / t under the true model: two Gaussian means, a distance apart that makes it
    tightest."""
    rng = np.random.default_rng(1)
    for distance in (1.0, 2.0, 3.0):
        x = rng.normal(size=200_000)
        gains = distance * x - 0.5 * distance**2
        assert np.mean(gains > nats_needed(0)) <= FALSE_SUPPORT


@pytest.mark.parametrize(
    ("over", "further", "said", "supported"),
    [
        (100.0, {}, "Insensitive to rotations within ±45°; evidence +100 nats over no invariance.", True),
        (100.0, {"num_data": 2}, "There are only 2 data.", True),
        (
            -0.04,
            {"num_data": 2},
            "Cannot tell whether an invariance helps: with rotations within ±45°, the evidence is the same.",
            False,
        ),
        (2.9, {}, "Cannot tell", False),
        (174.0, {"certain": False}, "174 nats higher, which is not certain.", False),
        (-50.0, {}, "No invariance is better: with rotations within ±45°, the evidence is 50 nats lower.", False),
        (None, {}, "Learned rotations within ±45°; not compared with no invariance.", False),
        (
            100.0,
            {"stopped": True, "steps": 1},
            "Stopped after 1 step, so this is no result yet: so far rotations",
            False,
        ),
        (
            -0.0,
            {},
            "Cannot tell whether an invariance helps: with rotations within ±45°, the evidence is the same.",
            False,
        ),
        (100.0, {"converged": False, "steps": 12}, "Not converged after 12 steps, so this is no result yet", False),
    ],
)
def test_nothing_is_a_finding_that_the_evidence_does_not_support(
    over: float | None, further: dict[str, int], said: str, supported: bool
) -> None:
    found = finding(make_orbit("rotation").describe(), over, **{"num_data": 100, **further})
    assert said in found.text
    assert found.supported is supported
    assert ("Insensitive" in found.text) is supported


def test_a_model_without_invariance_that_has_not_converged_says_so() -> None:
    found = finding(make_orbit("none").describe(), None, num_data=100, converged=False, steps=5)
    assert found.text == "Not converged after 5 steps, so this is no result yet: a Gaussian process without invariance."


def test_a_difference_is_certain_beyond_errors_and_slack() -> None:
    def evidence(value: Any, stderr: float = 0.0, exact: bool = True, upper: Any = None) -> Any:
        return Evidence(value, stderr, 10, 8, "Gaussian", exact, upper)

    assert is_certain(evidence(10.0), evidence(0.0))
    assert is_certain(evidence(0.0), evidence(10.0))
    assert not is_certain(evidence(10.0, 3.0), evidence(0.0, 3.0))
    assert not is_certain(evidence(10.0, exact=False, upper=20.0), evidence(0.0, exact=False, upper=15.0))
    assert is_certain(evidence(10.0, exact=False, upper=20.0), evidence(0.0, exact=False, upper=5.0))


def test_no_difference_is_certain_of_what_has_no_upper_end() -> None:
    """The rule of ``learn`` is that of ``compare``: unknown slack, a limit that was met, few rows."""
    bound = Evidence(0.0, 0.0, 10, None, "StudentT")
    assert not is_certain(replace(bound, value=1000.0), bound)
    plain = Evidence(0.0, 0.0, 10, None, "Gaussian", exact=True)
    assert not is_certain(replace(plain, value=1000.0), replace(plain, converged=False))
    assert is_certain(replace(plain, value=1000.0, converged=False), plain)
    for shortfall, certain in ((5.0, True), (20.0, False)):
        assert is_certain(replace(plain, value=10.0), replace(plain, shortfall=shortfall)) is certain


def test_large_errors_have_no_exponent() -> None:
    assert [rounded(value) for value in (0.0671, 0.44, 2.71, 41.3, 2712.0)] == ["0.067", "0.44", "2.7", "41", "2,712"]
    assert [rounded(value, 1) for value in (0.0671, 0.96, 9.4, 9.7)] == ["0.07", "1", "9", "10"]  # not 1e+01
    assert str(Evidence(-32030.7, 41.3, 1347, 32, "Dirichlet", exact=True)).startswith("-32,030.7 ± 41 nats")


def test_a_finding_names_apart_what_may_be_nothing() -> None:
    learned = {
        "degrees": Quantity(17.0, "°", (Quantity(12.0, "°"), Quantity(inf, "°"))),
        "shear": Quantity((-0.0016, 0.0016), "", (Quantity((0.0, 0.0)), Quantity((-0.02, 0.02)))),
        "scale_x": Quantity((0.99, 1.01), "×", (Quantity((1.0, 1.0), "×"), Quantity((0.8, 1.3), "×"))),
        "shift_x": Quantity((0.0, 0.0), "px", (Quantity((0.0, 0.0), "px"), Quantity((-1.0, 1.0), "px"))),
    }
    said = finding(Description("Affine", learned), 10.0, num_data=100).text
    assert said == (
        "Insensitive to rotations within ±17° (plausible at least ±12°, not determined above) "
        "(shears, scaling sideways and shifts sideways not determined); evidence +10 nats over no invariance."
    )
    learned["shear"] = Quantity((-0.0016, 0.0016), "", (Quantity((0.0, 0.0)), Quantity((-0.004, 0.004))))
    said = finding(Description("Affine", learned), 10.0, num_data=100).text
    assert "(no shears, scaling sideways and shifts sideways not determined)" in said
    learned["shear"] = Quantity((-0.0016, 0.0016), "", (Quantity((0.0, 0.0)), Quantity((-0.02, 0.02))))
    del learned["degrees"], learned["scale_x"], learned["shift_x"]
    said = finding(Description("Shear", learned), 10.0, num_data=100).text
    assert said.startswith("Insensitive to shears within ±0.0016 (plausible none, or up to ±0.020); evidence")
