"""Comparing invariances: the rule with intervals made by hand, the loop with stand-ins for models, and real comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import orbitgp
from orbitgp.comparison import compare, profile
from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.refine import refinement, standing, train_and_refine, undecided
from orbitgp.comparison.verdict import Difference, Standing, leaders, verdict
from orbitgp.estimators import InvariantGPRegressor
from orbitgp.inference.evidence import Evidence
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian, StudentT
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation

ROWS = 50


def fixed_rbf(lengthscale: float) -> RBFKernel:
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


def point(name: str, value: float) -> Standing:
    return Standing(name, value, value, value)


class TestRule:
    def test_more_is_needed_of_an_orbit_that_learned_more_and_where_more_were_tried(self):
        """Half a chi-squared variable of six degrees of freedom exceeds 6.3 nats in one case of twenty (tables of scipy)."""
        made = [Standing("a", 106.4, 106.4, 106.4, learned=6), point("b", 100.0)]
        assert len(leaders(made)[0]) == 2
        assert len(leaders([replace(made[0], learned=0), made[1]])[0]) == 1
        assert len(leaders([replace(made[0], learned=0, tried=20), made[1]])[0]) == 2

    def test_intervals_that_do_not_overlap_are_certain(self):
        made = [Standing("a", 100.0, 99.0, inf), Standing("b", 80.0, 79.0, 98.9)]
        assert leaders(made)[0] == made[:1]
        assert verdict(made) == ["The data support a: +20 (at least +0) nats over b."]

    @pytest.mark.parametrize(
        "made",
        [
            [Standing("a", 100.0, 99.0, 101.0), Standing("b", 80.0, 79.0, 99.1)],  # they overlap
            [Standing("a", 100.0, 99.0, 101.0), Standing("b", 80.0, 79.0, inf)],  # nothing is known above
            [Standing("a", 100.0, 70.0, 130.0), point("b", 80.0)],  # the best may be lower
            [point("a", 100.0), point("b", 97.5)],  # next to nothing
        ],
    )
    def test_others_are_not(self, made):
        assert [s.name for s in leaders(made)[0]] == ["a", "b"]
        assert verdict(made)[0] == "Cannot tell a and b apart."

    def test_the_rule_against_draws_from_the_intervals(self):
        """Whenever it is certain, no evidence within the intervals makes the other one better."""
        rng = np.random.default_rng(0)
        for _ in range(200):
            low, width = rng.normal(0, 10, 2).tolist(), rng.exponential(5, 2).tolist()
            a, b = (Standing(n, low[i] + width[i] / 2, low[i], low[i] + width[i]) for i, n in enumerate("ab"))
            first, against = leaders([a, b])
            (difference,) = against.values()
            draws = [rng.uniform(s.low, s.high, 200) for s in (difference.better, difference.worse)]
            assert len(first) == 2 or np.all(draws[0] > draws[1])

    def test_words(self):
        made = [point("a", 100.0), Standing("b", 98.0, 97.0, 140.0, "a loose bound", "512 inducing points"), point("c", 10.0)]
        sentences = verdict(made, plain="c")
        assert sentences[0] == "Cannot tell a and b apart."
        assert sentences[1] == "What is certain of a: +90 nats over no invariance."
        assert sentences[2] == (
            "a against b: the evidence of b lies between 97 and 140 (a loose bound); "
            "to tell would take 512 inducing points for b."
        )
        assert "so not whether any invariance helps" in verdict([point("a", 100.0), point("c", 99.0)], plain="c")[0]
        assert "differ by 1.0 nats, and chance alone may give" in verdict([point("a", 100.0), point("c", 99.0)])[1]
        assert "no invariance among these" in verdict([point("a", 100.0), point("b", 10.0)], plain="a")[0]
        assert str(Difference(Standing("a", 100.0, 90.0, 110.0), point("b", 50.0))) == "+50 (+40 to +60)"

    def test_what_is_refined_next(self):
        best, loose = Standing("a", 100.0, 99.0, 120.0), Standing("b", 80.0, 80.0, 170.0)
        tight, beaten = Standing("c", 90.0, 89.0, 101.0), point("d", 1.0)
        assert undecided([best, loose, tight, beaten]) == ["b", "a", "c"]
        assert undecided([best, beaten]) == []
        assert undecided([point("a", 10.0), point("b", 9.0)]) == []  # nothing would make a difference of it
        assert undecided([best, replace(loose, high=inf)]) == ["b"]  # the best waits for an end


class Fake(InvariantGPRegressor):
    """A stand-in for a fitted model: a bound with a slack, or an exact value where ``upper`` is None."""

    def __init__(self, value: float, upper: float | None = None, points: int = 8, draws: int | None = None, error: float = 0.0):
        self.inference_ = "exact" if upper is None else "sparse"
        self.converged_ = True
        self.evidence_ = Evidence(value, error, ROWS, draws, "Gaussian", upper is None, upper)
        self.model_ = InvariantGP(RBFKernel().double(), Identity(), torch.zeros(points, 2, dtype=torch.float64))
        self.likelihood_ = Gaussian()


def bound(top: float, points: int) -> Fake:
    """It approaches the top as points double. Half of what the slack costs is not seen at the learned hyperparameters."""
    slack = 400.0 / points
    return Fake(top - 2 * slack, top - slack, points)


def trained(job: Job, model: Fake) -> Trained:
    return Trained(job, 1.0, model)


def job(name: str, orbit: Orbit | None = None, **settings) -> Job:
    return Job(name, orbit or GaussianNoise(0.1), 0, InvariantGPRegressor, {"num_inducing": 8, **settings})


class TestLoop:
    def run(self, tops: dict[str, float], seconds: float | None = None, **settings):
        told = []

        def train(jobs):
            told.append([(j.name, j.purpose) for j in jobs])
            exact = [j.purpose == "exact inference" for j in jobs]
            tried = zip(jobs, exact, strict=True)
            return [trained(j, Fake(tops[j.name]) if e else bound(tops[j.name], j.settings["num_inducing"])) for j, e in tried]

        jobs = [job(name, **settings) for name in tops]
        standings, models = train_and_refine(jobs, ROWS, train, seconds, n_jobs=1)
        return standings, models, told

    def test_the_rival_is_refined_until_it_is_beaten(self):
        standings, models, told = self.run({"a": 1000.0, "b": 500.0, "c": -5000.0}, inference="sparse")
        assert [s.name for s in leaders(standings)[0]] == ["a"]
        assert told[0] == [("a", ""), ("b", ""), ("c", "")]
        assert told[1:] == [[("b", "16 inducing points and 600 steps")], [("c", "16 inducing points and 600 steps")]]
        second = models["b"][1]
        assert (second.job.settings["num_inducing"], second.job.settings["max_steps"], second.job.seed) == (16, 600, 1)
        assert standings[1].low <= 500 <= standings[1].high

    def test_a_tie_ends_with_the_budget_and_says_what_it_would_take(self):
        standings, models, _ = self.run({"a": 1000.0, "b": 995.0}, seconds=3.5, inference="sparse")
        assert len(leaders(standings)[0]) == 2
        assert len(models["b"]) == 2
        assert "16 inducing points and 600 steps for a" in " ".join(verdict(standings))
        assert all(len(row) == 1 for row in self.run({"a": 1000.0, "b": 995.0}, seconds=0.0)[1].values())

    def test_exact_inference_is_taken_where_it_is_quick_and_allowed(self):
        standings, _, told = self.run({"a": 1000.0, "b": 980.0})
        assert told[1:] == [[("b", "exact inference")], [("a", "exact inference")]]
        assert [s.name for s in leaders(standings)[0]] == ["a"]
        assert [s.value for s in standings] == [1000.0, 980.0]
        sparse = trained(job("a"), bound(10.0, 8))
        assert standing([sparse], ROWS).needs == "exact inference"
        assert standing([sparse], 10**6).needs == "16 inducing points and 600 steps"
        exact = refinement(sparse, ROWS)
        assert exact is not None
        assert (exact.job.settings["num_inducing"], exact.job.settings.get("inference")) == (None, None)  # the plan decides
        still_sparse = replace(sparse, job=exact.job)  # as where the data stay on disk
        assert standing([sparse, still_sparse], ROWS).needs == "16 inducing points and 600 steps"

    def test_exact_models_that_have_converged_are_known_as_well_as_they_can_be(self):
        some = trained(job("a"), Fake(10.0, draws=64, error=2.0))
        assert standing([some], ROWS).width == pytest.approx(8.0)
        assert standing([some], ROWS).reason == "64 draws stand for the orbit"
        assert standing([trained(job("a"), Fake(10.0))], ROWS).reason == ""
        assert refinement(some, ROWS) is None
        assert refinement(trained(job("a"), Fake(10.0)), ROWS) is None

    @pytest.mark.parametrize(("points", "purpose"), [(20, "40 inducing points"), (40, "50 inducing points"), (50, "")])
    def test_inducing_points_are_doubled_up_to_one_for_each_datum(self, points, purpose):
        found = refinement(trained(job("a", inference="sparse"), Fake(10.0, 20.0, points)), ROWS)
        assert found is not None
        assert found.job.purpose == f"{purpose} and 600 steps".removeprefix(" and ")

    def test_a_run_that_cannot_grow_is_repeated_once_and_then_the_verdict_promises_nothing(self):
        full = {"num_inducing": ROWS, "inference": "sparse", "orbit": Identity()}
        standings, models, told = self.run({"a": 1000.0, "b": 995.0}, seconds=1000.0, **full)
        assert told[1:] == [[("b", "600 steps")], [("a", "600 steps")]]
        assert [row[1].job.seed for row in models.values()] == [1, 1]
        assert all(s.high < inf and not s.needs for s in standings)
        said = " ".join(verdict(standings))
        assert said.startswith("Cannot tell a and b apart.")
        assert "more inducing points or steps are of no use to it" in said
        assert "would take" not in said

    def test_a_run_that_cannot_grow_gets_more_steps_until_it_has_converged(self):
        model = bound(10.0, ROWS)
        model.converged_ = False
        limits = {"max_steps": 40, "max_seconds": 5.0}
        again = trained(replace(job("a", Identity(), inference="sparse", **limits), purpose="40 steps"), model)
        longer = refinement(again, ROWS)
        assert longer is not None
        assert longer.job.purpose == "80 steps and 10 seconds"
        assert (longer.job.settings["max_steps"], longer.job.settings["max_seconds"]) == (80, 10.0)
        model.converged_ = True
        assert refinement(again, ROWS) is None

    @pytest.mark.parametrize("best", [Fake(100.0), Fake(100.0, 101.0)], ids=["exact", "sparse"])
    def test_a_verdict_says_first_what_has_not_converged(self, best):
        best.converged_ = False
        first, plain = standing([trained(job("a"), best)], ROWS), standing([trained(job("none"), Fake(10.0))], ROWS)
        said = verdict([first, plain], "none")
        assert said[0] == "a has not converged, but it is ahead for certain: +90 (at least +90) nats over no invariance."
        rival = Fake(95.0)
        rival.converged_ = False  # which may rise above the best
        said = verdict([first, plain, standing([trained(job("b"), rival)], ROWS)], "none")
        assert said[0] == "a has not converged, so this is no verdict yet: let it train for longer."
        assert said[1] == "So far it is ahead: +90 (at least +90) nats over no invariance."

    def test_a_run_that_met_a_limit_may_rise_to_anything(self):
        model = Fake(10.0)
        model.converged_ = False
        assert standing([trained(job("a", max_steps=5), model)], ROWS).high == inf
        longer = refinement(trained(job("a", max_steps=5), model), ROWS)
        assert longer is not None
        assert (longer.job.settings["max_steps"], longer.job.purpose) == (10, "10 steps")
        assert refinement(trained(job("a"), model), ROWS) is None  # no limit of the user's

    def test_two_bounds_that_agree_say_nothing_where_training_met_a_limit(self):
        """Forty steps and eighty ended at -20.5 with a slack of 2.5, where more steps lead to 13.3."""
        two = [trained(job("swap", inference="sparse", max_steps=40), Fake(-20.5, -18.0)) for _ in range(2)]
        assert standing(two, ROWS).high < -10
        two[1].model.converged_ = False
        assert standing(two, ROWS).high == inf

    def test_two_errors_of_the_draws_widen_both_ends_of_a_bound(self):
        runs = [[trained(job("a"), Fake(-20.5, -18.0, error=error))] * 2 for error in (0.0, 1.5)]
        known, measured = (standing(two, ROWS) for two in runs)
        assert known.low == -20.5
        assert known.high >= -18.0
        assert (measured.low, measured.high) == pytest.approx((known.low - 3.0, known.high + 3.0))
        assert standing([trained(job("a"), Fake(-20.5, -20.5))] * 2, ROWS).high == -20.5  # a bound without slack

    def test_a_bound_that_gains_much_for_little_slack_is_not_trusted(self):
        """200 digits and nine shifts: bounds of 273 and 386 with slacks of 160 and 144, where the exact evidence is 998."""
        two = [trained(job("shifts"), Fake(*ends)) for ends in ((272.7, 433.1), (386.2, 529.9))]
        assert standing(two, ROWS).high > 998
        # Where the slack does not fall at all, nothing is known.
        assert standing([two[0], trained(job("shifts"), Fake(386.2, 560.0))], ROWS).high == inf


@pytest.fixture(scope="module")
def symmetric():
    """Inputs of which the order does not matter."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 2))
    x.sort(axis=1)
    x[::8] = x[::8, ::-1]
    y = np.cos(2 * x[:, 0] - x[:, 1]) + np.cos(2 * x[:, 1] - x[:, 0]) + 0.05 * rng.normal(size=40)
    return x, y


