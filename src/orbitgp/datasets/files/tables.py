"""Tables: .csv, .tsv and .parquet with named columns, one of which is the target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")  # columns with these names are targets, unless told otherwise
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # what people write for a missing value


def read_table(path: Path, options: ReadOptions, training: bool) -> Raw:
    """Inputs and targets of a table; the options then name its columns."""
    frame = _read_frame(path)
    names = list(frame.columns)
    target = _target(path, names, options, training)
    wanted = [name for name in names if name != target] if options.columns is None else list(options.columns)
    for name in wanted:
        if name not in names:
            raise DatasetError(f"{path} has no column {name!r}, which the model was trained on: {_listed(names)}.")
    if not wanted:
        raise DatasetError(f"{path} has no column but the target {target!r}.")
    used = frame[[*wanted, *([] if target is None else [target])]]
    missing = used.isna() | used.isin(MISSING)
    notes = []
    if options.drop_missing and (count := int(missing.any(axis=1).sum())):
        notes = [f"{count:,} of {len(used):,} rows have missing values and are left out."]
        used, missing = (table[~missing.any(axis=1)] for table in (used, missing))
        if not len(used):
            raise DatasetError(f"{path} has no row without a missing value.")
    for name in used if training else wanted:
        if missing[name].any():
            advice = "fill in what is missing" + (", or leave out such rows with --drop-missing" if training else "")
            what = "the target column" if name == target else "column"
            raise DatasetError(f"{what} {name!r} of {path} has no value in {_rows(missing[name])}: {advice}.")
    x = np.stack([_numbers(path, used[name]) for name in wanted], axis=1)
    y = None if target is None or missing[target].any() else _words_or_numbers(used[target])
    return Raw(x, y, replace(options, target=target or options.target, columns=tuple(wanted)), notes=notes)


def _rows(mask: Series) -> str:
    """The rows where this is true, counted from 1: "row 3", "rows 3, 5", "rows 1, 2, 3, 4, 5 and 7 more"."""
    rows = (np.flatnonzero(mask) + 1).tolist()
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


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (f", … and {len(names) - 8} more" if len(names) > 8 else "")
    return f"its columns are {shown}"


def _numbers(path: Path, column: Series) -> Shaped[np.ndarray, " rows"]:
    values = column.to_numpy(dtype=object)
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        row, value = next((row, value) for row, value in enumerate(values) if not _is_number(value))
    raise DatasetError(
        f"column {column.name!r} of {path} is {str(value)[:40]!r} in row {row + 1}: "
        "every input must be a number; leave the column out, or turn it into numbers."
    )


def _words_or_numbers(column: Series) -> Shaped[np.ndarray, " rows"]:
    if column.dtype.kind in "biuf":
        return np.asarray(column)
    words = np.asarray([str(value) for value in column])
    for kind in (np.int64, np.float64):
        try:
            return words.astype(kind)
        except ValueError:
            continue
    return words


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True


def _read_frame(path: Path) -> DataFrame:
    """The whole table: words from a text file, typed columns from a parquet file."""
    try:
        import pandas
    except ImportError:
        raise DatasetError(f"reading {path} needs the package pandas: pip install 'orbitgp[tables]'.") from None
    try:
        frame = pandas.read_parquet(path) if path.suffix.lower() == ".parquet" else _read_text(path)
    except ImportError:
        raise DatasetError(f"{path} needs the package pyarrow: pip install pyarrow, or save the table as .csv.") from None
    except pandas.errors.EmptyDataError:
        raise DatasetError(f"{path} is empty.") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a text file in UTF-8: {error.reason}.") from None
    except (ValueError, OSError) as error:  # of pandas and of pyarrow
        reason = str(error).splitlines()[0].removeprefix("Error tokenizing data. C error: ").rstrip(".")
        raise DatasetError(f"{path} cannot be read as a {path.suffix[1:]} table: {reason}.") from None
    if not frame.columns.is_unique:
        raise DatasetError(f"{path} has two columns of the name {frame.columns[frame.columns.duplicated()][0]!r}.")
    if not len(frame):
        raise DatasetError(f"{path} has a header but no rows.")
    return frame


def _read_text(path: Path) -> DataFrame:
    """Commas, semicolons or tabs between the values, whichever the first line has most of."""
    import pandas

    with path.open(encoding="utf-8-sig") as file:
        separator = max(",;\t", key=file.readline().count)
    frame = pandas.read_csv(
        path, sep=separator, header=None, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig"
    ).apply(lambda column: column.str.strip())
    header = list(frame.iloc[0])
    if all(_is_number(name) for name in header):  # no header: columns are numbered
        return frame.rename(columns=str)
    return frame.iloc[1:].set_axis(header, axis="columns")
