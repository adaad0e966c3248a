"""Arrays: .npz files, pairs of .npy files, and the .ts files of the public time-series archive. Nothing is unpickled.

A .ts file begins with a header of lines that begin with @ and ends with ``@data``. Then each line is a signal: its channels,
separated by colons, and its class or value after the last colon. The values of a channel are separated by commas, and ? stands
for a missing one. (The archive's .tsv files are tables whose first column is the class: :mod:`orbitgp.datasets.files.tables`.)
"""

from __future__ import annotations

import zipfile
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Data, ReadOptions, check_memory

_LONGEST = 120  # characters of a reason that numpy gives


def read_npz(path: Path, options: ReadOptions, training: bool) -> Data:
    """Arrays x and y, or x_train, y_train, x_test and y_test. To predict, x_test or a single array of any name will do."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise DatasetError(f"{path} is a single array: call it .npy.")
    arrays = {name.lower(): array for name, array in loaded.items()}

    def pair(end: str) -> tuple[Any, Any] | None:
        x, y = arrays.get(f"x{end}"), arrays.get(f"y{end}")
        return None if x is None or (y is None and end) else (x, y)

    train, whole, test = pair("_train"), pair(""), pair("_test")
    found = train or whole if training else whole or test
    if found is None and not training and len(arrays) == 1:
        found = next(iter(arrays.values())), None
    if found is None:
        raise DatasetError(f"{path} must hold arrays x and y (or x_train, y_train, …), got {', '.join(arrays) or 'nothing'}.")
    if training and found[1] is None:
        raise DatasetError(f"{path} has no targets: it needs an array y as well as x.")
    return Data(*found, options=options, test=Data(*test) if train and test else None)


def read_npy(path: Path, options: ReadOptions, training: bool) -> Data:
    """Inputs, and the targets in the file of the same folder or in ``options.targets``."""
    targets = Path(options.targets) if training and options.targets else sibling_targets(path)
    if training and targets is None:
        raise DatasetError(f"{path} has inputs only: name the file of its targets, --targets FILE.npy.")
    return Data(_load(path), None if targets is None else _load(targets), options=options)


def sibling_targets(path: Path) -> Path | None:
    """The file of targets that goes with this file of inputs: x.npy and y.npy, x_train.npy and y_train.npy, …"""
    rest = path.stem[1:]
    files = [path.with_name(f"{letter}{rest}.npy") for letter in "yY" if path.stem[:1] in "xX" and rest[:1] in ("", "_")]
    return next((file for file in files if file.is_file()), None)


def _load(path: Path) -> Any:
    """The array in a .npy file, or a dictionary of those in a .npz file."""
    try:
        if zipfile.is_zipfile(path):  # unpacking stops at the sizes that it announces
            with zipfile.ZipFile(path) as packed:
                check_memory(sum(entry.file_size for entry in packed.infolist()), f"{path} unpacks to")
        with path.open("rb") as file:  # opened here, as numpy would leave a damaged file open
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except DatasetError:
        raise
    except Exception as error:  # damaged files make numpy and zipfile raise nearly anything
        text = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")[:_LONGEST]
        if "pickle" in text.lower():  # numpy takes whatever is no file of arrays for a pickle
            text = "it holds Python objects, which are not read, or something else made it"
        raise DatasetError(f"{path} is not a {path.suffix} file of numbers or words: {text}.") from None


def read_ts(path: Path, options: ReadOptions, training: bool) -> Data:
    """Signals (N, T), or (N, C, T) if they have several channels, and their targets if the header says that there are any."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a text file in UTF-8: {error.reason}.") from None
    lower = [line.lower() for line in lines]
    if "@data" not in lower:
        raise DatasetError(f"{path} is not a .ts file: it has no line @data.")
    start = lower.index("@data") + 1
    header = [line.split()[:2] for line in lower[:start]]
    if ["@timestamps", "true"] in header:
        raise DatasetError(f"{path} has time stamps, which are not read: sample its signals at equal intervals.")
    labelled = ["@classlabel", "true"] in header or ["@targetlabel", "true"] in header
    if training and not labelled:
        raise DatasetError(f"{path} has no targets: its header says neither @classLabel true nor @targetlabel true.")
    rows = [(i + 1, line.split(":")) for i, line in enumerate(lines) if i >= start and line and line[0] not in "#%"]
    if not rows:
        raise DatasetError(f"{path} has no signals after the line @data.")
    signals = [[_numbers(path, i, channel) for channel in (parts[:-1] if labelled else parts)] for i, parts in rows]
    for (i, _), signal in zip(rows, signals, strict=True):
        if len(signal) != len(signals[0]):
            raise DatasetError(f"line {i} of {path} has {len(signal)} channels, and the first signal has {len(signals[0])}.")
    # Shorter ones end in a gap.
    x = np.array(list(zip_longest(*(channel for signal in signals for channel in signal), fillvalue=np.nan))).T
    x = x.reshape(len(signals), -1, x.shape[1])
    y = _labels([parts[-1].strip() for _, parts in rows]) if labelled else None
    return Data(x[:, 0] if x.shape[1] == 1 else x, y, options=replace(options, signal=True))


