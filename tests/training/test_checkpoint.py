"""Checkpoints: a fit that is killed, stopped or interrupted goes on and ends where it would have ended, to the last
bit."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from torch.utils._pytree import tree_flatten

from experiments.stick_breaking import StickBreaking
from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood
from orbitgp.orbits import GaussianNoise, Permutation, Rotation
from orbitgp.planning.options import TrainerSettings, TrainingOptions
from orbitgp.saving import SavedFileError, container
from orbitgp.training.checkpoint import Checkpoint, read_checkpoint
from orbitgp.training.run import Run
from orbitgp.training.trainer import Trainer
from tests import new_process
from tests.training import fit_to_kill

KILLS = int(os.environ.get("ORBITGP_KILLS", "2"))  # 20 take half a minute of a quiet core
QUICK: dict[str, Any] = {"max_steps": 12, "num_inducing": 8, "num_samples": 4, "batch_size": 8, "random_state": 0}


def table(rows: int = 18) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(X[:, 0] + X[:, 1]) + 5.0


class Killed(Exception):
    """What stands for a kill within one process."""


def dies(at: int) -> Callable[[dict[str, Any]], None]:
    def callback(record: dict[str, Any]) -> None:
        if record["step"] == at:
            raise Killed

    return callback


@cache
def expected(name: str) -> str:
    """Where a run that nobody disturbs ends."""
    return fit_to_kill.digest(CASES[name]().fit(*table()))


def killed_and_resumed(make: Callable[[], Any], X: Any, y: Any, path: Path, at: int) -> Any:
    with pytest.raises(Killed):
        make().fit(X, y, checkpoint=path, checkpoint_every=0.0, callback=dies(at))
    # The step at which it died was not saved yet.
    assert read_checkpoint(path).steps == at - 1
    return make().fit(X, y, checkpoint=path, resume=True)


@pytest.mark.slow
class TestKilled:
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
    def test_at_random_moments(self, tmp_path: Path) -> None:
        said = tmp_path / "said"
        assert ended(fit_to_kill.said, said, tmp_path, KILLS, 0)
        lines = [json.loads(line) for line in said.read_text().splitlines()]
        assert len(lines) == KILLS + 1
        assert all(line["same"] for line in lines), lines
        assert not any(line["left"] for line in lines[1:])

    def test_another_process_ends_in_the_same_place(self, tmp_path: Path) -> None:
        """Not only a copy of this process, with all that it has in memory."""
        path = tmp_path / "run.safetensors"
        X, y = table()
        make = lambda: InvariantGPRegressor(GaussianNoise(0.5), **QUICK)  # noqa: E731
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            undisturbed = fit_to_kill.digest(make().fit(X, y))
            with pytest.raises(Killed):
                make().fit(X, y, checkpoint=path, checkpoint_every=0.0, callback=dies(7))
        finally:
            torch.set_num_threads(threads)
        result = tmp_path / "digest"
        assert ended(resumed_digest, path, result)
        assert result.read_text() == undisturbed


def ended(work: Callable[..., None], *arguments: Any) -> bool:
    """Whether a new process has done this."""
    process = new_process.start(work, *arguments)
    process.join(600)
    return process.exitcode == 0


def resumed_digest(path: Path, result: Path) -> None:
    torch.set_num_threads(1)
    fitted = InvariantGPRegressor(GaussianNoise(0.5), **QUICK).fit(*table(), resume=path)
    result.write_text(fit_to_kill.digest(fitted))


CASES: dict[str, Callable[[], Any]] = {
    "natural": lambda: InvariantGPRegressor(GaussianNoise(0.5), **QUICK),
    "steps": lambda: InvariantGPRegressor(
        GaussianNoise(0.5), likelihood="student-t", **QUICK, training=TrainingOptions(learning_rate=0.1)
    ),
    "no orbit": lambda: InvariantGPRegressor(mean="linear", **QUICK),
    "finite orbit": lambda: InvariantGPRegressor(Permutation.swap(0, 1), likelihood="student-t", **QUICK),
    "iid": lambda: InvariantGPRegressor(
        GaussianNoise(0.5), **QUICK, training=TrainingOptions(sampler="iid", dtype="float32")
    ),
    "kernel": lambda: InvariantGPRegressor(
        GaussianNoise(0.5),
        ScaleKernel(RBFKernel(ard_num_dims=2, lengthscale_prior=GammaPrior(2.0, 2.0)) + PeriodicKernel()),
        **QUICK,
    ),
}


@pytest.mark.usefixtures("short_ends")
class TestExactly:
    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "at"), [*((name, 4) for name in CASES), ("natural", 12)])
    def test_as_if_it_had_not_been_killed(self, tmp_path: Path, name: str, at: int) -> None:
        resumed = killed_and_resumed(CASES[name], *table(), tmp_path / "run.safetensors", at)
        assert fit_to_kill.digest(resumed) == expected(name)

    @pytest.mark.slow
    @pytest.mark.parametrize("likelihood", ["gaussian", "dirichlet", StickBreaking(3)], ids=str)
    def test_classifiers_of_images(self, tmp_path: Path, likelihood: str | StickBreaking) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.uniform(size=(12, 5, 5)), np.array(["a", "b", "c"])[np.arange(12) % 3]
        make = lambda: InvariantGPClassifier(Rotation(30.0), likelihood=likelihood, **QUICK)  # noqa: E731
        resumed = killed_and_resumed(make, X, y, tmp_path / "run.safetensors", 7)
        assert fit_to_kill.digest(resumed) == fit_to_kill.digest(make().fit(X, y))

    def test_more_often_than_once(self, tmp_path: Path) -> None:
        X, y = table()
        path, make = tmp_path / "run.safetensors", CASES["natural"]
        for at in (5, 6, 10):
            with pytest.raises(Killed):
                make().fit(X, y, checkpoint=path, checkpoint_every=0.0, resume=True, callback=dies(at))
        assert fit_to_kill.digest(make().fit(X, y, resume=path)) == expected("natural")

    def test_a_run_that_had_ended_ends_at_once(self, tmp_path: Path) -> None:
        X, y = table()
        path = tmp_path / "run.safetensors"
        seen: list[Any] = []
        first = CASES["natural"]().fit(X, y, checkpoint=path)
        again = CASES["natural"]().fit(X, y, checkpoint=path, resume=True, callback=seen.append)
        assert fit_to_kill.digest(again) == fit_to_kill.digest(first)
        assert seen == []

    def test_watching_a_run_does_not_change_it(self, tmp_path: Path) -> None:
        X, y = table()
        watched = CASES["natural"]().fit(
            X, y, checkpoint=tmp_path / "run", checkpoint_every=0.0, callback=lambda record: None
        )
        assert fit_to_kill.digest(watched) == expected("natural")

    @pytest.mark.slow
    @pytest.mark.parametrize("random_state", [None, np.random.RandomState(5)], ids=["none", "state"])
    def test_a_run_without_a_seed_keeps_the_one_it_drew(self, tmp_path: Path, random_state: Any) -> None:
        X, y = table()
        make = lambda: InvariantGPRegressor(GaussianNoise(0.5), **{**QUICK, "random_state": random_state})  # noqa: E731
        path = tmp_path / "run.safetensors"
        np.random.seed(3)  # noqa: NPY002
        with pytest.raises(Killed):
            make().fit(X, y, checkpoint=path, checkpoint_every=0.0, callback=dies(7))
        first, second = make().fit(X, y, resume=path), make().fit(X, y, resume=path)
        assert fit_to_kill.digest(first) == fit_to_kill.digest(second)

    @pytest.mark.slow
    @pytest.mark.parametrize(("likelihood", "options"), [
        (Bernoulli, {}), (Gaussian, {"posterior_rows": 7}), (Gaussian, {"num_samples": 6, "sampler": "iid"}),
    ], ids=str)  # fmt: skip
    def test_every_part_of_the_state(
        self, tmp_path: Path, likelihood: Callable[[], Likelihood], options: dict[str, Any]
    ) -> None:
        """Of a trainer by itself, with options that the estimators do not offer."""

        def trainer() -> Trainer:
            torch.manual_seed(0)
            x = torch.randn(15, 2)
            y = torch.sign(x[:, :1]).double()
            model = InvariantGP(ScaleKernel(RBFKernel()), GaussianNoise(0.5), x[:6])
            return Trainer(
                model, likelihood(), x, y, TrainerSettings(max_steps=12, batch_size=4, **{"num_samples": 4, **options})
            )

        whole, before, after = trainer(), trainer(), trainer()
        whole.run()
        writer = Checkpoint(tmp_path / "run.safetensors", every=0.0)
        writer.restore(before, [1])
        before.after_step = lambda t: writer.after_step(t) if t.steps <= 5 else None
        before.run()
        reader = Checkpoint(tmp_path / "run.safetensors", resume=True)
        assert reader.saved is not None
        assert reader.saved.steps == 5
        assert reader.saved.seeds == [1]
        reader.restore(after, [1])
        assert after.steps == 5
        after.run()
        states = []
        for one in (whole, after):
            state = one.state_dict()
            steps = state["engine"]
            steps.pop("seconds")
            steps["history"] = [
                {name: value for name, value in record.items() if name != "seconds"} for record in steps["history"]
            ]
            states.append(tree_flatten(state))
        assert states[0][1] == states[1][1]
        for a, b in zip(states[0][0], states[1][0], strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("unfinished") / "run"
    with pytest.raises(Killed):
        CASES["natural"]().fit(*table(), checkpoint=path, checkpoint_every=0.0, callback=dies(9))
    return path.read_bytes()


@pytest.mark.usefixtures("short_ends")
class TestOnlyItsOwnRun:
    @pytest.fixture
    def path(self, unfinished: bytes, tmp_path: Path) -> Path:
        (tmp_path / "run").write_bytes(unfinished)
        return tmp_path / "run"

    @pytest.mark.parametrize(("changes", "words"), [
        ({"max_steps": 30}, "max_steps was 12 and is 30"), ({"random_state": 1}, "random_state was"),
        ({"batch_size": 9}, "batch_size"), ({"orbit": GaussianNoise(0.4)}, "orbit"), ({"orbit": None}, "orbit"),
        ({"orbit": GaussianNoise(0.5, learn=False)}, "orbit"), ({"kernel": RBFKernel()}, "kernel"),
        ({"likelihood": "student-t"}, "likelihood"), ({"mean": "zero"}, "mean"),
        ({"training": TrainingOptions(jitter=1e-5)}, "jitter"),
        ({"num_inducing": 7}, "num_inducing was 8 and is 7"),
        ({"num_samples": 8}, "num_samples"), ({"max_seconds": 100.0}, "max_seconds"),
        ({"training": TrainingOptions(sampler="iid")}, "sampler was qmc and is iid"),
    ], ids=str)  # fmt: skip
    def test_other_settings(self, path: Path, changes: dict[str, Any], words: str) -> None:
        other = InvariantGPRegressor(**{"orbit": GaussianNoise(0.5), **QUICK, **changes})
        with pytest.raises(SavedFileError, match="a run with other settings") as caught:
            other.fit(*table(), resume=path)
        assert words in str(caught.value)
        assert not hasattr(other, "model_")

    def test_other_data(self, path: Path) -> None:
        X, y = table()
        make = lambda: InvariantGPRegressor(GaussianNoise(0.5), **QUICK)  # noqa: E731
        order = np.arange(len(X))[::-1]
        moved = X.copy()
        moved[3, 1] = np.nextafter(moved[3, 1], 9)
        for other, words in [((X[order], y[order]), "X and y"), ((moved, y), "X"), ((X, y[order]), "y")]:
            with pytest.raises(SavedFileError, match=f"other data: {words} differ"):
                make().fit(*other, resume=path)

    def test_what_does_not_matter_may_differ(self, path: Path) -> None:
        other = InvariantGPRegressor(
            GaussianNoise(0.5), **{**QUICK, "training": TrainingOptions(num_predict_samples=3), "verbose": True}
        )
        assert fit_to_kill.digest(other.fit(*table(), resume=path)) == expected("natural")

    def test_other_versions_are_told(
        self, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("orbitgp.saving.container.version", lambda name: "0")
        InvariantGPRegressor(GaussianNoise(0.5), **QUICK).fit(*table(), resume=path)
        assert "other versions: the run goes on, but not bit for bit" in caplog.text

    def test_is_not_overwritten_by_a_slip(self, path: Path) -> None:
        before = path.read_bytes()
        with pytest.raises(FileExistsError, match=r"8 steps: pass resume=True to go on with it, or delete it"):
            InvariantGPRegressor(GaussianNoise(0.5), **QUICK).fit(*table(), checkpoint=path)
        assert path.read_bytes() == before

    def test_files_that_are_something_else(self, path: Path, tmp_path: Path) -> None:
        X, y = table()
        make = lambda: InvariantGPRegressor(GaussianNoise(0.5), **QUICK)  # noqa: E731
        make().fit(X, y).save(tmp_path / "model")
        (tmp_path / "text").write_text("my data, which nobody must overwrite")
        (tmp_path / "short").write_bytes(path.read_bytes()[:-20])
        for name, words in (
            ("model", "holds a regressor, not a checkpoint"),
            ("text", "no safetensors file"),
            ("short", "cut short"),
        ):
            before = (tmp_path / name).read_bytes()
            for arguments in ({"checkpoint": tmp_path / name}, {"resume": tmp_path / name}):
                with pytest.raises(SavedFileError, match=words):
                    make().fit(X, y, **arguments)
            assert (tmp_path / name).read_bytes() == before

    @pytest.mark.parametrize(("arguments", "error", "words"), [
        ({"resume": True}, ValueError, "pass checkpoint=path"),
        ({"resume": "nowhere"}, FileNotFoundError, "there is no checkpoint nowhere"),
        ({"checkpoint": "no/folder/run"}, FileNotFoundError, "there is no folder no/folder"),
        ({"checkpoint": "run", "checkpoint_every": -1.0}, ValueError, "checkpoint_every"),
        ({"checkpoint": "run", "checkpoint_every": float("nan")}, ValueError, "checkpoint_every"),
        ({"checkpoint": "run", "checkpoint_every": "often"}, TypeError, "checkpoint_every"),
        ({"callback": 3}, TypeError, "callback"),
    ], ids=str)  # fmt: skip
    def test_arguments_that_cannot_be(self, arguments: dict[str, Any], error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            InvariantGPRegressor(**QUICK).fit(*table(), **arguments)

    def test_two_names(self, path: Path, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="two files"):
            InvariantGPRegressor(**QUICK).fit(*table(), checkpoint=tmp_path / "other", resume=path)


@pytest.mark.usefixtures("short_ends")
class TestWriting:
    def test_a_full_disk_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        X, y = table()
        path = tmp_path / "run.safetensors"

        def fills_up(record: dict[str, Any]) -> None:
            if record["step"] == 8:
                monkeypatch.setattr("os.fsync", full)

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        fitted = CASES["natural"]().fit(X, y, checkpoint=path, checkpoint_every=0.0, callback=fills_up)
        monkeypatch.undo()
        assert "No space left" in caplog.text
        assert "the last one is of step 7" in caplog.text
        assert list(tmp_path.iterdir()) == [path]
        assert read_checkpoint(path).steps == 7
        assert fit_to_kill.digest(fitted) == expected("natural")
        assert fit_to_kill.digest(CASES["natural"]().fit(X, y, resume=path)) == expected("natural")

    def test_every_so_many_seconds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[int] = []
        clock = iter(range(10**6))
        monkeypatch.setattr("orbitgp.training.checkpoint.time.monotonic", lambda: float(next(clock)))
        monkeypatch.setattr(
            "orbitgp.training.checkpoint.write", lambda path, kind, config, tensors: written.append(config["steps"])
        )
        CASES["natural"]().fit(*table(), checkpoint=tmp_path / "run", checkpoint_every=3.0)
        # The clock is asked once a step and once a checkpoint, and the last step is always kept.
        assert np.diff(written).max() <= 3
        assert written[-1] == 12

    def test_what_a_killed_writer_left_is_removed(self, tmp_path: Path) -> None:
        path = tmp_path / "run.safetensors"
        (tmp_path / ".run.12345.safetensors").write_bytes(b"a part")
        (tmp_path / ".run.mine.safetensors").write_bytes(b"not ours")
        CASES["no orbit"]().fit(*table(), checkpoint=path)
        assert sorted(p.name for p in tmp_path.iterdir()) == [".run.mine.safetensors", "run.safetensors"]

    def test_no_pickle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("pickle")

        for name in ("pickle.loads", "pickle.load", "pickle.dumps", "pickle.dump", "torch.load", "torch.save"):
            monkeypatch.setattr(name, refuse)
        killed_and_resumed(CASES["natural"], *table(), tmp_path / "run", 7)


@pytest.fixture
def ctrl_c() -> Any:
    """Python's own answer to Ctrl-C, whatever the process that runs the tests made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("short_ends")
