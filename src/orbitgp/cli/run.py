"""A run and its folder: the model, how it was made, how it went, and the report.

    config.json              all that is needed to repeat the run, written first
    checkpoint.safetensors   the state of an unfinished run
    model.safetensors        the model
    history.json             bound and ranges over time
    report.html              the result for people
    models/                  the models of a comparison that is not finished yet
    result.json              the result for scripts, with the ranking of ``orbitgp compare``
    advice.json              what ``orbitgp advise`` says, for scripts

Each file is complete or absent. JSON files but for the history hold a checksum of their content: a file that was
changed is not read.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.arguments import DataOptions, TrainingSettings

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data, ReadOptions
    from orbitgp.orbits import Orbit


class Run:
    """The files of one run by name, the content of its ``config.json``, and its data while it trains."""

    data: Data
    json = False  # whether results are for scripts
    begun = read_seconds = 0.0  # the moment when the command began, and what it took to read the data

    def __init__(self, path: Path, config: dict[str, Any], quiet: bool = True) -> None:
        self.path, self.config, self.quiet = path, config, quiet
        self.checkpoint = path / "checkpoint.safetensors"
        self.model = path / "model.safetensors"
        self.result = path / "result.json"
        self.report = path / "report.html"
        self.models = path / "models"

    @classmethod
    def create(cls, out: Path | None, config: dict[str, Any]) -> Run:
        """A run in a new folder: ``out``, or runs/DATA-ORBIT with a number if that exists."""
        if out is not None:
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise _taken(out)
            out.mkdir(parents=True, exist_ok=True)
            return cls(out, config).claimed()
        data, what = config["data"]["data"], config["orbit"] if config["command"] == "learn" else config["command"]
        stem, number = f"{_slug(Path(data).stem or data)}-{_slug(what)}", 1
        while True:
            path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
                return cls(path, config).claimed()
            except FileExistsError:  # another run may take the name at the same moment
                number += 1

    def claimed(self) -> Run:
        """The same run, whose configuration is written, which makes the folder that of this run and of no other."""
        path = self.path / "config.json"
        try:
            path.touch(exist_ok=False)  # of several runs, one alone can
        except FileExistsError:
            raise _taken(self.path) from None
        try:
            self.write_json(path, self.config)
        except BaseException:
            path.unlink()
            raise
        return self

    @classmethod
    def open(cls, path: Path) -> Run:
        """An earlier run. Settings that an older version did not have take their defaults."""
        if not path.is_dir():
            raise FileNotFoundError(f"there is no run folder {path}.")
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} is not a run folder: it has no config.json.")
        config = read_json(path / "config.json")
        try:
            settings = TrainingSettings(**config["settings"])
        except TypeError:
            raise ValueError(f"{path} has settings of another version of orbitgp: open it with that one.") from None
        return cls(path, {**config, "settings": asdict(settings)})

    @classmethod
    def unfinished(cls, path: Path, command: str) -> Run:
        """A run that this command began and did not end."""
        run = cls.open(path)
        if run.config["command"] != command:
            raise ValueError(f"{path} was not made by orbitgp {command}: there is nothing to resume.")
        if run.result.is_file() and not read_json(run.result)["interrupted"]:
            raise ValueError(f"{path} is finished: there is nothing to resume; orbitgp show {path} says what came out.")
        return run

    def read_options(self) -> ReadOptions:
        """How the inputs of this run were read."""
        from orbitgp.datasets.files import ReadOptions  # loads torch, which ``orbitgp show`` need not wait for

        return ReadOptions(**{name: _tuples(value) for name, value in self.config["read_options"].items()})

    def model_seconds(self) -> float | None:
        """Of the limit, those before the report, which takes half as long as reading: both mostly load libraries."""
        limit: float | None = self.config["settings"]["max_seconds"]
        return limit and limit - max(0.1 * limit, 0.5 * self.read_seconds)

    def has_time(self, seconds: float) -> bool:
        """Whether the limit leaves as many seconds."""
        limit = self.config["settings"]["max_seconds"]
        return limit is None or time.perf_counter() - self.begun + seconds <= limit

    def resume_command(self) -> str:
        """What to type to go on with this run."""
        return f"orbitgp {self.config['command']} --resume {shlex.quote(str(self.path))}"

    def say(self, text: str) -> None:
        """Tell a person who watches how far the run is."""
        if not self.quiet:
            typer.echo(text, err=True)

    def write_json(self, path: Path, content: Any) -> None:
        """Write one of the JSON files."""
        from orbitgp.saving.container import write_json  # loads torch, which a help page need not wait for

        write_json(path, {**content, "checksum": _checksum(content)} if isinstance(content, dict) else content)


def read_json(path: Path) -> dict[str, Any]:
    """The content of one of the JSON files, as it was written."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        intact = content.pop("checksum") == _checksum(content)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        intact = False
    if not intact:
        raise ValueError(f"{path} is damaged, or it was changed or made by another version: make the run again.")
    return content


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content).encode()).hexdigest()


def _tuples(value: Any) -> Any:
    """Lists of a JSON file as the tuples that they were."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} exists already: choose another --out, or go on with it, --resume {path}, if it was stopped."
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "run"


def orbit_for(config: dict[str, Any], orbit: str, data: Data) -> Orbit:
    """The orbit of a text, which may name columns of the data, with the interval between samples if there is one."""
    from orbitgp.orbits.parse import make_orbit, with_axis

    axis = DataOptions(**config["data"]).axis()
    text = orbit if axis is None else with_axis(orbit, *axis)
    return make_orbit(text, data.input_shape, data.options.features)
