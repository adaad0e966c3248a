"""The picture of a comparison: dots and intervals in nats against the best."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest
from matplotlib.axes import Axes
from numpy import float64

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.result import Comparison
from orbitgp.comparison.verdict import Standing
from orbitgp.estimators import InvariantGPRegressor
from orbitgp.inference.evidence import Evidence
from orbitgp.orbits import GaussianNoise, Identity, Orbit
from orbitgp.orbits.description import Description
from orbitgp.plotting.figures import ACCENT, SOFT, new_axes


def drawn(
    standings: list[Standing], tied: list[str]
) -> tuple[Axes, list[tuple[float64, float, float64, float64, str]]]:
    """Height, dot, both ends of the interval, and colour of each orbit."""
    rows = [SimpleNamespace(orbit=standing.name) for standing in standings]
    compared = SimpleNamespace(standings=standings, tied=tied, rows=rows)
    axes = Comparison.plot(compared, new_axes(5.0, 3.0))
    found = []
    for dot, _, (bar,) in axes.containers:
        ((left, height), (right, _)) = bar.get_segments()[0]
        assert dot.get_ydata()[0] == height
        found.append((height, dot.get_xdata()[0], left, right, to_hex(dot.get_color())))
    return axes, found


def test_dots_and_intervals_against_the_best() -> None:
    standings = [
        Standing("best", 10.0, 9.0, 13.0),
        Standing("tied", 8.0, 5.0, 11.0),
        Standing("far", -20.0, -21.0, -18.5),
    ]
    axes, found = drawn(standings, ["best", "tied"])
    expected = [(0, 0, -1, 3, ACCENT), (1, -2, -5, 1, ACCENT), (2, -30, -31, -28.5, SOFT)]
    for one, other in zip(found, expected, strict=True):
        assert one[:4] == pytest.approx(other[:4])
        assert one[4] == other[4]
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["best", "tied", "far"]


def test_an_open_interval_is_as_wide_as_the_others_reach() -> None:
    others = Standing("near", 7.0, 6.0, 8.0), Standing("far", -20.0, -21.0, -18.0)
    _, found = drawn([Standing("best", 10.0, 9.0, inf), *others], ["best"])
    assert found[0][3] == pytest.approx(28)  # as far above the best as the farthest lies below
    _, found = drawn([Standing("best", 10.0, 9.0, inf), Standing("far", -20.0, -21.0, inf)], ["best"])
    assert [right for *_, right, _ in found] == pytest.approx([0, 0])


def test_the_best_has_a_thin_line_behind_everything_and_dots_have_caps() -> None:
    axes, _ = drawn([Standing("best", 10.0, 9.0, 13.0), Standing("far", -20.0, -21.0, -18.5)], ["best"])
    ((dot, caps, (bar,)), _), (zero,) = axes.containers, [line for line in axes.lines if line.get_linestyle() == "-"]
    assert dot.get_marker() == "o"
    assert [cap.get_markersize() for cap in caps] == [6, 6]  # both halves
    assert list(zero.get_xdata()) == [0, 0]
    assert zero.get_linewidth() < bar.get_linewidths()[0]
    assert zero.get_zorder() < bar.get_zorder()
    assert to_hex(zero.get_color()) == SOFT


def test_a_picture_grows_by_a_line_for_each_orbit() -> None:
    class Two:
        rows = (1, 2)

    width, height = vars(Comparison)["_chart_size"].fget(Two)
    assert (width, height) == pytest.approx((6, 1.9))


class Fake(InvariantGPRegressor):
    """A stand-in for a fitted model, with what a comparison reads of it."""

    def __init__(self, orbit: Orbit, value: float, high: float, likelihood: str) -> None:
        exact = high < inf
        self.orbit_, self.evidence_ = (
            orbit,
            Evidence(value, 0.5, 40, None, likelihood, exact, None if exact else value + 3.0),
        )
        self.inference_ = "exact" if exact or likelihood != "Gaussian" else "sparse"

    def describe(self) -> Description:
        return self.orbit_.describe()


def compared(*made: tuple[str, float, float, Orbit], likelihood: str = "Gaussian") -> Comparison:
    """Each orbit with an end of its interval, and a first model that was worse by ten nats."""
    standings = [Standing(name, value, value - 1, high) for name, value, high, _ in made]
    trained = {}
    for name, value, high, orbit in made:
        jobs = [Job(name, orbit, 0, InvariantGPRegressor, purpose=purpose) for purpose in ("", "40 steps")]
        models = [Fake(orbit, at, high, likelihood) for at in (value - 10, value)]
        trained[name] = [Trained(job, 2.0, model) for job, model in zip(jobs, models, strict=True)]
    return Comparison(standings, trained, "none")


def test_what_it_prints() -> None:
    found = compared(("noise", 1100.0, 1101.0, GaussianNoise(0.5)), ("none", 10.0, 11.0, Identity()))
    assert str(found).splitlines() == [
        "orbit  evidence         lies between  behind the best  inference  models",
        "noise   1,100.0  1,099.0 and 1,101.0                       exact       2",
        "none       10.0         9.0 and 11.0          1,090.0      exact       2",
        "",
        "The data support noise: +1,090 (+1,088 to +1,092) nats over no invariance.",
    ]
    assert (found.settled, found.tied, found.best) == (True, ["noise"], "noise")
    assert found.over_plain() == 1090.0
    tied = compared(
        ("none", 10.0, inf, Identity()), ("noise", 9.0, 14.0, GaussianNoise(0.5)), ("far", -90.0, -89.0, Identity())
    )
    assert not tied.settled
    assert tied.over_plain() is None
    lines = str(tied).splitlines()
    assert lines[1].split() == ["none", "10.0", "9.0", "and", "?", "sparse", "2"]
    assert lines[2].split() == ["noise", "9.0", "8.0", "and", "14.0", "1.0", "?", "exact", "2"]
    assert lines[-3:] == ["They have learned:", "  none   nothing", "  noise  noise of standard deviation 0.50"]
    unlearned = compared(("a", 10.0, 11.0, Identity()), ("b", 9.0, 14.0, Identity()))
    assert "They have learned" not in str(unlearned)


def test_what_it_converts_to() -> None:
    found = compared(("noise", 1100.0, 1101.0, GaussianNoise(0.5)), ("none", 10.0, inf, Identity()))
    first, second = found.to_dict()["rows"]
    assert first == {
        "orbit": "noise",
        "evidence": 1100.0,
        "low": 1099.0,
        "high": 1101.0,
        "behind": 0.0,
        "certain": False,
        "inference": "exact",
        "models": 2,
        "learned": {"scale": 0.5},
        "seconds": 4.0,
    }
    assert (second["high"], second["behind"], second["certain"], second["learned"]) == (None, 1090.0, False, {})
    assert found.to_dict()["models"]["none"] == [
        {"trained for": what, "inference": "sparse", "evidence": at, "stderr": 0.5, "upper": at + 3.0, "seconds": 2.0}
        for what, at in (("the comparison", 0.0), ("40 steps", 10.0))
    ]
    page = found._repr_html_()
    assert page.startswith(f"<div><b><p>{found.sentences[0]}</p></b><img")
    assert [page.count(text) for text in ("<tr>", "noise of standard deviation 0.50", found.sentences[1])] == [3, 1, 1]


def test_a_bound_of_exact_inference_is_said() -> None:
    orbits = ("noise", 30.0, inf, GaussianNoise(0.5)), ("none", 10.0, inf, Identity())
    said = "Each evidence is the lower bound that the StudentT likelihood gives, and the intervals are of that bound."
    assert compared(*orbits, likelihood="StudentT").sentences[-1] == said
    assert said not in compared(*orbits).sentences
