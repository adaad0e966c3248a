"""Files that are whole or not there: write beside, then move into place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from errno import EEXIST
from os import strerror
from pathlib import Path
from typing import Any


def replace(path: Path, write: Callable[[Path], object], new: bool = False) -> None:
    """Let ``write`` make a file beside ``path``, then move it there: a reader finds the old file or the new, never a part.

    The bytes are on the disk before the file gets its name. Links are not followed: one at ``path`` is replaced, and what it
    leads to stays as it was. With ``new``, a file that exists is an error, also if another process makes it meanwhile.
    """
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        beside.unlink(missing_ok=True)
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        write(beside)
        _flush(beside)
        if new:
            _link(beside, path)
        else:
            os.replace(beside, path)
        _flush(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # it names the file that the user knows
    finally:
        with suppress(OSError):  # on a disk that is read-only; the error above says so
            beside.unlink(missing_ok=True)


def _link(beside: Path, path: Path) -> None:
    """A second name for the file, unless there is a file of that name."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: nearly as good
        if path.exists():
            raise FileExistsError(EEXIST, strerror(EEXIST), str(path)) from None
        os.replace(beside, path)


def write_json(path: Path, content: Any, new: bool = False) -> None:
    """``content`` as indented JSON, whole or not at all."""
    text = json.dumps(content, indent=1) + "\n"
    replace(path, lambda beside: beside.write_text(text), new)


def _flush(path: Path) -> None:
    """Wait until the disk has the file, or the names in the folder."""
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
