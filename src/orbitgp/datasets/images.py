"""Images: the digits of scikit-learn, MNIST and Fashion-MNIST, and rotated ones, whose invariance is known.

MNIST and Fashion-MNIST are 70,000 images of 28x28 pixels in ten classes, 60,000 to train on and 10,000 to test. Both
come as four gzipped files with the *same names*, whose published checksums tell them apart: images, a byte a pixel
after 16 of header, and labels, a byte each after 8. A file with another checksum is not read.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, UInt8
from scipy import ndimage

from orbitgp.datasets.base import Dataset, DatasetError, data_folder, stratified_split

Images = Float32[np.ndarray, "rows height width"]

_TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
_TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


@dataclass(frozen=True)
class Family:
    """One of the sets that share the format, with its mirrors, and the checksum of each of its files."""

    name: str
    mirrors: tuple[str, ...]
    checksums: dict[str, str]


MNIST = Family(
    "MNIST",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        _TRAIN[0]: "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        _TRAIN[1]: "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        _TEST[0]: "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        _TEST[1]: "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION_MNIST = Family(
    "Fashion-MNIST",
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        _TRAIN[0]: "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        _TRAIN[1]: "md5:25c81989df183df01b3e8a0aad5dffbe",
        _TEST[0]: "md5:bef4ecab320f06d8554ea6380940ec79",
        _TEST[1]: "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)


def digits(test_fraction: float = 0.25, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 digits of 8x8 pixels, with ``test_fraction`` of every class in the test set.

    They need no file and no network. The split has a fixed seed, so that everyone has the same test set.

        >>> digits().x_train.shape
        (1347, 8, 8)
    """
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction must lie in [0, 1), got {test_fraction}.")
    from sklearn.datasets import load_digits

    raw = load_digits()
    x, y = raw.images.astype(np.float32) / np.float32(16), raw.target.astype(np.int64)
    train, test = stratified_split(y, test_fraction, seed)
    return Dataset(x[train], y[train], x[test], y[test], name="digits 8x8", source="scikit-learn")


def mnist(root: str | Path | None = None, download: bool = True) -> Dataset:
    """The handwritten digits.

    Files are read from ``root`` (else ``ORBITGP_DATA``, else the user's cache) or from its folder ``mnist``.
    Missing ones are downloaded into ``mnist``, unless ``download`` is False.
    """
    return _load(MNIST, root, download)


def fashion_mnist(root: str | Path | None = None, download: bool = True) -> Dataset:
    """The pieces of clothing, in the format of MNIST; files as for :func:`mnist`, with the folder ``fashion-mnist``."""
    return _load(FASHION_MNIST, root, download)


def _load(family: Family, root: str | Path | None, download: bool) -> Dataset:
    images, labels, *test = (_located(family, name, data_folder(root), download) for name in (*_TRAIN, *_TEST))
    pairs = [
        (_bytes(x, 16).reshape(-1, 28, 28).astype(np.float32) / np.float32(255), _bytes(y, 8).astype(np.int64))
        for x, y in ((images, labels), test)
    ]
    return Dataset(*pairs[0], *pairs[1], name=family.name, source="the canonical files")


def _located(family: Family, name: str, root: Path, download: bool) -> Path:
    """The first file of this name that has the published checksum, or one that is downloaded."""
    own = root / family.name.lower() / name
    for path in (own, root / name):
        if path.is_file() and _matches(path, family.checksums[name]):
            return path
    if not download:
        raise DatasetError(
            f"{name} of {family.name}, with the published checksum, is neither in {own.parent} nor in {root}: put it "
            "there, name its folder with root= or ORBITGP_DATA, or allow download=True."
        )
    fetch([mirror + name for mirror in family.mirrors], own, family.checksums[name])
    return own


def _bytes(path: Path, header: int) -> UInt8[np.ndarray, " bytes"]:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def _matches(path: Path, checksum: str) -> bool:
    """Whether the file has this checksum, written ``sha256:...`` or ``md5:...``."""
    algorithm, _, digest = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == digest


def fetch(urls: Sequence[str], path: Path, checksum: str) -> None:
    """Fetch ``path`` from the first mirror with the right file; the error names every mirror that failed, and why."""
    by_hand = f"put the file in {path.parent} yourself"
    try:
        import pooch
        import requests
    except ImportError:
        raise DatasetError(
            f"downloading {path.name} needs the package pooch: pip install pooch, or {by_hand}."
        ) from None
    pooch.get_logger().setLevel("WARNING")
    reasons = []
    for url in urls:
        try:
            pooch.retrieve(url, checksum, path.name, path.parent, downloader=pooch.HTTPDownloader(timeout=30.0))
            return
        except requests.HTTPError as error:
            reason = f"the server answered {error.response.status_code} {error.response.reason}"
        except requests.RequestException as error:
            reason = f"no connection, or it broke off ({type(error).__name__})"
        except ValueError:
            reason = "the file has another checksum than the published one"
        except OSError as error:
            why = f"cannot write {path} ({error}): choose another folder with root= or ORBITGP_DATA."
            raise DatasetError(why) from error
        reasons.append(f"{url}: {reason}")
    raise DatasetError(f"cannot download {path.name} ({'; '.join(reasons)}): try again, or {by_hand}.")


def rotate(images: Images, max_degrees: float | int, seed: int = 0) -> tuple[Images, Float[np.ndarray, " rows"]]:
    """Every image turned about its centre by an angle of its own, drawn uniformly from ±max_degrees; also the angles.

    ±180° makes the label independent of orientation, smaller ranges only partly so. In degrees, counter-clockwise.

        >>> images, angles = rotate(digits().x_train[:3], 60)
        >>> bool(abs(angles).max() <= 60)
        True
    """
    if not 0 <= max_degrees <= 180:
        raise ValueError(f"max_degrees must lie in [0, 180], got {max_degrees}.")
    degrees = max_degrees * (2 * np.random.default_rng(seed).random(len(images)) - 1)
    return rotate_by(images, degrees), degrees


def rotate_by(images: Images, degrees: Float[np.ndarray, " rows"]) -> Images:
    """Every image turned counter-clockwise by its angle; pixels are interpolated bilinearly, with background 0 outside.

    >>> rotate_by(digits().x_train[:2], np.array([90.0, -90.0])).shape
    (2, 8, 8)
    """
    if images.ndim != 3 or images.dtype != np.float32 or degrees.shape != images.shape[:1]:
        raise ValueError(
            f"rotation takes float32 images (N, height, width) and N angles, got {images.dtype} of shape "
            f"{images.shape} and angles of shape {degrees.shape}."
        )
    rotated = np.empty_like(images)
    for image, angle, result in zip(images, degrees, rotated, strict=True):
        ndimage.rotate(image, angle, reshape=False, output=result, order=1, mode="grid-constant")
    return rotated