QUICK = {"num_inducing": 16, "max_steps": 40, "inference": "sparse"}


@pytest.fixture(scope="module")
def compared(symmetric):
    told = []
    result = orbitgp.compare(
        *symmetric,
        ["none", "swap(0, 1)"],
        refine_seconds=0.0,
        watch=lambda job, record: told.append((job.name, record)),
        **QUICK,
    )
    return result, told


@pytest.fixture(scope="module")
def exact(symmetric):
    return orbitgp.compare(*symmetric, ["none", "swap(0, 1)"])


@pytest.mark.slow
def test_exact_models_settle_it_at_once(exact):
    assert exact.settled
    assert exact.verdict.startswith("The data support swap(0,1): +17 nats over no invariance")
    assert [(row.models, row.inference) for row in exact.rows] == [(1, "exact")] * 2


@pytest.mark.slow
class TestCompare:
    def test_more_inducing_points_settle_what_few_cannot(self, symmetric, compared, exact):
        few, told = compared
        assert not few.settled
        assert sum(record is None for _, record in told) == 2
        assert few.over_plain() is None
        more = orbitgp.compare(*symmetric, ["none", "swap(0, 1)"], refine_seconds=600.0, **{**QUICK, "max_steps": 80})
        assert more.tied == ["swap(0,1)"]
        assert more.over_plain() == pytest.approx(more.rows[1].behind)
        for row in more.rows:
            truth = exact.models[row.orbit].evidence_.value
            assert row.low <= truth + 0.1
            assert row.high is None or truth <= row.high

    def test_it_prints_converts_and_plots(self, compared):
        result, _ = compared
        assert result.verdict in str(result).replace("\n", " ")
        assert json.loads(json.dumps(result.to_dict()))["best"] == result.best
        assert "<td" in result._repr_html_()
        axes = result.plot()
        assert [label.get_text() for label in axes.get_yticklabels()] == [row.orbit for row in result.rows]

    def test_pandas(self, compared):
        pytest.importorskip("pandas")
        result, _ = compared
        frame = result.to_pandas()
        assert list(frame.index) == [row.orbit for row in result.rows]
        assert frame.loc["none", "behind"] == pytest.approx({row.orbit: row.behind for row in result.rows}["none"])

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
            refine_seconds=0.0,
            n_jobs=2,
            watch=lambda job, record: told.append(record),
            **QUICK,
        )
        assert [row.evidence for row in parallel.rows] == pytest.approx([row.evidence for row in result.rows], rel=1e-6)
        assert told.count(None) == 2
        assert len(told) > 10
        assert not parallel.settled
        assert "one run does not say" in parallel.verdict

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
    curve = profile(*symmetric, "noise", "scale", [0.01, 0.3, 3.0])
    # Under noise an RBF kernel is again one, only wider. A shorter lengthscale makes up for that, unless the noise is too wide.
    assert curve.tied == [0.01, 0.3]
    assert curve.bounds[1] == pytest.approx(curve.bounds[0], abs=0.1)
    assert curve.bounds[2] < curve.bounds[0] - 10
    assert "cannot be told from" in str(curve)
    clear = replace(curve, values=[0.01, 3.0], bounds=[9.0, 1.0], lows=[9.0, 1.0], highs=[None, 2.0])
    assert (clear.best, clear.tied) == (0.01, [0.01])
    assert "highest at 0.01." in str(clear)
    assert "highest at 0.01, but cannot be told from 3." in str(replace(clear, highs=[None, None]))
    assert curve.plot().get_xlabel() == "scale of noise"
    with pytest.raises(ValueError, match="no quantity 'degrees': it has scale"):
        profile(*symmetric, "noise", "degrees")
    with pytest.raises(ValueError, match="at least one value"):
        profile(*symmetric, "noise", "scale", [])
    with pytest.raises(
        TypeError, match="a profile takes an orbit by name, as in 'rotation' or 'scale\\*noise', got GaussianNoise"
    ):
        profile(*symmetric, GaussianNoise(), "scale")


