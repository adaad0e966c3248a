"""Data sets to try things on: real ones, and generated ones with a fixed seed.

Every loader returns a :class:`Dataset`: images (N, height, width) as float32 in [0, 1], background 0, and integer
labels. ``spectra`` and ``movements`` generate signals, (N, T) and (N, C, T). Loaders look for files in one folder (an
argument, else ``ORBITGP_DATA``, else the user's cache) and download missing ones.
"""

from orbitgp.datasets.base import Dataset, DatasetError
from orbitgp.datasets.images import digits, fashion_mnist, mnist, rotate, rotate_by
from orbitgp.datasets.signals import movements, spectra

__all__ = [
    "Dataset", "DatasetError", "digits", "fashion_mnist", "mnist", "movements", "rotate", "rotate_by", "spectra",
]  # fmt: skip
