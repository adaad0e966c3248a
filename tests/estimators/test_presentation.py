"""What an estimator, an orbit and a comparison say of themselves: in a line, in a notebook, on a page."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, compare
from orbitgp.comparison.result import _note_on_bounds
from orbitgp.inference import inducing_points
from orbitgp.inference.evidence import Evidence
from orbitgp.orbits import Affine, LocalDeformation, Permutation, Rotation

rng = np.random.default_rng(0)
X = rng.normal(size=(25, 2))
Y = X.sum(1)


@pytest.fixture(scope="module")
def model() -> InvariantGPRegressor:
    return InvariantGPRegressor("swap(0, 1)", random_state=0).fit(X, Y)


def test_an_orbit_says_its_ranges() -> None:
    assert repr(Rotation(30)) == "Rotation(degrees=±30°)"
    assert "\n" not in repr(Affine() * LocalDeformation())
    assert "Rotation(degrees=±30°)" in repr(InvariantGPClassifier(Rotation(30)))
    assert "<td>degrees</td><td>±30°</td>" in Rotation(30)._repr_html_()


def test_a_plan_chooses_no_inducing_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of photographs in their own size that alone takes minutes."""
    monkeypatch.delattr(inducing_points, "_pivots")
    model = InvariantGPRegressor("swap(0, 1)", inference="sparse", num_inducing=10, random_state=0)
    assert model.plan(X, Y).inference == "sparse"
    with pytest.raises(NameError, match="_pivots"):
        model.fit(X, Y)


def test_a_summary(model: Any, tmp_path: Path) -> None:
    text = model.summary()
    assert text.startswith("Learned exchanges of coordinates; not compared with no invariance.")
    assert str(model.evidence_) in text
    assert "exact;" in text
    assert f"\nevidence: {model.evidence_}\n" in text
    assert model.summary(over_plain=50.0).startswith("Insensitive to exchanges of coordinates; evidence +50 nats")
    model.save(tmp_path / "model")
    assert InvariantGPRegressor.load(tmp_path / "model").summary() == text
    with pytest.raises(NotFittedError):
        InvariantGPRegressor().summary()


def test_a_few_steps_are_no_result() -> None:
    model = InvariantGPRegressor("swap(0, 1)", num_inducing=5, max_steps=3, random_state=0).fit(X, Y)
    assert model.summary(over_plain=50.0).startswith("Not converged after 3 steps, so this is no result yet")


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_a_notebook_shows_what_was_learned(model: Any) -> None:
    shown = model._repr_mimebundle_()["text/html"]
    assert "exchanges of coordinates" in shown
    assert "data:image/png;base64," in shown
    assert "<pre>" not in shown.partition("</div>")[0]  # which some notebooks show in letters of different widths
    assert re.search(r">evidence</td><td[^>]*>" + re.escape(escape(str(model.evidence_))), shown)
    assert "exchanges" not in InvariantGPRegressor()._repr_mimebundle_()["text/html"]
    table = compare(X, Y, ["none", "swap(0, 1)"])
    assert "data:image/png;base64," in table._repr_html_()
    assert table.sentences[0].split(":")[0] in table._repr_html_()


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts", "one_start")
def test_a_report_from_python(model: Any, tmp_path: Path) -> None:
    model.report(tmp_path / "page.html", title="sums", test=(X[:5], Y[:5]), plain=model.evidence_.value - 40)
    text = (tmp_path / "page.html").read_text()
    assert "Insensitive to exchanges of coordinates." in text
    assert "Evidence +40\N{NO-BREAK SPACE}nats over no invariance." in text
    assert "sums" in text
    classifier = InvariantGPClassifier(Permutation.swap(0, 1), random_state=0).fit(X, np.where(Y > 0, "up", "down"))
    classifier.report(tmp_path / "classes.html")
    assert "ot compared with no invariance" in (tmp_path / "classes.html").read_text()
    assert classifier.examples_[1].tolist() == ["down", "up"]


def test_the_evidence_shows_itself_as_a_sentence() -> None:
    evidence = Evidence(-12.34, 0.1, 30, 16, "Bernoulli")
    assert repr(evidence) == str(evidence) == "≥ -12.3 ± 0.1 nats (30 data, Bernoulli likelihood, 16 fresh draws)"


def test_expectation_propagation_is_no_bound() -> None:
    evidence = Evidence(-12.34, 0.1, 30, None, "Bernoulli", propagated=True, slack=0.25)
    said = "-12.3 ± 0.1 nats (by expectation propagation, about 0.2 too low, 30 data, Bernoulli likelihood)"
    assert str(evidence) == said
    assert evidence.interval == pytest.approx((-12.54, -11.64))
    assert _note_on_bounds([evidence]) == []


def test_a_comparison_of_bounds_says_so() -> None:
    bound, exact = (Evidence(-12.34, 0.1, 30, 16, "Bernoulli", exact=exact) for exact in (False, True))
    assert "the lower bound that the Bernoulli likelihood gives" in _note_on_bounds([exact, bound])[0]
    assert _note_on_bounds([exact]) == []
