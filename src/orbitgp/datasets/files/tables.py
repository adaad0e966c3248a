"""Tables: .csv, .tsv, .parquet and .xlsx with named columns, one of which is the target.

Columns of numbers are inputs as they are, and columns of words become inputs of 0 and 1, one for each word.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions, words_or_numbers
from orbitgp.datasets.files.frames import MISSING, is_number, is_unnamed, read_frame
from orbitgp.estimators.defaults import task_of
from orbitgp.orbits.description import listed

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")  # columns with these names are targets, unless told otherwise
MAX_LEVELS = 20  # different words in a column that is an input
_SEPARATED = re.compile(r"[+-]?\d[\d.,' ]*")  # a number with a separator between its thousands, say


def read_table(path: Path, options: ReadOptions, training: bool) -> Raw:
    """Inputs and targets of a table; the options then name its columns."""
    frame, notes = read_frame(path, () if options.columns is None else options.columns)
    names = list(frame.columns)
    target = _target(path, names, options, training)
    for name in options.drop if training else ():
        if name not in names:
            raise DatasetError(f"{path} has no column {name!r} to drop: {_listed(names)}.")
    if training and target in (*options.drop, options.id):
        raise DatasetError(
            f"column {target!r} of {path} is the target, which --drop and --id cannot take: --target names another."
        )
    row_names = options.id
    if row_names is None and training and options.columns is None:
        others = [name for name in names if name != target and name not in options.drop]
        row_names = next((name for name in others if name.lower() == "id" or _numbers_rows(frame, name)), None)
        if row_names is not None:
            which = f"column {row_names!r}" if row_names else "the column without a name"
            notes.append(f"{which} names the rows and is no input; --id COLUMN names another one.")
    if row_names is not None and row_names not in names and training:
        raise DatasetError(f"{path} has no column {row_names!r}: {_listed(names)}.")
    wanted = list(options.columns or (n for n in names if n not in (target, row_names) and n not in options.drop))
    for name in wanted:
        if name not in names:
            raise DatasetError(f"{path} has no column {name!r}, which the model was trained on: {_listed(names)}.")
    if not wanted:
        raise DatasetError(f"{path} has no column but the target {target!r}.")
    used = frame[[*wanted, *([] if target is None else [target])]]
    missing = used.isna() | used.isin(MISSING)
    keep = np.ones(len(used), dtype=bool)
    holes = missing[[target]] if options.impute and target else missing
    if options.drop_missing and (count := int(holes.any(axis=1).sum())):
        what = "no target" if options.impute and target else "missing values"
        notes.append(f"{count:,} of {len(used):,} rows have {what} and are left out.")
        keep = ~holes.any(axis=1).to_numpy()
        used, missing = used[keep], missing[keep]
        if not len(used):
            raise DatasetError(f"{path} has no row without a missing value.")
    needed = [name for name in (used if training else wanted) if not (options.impute and name in wanted)]
    _refuse_missing(path, missing[needed], target, training)
    fills, levels = dict(options.fills), dict(options.levels)
    features: dict[str, Shaped[np.ndarray, " rows"]] = {}
    for name in wanted:
        column, holes = used[name], missing[name]
        if training and options.columns is None and (words := _words(path, column[~holes])) is not None:
            levels[name] = words
        if options.impute and (training or holes.any()):
            fills.setdefault(name, _typical(path, column[~holes], name in levels))
            if holes.any():
                notes.append(f"column {name!r} has no value in {_rows(holes)}: {fills[name]} is put there.")
            column = column.mask(holes, fills[name])
        features |= _one_hot(path, column, levels[name]) if name in levels else {name: _numbers(path, column)}
    if training and levels and options.columns is None:
        which = f"column{'s' if len(levels) > 1 else ''} {listed([repr(name) for name in levels])}"
        notes.append(f"{which} hold{'' if len(levels) > 1 else 's'} words: each word is an input of 0 and 1.")
    x = np.stack(list(features.values()), axis=1)
    y, with_target = None, None
    if target is not None and not missing[target].all():
        known = ~missing[target].to_numpy()
        y = _targets(path, used[target][known])
        if not known.all():
            with_target = np.flatnonzero(known)
            notes.append(f"column {target!r} has no value in {_rows(missing[target])}: the error is that of the other rows.")
    rows = None if training else [str(number) for number in used.index]
    if row_names in names:
        rows = [str(name) for name in frame[row_names][keep]]
    decided = replace(
        options,
        target=target or options.target,
        columns=tuple(wanted),
        id=row_names,
        fills=fills,
        levels=levels,
        features=tuple(features),
    )
    return Raw(x, y, decided, rows=rows, notes=notes, with_target=with_target)


def _refuse_missing(path: Path, missing: DataFrame, target: str | None, training: bool) -> None:
    """Name all that is missing at once: nobody wants to be told of one column after the other."""
    holes = [name for name in missing if missing[name].any()]
    if not holes:
        return
    said = [f"{'the target column' if name == target else 'column'} {name!r}" for name in holes]
    places = [f"{what} in {_rows(missing[name])}" for what, name in zip(said[1:6], holes[1:6], strict=True)]
    places += [f"{len(holes) - 6:,} more columns"] if len(holes) > 6 else []
    drop = ", or leave out such rows with --drop-missing" if training else ""
    impute = ", or let --impute put the median" if training and holes != [target] else ""
    impute += " for inputs" if impute and target in holes else ""
    raise DatasetError(
        f"{listed([f'{said[0]} of {path} has no value in {_rows(missing[holes[0]])}', *places])}: "
        f"fill in what is missing{drop}{impute}."
    )


def _words(path: Path, column: Series) -> list[str] | None:
    """The different words of a column that holds words; None for a column of numbers."""
    values = column.to_numpy(dtype=object)
    if not len(values) or any(is_number(value) for value in values):
        return None
    words = sorted({str(value) for value in values})
    if _have_separators(words):
        raise DatasetError(f"column {_no_number(path, column)}, or leave the column out with {_option('--drop', column)}.")
    if len(words) > MAX_LEVELS or len(words) == len(values):
        raise DatasetError(
            f"column {column.name!r} of {path} holds {len(words):,} different words, such as {words[0][:40]!r}: leave it out "
            f"with {_option('--drop', column)}, or let it name the rows with {_option('--id', column)}."
        )
    return words


def _numbers_rows(frame: DataFrame, name: str) -> bool:
    """Whether a column without a name counts the rows, as the index does that pandas writes."""
    if not is_unnamed(name):
        return False
    counted = [[str(i) for i in range(start, start + len(frame))] for start in (0, 1)]
    return [str(value) for value in frame[name]] in counted


def _one_hot(path: Path, column: Series, words: list[str]) -> dict[str, Shaped[np.ndarray, " rows"]]:
    """An input of 0 and 1 for each word; of two words, for the second one."""
    values = np.asarray([str(value) for value in column])
    if (unknown := ~np.isin(values, words)).any():
        row = int(np.argmax(unknown))
        raise DatasetError(
            f"column {column.name!r} of {path} is {values[row][:40]!r} in row {column.index[row]}, which the training data do "
            f"not have: {', '.join(words)}."
        )
    return {f"{column.name}={word}": (values == word).astype(np.float64) for word in (words[1:] if len(words) == 2 else words)}


def _typical(path: Path, column: Series, is_word: bool) -> Any:
    """What to put for a missing value: the median, or the most frequent word."""
    if not len(column):
        drop = _option("--drop", column)
        raise DatasetError(f"column {column.name!r} of {path} has no value at all: leave it out with {drop}.")
    return str(column.mode().iloc[0]) if is_word else float(np.median(_numbers(path, column)))


def _rows(mask: Series) -> str:
    """The rows where this is true, as the file counts them: "row 3", "rows 3, 5", "rows 1, 2, 3, 4, 5 and 7 more"."""
    rows = mask.index[mask].tolist()
    more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:5]))}{more}"


def _target(path: Path, names: list[str], options: ReadOptions, needed: bool) -> str | None:
    asked = options.target
    if asked is None and options.signal and path.suffix.lower() == ".tsv" and names == [str(i) for i in range(len(names))]:
        asked = "0"  # the signal archive: no header, the class first
    found = [name for name in names if (name.lower() in TARGETS if asked is None else name == asked)]
    if len(found) == 1:
        return found[0]
    if not needed:
        return None
    unclear = f"say which column of {path} is the target, --target NAME" if asked is None else f"{path} has no column {asked!r}"
    raise DatasetError(f"{unclear}: {_listed(names)}.")


def _targets(path: Path, column: Series) -> Shaped[np.ndarray, " rows"]:
    if column.dtype.kind in "biuf":
        return np.asarray(column)
    words = [str(value) for value in column]
    numbers = [word for word in words if is_number(word)]
    if len(words) > len(numbers) > len(words) / 2 and task_of(words_or_numbers(numbers)) == "regression":
        row, word = next((row, word) for row, word in zip(column.index, words, strict=True) if not is_number(word))
        raise DatasetError(
            f"the target column {column.name!r} of {path} is {word[:40]!r} in row {row} and a number elsewhere: correct it, or "
            "leave it empty and such rows out, with --drop-missing."
        )
    if not numbers and _have_separators(words) and len(set(words)) > len(words) / 2:
        raise DatasetError(f"the target column {_no_number(path, column)}.")
    return words_or_numbers(words)


def _have_separators(words: list[str]) -> bool:
    """Whether all of these words are numbers to a reader, and none to a computer."""
    return all(_SEPARATED.fullmatch(word) for word in words)


def _no_number(path: Path, column: Series) -> str:
    """What a column of such words is, as the end of a sentence."""
    first = str(column.iloc[0])[:40]
    return (
        f"{column.name!r} of {path} is {first!r} in row {column.index[0]}, which is no number as it stands: write numbers as "
        "in 1234.5"
    )


def _option(name: str, column: Series) -> str:
    """An option that names this column, as it is to be typed."""
    return f"{name} {shlex.quote(str(column.name))}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (f", … and {len(names) - 8} more" if len(names) > 8 else "")
    return f"its columns are {shown}"


def _numbers(path: Path, column: Series) -> Shaped[np.ndarray, " rows"]:
    values = column.to_numpy(dtype=object)
    if "_" not in "".join(value for value in values if isinstance(value, str)):
        try:
            return values.astype(np.float64)
        except (ValueError, TypeError):
            pass
    row, value = next((row, value) for row, value in enumerate(values) if not is_number(value))
    drop = _option("--drop", column)
    raise DatasetError(
        f"column {column.name!r} of {path} is {str(value)[:40]!r} in row {column.index[row]}: "
        f"every input must be a number; turn it into one, or train without the column, with {drop}."
    )
