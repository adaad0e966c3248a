"""IDX, the format of the MNIST files: a header that says how much follows, then one byte a pixel.

    00 00 08 d | size_1 .. size_d, 4 bytes each, big-endian | size_1 * .. * size_d bytes        (all of it gzipped, or not)

Reading stops at the first byte that the header does not announce. A small file that would unpack to gigabytes costs no more
memory than its header announces, and that is limited.
"""

from __future__ import annotations

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from orbitgp.datasets.base import DatasetError

MAX_BYTES = 1 << 28  # 256 MiB: five times the largest file of the MNIST family
_MAX_DIMENSIONS = 4
_CHUNK = 1 << 20
_UNSIGNED_BYTE = 8


def read_idx(path: str | Path, max_bytes: int = MAX_BYTES) -> UInt8[np.ndarray, "..."]:
    """The array in an IDX file of unsigned bytes, gzipped or not."""
    path = Path(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            return _read(file, path, max_bytes)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetError(f"{path} is a damaged gzip file ({error}): delete it and fetch it again.") from error


def _read(file: BufferedIOBase, path: Path, max_bytes: int) -> UInt8[np.ndarray, "..."]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DatasetError(f"{path} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}, not with 00 00.")
    kind, dimensions = magic[2], magic[3]
    if kind != _UNSIGNED_BYTE:
        raise DatasetError(f"{path} holds IDX data of type 0x{kind:02x}; only unsigned bytes (0x08) can be read.")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise DatasetError(f"{path} announces {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} can be read.")

    header = file.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DatasetError(f"{path} ends inside its header: delete it and fetch it again.")
    shape = tuple(int.from_bytes(header[i : i + 4], "big") for i in range(0, len(header), 4))
    size = math.prod(shape)
    if size > max_bytes:
        raise DatasetError(
            f"{path} announces {size} bytes, more than the {max_bytes} allowed: raise max_bytes if you trust it."
        )

    # Ask for one byte more than announced: nothing may follow, and at the end gzip verifies its own checksum.
    content = bytearray()
    while len(content) <= size and (chunk := file.read(min(_CHUNK, size + 1 - len(content)))):
        content += chunk
    if len(content) != size:
        found = "more" if len(content) > size else f"only {len(content)}"
        raise DatasetError(f"{path} announces {size} bytes of data but holds {found}: delete it and fetch it again.")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
