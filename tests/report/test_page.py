"""The report: whole, self-contained, escaped, and true to its numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.result import Comparison
from orbitgp.comparison.verdict import Standing
from orbitgp.datasets import digits
from orbitgp.inference.evidence import Evidence
from orbitgp.metrics import ece, error_rate
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.parse import make_orbit
from orbitgp.plotting.figures import new_axes
from orbitgp.report.cases import score
from orbitgp.report.charts import STYLE, svg
from orbitgp.report.page import Content, _cards, _said, page, write_report

pytestmark = pytest.mark.usefixtures("one_start")

EVIL = "<script>alert(1)</script> & \"'"
VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Every element that opens closes, in order; notes what could reach outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, name: Any, attributes: Any) -> None:
        self.tags.append(name)
        self.links += [value for key, value in attributes if key in ("src", "href", "action", "srcset", "xlink:href")]
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name: Any, attributes: Any) -> None:
        self.tags.append(name)

    def handle_endtag(self, name: Any) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: Any) -> None:
        self.text.append(data)


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "script" not in checker.tags
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in checker.links)
    assert not re.search(r"url\((?!#)|@import|https?://", text)
    assert "Content-Security-Policy" in text
    assert "prefers-color-scheme: dark" in text
    return checker


@pytest.fixture(scope="module")
def classifier() -> tuple[InvariantGPClassifier, np.ndarray, Any, np.ndarray, Any, Description]:
    data = digits()
    x, y = data.x_train[:80], data.y_train[:80]
    assert len(set(y)) == 10
    names = np.array([f"{EVIL}{i}" for i in range(10)])
    start = make_orbit("rotation")
    model = InvariantGPClassifier(start, num_inducing=20, max_steps=12, num_samples=4, random_state=0).fit(x, names[y])
    return model, x, names[y], data.x_test[:80], names[data.y_test[:80]], start.describe()


@pytest.fixture(scope="module")
def regressor() -> tuple[InvariantGPRegressor, np.ndarray, Any, Description]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x.sum(1) + 0.1 * rng.normal(size=60)
    start = make_orbit("swap(0, 1)", (3,))
    model = InvariantGPRegressor(start, num_inducing=16, max_steps=30, random_state=0).fit(x[:40], y[:40])
    return model, x, y, start.describe()


def comparison(model: Any, plain: float = 10.0) -> Comparison:
    """Rotation cannot be told from another orbit; from no invariance it can, unless the evidence of that is raised."""
    standings = [
        Standing("none", plain, plain, plain),
        Standing("rotation", 51.0, 50.0, 52.0),
        Standing(EVIL, 49.0, 48.0, np.inf, "one run", "512 inducing points"),
    ]
    trained = {s.name: [Trained(Job(s.name, model.orbit_, 0, InvariantGPClassifier), 1.0, model)] for s in standings}
    return Comparison(standings, trained, "none")


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_control_characters_do_not_reach_the_page(regressor: Any) -> None:
    model, x, y, start = regressor
    text = page(Content(title="a\x00b\x1b[31m", model=model, x=x[:40], y=y[:40], start=start, notes=["\x07\x7f"]))
    checked(text)
    assert "a\ufffdb\ufffd[31m" in text
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert policy in text


@pytest.mark.slow
def test_a_classifier_with_everything(classifier: Any, tmp_path: Path) -> None:
    model, x, y, x_test, y_test, start = classifier
    content = Content(
        title=EVIL,
        model=model,
        x=x,
        y=y,
        start=start,
        test=(x_test, y_test),
        plain=model.evidence_.value - 41_234,
        comparison=comparison(model),
        command=f"orbitgp learn {EVIL}",
        settings={EVIL: EVIL},
        versions={"torch": "2"},
        notes=[EVIL],
    )
    write_report(tmp_path / "report.html", content)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    checker = checked(text)
    words = "".join(checker.text).replace("\u00a0", " ")
    assert EVIL in words
    assert "Cannot tell" in words
    assert "+41 (+40 to +42) nats over no invariance" in words  # as the comparison has it
    assert "Not converged after 12 steps" in words
    assert "512 inducing points" in words
    for title in (
        "Which invariance",
        "averages over",
        "Ranges",
        "Training",
        "Error and cal",
    ):
        assert title in words
    assert "does not care about" not in words  # above "cannot tell", that would be a claim
    assert "Most uncertain" in words
    assert "Most wrong" in words
    # Four grids of 25, and twelve cases of seven (fewer where fewer were wrong).
    scores = score(model, x_test, y_test)
    assert checker.tags.count("img") == 4 * 25 + 7 * (6 + len(scores.wrong))


def test_the_table_of_a_comparison_says_what_each_orbit_has_learned(classifier: Any) -> None:
    model, x, y, *_, start = classifier
    ranking = comparison(model)
    angle = str(model.orbit_.describe().quantities["degrees"])
    said = f"rotations within {angle}"
    printed = str(ranking)
    assert [f"  {name:<{len(EVIL)}}  {said}" in printed.splitlines() for name in ("rotation", EVIL, "none")] == [
        True,
        True,
        False,
    ]
    settled = Comparison(ranking.standings[::2], ranking.trained, "none")
    assert settled.tied == ["rotation"]
    assert said not in str(settled)
    for shown in (ranking._repr_html_(), page(Content("digits", model, x, y, start, comparison=ranking))):
        checker = Checker()
        checker.feed(shown)
        assert [text.replace("\u00a0", " ") for text in checker.text].count(said) == len(ranking.rows)


@pytest.mark.usefixtures("empty_charts")
def test_the_report_of_a_comparison_has_the_digits_of_its_printed_table(classifier: Any) -> None:
    model, x, y, *_, start = classifier
    ranking = comparison(model)
    checker = checked(page(Content("digits", model, x, y, start, comparison=ranking)))
    assert {f"{row.evidence:,.1f}" for row in ranking.rows} <= set(checker.text)


@pytest.mark.usefixtures("empty_charts")
def test_what_cannot_be_told_is_no_gain(classifier: Any) -> None:
    model, x, y, *_, start = classifier
    told = page(Content("digits", model, x, y, start, plain=0.0, comparison=comparison(model, plain=50.5)))
    assert "so not whether any invariance helps" in told
    assert "over no invariance" not in told


@pytest.mark.parametrize(
    ("value", "stderr", "card"),
    [(-75.64, 0.0008, "−75.6"), (-11.93, 0.47, "−11.9 ± 0.5"), (-8087.75, 3.2, "−8,088 ± 3"), (-23.62, 0.0, "−23.6")],
)
def test_an_error_stands_beside_as_many_digits_as_it_has(
    classifier: Any, monkeypatch: pytest.MonkeyPatch, value: float, stderr: float, card: str
) -> None:
    model, x, y, *_, start = classifier
    monkeypatch.setattr(model, "evidence_", Evidence(value, stderr, 80, 8, "Gaussian", True, None))
    cards = dict(_cards(Content("digits", model, x, y, start), None))
    assert cards["evidence: log marginal likelihood, in nats"].replace("\u00a0", " ") == card


def test_scores_are_those_of_the_metrics(classifier: Any) -> None:
    model, *_, x_test, y_test, _ = classifier
    probabilities = model.predict_proba(x_test)
    labels = np.searchsorted(model.classes_, y_test)
    scores = score(model, x_test, y_test)
    assert scores.plain["error"] == error_rate(probabilities, labels)
    assert scores.plain["ece"] == pytest.approx(ece(probabilities, labels), abs=1e-5)
    assert sum(scores.calibration.weights) == len(x_test)
    guess = probabilities.argmax(1)
    confident = probabilities.max(1)
    assert all(guess[case.row] != labels[case.row] for case in scores.wrong)
    assert [case.row for case in scores.wrong] == sorted((c.row for c in scores.wrong), key=lambda r: -confident[r])
    odd = y_test.copy()
    odd[:3] = "never seen"
    scores = score(model, x_test, odd)
    assert "3 of 80 test cases" in scores.notes[0]
    assert scores.plain["error"] == pytest.approx((np.sum(guess[3:] != labels[3:]) + 3) / 80)
    with pytest.raises(ValueError, match="no test case"):
        score(model, x_test[:1], np.array(["never seen"]))


@pytest.mark.slow
def test_a_regressor_on_vectors(regressor: Any) -> None:
    model, x, y, start = regressor
    text = page(Content("vectors", model, x[:40], y[:40].round(), start, test=(x[40:], y[40:])))
    assert re.search(r"row 1: y = -?[0-9]+<", text)  # no point at the end
    words = "".join(checked(text).text)
    assert "exchanges of coordinates" in words
    assert "Root mean square error" in words
    scores = score(model, x[40:], y[40:])
    mean, std = model.predict(x[40:], return_std=True)
    assert scores.plain["rmse"] == pytest.approx(np.sqrt(np.mean((mean - y[40:]) ** 2)))
    assert scores.wrong[0].row == np.argmax(np.abs(mean - y[40:]) / std)
    assert all(a <= b for a, b in zip(scores.calibration.happened, scores.calibration.happened[1:], strict=False))


@pytest.mark.usefixtures("empty_charts")
def test_the_heading_of_the_samples_claims_no_more_than_the_verdict(
    regressor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y, start = regressor
    monkeypatch.setattr(model, "converged_", True)
    for gain, claims in ((50.0, True), (0.1, False), (None, False)):
        plain = None if gain is None else model.evidence_.value - gain
        headings = re.findall("<h2>(.*?)</h2>", page(Content("vectors", model, x, y, start, plain=plain)))
        assert ("What the model does not care about" in headings) is claims
        assert ("What the model averages over" in headings) is not claims


@pytest.mark.usefixtures("empty_charts")
def test_a_range_of_no_size_is_called_none(classifier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, *_, start = classifier
    for degrees, said in ((0.2, "none"), (17.0, "±17°")):
        monkeypatch.setattr(
            model, "describe", lambda angle=degrees: Description("Rotation", {"degrees": Quantity(angle, "°")})
        )
        assert re.findall(r'class="now">([^<\n]*)', page(Content("digits", model, x, y, start))) == [said]


@pytest.mark.usefixtures("empty_charts")
def test_large_hyperparameters_are_written_as_people_do(classifier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, *_, start = classifier
    last = {**model.history_[-1], "outputscale": 33261.4, "lengthscale": 0.123456}
    monkeypatch.setattr(model, "history_", [*model.history_[:-1], last])
    text = page(Content("digits", model, x, y, start))
    assert ">33,261<" in text
    assert ">0.1235<" in text


@pytest.mark.usefixtures("empty_charts")
def test_without_test_data_it_says_how_to_have_some(regressor: Any) -> None:
    model, x, y, start = regressor
    assert "--test-fraction" in "".join(checked(page(Content("vectors", model, x, y, start))).text)


@pytest.mark.parametrize(
    ("found", "headline", "lead"),
    [
        (
            "Insensitive to shifts within ±4 px (plausible ±2 px to ±6 px); evidence +12 nats over no invariance.",
            "Insensitive to shifts within ±4 px.",
            "Plausible ±2 px to ±6 px; evidence +12 nats over no invariance.",
        ),
        (
            "Insensitive to mirror images; evidence +8.0 nats over no invariance.",
            "Insensitive to mirror images.",
            "Evidence +8.0 nats over no invariance.",
        ),
        (
            "Stopped after 1 step, so this is no result yet: so far rotations within ±2°.",
            "Stopped after 1 step, so this is no result yet.",
            "So far rotations within ±2°.",
        ),
        (
            "Cannot tell whether an invariance helps: "
            "with turns within ±4° (plausible ±2° to ±6°), the evidence is higher.",
            "Cannot tell whether an invariance helps.",
            "With turns within ±4° (plausible ±2° to ±6°), the evidence is higher.",
        ),
        (
            "Insensitive to shifts within ±4 px (plausible ±2 px to ±6 px) sideways and ±1 px "
            "(plausible ±0 px to ±2 px) down; evidence +12 nats over no invariance.",
            "Insensitive to shifts within ±4 px sideways and ±1 px down.",
            "Evidence +12 nats over no invariance.",
        ),
    ],
)
def test_the_headline_is_the_first_clause_and_the_rest_stands_below(found: str, headline: str, lead: str) -> None:
    said = _said(found)
    assert said["headline"].replace("\u00a0", " ") == headline
    assert [text.replace("\u00a0", " ") for _, text in said["lead"]] == [lead]
    assert "4\u00a0px" in said["headline"] or "px" not in said["headline"]


@pytest.mark.parametrize(("few", "said"), [(80, True), (40, False)])
@pytest.mark.usefixtures("empty_charts")
def test_grey_dots_are_explained_where_there_are_some(
    classifier: Any, monkeypatch: pytest.MonkeyPatch, few: int, said: bool
) -> None:
    model, x, y, *_, start = classifier
    with_orbit = {**model.history_[-1], "rows": 80, "climb": 1}
    without = {**with_orbit, "rows": few, "climb": 2, "without_orbit": True}
    monkeypatch.setattr(model, "history_", [without] * 9 + [with_orbit] * 9)
    assert ("Grey dots are without the orbit" in page(Content("digits", model, x, y, start))) is said


def test_a_notebook_shows_a_plotted_comparison_once(classifier: Any) -> None:
    """It shows the figures that pyplot knows at the end of a cell. The HTML of a comparison brings a picture of its
    own."""
    pyplot.close("all")
    compared, own = comparison(classifier[0]), Figure().subplots()
    assert "<img" in compared._repr_html_()
    assert compared.plot(own) is own
    assert pyplot.get_fignums() == []
    axes = compared.plot()
    assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [axes.figure]
    pyplot.close(axes.figure)


def test_charts_follow_the_theme_of_the_page_and_keep_its_words(classifier: Any) -> None:
    with matplotlib.rc_context(STYLE):
        axes = comparison(classifier[0]).plot(new_axes(5.0, 2.0))
        axes.set_xlabel("$x$ and #000000")
        chart = svg(axes, EVIL)
    checker = Checker()
    checker.feed(chart)
    words = "".join(checker.text).replace("\u00a0", " ")
    assert words.count(EVIL) == 2  # the title and the name of an orbit
    assert "$x$ and #000000" in words
    assert set(re.findall(r"(?:stroke|fill): ([^;\"]+)", chart)) == {"none", "var(--accent)", "var(--soft)"}


@pytest.mark.usefixtures("empty_charts")
def test_no_theme_makes_negatives_of_pictures(classifier: Any) -> None:
    model, x, y, *_, start = classifier
    assert "invert(" not in page(Content("digits", model, x, y, start))


@pytest.mark.usefixtures("empty_charts")
def test_each_column_has_its_lengthscale() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    model = InvariantGPRegressor(ard=True, random_state=0).fit(x, np.sin(2 * x[:, 1]))
    text = page(Content("table", model, x, x[:, 1], model.describe(), columns=("age", "tilt", "size")))
    said = dict(re.findall(r"lengthscale of (\w+)\D*?([\d.e+]+)<", text))
    expected = model.kernel_.base_kernel.lengthscale.detach().flatten().numpy()
    assert next(iter(said)) == "tilt"  # the shortest
    np.testing.assert_allclose([float(said[name]) for name in ("age", "tilt", "size")], expected, rtol=0.01)
