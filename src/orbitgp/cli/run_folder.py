"""A run folder: the model, how it was made, how it went, and the report.

    config.json              all that is needed to do it again, written first
    checkpoint.safetensors   where an unfinished run is, gone when it is finished
    model.safetensors        the model
    history.json             bound and ranges over time
    baseline.json            of ``orbitgp learn``: the evidence without invariance
    report.html              what came out, for people
    result.json              what came out, for machines; of ``orbitgp compare`` with the whole ranking; written last

Each file is whole or not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitgp.saving.atomic import write_json

if TYPE_CHECKING:
    from orbitgp.report.page import Content


class Folder:
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

    @classmethod
    def new(cls, out: Path | None, data: str, what: str) -> Folder:
        """A folder that is not there yet: the one asked for, or runs/DATA-ORBIT, numbered if need be."""
        if out is None:
            stem = f"{_slug(Path(data).stem or data)}-{_slug(what)}"
            path, number = Path("runs") / stem, 2
            while path.exists():
                path, number = Path("runs") / f"{stem}-{number}", number + 1
        else:
            path = out
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise FileExistsError(
                    f"{path} is there already: choose another --out, or go on with it, orbitgp learn --resume."
                )
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @contextmanager
    def whole_or_not_at_all(self) -> Iterator[None]:
        """What fails in this block before it has written anything leaves no empty folder behind."""
        try:
            yield
        except BaseException:
            with suppress(OSError):
                self.path.rmdir()
            raise

    @classmethod
    def existing(cls, path: Path) -> Folder:
        """A folder that some run has written."""
        folder = cls(path)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no run folder {path}.")
        if not folder.config.is_file():
            raise FileNotFoundError(f"{path} is not a run folder: it has no config.json.")
        return folder

    def read(self, path: Path) -> Any:
        """The content of one of its JSON files."""
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} is not there: the run has not come so far.") from None
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}.") from None

    def load_model(self) -> Any:
        """The fitted estimator."""
        if not self.model.is_file():
            hint = f": go on with orbitgp learn --resume {self.path}" if self.checkpoint.is_file() else ""
            raise FileNotFoundError(f"{self.path} has no model yet{hint}.")
        return load_model(self.model)


def load_model(path: Path) -> Any:
    """The fitted estimator in a file, of whichever kind."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.saving.container import read

    kind = read(path).kind
    return (InvariantGPRegressor if kind == "regressor" else InvariantGPClassifier).load(path)


def save_run(folder: Folder, content: Content, result: dict[str, Any]) -> None:
    """The model first, for it is worth most; the result last, for where it is, all is."""
    from orbitgp.report.page import write_report

    content.model.save(folder.model)
    write_json(folder.history, content.model.history_)
    write_report(folder.report, content)
    write_json(folder.result, result)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "run"
