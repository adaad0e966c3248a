"""MNIST and Fashion-MNIST: 70,000 images of 28x28 pixels in ten classes, 60,000 to train on and 10,000 to test.

Both come as four gzipped IDX files with the *same names*; their checksums tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from orbitgp.datasets.base import Dataset, DatasetError, Pair, data_folder
from orbitgp.datasets.download import download as fetch
from orbitgp.datasets.download import matches
from orbitgp.datasets.idx import read_idx

Split = Literal["train", "test"]

_FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
_SIDE, _CLASSES = 28, 10


@dataclass(frozen=True)
class Family:
    """One of the sets that share the format, with its mirrors and checksums."""

    name: str
    folder: str
    mirrors: tuple[str, ...]
    checksums: dict[str, str]


MNIST = Family(
    "MNIST",
    "mnist",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION_MNIST = Family(
    "Fashion-MNIST",
    "fashion-mnist",
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)


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
    paths = {name: _locate(family, name, data_folder(root), download) for name in family.checksums}
    canonical = all(matches(path, family.checksums[name]) for name, path in paths.items())
    source = "the canonical files" if canonical else "files that differ from the canonical ones"
    return Dataset(*_read(family, "train", paths), *_read(family, "test", paths), name=family.name, source=source)


def _locate(family: Family, name: str, root: Path, download: bool) -> Path:
    own = root / family.folder / name
    if own.is_file():
        return own
    shared = root / name
    other = FASHION_MNIST if family is MNIST else MNIST
    if shared.is_file() and not matches(shared, other.checksums[name]):
        return shared
    if not download:
        raise DatasetError(
            f"{name} of {family.name} is neither in {own.parent} nor in {root}: put it there, name its folder with root= or "
            "ORBITGP_DATA, or allow download=True."
        )
    fetch([mirror + name for mirror in family.mirrors], own, family.checksums[name])
    return own


def _read(family: Family, split: Split, paths: dict[str, Path]) -> Pair:
    images_path, labels_path = (paths[name] for name in _FILES[split])
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (_SIDE, _SIDE):
        raise DatasetError(f"{images_path} holds an array of shape {images.shape}, but {family.name} has images of 28x28.")
    if labels.shape != images.shape[:1]:
        raise DatasetError(
            f"{labels_path} holds labels of shape {labels.shape} for {len(images)} images in {images_path.name}."
        )
    if labels.size and labels.max() >= _CLASSES:
        raise DatasetError(f"{labels_path} holds the label {labels.max()}, but {family.name} has the classes 0 to 9.")
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int64)
