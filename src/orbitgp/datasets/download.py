"""Downloads that are whole or not there.

Bytes arrive in ``name.part``. A transfer that breaks off is taken up where it stopped, in this call or the next. Only
what matches its checksum is written under its own name, in one step, so nobody ever reads half a file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

from orbitgp.datasets.base import DatasetError

MAX_BYTES = 1 << 26  # 64 MiB: more than twice the largest file that any loader asks for
ATTEMPTS = 4
TIMEOUT = 30.0
_CHUNK = 1 << 18
_PARTIAL_CONTENT = 206
_RANGE_NOT_SATISFIABLE = 416


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has this checksum, written ``sha256:...`` or ``md5:...``."""
    return path.stat().st_size <= MAX_BYTES and _digest(path.read_bytes(), checksum) == checksum


def download(urls: Sequence[str], path: Path, checksum: str) -> None:
    """The file at one of the mirrors, verified; ``path`` exists afterwards or an error says why each mirror failed."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        reasons = []
        for url in urls:
            reason = _from_mirror(url, part, path, checksum)
            if reason is None:
                return
            reasons.append(f"{url}: {reason}")
    except OSError as error:
        raise DatasetError(f"cannot write {path} ({error}): choose another folder with root= or ORBITGP_DATA.") from error
    raise DatasetError(
        f"cannot download {path.name} ({'; '.join(reasons)}): try again, or put the file in {path.parent} yourself."
    )


class _TransferError(Exception):
    """Why a transfer failed, and whether to try this mirror again."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


def _from_mirror(url: str, part: Path, path: Path, checksum: str) -> str | None:
    """None if the file is now in place, else the reason why it is not."""
    reason = ""
    for _ in range(ATTEMPTS):
        resumed = part.exists()
        try:
            _transfer(url, part)
        except _TransferError as error:
            reason = str(error)
            if error.again:
                continue
            return reason
        content = part.read_bytes()
        part.unlink(missing_ok=True)
        found = _digest(content, checksum)
        if found == checksum:
            _write_whole(path, content)
            return None
        reason = f"the file has {found} instead of {checksum}"
        if not resumed:
            return reason
        # What lay there from before may have been the fault: once more from the start.
    return reason


def _transfer(url: str, part: Path) -> None:
    """Append to ``part`` what it still lacks."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"User-Agent": "orbitgp"} | ({"Range": f"bytes={have}-"} if have else {}))
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if have and error.code == _RANGE_NOT_SATISFIABLE:
            return  # Nothing lies beyond what is here already: the checksum decides whether it is the file.
        raise _TransferError(f"the server answered {error.code} {error.reason}", again=False) from error
    except (HTTPException, OSError) as error:
        raise _TransferError(f"no connection ({getattr(error, 'reason', error)})", again=False) from error
    with response:
        if not _continues_at(response, have):
            have = 0  # the server sends all of it again
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            _receive(response, file, have)


def _receive(response: HTTPResponse, file: BinaryIO, have: int) -> None:
    length = response.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else None
    while True:
        try:
            chunk = response.read(_CHUNK)
        except (HTTPException, OSError) as error:
            raise _TransferError(f"the transfer broke off after {have} bytes ({error!r})", again=True) from error
        if not chunk:
            break
        have += len(chunk)
        if have > MAX_BYTES:
            file.truncate(0)
            raise _TransferError(f"the server sends more than {MAX_BYTES} bytes", again=False)
        file.write(chunk)
    if total is not None and have < total:
        raise _TransferError(f"the transfer broke off after {have} of {total} bytes", again=True)


def _continues_at(response: HTTPResponse, have: int) -> bool:
    start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == _PARTIAL_CONTENT and start is not None and int(start[1]) == have


def _digest(content: bytes, checksum: str) -> str:
    algorithm = checksum.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def _write_whole(path: Path, content: bytes) -> None:
    """In one step, through a file that no other process knows: ``part`` may be written to by two at once."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
