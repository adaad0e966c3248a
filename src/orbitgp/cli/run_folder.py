"""A run folder: the model, how it was made, how it went, and the report.

    config.json              all that is needed to repeat the run, written first
    checkpoint.safetensors   the state of an unfinished run
    model.safetensors        the model
    history.json             bound and ranges over time
    baseline.json            the evidence without invariance (``orbitgp learn``)
    report.html              the result for people
    models/                  the models of a comparison that is not finished yet
    result.json              the result for scripts, with the ranking of ``orbitgp compare``; written last

Each file is complete or absent.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import typer

from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.configuration import Configuration
from orbitgp.cli.own import named_again
from orbitgp.forms import misfit

if TYPE_CHECKING:
    from orbitgp.datasets.files import ReadOptions


class Result(TypedDict):
    """What commands read of ``result.json``."""

    summary: str
    remarks: list[str]
    lines: list[tuple[str, str]]  # of the terminal, each with its name
    interrupted: bool
    again: str
    comparison: NotRequired[dict[str, Any]]


class RunFolder:
    """The files of one run by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.checkpoint = path / "checkpoint.safetensors"
        self.model = path / "model.safetensors"
        self.history = path / "history.json"
        self.baseline = path / "baseline.json"
        self.result = path / "result.json"
        self.report = path / "report.html"
        self.models = path / "models"

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run."""
        folder = cls(path)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no run folder {path}.")
        if not folder.config.is_file():
            raise FileNotFoundError(f"{path} is not a run folder: it has no config.json.")
        return folder

    @classmethod
    def unfinished(cls, path: Path, command: str) -> tuple[RunFolder, dict[str, Any]]:
        """The folder of a run that this command began and did not end, and its configuration."""
        folder = cls.open(path)
        config = folder.read_config()
        folder.read_options(config)
        if config["command"] != command:
            raise ValueError(f"{path} was not made by orbitgp {command}: there is nothing to resume.")
        if folder.result.is_file() and not folder.read_json(folder.result, Result)["interrupted"]:
            raise ValueError(f"{path} is finished: there is nothing to resume; orbitgp show {path} says what came out.")
        return folder, config

    def read_json(self, path: Path, form: Any) -> Any:
        """The content of one of the JSON files, which must have this form (:mod:`orbitgp.forms`)."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: {error}.") from None
        if problem := misfit(content, form):
            raise ValueError(f"{path} is damaged: {problem}.")
        return content

    def read_config(self) -> dict[str, Any]:
        """The configuration; settings that an older version did not have take their defaults."""
        config: dict[str, Any] = self.read_json(self.config, Configuration)
        return {**config, "settings": asdict(TrainingSettings(**config["settings"]))}

    def read_options(self, config: dict[str, Any]) -> ReadOptions:
        """How the inputs of this run were read."""
        from orbitgp.datasets.files import ReadOptions  # loads torch, which ``orbitgp show`` need not wait for

        saved = config["read_options"]
        if problem := misfit(saved, ReadOptions, "read_options"):
            raise ValueError(f"{self.config} is damaged: {problem}.")
        try:
            DataOptions(**config["data"]).read_options()  # as a run that goes on reads them
        except typer.BadParameter as error:
            option = str(error.param_hint).strip("-").replace("-", "_")
            raise ValueError(f"{self.config} is damaged: 'data.{option}' is of the wrong kind.") from None
        return ReadOptions(**{name: _tuples(value) for name, value in saved.items()})

    def resume_command(self) -> str:
        """What to type to go on with this run; classes of the user's own are named again."""
        config = self.read_config()
        again = named_again(config["orbits"], config["settings"])
        return f"orbitgp {config['command']} --resume {shlex.quote(str(self.path))}{again}"

    def steps_done(self) -> int:
        """The steps of the checkpoint, if there is one."""
        from orbitgp.training.checkpoint import read_checkpoint

        return read_checkpoint(self.checkpoint).steps if self.checkpoint.is_file() else 0

    def load_model(self, **own: Any) -> Any:
        """The fitted estimator; ``own`` are objects that a file cannot rebuild."""
        if not self.model.is_file():
            hint = f": go on with {self.resume_command()}" if self.checkpoint.is_file() else ""
            raise FileNotFoundError(f"{self.path} has no model yet{hint}.")
        return load_model(self.model, **own)

    def write_json(self, path: Path, content: Any, new: bool = False) -> None:
        """Write one of the JSON files; with ``new``, only if it does not exist."""
        from orbitgp.saving.atomic import write_json  # loads torch, which a help page need not wait for

        write_json(path, content, new)


def _tuples(value: Any) -> Any:
    """Lists of a JSON file as the tuples that they were."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def load_model(path: Path, **own: Any) -> Any:
    """The fitted classifier or regressor in a file; ``own`` are objects that it cannot rebuild."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.saving.container import read

    kind = read(path).kind
    return (InvariantGPRegressor if kind == "regressor" else InvariantGPClassifier).load(path, **own)
