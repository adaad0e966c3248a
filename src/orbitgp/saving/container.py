"""The file: tensors in the safetensors format, everything else as JSON in its header, and a checksum over both.

Nothing in it can run: tensors are numbers, the rest is names and arguments. A file is written whole or not at all, and
read only if it is whole: whatever is wrong with one is a :class:`SavedFileError` of one sentence. The checksum tells
damage, not malice: whoever changes a file on purpose can change that too. They get a model that predicts otherwise.

Header metadata: ``orbitgp`` (the version of the format), ``kind`` (what it holds), ``config`` (JSON), ``checksum``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from orbitgp import __version__

FORMAT_VERSION = 2
Tensors = dict[str, Tensor]


class SavedFileError(ValueError):
    """A file that is not what it should be, in one sentence."""


class Contents(NamedTuple):
    """What a file holds."""

    kind: str
    config: Any
    tensors: Tensors


def write(path: Path, kind: str, config: Any, tensors: Tensors) -> None:
    """Write a file, whole or not at all: until the last byte is on the disk, ``path`` is what it was before."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
    metadata = {"orbitgp": str(FORMAT_VERSION), "kind": kind, "config": json.dumps(config)}
    data = safetensors.torch.save(_separate(tensors), {**metadata, "checksum": digest(tensors, *metadata.values())})
    replace(path, lambda unfinished: unfinished.write_bytes(data))


def read(path: Path) -> Contents:
    """Read a file and check that it is whole."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file in it.")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            # A copy of each: where a tensor begins in memory can change the last bit of a product.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, AttributeError, RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise SavedFileError(f"{path} is no safetensors file, or it is damaged or cut short.") from error
    if "orbitgp" not in metadata:
        raise SavedFileError(f"{path} is a safetensors file, but not one that orbitgp wrote.")
    form, kind, text = (metadata.get(name, "") for name in ("orbitgp", "kind", "config"))
    if form != str(FORMAT_VERSION):
        older = form.isdecimal() and int(form) < FORMAT_VERSION
        advice = "fit again, or use the version that wrote it" if older else "install a newer one"
        raise SavedFileError(
            f"{path} has format version {form[:9]}, and this orbitgp reads version {FORMAT_VERSION}: {advice}."
        )
    if metadata.get("checksum") != digest(tensors, form, kind, text):
        raise SavedFileError(f"{path} is damaged: its contents do not match its checksum.")
    try:
        return Contents(kind, json.loads(text), tensors)
    except (ValueError, RecursionError) as error:
        raise SavedFileError(f"{path} is damaged: its header cannot be read.") from error


def versions(*packages: str) -> dict[str, str]:
    """The versions of orbitgp, which need not be installed to be used, and of these packages."""
    return {"orbitgp": __version__, **{name: version(name) for name in packages}}


def digest(tensors: Tensors, *texts: str) -> str:
    """Tells these tensors and texts from any others."""
    found = hashlib.sha256("\0".join((*texts, "")).encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):  # one at a time: they may be large
        found.update(safetensors.torch.save(_separate({name: tensors[name]})))
    return found.hexdigest()


def _separate(tensors: Tensors) -> Tensors:
    """Each tensor row by row in memory of its own: the format knows nothing else."""
    return {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file next to ``path``, then move it there: readers find the old file or the new, no part.

    The bytes are on the disk before the file gets its name. Links are not followed: one at ``path`` is replaced, and
    what it leads to stays as it was.
    """
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        write(unfinished)
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # it names the file that the user knows
    finally:
        with suppress(OSError):  # on a disk that is read-only; the error above says so
            unfinished.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """``content`` as indented JSON, whole or not at all."""
    text = json.dumps(content, indent=1) + "\n"
    replace(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def _flush(path: Path) -> None:
    """Wait until the disk has the file, or the names in the folder. Windows flushes only files that may be written."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
