"""The file: tensors in the safetensors format, everything else as JSON in its header, and a checksum over both.

Nothing in it can run: tensors are numbers, the rest is names and arguments. A file is written whole or not at all, and read
only if it is whole: whatever is wrong with one is a :class:`SavedFileError` of one sentence. The checksum tells damage, not
malice: who changes a file on purpose can change the checksum too, and gets a model that predicts something else, no more.

Header metadata: ``orbitgp`` (the version of the format), ``kind`` (what the file holds), ``config`` (JSON) and ``checksum``.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from orbitgp.saving.atomic import replace
from orbitgp.saving.values import Tensors

FORMAT_VERSION = 1
_MAX_HEADER = 100_000_000  # what the safetensors library allows


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
    text = json.dumps(config, allow_nan=False)
    # Tensors that share memory are refused by the library; each becomes its own.
    tensors = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    checksum = _checksum(str(FORMAT_VERSION), kind, text, tensors)
    metadata = {"orbitgp": str(FORMAT_VERSION), "kind": kind, "config": text, "checksum": checksum}
    data = safetensors.torch.save(tensors, metadata)

    def write_all(beside: Path) -> None:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    replace(path, write_all)


def read(path: Path) -> Contents:
    """Read a file and check that it is whole."""
    with path.open("rb") as file:
        header, start = _read_header(path, file)
        metadata = header.get("__metadata__")
        if not isinstance(metadata, dict) or "orbitgp" not in metadata:
            raise SavedFileError(f"{path} is a safetensors file, but not one that orbitgp wrote.")
        version = metadata["orbitgp"]
        if version not in {str(known) for known in range(1, FORMAT_VERSION + 1)}:
            raise SavedFileError(
                f"{path} has format version {version}, but this version of orbitgp reads versions up to {FORMAT_VERSION}: "
                "install a newer one."
            )
        file.seek(0)
        data = file.read()
    try:
        kind, text, checksum = (metadata[name] for name in ("kind", "config", "checksum"))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        if len(data) < start + max(ends, default=0):
            raise SavedFileError(f"{path} was cut short: {len(data)} of {start + max(ends)} bytes are there.")
        # A copy of each: where a tensor begins in memory can change the last bit of a product.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        whole = checksum == _checksum(version, kind, text, tensors)
        config = json.loads(text) if whole else None
    except (SafetensorError, KeyError, TypeError, IndexError, AttributeError, RecursionError, RuntimeError) as error:
        raise SavedFileError(f"{path} is damaged: its header makes no sense.") from error
    if not whole:
        raise SavedFileError(f"{path} is damaged: its contents do not match its checksum.")
    return Contents(kind, config, tensors)


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(9)
    length = int.from_bytes(prefix[:8], "little")
    if len(prefix) < 9 or prefix[8:] != b"{" or length > _MAX_HEADER:
        raise SavedFileError(f"{path} is no safetensors file.")
    if length > size - 8:
        raise SavedFileError(f"{path} was cut short: its header alone is longer than the file.")
    try:
        header = json.loads(b"{" + file.read(length - 1))
    except (ValueError, RecursionError) as error:
        raise SavedFileError(f"{path} is damaged: its header cannot be read.") from error
    return header, 8 + length


def _checksum(version: str, kind: str, text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256("\0".join((version, kind, text)).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(content(tensor))
    return digest.hexdigest()


def content(tensor: Tensor) -> Any:
    """The bytes of a tensor, row by row, as a buffer."""
    flat = tensor.detach().cpu().reshape(-1)
    # A view of a single number may claim a stride of zero, and be called contiguous all the same.
    flat = flat.clone(memory_format=torch.contiguous_format) if flat.stride(0) != 1 else flat
    return flat.view(torch.uint8).numpy()
