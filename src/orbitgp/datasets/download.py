"""Downloads with pooch: a file appears under its own name only once its checksum is right."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from orbitgp.datasets.base import DatasetError

TIMEOUT = 30.0  # seconds without an answer


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has this checksum, written ``sha256:...`` or ``md5:...``."""
    algorithm, _, digest = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == digest


def download(urls: Sequence[str], path: Path, checksum: str) -> None:
    """Fetch ``path`` from the first mirror that has the right file; the error names every mirror that failed, and why."""
    try:
        import pooch
        from requests import ConnectionError as NoConnection
        from requests import HTTPError, RequestException
    except ImportError:
        raise DatasetError(
            f"downloading {path.name} needs the package pooch: pip install pooch, or put the file in {path.parent} yourself."
        ) from None
    pooch.get_logger().setLevel("WARNING")
    reasons = []
    for url in urls:
        try:
            pooch.retrieve(url, checksum, path.name, path.parent, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
            return
        except NoConnection:
            reason = "no connection"
        except HTTPError as error:
            reason = f"the server answered {error.response.status_code} {error.response.reason}"
        except RequestException as error:
            reason = f"the transfer broke off ({type(error).__name__})"
        except ValueError:
            reason = "the file has another checksum than the published one"
        except OSError as error:
            raise DatasetError(f"cannot write {path} ({error}): choose another folder with root= or ORBITGP_DATA.") from error
        reasons.append(f"{url}: {reason}")
    raise DatasetError(
        f"cannot download {path.name} ({'; '.join(reasons)}): try again, or put the file in {path.parent} yourself."
    )
