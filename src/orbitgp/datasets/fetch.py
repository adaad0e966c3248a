"""Files of the MNIST family: downloads with pooch, and IDX, the format of the files.

IDX is a header that says how much follows, then one byte a pixel:

    00 00 08 d | size_1 .. size_d, 4 bytes each, big-endian | size_1 * .. * size_d bytes        (all of it gzipped, or not)

Reading stops at the first byte that the header does not announce. A small file that would unpack to gigabytes costs no more
memory than its header announces, and that is limited.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from orbitgp.datasets.base import DatasetError

MAX_BYTES = 1 << 28  # 256 MiB: five times the largest file of the MNIST family
_MAX_DIMENSIONS = 4
_UNSIGNED_BYTE = 8
_TIMEOUT = 30.0  # seconds without an answer


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has this checksum, written ``sha256:...`` or ``md5:...``."""
    algorithm, _, digest = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == digest


def download(urls: Sequence[str], path: Path, checksum: str) -> None:
    """Fetch ``path`` from the first mirror that has the right file; the error names every mirror that failed, and why."""
    try:
        import pooch
        import requests
    except ImportError:
        raise DatasetError(
            f"downloading {path.name} needs the package pooch: pip install pooch, or put the file in {path.parent} yourself."
        ) from None
    pooch.get_logger().setLevel("WARNING")
    reasons = []
    for url in urls:
        try:
            pooch.retrieve(url, checksum, path.name, path.parent, downloader=pooch.HTTPDownloader(timeout=_TIMEOUT))
            return
        except requests.ConnectionError:
            reason = "no connection"
        except requests.HTTPError as error:
            reason = f"the server answered {error.response.status_code} {error.response.reason}"
        except requests.RequestException as error:
            reason = f"the transfer broke off ({type(error).__name__})"
        except ValueError:
            reason = "the file has another checksum than the published one"
        except OSError as error:
            raise DatasetError(f"cannot write {path} ({error}): choose another folder with root= or ORBITGP_DATA.") from error
        reasons.append(f"{url}: {reason}")
    raise DatasetError(
        f"cannot download {path.name} ({'; '.join(reasons)}): try again, or put the file in {path.parent} yourself."
    )


def read_idx(path: str | Path, max_bytes: int = MAX_BYTES) -> UInt8[np.ndarray, "..."]:
    """The array in an IDX file of unsigned bytes, gzipped or not."""
    path = Path(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            return _decode(file, path, max_bytes)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetError(f"{path} is a damaged gzip file ({error}): delete it and fetch it again.") from error


def _decode(file: BufferedIOBase, path: Path, max_bytes: int) -> UInt8[np.ndarray, "..."]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DatasetError(f"{path} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}, not with 00 00.")
    kind, dimensions = magic[2:]
    if kind != _UNSIGNED_BYTE:
        raise DatasetError(f"{path} holds IDX data of type 0x{kind:02x}; only unsigned bytes (0x08) can be read.")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise DatasetError(f"{path} announces {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} can be read.")
    header = file.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DatasetError(f"{path} ends inside its header: delete it and fetch it again.")
    shape = np.frombuffer(header, ">u4").tolist()
    size = math.prod(shape)
    if size > max_bytes:
        raise DatasetError(
            f"{path} announces {size} bytes, more than the {max_bytes} allowed: raise max_bytes if you trust it."
        )
    content = file.read(size + 1)  # nothing may follow, and at its end a gzip file verifies its own checksum
    if len(content) != size:
        found = "more" if len(content) > size else f"only {len(content)}"
        raise DatasetError(f"{path} announces {size} bytes of data but holds {found}: delete it and fetch it again.")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
