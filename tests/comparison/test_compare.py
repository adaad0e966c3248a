"""Comparing invariances: the statistics against textbook ones, the doubts one by one, and a comparison with a known answer."""

from __future__ import annotations

import json
from math import cos, exp, inf, pi

import numpy as np
import pytest
from scipy import stats

import orbitgp
from orbitgp.comparison import compare, profile
from orbitgp.comparison.verdict import Evidences, leaders, remaining_gain, verdict
from orbitgp.orbits import GaussianNoise, Identity, Permutation


def table(values, remaining=None, more=None, stderr=0.1, names="abcdefgh") -> Evidences:
    values = np.asarray(values, dtype=float)
    count = len(values)
    return Evidences(
        names=list(names[:count]),
        values=values,
        stderrs=np.full_like(values, stderr),
        remaining=np.zeros(count) if remaining is None else np.asarray(remaining, dtype=float),
        more=None if more is None else np.asarray(more, dtype=float),
    )


class TestStatistics:
    def test_two_orbits_give_the_paired_t_test(self):
        rng = np.random.default_rng(1)
        a, b = rng.normal(100, 5, 6), rng.normal(80, 5, 6)
        found = table([a, b]).difference(0, 1)
        interval = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.nats == pytest.approx(np.mean(a - b))
        assert found.error == pytest.approx((interval.high - interval.low) / 2)

    def test_what_a_seed_does_to_all_orbits_alike_does_not_count(self):
        shifts = np.array([0.0, 1000.0, -500.0])
        found = table([100 + shifts, 50 + shifts], stderr=0.0).difference(0, 1)
        assert found.nats == pytest.approx(50)
        assert found.error == pytest.approx(0, abs=1e-9)

    def test_the_error_is_never_less_than_monte_carlo(self):
        found = table([[100, 100], [50, 50]], stderr=3.0).difference(0, 1)
        assert found.error >= 1.96 * 3.0

    def test_equal_orbits_are_rarely_told_apart(self):
        rng = np.random.default_rng(2)
        settled = [len(leaders(table(rng.normal(0, 20, (3, 3))))[0]) == 1 for _ in range(500)]
        # The best against both others at 95 %: with nothing to find, one is "found" in at most a few cases of a hundred.
        assert np.mean(settled) < 0.06

    def test_different_orbits_are_told_apart(self):
        rng = np.random.default_rng(3)
        found = [leaders(table(rng.normal(0, 5, (3, 3)) + [[100], [50], [0]])) for _ in range(100)]
        assert np.mean([first == [0] for first, _ in found]) > 0.95


class TestDoubts:
    def test_none(self):
        found = table([[100, 101], [10, 11]]).difference(0, 1)
        assert found.certain
        assert "support a" in verdict(table([[100, 101], [10, 11]]))[0]

    @pytest.mark.parametrize(
        ("made", "reason"),
        [
            (table([[100, 140], [90, 80]]), "within the"),
            (table([[12.0, 12.0], [10.0, 10.0]], stderr=0.0), "next to nothing"),
            (table([[100], [10]]), "one restart"),
            (table([[100, 101], [10, 11]], remaining=[0, 500]), "b was still rising by about 500"),
            (table([[100, 101], [10, 11]], remaining=[0, inf]), "b was still rising when"),
            (table([[100, 101], [10, 11]], more=[110, 105]), "with 2 times the inducing points"),
        ],
    )
    def test_each(self, made, reason):
        found = made.difference(0, 1)
        assert not found.certain
        assert reason in " ".join(found.doubts)
        assert verdict(made)[0].startswith("Cannot tell a and b apart")

    def test_a_winner_may_go_on_rising_and_gains_that_both_make_do_not_matter(self):
        assert table([[100, 101], [10, 11]], remaining=[5000, 0]).difference(0, 1).certain
        assert table([[100, 101], [10, 11]], remaining=[100, 100]).difference(0, 1).certain
        assert table([[100, 101], [10, 11]], more=[500, 410]).difference(0, 1).certain

    def test_words(self):
        made = table([[100, 101], [98, 104], [10, 11]])
        sentences = verdict(made, plain="c")
        assert sentences[0] == "Cannot tell b and a apart."
        assert "over no invariance" in sentences[1]
        assert "b against a" in sentences[2]
        tied = verdict(table([[100, 101], [98, 104]]), plain="a")
        assert "so not whether any invariance helps" in tied[0]
        alone = verdict(table([[100, 101], [10, 11]]), plain="a")
        assert "no invariance among these" in alone[0]


class TestConvergence:
    @staticmethod
    def history(tau: float, steps: int = 200, limit: float = 1000.0, noise: float = 0.0) -> list[dict]:
        """A bound that approaches its limit exponentially in the work done, under the schedule of the trainer."""
        rng = np.random.default_rng(0)
        work, records = 0.0, []
        for step in range(steps):
            work += 0.5 * (1 + cos(pi * max(0.0, 2 * step / steps - 1)))
            bound = limit * (1 - exp(-work / tau)) + noise * rng.normal()
            records.append({"step": step + 1, "bound": bound})
        return records

    @pytest.mark.parametrize("tau", [30.0, 50.0, 80.0])
    def test_an_exponential_approach_is_recognised(self, tau):
        history = self.history(tau)
        truth = 1000.0 - history[-1]["bound"]
        assert truth / 2 < remaining_gain(history) < truth * 2

    def test_a_converged_run_has_little_to_come(self):
        assert remaining_gain(self.history(10.0)) < 1
        assert remaining_gain(self.history(10.0, noise=5.0)) < 10

    def test_a_run_that_just_rises_has_no_end_in_sight(self):
        assert remaining_gain(self.history(1e6)) == inf or remaining_gain(self.history(1e6)) > 1e3
        assert remaining_gain(self.history(10.0)[:5]) == inf


