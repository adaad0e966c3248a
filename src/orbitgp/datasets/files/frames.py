"""The rows and columns of a table: text files as words, whatever separates them, and typed columns of others.

What may be read in two ways is refused, or a note says how it was read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbitgp.datasets.base import DatasetError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # what people write for a missing value
_DECIMAL_COMMA = r"^([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)$"
_DOTTED_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+"


def read_frame(path: Path, known: Sequence[str] = ()) -> tuple[DataFrame, list[str]]:
    """The whole table: words from a text file, typed columns from a parquet file; and notes on how it was read.

    ``known`` are columns that it should have.
    """
    notes: list[str] = []
    try:
        import pandas
    except ImportError:
        raise DatasetError(f"reading {path} needs the package pandas: pip install 'orbitgp[tables]'.") from None
    try:
        binary = {".parquet": pandas.read_parquet, ".xlsx": pandas.read_excel}.get(path.suffix.lower())
        frame = _read_text(path, known, notes) if binary is None else binary(path).rename(columns=str)
    except ImportError:
        package = "openpyxl" if path.suffix.lower() == ".xlsx" else "pyarrow"
        raise DatasetError(f"{path} needs the package {package}: pip install {package}, or save the table as .csv.") from None
    except pandas.errors.EmptyDataError:
        raise DatasetError(f"{path} is empty.") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a text file in UTF-8 ({error.reason}): save it as UTF-8.") from None
    except (ValueError, OSError) as error:  # of pandas and of pyarrow
        reason = str(error).splitlines()[0].removeprefix("Error tokenizing data. C error: ").rstrip(".")
        if isinstance(error, pandas.errors.ParserError):
            raise DatasetError(
                f"{path} is no table of rows of one length ({reason}): its first line must be the header or a row; take out "
                "what stands above."
            ) from None
        raise DatasetError(f"{path} cannot be read as a {path.suffix[1:]} table: {reason}.") from None
    # A separator at the end of lines makes a column that has neither a name nor values.
    kept = [i for i, name in enumerate(frame.columns) if not (is_unnamed(name) and _is_empty(frame.iloc[:, i]))]
    frame = frame if len(kept) == frame.shape[1] else frame.iloc[:, kept]
    if not frame.columns.is_unique:
        raise DatasetError(f"{path} has two columns of the name {frame.columns[frame.columns.duplicated()][0]!r}.")
    if not len(frame):
        raise DatasetError(f"{path} has a header but no rows.")
    return frame.set_axis(range(1, len(frame) + 1)), notes  # rows keep their numbers, from 1, when others are left out


def _read_text(path: Path, known: Sequence[str], notes: list[str]) -> DataFrame:
    """Commas, semicolons or tabs between the values, whichever the first line has most of, or as ``sep=;`` there says."""
    import pandas

    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    said = re.fullmatch(r"sep=([,;\t])\s*", first)
    separator = said[1] if said else _separator(first)
    frame = pandas.read_csv(
        path,
        sep=separator,
        header=None,
        dtype=str,
        keep_default_na=False,
        skipinitialspace=True,
        encoding="utf-8-sig",
        skiprows=1 if said else 0,
    ).apply(lambda column: column.str.strip())
    header, rows = list(frame.iloc[0]), frame.iloc[1:]
    numbers = all(is_number(name if separator == "," else re.sub(_DECIMAL_COMMA, r"\1.\2", name)) for name in header)
    if not numbers or _names_columns(header, rows, known):
        if numbers:
            notes.append(f"the first line, {', '.join(header[:5])}{', …' * (len(header) > 5)}, is taken for names of columns.")
        frame = rows.set_axis(header, axis="columns")
    else:
        frame = frame.rename(columns=str)
    return frame if separator == "," else _with_decimal_points(path, frame)


def _separator(line: str) -> str:
    """What stands between the values of a line most often; 1,5;2,5 has two values."""
    line = re.sub(r'"[^"]*"', "", line)
    if ";" in line or "\t" in line:
        line = re.sub(r"(?<=\d),(?=\d)", "", line)
    return max(",;\t", key=line.count)


def _names_columns(first: list[str], rows: DataFrame, known: Sequence[str]) -> bool:
    """Whether a first line of numbers names the columns, as the numbers do that pandas writes."""
    if known and set(known) <= set(first):
        return True
    counted = len(first) > 1 and first == [str(i) for i in range(len(first))]
    return counted and not (rows == first).all(axis=1).any()


def _with_decimal_points(path: Path, frame: DataFrame) -> DataFrame:
    """1,5 is one and a half. Then 1.005 may be a thousand and five, or not: it is refused."""
    commas = frame.apply(lambda column: column.str.fullmatch(_DECIMAL_COMMA))
    if not commas.any(axis=None):
        return frame
    dotted = frame.apply(lambda column: column.str.fullmatch(_DOTTED_THOUSANDS))
    for name in frame.columns[dotted.any()]:
        row = int(np.argmax(dotted[name]))
        raise DatasetError(
            f"column {name!r} of {path} is {frame[name].iloc[row]!r} in row {row + 1}, and other numbers have a decimal comma: "
            "write thousands without a dot, and decimals with a comma."
        )
    return frame.replace(_DECIMAL_COMMA, r"\1.\2", regex=True)


def is_unnamed(name: str) -> bool:
    return not name or name.startswith("Unnamed: ")  # what pandas calls it in a sheet


def _is_empty(column: Series) -> bool:
    return bool((column.isna() | column.isin(MISSING)).all())


def is_number(value: Any) -> bool:
    """Whether this is a number as people write it: Python would take 1_2 for 12."""
    if isinstance(value, str) and "_" in value:
        return False
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
