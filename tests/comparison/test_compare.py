"""Comparisons and profiles of real data: what they train, keep, say and plot."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from pandas import DataFrame

import orbitgp
from orbitgp import Comparison
from orbitgp.comparison import compare
from orbitgp.comparison.compare import orbit_name
from orbitgp.comparison.parallel import Job, train_all
from orbitgp.estimators import InvariantGPRegressor
from orbitgp.likelihoods import StudentT
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation
from tests import new_process

pytestmark = pytest.mark.usefixtures("one_start")


def fixed_rbf(lengthscale: float) -> RBFKernel:
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


class Jitter(Orbit):
    """An orbit that no file can describe."""

    num_draws = 1

    def transform(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return x[:, None] + 0.1 * (u - 0.5)


class Doubled(torch.nn.Module):
    """A feature map that no file can describe."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.fixture(scope="module")
def symmetric() -> tuple[np.ndarray, np.ndarray]:
    """Inputs of which the order does not matter."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 2))
    x.sort(axis=1)
    x[::8] = x[::8, ::-1]
    y = np.cos(2 * x[:, 0] - x[:, 1]) + np.cos(2 * x[:, 1] - x[:, 0]) + 0.05 * rng.normal(size=40)
    return x, y


QUICK = {"num_inducing": 16, "max_steps": 40, "inference": "sparse"}


@pytest.fixture(scope="module")
def compared(
    symmetric: tuple[np.ndarray, np.ndarray],
) -> tuple[int, Comparison] | tuple[Comparison, list[tuple[str, dict[str, Any] | None]]]:
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
def exact(symmetric: tuple[np.ndarray, np.ndarray]) -> Comparison:
    return orbitgp.compare(*symmetric, ["none", "swap(0, 1)"])


@pytest.mark.slow
def test_exact_models_settle_it_at_once(exact: Any) -> None:
    assert exact.settled
    assert exact.verdict.startswith("The data support swap(0,1): +17 nats over no invariance")
    assert [(row.models, row.inference) for row in exact.rows] == [(1, "exact")] * 2


@pytest.mark.slow
class TestCompare:
    def test_more_inducing_points_settle_what_few_cannot(
        self, symmetric: tuple[np.ndarray, np.ndarray], compared: Any, exact: Any
    ) -> None:
        few, told = compared
        assert not few.settled
        assert sum(record is None for _, record in told) == 2
        assert few.over_plain() is None
        more = orbitgp.compare(*symmetric, ["none", "swap(0, 1)"], refine_seconds=600.0, **QUICK)
        assert more.tied == ["swap(0,1)"]
        assert more.over_plain() == pytest.approx(more.rows[1].behind)
        purposes = [model["trained for"] for model in more.to_dict()["models"]["none"]]
        assert purposes[0] == "the comparison"
        assert "inducing points" in purposes[1]
        for row in more.rows:
            truth = exact.models[row.orbit].evidence_.value
            assert row.low <= truth + 0.1
            assert row.high is None or truth <= row.high

    def test_it_prints_converts_and_plots(self, compared: Any) -> None:
        result, _ = compared
        assert result.verdict in str(result).replace("\n", " ")
        assert json.loads(json.dumps(result.to_dict()))["best"] == result.best
        assert "<td" in result._repr_html_()
        assert ("They have learned:" in str(result)) == any(result.learned(name) for name in result.tied)
        axes = result.plot()
        assert [label.get_text() for label in axes.get_yticklabels()] == [row.orbit for row in result.rows]

    def test_pandas(self, compared: Any) -> None:
        pytest.importorskip("pandas")
        result, _ = compared
        frame = result.to_pandas()
        assert list(frame.index) == [row.orbit for row in result.rows]
        assert frame.loc["none", "behind"] == pytest.approx({row.orbit: row.behind for row in result.rows}["none"])

    def test_without_pandas_a_sentence(self, compared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            compared[0].to_pandas()

    def test_several_processes_give_the_same(self, symmetric: tuple[np.ndarray, np.ndarray], compared: Any) -> None:
        result, _ = compared
        told = []
        with new_process.workers():
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
    def test_bad_orbits(
        self, symmetric: tuple[np.ndarray, np.ndarray], orbits: list[int | str | None] | str, sentence: str
    ) -> None:
        with pytest.raises((ValueError, TypeError), match=sentence):
            compare(*symmetric, orbits, **QUICK)

    def test_without_orbits_a_table_is_asked_for_its_likely_ones(
        self, symmetric: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = symmetric
        words = DataFrame(
            {"left": X[:, 0], "right": X[::-1, 0], "site": np.where(np.arange(len(X)) % 3, "north", "south")}
        )
        assert "swap(left,right)" in compare(words, y, **QUICK).models
        with pytest.raises(ValueError, match=r"no two columns look alike, .*: name orbits to compare"):
            compare(X[:, :1] + 10, y, **QUICK)

    def test_bad_settings(self, symmetric: tuple[np.ndarray, np.ndarray]) -> None:
        with pytest.raises(ValueError, match="n_jobs must be a number of models"):
            compare(*symmetric, ["none", "noise"], n_jobs=0)
        with pytest.raises((ValueError, TypeError), match="task"):
            compare(*symmetric, ["none", "noise"], task="ranking")

    def test_orbits_as_objects_have_names(self) -> None:
        from orbitgp.comparison.compare import named_orbits

        named = named_orbits([None, GaussianNoise(0.3), "flip * rotation"], (8, 8))
        assert list(named) == ["none", "GaussianNoise", "flip*rotation"]
        assert isinstance(named["none"], Identity)


class TestKeep:
    """Models that are done are taken again by the same call, and by no other."""

    @pytest.fixture
    def again(self, symmetric: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Callable[..., Any]:
        """How many models a comparison trains, given what comparisons before it have kept."""

        def compared(
            x: DataFrame | np.ndarray = symmetric[0], y: np.ndarray = symmetric[1], **settings: Any
        ) -> tuple[int, Comparison]:
            steps = []
            watch = lambda job, record: steps.append(record is None or job.name)  # noqa: E731
            limits = {"max_steps": 3, "refine_seconds": 0.0, "keep": tmp_path / "new" / "folder", "watch": watch}
            found = compare(x, y, ["none", "swap(0, 1)"], **{**limits, **settings})
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
    def test_other_settings_are_trained_anew(
        self, again: Callable[..., Any], one: dict[str, torch.nn.Module | int], other: dict[str, torch.nn.Module | int]
    ) -> None:
        first, before = again(**one)
        assert first == 2
        assert again(**other)[0] == 2
        repeated, after = again(**one)
        assert repeated == 0
        assert [row.evidence for row in after.rows] == [row.evidence for row in before.rows]

    def test_other_data_are_trained_anew(
        self, again: Callable[..., Any], symmetric: tuple[np.ndarray, np.ndarray]
    ) -> None:
        x, y = symmetric
        assert [again(x, y)[0], again(x, y + 1.0)[0], again(x.astype(np.float32), y)[0], again(x, y)[0]] == [2, 2, 2, 0]

    def test_an_orbit_and_a_map_of_ones_own_are_handed_in_again(
        self, symmetric: tuple[np.ndarray, np.ndarray], tmp_path: Path
    ) -> None:
        settings = {"feature_map": Doubled(), "max_steps": 2, "num_samples": 2, "inference": "exact"}
        job = Job("jitter", Jitter(), 0, InvariantGPRegressor, settings)
        done: list[bool] = []
        (first,), (again,) = (
            train_all([job], *symmetric, watch=lambda _, record: done.append(record is None), keep=tmp_path)
            for _ in range(2)
        )
        assert done[-2:] == [True, True]  # nothing was trained before the second
        assert again.evidence == first.evidence
        assert again.seconds == pytest.approx(first.seconds, abs=1.0)

    def test_data_frames_and_labels_that_are_objects(
        self, again: Callable[..., Any], symmetric: tuple[np.ndarray, np.ndarray]
    ) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(symmetric[0], columns=["a", "b"])

        def labels(first: str) -> np.ndarray:  # new strings each time
            return np.array(
                [f"class {int(value > 0)}" if i else first for i, value in enumerate(symmetric[1])], dtype=object
            )

        trained = [again(frame, labels(first))[0] for first in ("class 0", "class 0", "class 1")]
        assert trained == [2, 0, 2]
        assert again(frame.rename(columns={"a": "z"}), labels("class 0"))[0] == 2


@pytest.mark.parametrize("ard", [False, "auto"])
def test_all_models_share_a_bar(
    ard: Any, symmetric: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    compare(*symmetric, ["none", "swap(0, 1)"], ard=ard, refine_seconds=0.0, max_steps=5, verbose=True)
    assert len(re.findall("\r0 %", shown.getvalue())) == 1  # a bar begins without a name
    assert "\n" not in shown.getvalue()


def test_images_with_channels_last() -> None:
    images = np.random.default_rng(0).random((16, 6, 6, 3)) * (np.arange(6) % 5 > 0)[:, None, None]
    labels, limits = np.arange(16) % 2, {"max_steps": 3, "num_samples": 4, "refine_seconds": 0.0}
    tables = [compare(x, labels, ["none", "rotate90*rotation"], **limits) for x in (images, np.moveaxis(images, -1, 1))]
    assert [row.evidence for row in tables[0].rows] == [row.evidence for row in tables[1].rows]


def test_orbits_name_the_columns_of_a_data_frame(symmetric: tuple[np.ndarray, np.ndarray]) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = symmetric
    names = [f"c{i}" for i in range(x.shape[1])]
    frame = pandas.DataFrame(x, columns=names)
    found = compare(frame, y, ["none", "swap(c0, c1)"], max_steps=3, refine_seconds=0.0)
    assert found.models["swap(c0,c1)"].orbit_.describe().title == "Permutation of c0 and c1"


def test_columns_get_lengthscales_once_for_all_orbits_and_the_plain_model_is_not_trained_twice(
    symmetric: tuple[np.ndarray, np.ndarray],
) -> None:
    done = []
    watch = lambda job, record: done.append((job.name, job.settings["ard"])) if record is None else None  # noqa: E731
    limits = {"max_steps": 3, "refine_seconds": 0.0, "ard": "auto"}
    found = compare(*symmetric, ["none", "swap(0, 1)"], watch=watch, **limits)
    assert [name for name, _ in done] == ["none", "swap(0,1)"]
    assert [row.models for row in found.rows] == [1, 1]
    decided = {trained.job.settings["ard"] for (trained,) in found.trained.values()} | {done[1][1]}
    assert decided == {found.models["none"].ard_}


def test_bounds_of_exact_inference_are_said_and_no_others(
    symmetric: tuple[np.ndarray, np.ndarray], compared: Any
) -> None:
    x, y = symmetric
    limits = {"max_steps": 3, "refine_seconds": 0.0}
    by_bound = compare(x, y, ["none", "swap(0, 1)"], likelihood="student-t", **limits)
    assert "the lower bound that the StudentT likelihood gives" in by_bound.verdict
    assert "lower bound" not in compared[0].verdict


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("affine * deformation", "affine*deformation"),
        (" swap( left, 'right hand' ) ", "swap(left,'right hand')"),
        (None, "none"),
    ],
)
def test_an_orbit_is_called_what_was_typed_without_needless_blanks(text: str | None, name: str) -> None:
    assert orbit_name(text) == name
