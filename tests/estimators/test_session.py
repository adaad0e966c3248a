"""Ctrl-C at any moment of a fit: it ends soon, with a model that predicts, and goes on to the same end; who sees a
bar."""

from __future__ import annotations

import io
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor
from orbitgp.inference.exact import ExactGP
from orbitgp.planning.cost import Workload
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_start")
ROWS = 24
SPARSE = {"inference": "sparse", "num_inducing": 8, "num_samples": 4, "batch_size": 20, "max_steps": 12}
WAYS: dict[str, dict[str, Any]] = {"exact": {"num_samples": 8}, "sparse": SPARSE}


@pytest.fixture(autouse=True)
def pythons_own_answer() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    return X, 1000 * (np.sin(X.sum(1)) + 0.5 * rng.normal(size=ROWS))  # in units in which every row costs seven nats


def estimator(way: str, orbit: str) -> InvariantGPRegressor:
    return InvariantGPRegressor(orbit, random_state=0, **WAYS[way])


@cache
def undisturbed(way: str, orbit: str) -> np.ndarray:
    """Predictions of a fit that nobody stops."""
    X, y = data()
    return estimator(way, orbit).fit(X, y).predict(X)


def pressed(where: Any, name: str, at: int) -> tuple[Callable[..., Any], list[str]]:
    """A function that presses Ctrl-C at one of its calls, and whether that call went on."""
    original, calls, went_on = getattr(where, name), iter(range(1, 10**6)), list[str]()

    def function(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == at:
            signal.raise_signal(signal.SIGINT)
            went_on.append(name)
        return original(*args, **kwargs)

    return function, went_on


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "where", "name", "at"),
    [
        ("exact", ExactGP, "evidence_with_gradient", 5),  # in the middle of an evaluation
        ("exact", ExactGP, "fresh_evidence", 1),
        ("exact", ExactGP, "condition", 1),  # when learning is over
        ("exact", "orbitgp.training.plausible", "profile_end", 1),  # when the posterior is there
        ("sparse", Trainer, "polish", 1),
        ("sparse", "orbitgp.estimators.evidence", "measure_evidence", 1),
    ],
)
def test_at_any_moment(
    way: str, where: Any, name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (X, y), path = data(), tmp_path / "run.safetensors"
    orbit = "noise" if name != "fresh_evidence" else "swap(0, 1)*noise"
    if isinstance(where, str):
        where = __import__(where, fromlist=[name])
    with monkeypatch.context() as patched:
        function, went_on = pressed(where, name, at)
        patched.setattr(where, name, function)
        with pytest.warns(UserWarning, match="fit was stopped"):
            stopped = estimator(way, orbit).fit(X, y, checkpoint=path)
    assert stopped.interrupted_
    assert stopped.plausible_ == {}
    assert name == "polish" or not went_on  # what was under way is given up
    assert np.sqrt(np.mean((stopped.predict(X) - y) ** 2)) < np.std(y)
    assert "no result yet" in stopped.summary()
    resumed = estimator(way, orbit).fit(X, y, checkpoint=path, resume=True)
    assert not resumed.interrupted_
    np.testing.assert_array_equal(resumed.predict(X), undisturbed(way, orbit))


def test_a_posterior_that_would_take_long_knows_some_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    whole = InvariantGPRegressor(random_state=0).fit(X, y)
    monkeypatch.setattr(TimeLimit, "quick_posterior", lambda limit, rows, draws: (20, draws))
    function, _ = pressed(ExactGP, "condition", 1)
    monkeypatch.setattr(ExactGP, "condition", function)
    with pytest.warns(UserWarning, match=f"It knows 20 of {ROWS} rows"):
        stopped = InvariantGPRegressor(random_state=0).fit(X, y)
    assert len(stopped.model_.x) == stopped.evidence_.num_data == 20
    # In the units of y: with the units of all rows, it would be seven nats less for each row.
    assert abs(stopped.evidence_.value / 20 - whole.evidence_.value / ROWS) < 1
    stopped.save(tmp_path / "model")
    loaded = InvariantGPRegressor.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(X), stopped.predict(X))


def test_fewer_draws_come_before_fewer_rows() -> None:
    limit = TimeLimit(None, work=Workload(32, 64, torch.device("cpu")))
    assert limit.quick_posterior(100, 32) == (100, 32)
    rows, draws = limit.quick_posterior(1000, 128)
    assert (rows, draws) == (1000, 32)
    rows, draws = limit.quick_posterior(20_000, 128)
    assert draws == 16
    assert 1000 < rows < 5000
    limit.pace = 10.0  # a machine that others use, too
    assert limit.quick_posterior(20_000, 128)[0] < rows


@pytest.mark.parametrize(
    "options", [{"max_steps": 200}, {"max_steps": 200, "batch_size": None}], ids=["batches", "ladder"]
)
def test_while_the_start_of_a_sparse_fit_is_chosen(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no step yet, and a model all the same. It is said once."""
    X, y = data()
    function, went_on = pressed(ExactGP, "evidence_with_gradient", 3)
    monkeypatch.setattr(ExactGP, "evidence_with_gradient", function)
    with pytest.warns(UserWarning, match="stopped after 0 steps|stopped after 0 of"):
        stopped = InvariantGPRegressor("noise", random_state=0, **{**SPARSE, **options}).fit(X, y)
    assert not went_on
    assert caplog.text.count("stopped after 0 steps") == 1
    assert stopped.history_[-1]["step"] == 0
    assert "Stopped after 0 steps" in stopped.summary()
    assert np.isfinite(stopped.predict(X)).all()


def test_a_limit_that_began_before_the_fit() -> None:
    """The command line has read data and made an estimate meanwhile. Of two fits, that counts for the first."""

    seconds: list[float] = []

    class Told:
        begun: float

        def __call__(self, record: Any) -> None:
            seconds.append(record["seconds"])

    told = Told()
    told.begun = time.perf_counter() - 1000.0
    assert not estimator("exact", "noise").set_params(max_seconds=1000.0).fit(*data(), callback=told).converged_
    seconds.clear()
    told.begun = time.perf_counter() - 300
    InvariantGPRegressor(ard="auto", max_seconds=1000.0, random_state=0).fit(*data(), callback=told)
    assert seconds[0] >= 300
    assert seconds[-1] < 300


@pytest.mark.parametrize(
    ("asked", "seconds", "shown"), [(None, 11, True), (None, 9, False), (False, 11, False), (1, 9, True)]
)
def test_a_bar_where_a_person_watches_a_long_fit(
    asked: int | None, seconds: int, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless asked for, there is none where fits are short, and none in a file."""
    monkeypatch.setattr("orbitgp.planning.plan.ladder_seconds", lambda *_: seconds)
    for in_terminal in (True, False):
        err = io.StringIO()
        monkeypatch.setattr(err, "isatty", lambda: in_terminal)  # noqa: B023
        monkeypatch.setattr(sys, "stderr", err)
        InvariantGPRegressor(verbose=asked, random_state=0).fit(*data())
        assert ("%|" in err.getvalue()) == (in_terminal and shown)


def test_logs_tell_the_estimate_and_how_much_is_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "orbitgp"):
        InvariantGPRegressor("noise", random_state=0).fit(*data())
    first, *steps = caplog.messages
    assert re.fullmatch(r"exact inference: .*; about \d+ s on a free machine\.", first)
    done = [int(message.split(" %, step ")[0]) for message in steps if " %, step " in message]
    assert len(done) > 3
    assert done == sorted(done)


def test_no_progress_bar_outside_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    InvariantGPRegressor(max_steps=2, verbose=True, random_state=0).fit(*data())
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
