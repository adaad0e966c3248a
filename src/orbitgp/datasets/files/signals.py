"""Signals: the .ts files of the public time-series archive.

A header of lines that begin with @ ends with ``@data``. Then each line is a signal: its channels, separated by colons, and its
class or value after the last colon. The values of a channel are separated by commas. (The archive's .tsv files are tables whose
first column is the class: :mod:`orbitgp.datasets.files.tables`.)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions, words_or_numbers


def read_ts(path: Path, options: ReadOptions, training: bool) -> Raw:
    """Signals (N, T), or (N, C, T) if they have several channels, and their targets if the header says that there are any."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a text file in UTF-8: {error.reason}.") from None
    lower = [line.lower() for line in lines]
    if "@data" not in lower:
        raise DatasetError(f"{path} is not a .ts file: it has no line @data.")
    start = lower.index("@data") + 1
    header = [line.split() for line in lower[:start]]
    if ["@timestamps", "true"] in header:
        raise DatasetError(f"{path} has time stamps, which are not read: sample its signals at equal intervals.")
    labelled = any(words[:2] in (["@classlabel", "true"], ["@targetlabel", "true"]) for words in header)
    if training and not labelled:
        raise DatasetError(f"{path} has no targets: its header says neither @classLabel true nor @targetlabel true.")
    rows = [(i + 1, line.split(":")) for i, line in enumerate(lines) if i >= start and line and line[0] not in "#%"]
    if not rows:
        raise DatasetError(f"{path} has no signals after the line @data.")
    signals = [[_numbers(path, i, channel) for channel in (parts[:-1] if labelled else parts)] for i, parts in rows]
    shape = [len(channel) for channel in signals[0]]
    for (i, _), signal in zip(rows, signals, strict=True):
        if [len(channel) for channel in signal] != shape or len(set(shape)) != 1:
            raise DatasetError(f"line {i} of {path} has a channel of another length: bring all signals to one length.")
    x = np.array(signals)
    y = words_or_numbers([parts[-1].strip() for _, parts in rows]) if labelled else None
    return Raw(x[:, 0] if x.shape[1] == 1 else x, y, replace(options, signal=True))


def _numbers(path: Path, line: int, text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise DatasetError(f"line {line} of {path} holds something that is no number ({error}): fill it in.") from None
