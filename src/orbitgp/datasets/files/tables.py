"""Tables: .csv, .tsv and .parquet with named columns, one of which is the target."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.datasets.files.data import LoadingError, Reading

TARGETS = ("target", "label", "class", "y")  # columns with these names are targets, unless told otherwise
Columns = dict[str, Any]


def read_table(
    path: Path, reading: Reading, need_target: bool = True
) -> tuple[Shaped[np.ndarray, "rows columns"], Shaped[np.ndarray, " rows"] | None, Reading]:
    """Inputs and targets of a table, and the reading with its columns settled."""
    names, column = _parquet(path) if path.suffix.lower() == ".parquet" else _text(path)
    target = _target(path, names, reading, need_target)
    wanted = [name for name in names if name != target] if reading.columns is None else list(reading.columns)
    for name in wanted:
        if name not in names:
            raise LoadingError(f"{path} has no column {name!r}, which the model was trained on: {_listed(names)}.")
    if not wanted:
        raise LoadingError(f"{path} has no column but the target {target!r}.")
    x = np.stack([_numbers(path, name, column(name)) for name in wanted], axis=1)
    y = None if target is None else _words_or_numbers(column(target))
    return x, y, replace(reading, target=target or reading.target, columns=tuple(wanted))


def _target(path: Path, names: list[str], reading: Reading, needed: bool) -> str | None:
    if reading.target is not None:
        if reading.target in names:
            return reading.target
        if not needed:
            return None
        raise LoadingError(f"{path} has no column {reading.target!r}: {_listed(names)}.")
    found = [name for name in names if name.lower() in TARGETS]
    if len(found) == 1:
        return found[0]
    if not needed:
        return None
    raise LoadingError(f"say which column of {path} is the target, --target NAME: {_listed(names)}.")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (f", … and {len(names) - 8} more" if len(names) > 8 else "")
    return f"its columns are {shown}"


def _numbers(path: Path, name: str, values: Any) -> Shaped[np.ndarray, " rows"]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        pass
    for row, value in enumerate(values):
        try:
            float(value)
        except (ValueError, TypeError):
            what = "is empty" if value in (None, "") else f"is {str(value)[:40]!r}"
            raise LoadingError(
                f"column {name!r} of {path} {what} in row {row + 1}: every input must be a number; "
                "leave the column out, or fill it in."
            ) from None
    raise LoadingError(f"column {name!r} of {path} does not hold numbers.")


def _words_or_numbers(values: Any) -> Shaped[np.ndarray, " rows"]:
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array
    words = np.asarray([str(value) for value in values])
    for kind in (np.int64, np.float64):
        try:
            return words.astype(kind)
        except ValueError:
            continue
    return words


def _text(path: Path) -> tuple[list[str], Any]:
    """The names of the columns, and a function from a name to its values (as words)."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            separator = max(",;\t", key=first.count)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except UnicodeDecodeError as error:
        raise LoadingError(f"{path} is not a text file in UTF-8: {error.reason}.") from None
    except csv.Error as error:
        raise LoadingError(f"{path} is not a table: {error}.") from None
    if not rows:
        raise LoadingError(f"{path} is empty.")
    header = [name.strip() for name in rows[0]]
    if all(_is_number(name) for name in header):  # no header: columns are numbered
        header = [str(i) for i in range(len(header))]
    else:
        rows = rows[1:]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise LoadingError(f"{path} has two columns of the name {twice!r}.")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise LoadingError(f"{path} has {len(header)} columns but {len(row)} values in row {number + 1}.")
    if not rows:
        raise LoadingError(f"{path} has a header but no rows.")
    place = {name: i for i, name in enumerate(header)}
    return header, lambda name: [row[place[name]].strip() for row in rows]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> tuple[list[str], Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise LoadingError(f"{path} needs the package pyarrow: pip install pyarrow, or save the table as .csv.") from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise LoadingError(f"{path} cannot be read as a parquet file: {str(error).splitlines()[0]}") from None
    return list(table.column_names), lambda name: table.column(name).to_pylist()