class TestKeep:
    """Models that are done are taken again by the same call, and by no other."""

    @pytest.fixture
    def again(self, symmetric, tmp_path):
        """How many models a comparison trains, given what comparisons before it have kept."""

        def compared(x=symmetric[0], y=symmetric[1], **settings):
            steps = []
            watch = lambda job, record: steps.append(record is None or job.name)  # noqa: E731
            limits = {"max_steps": 3, "refine_seconds": 0.0, "keep": tmp_path, "watch": watch}
            found = compare(x, y, ["none", "noise"], **{**limits, **settings})
            return len({name for name in steps if name is not True}), found

        return compared

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"likelihood": StudentT(df=3.0)}, {"likelihood": StudentT(df=8.0)}),
            ({"kernel": MaternKernel(0.5)}, {"kernel": MaternKernel(2.5)}),
            ({"kernel": fixed_rbf(1.0)}, {"kernel": fixed_rbf(5.0)}),
            ({"feature_map": torch.nn.Linear(2, 2)}, {"feature_map": torch.nn.Linear(2, 2)}),
            ({"max_steps": 3}, {"max_steps": 4}),
        ],
        ids=["likelihood", "kernel", "lengthscale", "feature map", "steps"],
    )
    def test_other_settings_are_trained_anew(self, again, one, other):
        first, before = again(**one)
        assert first == 2
        assert again(**other)[0] == 2
        repeated, after = again(**one)
        assert repeated == 0
        assert [row.evidence for row in after.rows] == [row.evidence for row in before.rows]

    def test_other_data_are_trained_anew(self, again, symmetric):
        x, y = symmetric
        assert [again(x, y)[0], again(x, y + 1.0)[0], again(x.astype(np.float32), y)[0], again(x, y)[0]] == [2, 2, 2, 0]

    def test_data_frames_and_labels_that_are_objects(self, again, symmetric):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(symmetric[0], columns=["a", "b"])

        def labels(first):  # new strings each time
            return np.array([f"class {int(value > 0)}" if i else first for i, value in enumerate(symmetric[1])], dtype=object)

        trained = [again(frame, labels(first))[0] for first in ("class 0", "class 0", "class 1")]
        assert trained == [2, 0, 2]
        assert again(frame.rename(columns={"a": "z"}), labels("class 0"))[0] == 2


