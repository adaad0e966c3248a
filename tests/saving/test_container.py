"""Files that are whole or not there: an error of the system names the file that the user knows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orbitgp.saving.container import replace


def test_an_error_of_the_system_names_the_file_that_the_user_knows(tmp_path: Path) -> None:
    def full(beside: Path) -> None:
        raise OSError(28, "No space left on device", str(beside), None, "elsewhere")

    with pytest.raises(OSError, match="No space left on device") as error:
        replace(tmp_path / "model.safetensors", full)
    assert str(error.value) == f"[Errno 28] No space left on device: '{tmp_path / 'model.safetensors'}'"


def test_so_does_an_error_of_a_disk_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:  # Linux refuses even to remove what is not there
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as error:
        replace(tmp_path / "predictions.csv", lambda beside: None)
    assert error.value.filename == str(tmp_path / "predictions.csv")