class TestInterrupted:
    def at(self, step: int, do: Callable[[], Any]) -> Callable[[dict[str, Any]], None]:
        return lambda record: do() if record["step"] == step else None

    def test_keeps_the_model_so_far_and_says_how_to_go_on(self, tmp_path: Path, ctrl_c: Any) -> None:
        X, y = table()
        path, make = tmp_path / "run.safetensors", CASES["natural"]
        with pytest.warns(UserWarning, match="stopped after 8 of 12 steps") as warned:
            stopped = make().fit(X, y, checkpoint=path, callback=self.at(8, ctrl_c))
        assert f"checkpoint={str(path)!r}, resume=True" in str(warned[0].message)
        assert stopped.interrupted_
        assert stopped.history_[-1]["step"] == 8
        assert np.isfinite(stopped.predict(X)).all()
        assert np.isfinite(stopped.evidence_.value)
        assert read_checkpoint(path).steps == 8
        resumed = make().fit(X, y, checkpoint=path, resume=True)
        assert not resumed.interrupted_
        assert fit_to_kill.digest(resumed) == expected("natural")

    def test_without_a_checkpoint(self, ctrl_c: Any) -> None:
        with pytest.warns(UserWarning, match="stopped after 8 of 12 steps.*give fit a checkpoint=path"):
            stopped = CASES["natural"]().fit(*table(), callback=self.at(8, ctrl_c))
        assert stopped.interrupted_

    def test_a_second_one_stops_at_once_and_changes_nothing(self, tmp_path: Path, ctrl_c: Any) -> None:
        X, y = table()
        path, estimator = tmp_path / "run.safetensors", CASES["natural"]()
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(
                X, y, checkpoint=path, checkpoint_every=0.0, callback=self.at(8, lambda: (ctrl_c(), ctrl_c()))
            )
        assert not hasattr(estimator, "model_")
        assert read_checkpoint(path).steps == 7
        fitted = CASES["natural"]().fit(X, y)
        before = fit_to_kill.digest(fitted)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(X, y, callback=self.at(8, lambda: (ctrl_c(), ctrl_c())))
        assert fit_to_kill.digest(fitted) == before

    @pytest.mark.slow
    @pytest.mark.usefixtures("one_start")
    def test_while_the_start_is_chosen(self, tmp_path: Path, ctrl_c: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y = table()
        path, make = tmp_path / "run.safetensors", CASES["natural"]
        monkeypatch.setattr("orbitgp.training.trainer.SHORTEST", 2)
        whole = fit_to_kill.digest(make().fit(X, y))
        evaluate, presses = Run.evaluate, iter([ctrl_c])

        def interrupted(run: Run, *arguments: Any) -> Any:
            next(presses, lambda: None)()
            return evaluate(run, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(Run, "evaluate", interrupted)
            with pytest.warns(UserWarning, match="stopped after 0 of 12 steps.*another fit starts over"):
                stopped = make().fit(X, y, checkpoint=path)
        assert np.isfinite(stopped.predict(X)).all()
        assert stopped.interrupted_
        assert not path.exists()
        assert fit_to_kill.digest(make().fit(X, y, checkpoint=path, resume=True)) == whole

    def test_the_handler_of_a_program_is_left_alone(self, ctrl_c: Any) -> None:
        pressed: list[int] = []
        signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
        fitted = CASES["natural"]().fit(*table(), callback=self.at(8, ctrl_c))
        assert pressed == [signal.SIGINT]
        assert fitted.history_[-1]["step"] == 12
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def test_in_another_thread(self, ctrl_c: Any) -> None:
        """Where no handler can be set."""
        result: list[Any] = []
        thread = threading.Thread(target=lambda: result.append(CASES["natural"]().fit(*table())))
        thread.start()
        thread.join()
        assert fit_to_kill.digest(result[0]) == expected("natural")


@pytest.mark.usefixtures("short_ends")
class TestCallbacks:
    def test_are_called_with_every_record_in_the_units_of_y(self) -> None:
        X, y = table()
        seen: list[dict[str, Any]] = []
        fitted = InvariantGPRegressor(GaussianNoise(0.5), **QUICK).fit(X, 100 * y, callback=seen.append)
        assert [record["step"] for record in seen] == list(range(1, 13))
        assert seen == fitted.history_[-len(seen) :]
        assert {"bound", "seconds", "orbit", "lengthscale", "noise"} <= set(seen[0])

    def test_may_do_as_they_like_with_a_record(self) -> None:
        fitted = CASES["natural"]().fit(*table(), callback=lambda record: record.clear())
        assert fit_to_kill.digest(fitted) == expected("natural")

    def test_one_that_fails_ends_the_fit(self) -> None:
        estimator = CASES["natural"]()
        with pytest.raises(Killed):
            estimator.fit(*table(), callback=dies(9))
        assert not hasattr(estimator, "model_")

    def test_logging(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, logger="orbitgp"):
            fitted = CASES["natural"]().fit(*table())
        lines = [record.getMessage() for record in caplog.records if record.name == "orbitgp"]
        assert lines.pop(0).startswith("sparse inference: ")
        assert len(lines) == 12
        assert "%, step 12, " in lines[-1]
        assert f"bound {fitted.history_[-1]['bound']:,.0f}" in lines[-1]


def test_a_checkpoint_of_another_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Its run is the same, but its state lacks a part that runs have now."""
    rng = np.random.default_rng(0)
    x, path = rng.normal(size=(20, 2)), tmp_path / "run.safetensors"
    model = InvariantGPRegressor(Permutation.swap(0, 1), random_state=0)
    model.fit(x, x.sum(1), checkpoint=path)
    kind, config, tensors = container.read(path)
    del config["state"]["optima"]
    container.write(path, kind, config, tensors)
    with pytest.raises(
        SavedFileError, match="was written by another version of orbitgp, and this one cannot go on from it"
    ):
        model.fit(x, x.sum(1), checkpoint=path, resume=True)
