"""Files that are whole or not there: write beside, then move into place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then move it there: a reader finds the old file or the new, never a part."""
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(beside)
        os.replace(beside, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # it names the file that the user knows
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """``content`` as indented JSON, whole or not at all."""
    text = json.dumps(content, indent=1) + "\n"
    replace(path, lambda beside: beside.write_text(text))
