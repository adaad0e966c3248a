"""The file: tensors in the safetensors format, everything else as JSON in its header, and a checksum over both.

Nothing in it can run: tensors are numbers, the rest is names and arguments. A file is written whole or not at all, and read
only if it is whole: whatever is wrong with one is a :class:`SavedFileError` of one sentence. The checksum tells damage, not
malice: whoever changes a file on purpose can change the checksum too. All they get is a model that predicts something else.

Header metadata: ``orbitgp`` (the version of the format), ``kind`` (what the file holds), ``config`` (JSON) and ``checksum``.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from orbitgp import __version__
from orbitgp.saving.atomic import replace
from orbitgp.saving.values import Tensors

FORMAT_VERSION = 1


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

    replace(path, lambda beside: beside.write_bytes(data))


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
    form, kind, text, checksum = (metadata.get(name, "") for name in ("orbitgp", "kind", "config", "checksum"))
    if form not in {str(known) for known in range(1, FORMAT_VERSION + 1)}:
        raise SavedFileError(
            f"{path} has format version {form}, but this version of orbitgp reads versions up to {FORMAT_VERSION}: "
            "install a newer one."
        )
    if checksum != _checksum(form, kind, text, tensors):
        raise SavedFileError(f"{path} is damaged: its contents do not match its checksum.")
    try:
        return Contents(kind, json.loads(text), tensors)
    except (ValueError, RecursionError) as error:
        raise SavedFileError(f"{path} is damaged: its header cannot be read.") from error


def versions(*packages: str) -> dict[str, str]:
    """The versions of orbitgp, which need not be installed to be used, and of these packages."""
    return {"orbitgp": __version__, **{name: version(name) for name in packages}}


def _checksum(form: str, kind: str, text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256("\0".join((form, kind, text)).encode())
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