def _numbers(path: Path, line: int, text: str) -> list[float]:
    try:
        return [np.nan if word.strip() in ("?", "") else float(word) for word in text.split(",")]
    except ValueError as error:
        raise DatasetError(f"line {line} of {path} holds something that is no number ({error}): fill it in.") from None


def _labels(words: list[str]) -> Shaped[np.ndarray, " rows"]:
    """Whole numbers if all words are such, else numbers, else the words themselves."""
    for kind in (np.int64, np.float64):
        with suppress(ValueError):
            return np.array(words).astype(kind)
    return np.array(words)


def without_gaps(
    x: Float[np.ndarray, "rows *signal"], where: str, options: ReadOptions, notes: list[str]
) -> tuple[Float[np.ndarray, "rows *signal"], ReadOptions]:
    """Signals whose gaps are closed along time: by a straight line, and by the nearest value at the ends.

    With ``resample``, the time from the first sample to the last value of a signal is divided into ``length`` samples.
    """
    x = x[:, 0] if x.ndim == 3 and x.shape[1] == 1 else x
    shape = options.image_shape if x.ndim == 2 else None
    if shape is not None and prod(shape) != x.shape[1]:
        size = "x".join(str(n) for n in shape)
        raise DatasetError(f"--signal-shape {size} has {prod(shape)} samples, but rows of {where} have {x.shape[1]}.")
    signals = x.reshape(len(x), -1, (shape or x.shape)[-1])
    gaps = np.isnan(signals).any((1, 2))
    if not options.impute and not options.resample:
        if gaps.any():
            raise DatasetError(
                f"{int(gaps.sum()):,} of {len(x):,} signals in {where} have gaps or are shorter than others, first in row "
                f"{int(np.argmax(gaps)) + 1}: --impute interpolates along time and repeats the last value, and --resample "
                "stretches all signals to one length."
            )
        return x, options
    length = options.length or signals.shape[-1]
    if gaps.any():
        notes.append(f"{int(gaps.sum()):,} of {len(x):,} signals have gaps or are short: they are interpolated along time.")
    closed = np.empty((*signals.shape[:-1], length if options.resample else max(length, signals.shape[-1])))
    for row, signal in enumerate(signals):
        known = ~np.isnan(signal)
        if not known.any(1).all():
            raise DatasetError(f"the signal in row {row + 1} of {where} has a channel without any value: leave it out.")
        end = np.flatnonzero(known.any(0))[-1] if options.resample else closed.shape[-1] - 1
        times = np.linspace(0, end, closed.shape[-1])
        closed[row] = [np.interp(times, np.flatnonzero(k), channel[k]) for channel, k in zip(signal, known, strict=True)]
    return closed if x.ndim == 3 else closed.reshape(len(x), -1), replace(options, length=length)