def test_a_profile_takes_images_with_channels_last():
    images = np.random.default_rng(0).random((16, 6, 6, 3)) * (np.arange(6) % 5 > 0)[:, None, None]
    labels, limits = np.arange(16) % 2, {"max_steps": 3, "num_samples": 4, "refine_seconds": 0.0}
    curves = [
        profile(x, labels, "rotate90*rotation", "degrees", [30.0], **limits) for x in (images, np.moveaxis(images, -1, 1))
    ]
    assert curves[0].bounds == curves[1].bounds


def test_orbits_name_the_columns_of_a_data_frame(symmetric):
    pandas = pytest.importorskip("pandas")
    x, y = symmetric
    names = [f"c{i}" for i in range(x.shape[1])]
    frame = pandas.DataFrame(x, columns=names)
    found = compare(frame, y, ["none", "swap(c0, c1)"], max_steps=3, refine_seconds=0.0)
    assert found.models["swap(c0,c1)"].orbit_.describe().title == "Permutation of c0 and c1"
    curve = profile(frame, y, "swap(c1, c0)*noise", "scale", [0.2], max_steps=3, refine_seconds=0.0)
    again = profile(x, y, "swap(c1, c0)*noise", "scale", [0.2], max_steps=3, refine_seconds=0.0, columns=names)
    assert curve.bounds == again.bounds