@pytest.fixture(scope="module")
def symmetric():
    """Inputs of which the order does not matter."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 2))
    x.sort(axis=1)
    x[::8] = x[::8, ::-1]
    y = np.cos(2 * x[:, 0] - x[:, 1]) + np.cos(2 * x[:, 1] - x[:, 0]) + 0.05 * rng.normal(size=40)
    return x, y


QUICK = {"num_inducing": 16, "max_steps": 40}


@pytest.fixture(scope="module")
def compared(symmetric):
    told = []
    result = orbitgp.compare(
        *symmetric, ["none", "swap(0, 1)"], n_restarts=2, watch=lambda job, record: told.append((job.name, record)), **QUICK
    )
    return result, told


@pytest.mark.slow
class TestCompare:
    def test_the_symmetry_that_is_there_wins(self, compared):
        result, told = compared
        assert result.best == "swap(0,1)"
        assert [row.orbit for row in result.rows] == ["swap(0,1)", "none"]
        assert result.rows[1].behind > 0
        assert result.over_plain() == pytest.approx(result.rows[1].behind)
        # Two orbits, two seeds, and each once more with twice the inducing points.
        assert sum(record is None for _, record in told) == 6
        assert result.evidences.more is not None

    def test_differences_are_those_of_the_models(self, compared):
        result, _ = compared
        none, swap = (result.evidences.values[result.evidences.names.index(n)] for n in ("none", "swap(0,1)"))
        assert result.rows[1].behind == pytest.approx(np.mean(swap - none))
        assert result.models["none"].evidence_.value == pytest.approx(max(none))

    def test_it_prints_converts_and_plots(self, compared):
        result, _ = compared
        assert result.verdict in str(result).replace("\n", " ")
        assert "Restarts: 2 each" in str(result)
        assert json.loads(json.dumps(result.to_dict()))["best"] == "swap(0,1)"
        assert "<pre>" in result._repr_html_()
        axes = result.plot()
        assert [label.get_text() for label in axes.get_yticklabels()] == ["swap(0,1)", "none"]

    def test_pandas(self, compared):
        pytest.importorskip("pandas")
        result, _ = compared
        frame = result.to_pandas()
        assert list(frame.index) == ["swap(0,1)", "none"]
        assert frame.loc["none", "behind"] == pytest.approx(result.rows[1].behind)

    def test_without_pandas_a_sentence(self, compared, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            compared[0].to_pandas()

    def test_several_processes_give_the_same(self, symmetric, compared):
        result, _ = compared
        told = []
        parallel = compare(
            *symmetric,
            {"none": None, "swap(0,1)": Permutation.swap(0, 1)},
            n_restarts=1,
            check_inducing=False,
            n_jobs=2,
            watch=lambda job, record: told.append(record),
            **QUICK,
        )
        np.testing.assert_allclose(parallel.evidences.values, result.evidences.values[:, :1], rtol=1e-6)
        assert told.count(None) == 2
        assert len(told) > 10
        assert not parallel.settled
        assert "one restart" in parallel.verdict

    @pytest.mark.parametrize(
        ("orbits", "sentence"),
        [
            (["none"], "at least two orbits"),
            (["none", None], "two orbits are called 'none'"),
            (["none", "rotatoin"], "did you mean rotation"),
            (["none", "rotation"], "acts on images"),
            ("rotation", "must be a list"),
            (["none", 3], "an orbit is|orbits"),
        ],
    )
    def test_bad_orbits(self, symmetric, orbits, sentence):
        with pytest.raises((ValueError, TypeError), match=sentence):
            compare(*symmetric, orbits, **QUICK)

    def test_bad_settings(self, symmetric):
        with pytest.raises(ValueError, match="n_restarts must be at least 1"):
            compare(*symmetric, ["none", "noise"], n_restarts=0)
        with pytest.raises(ValueError, match="n_jobs must be a number of models"):
            compare(*symmetric, ["none", "noise"], n_jobs=0)
        with pytest.raises((ValueError, TypeError), match="task"):
            compare(*symmetric, ["none", "noise"], task="ranking")

    def test_orbits_as_objects_have_names(self):
        from orbitgp.comparison.compare import named_orbits

        named = named_orbits([None, GaussianNoise(0.3), "flip * rotation"], (8, 8))
        assert list(named) == ["none", "GaussianNoise", "flip*rotation"]
        assert isinstance(named["none"], Identity)


@pytest.mark.slow
def test_profile_of_noise(symmetric):
    curve = profile(*symmetric, "noise", "scale", [0.01, 3.0], num_samples=4, **QUICK)
    # Noise that drowns the inputs explains nothing.
    assert curve.best == 0.01
    assert curve.bounds[0] > curve.bounds[1]
    assert "highest at 0.01" in str(curve)
    assert curve.plot().get_xlabel() == "scale of noise"
    with pytest.raises(ValueError, match="no quantity 'degrees': it has scale"):
        profile(*symmetric, "noise", "degrees")
    with pytest.raises(ValueError, match="at least one value"):
        profile(*symmetric, "noise", "scale", [])
