"""Columns of a table as inputs: numbers as they are, dates in days, and an input of 0 and 1 for each word.

What the training data decide (words, medians, scales) is kept as plain values, in a run folder and in the file of a
model, so that new rows become inputs in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from orbitgp.datasets.base import DatasetError
from orbitgp.orbits import Composition, FiniteProduct, GaussianNoise, Identity, Orbit, Permutation, Shuffle, SignChange
from orbitgp.orbits.description import listed

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Known = TypeVar("Known", bound="Columns")
Scales = tuple[tuple[float, float], ...]

MAX_LEVELS = 20  # different words in a column that is an input
LONGEST = 30  # characters of a name or a cell in a message
DOTTED_DATE = r"\d\d?\.\d\d?\.\d{4}"
_DATES = {r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d.*)?": "ISO8601", DOTTED_DATE: "%d.%m.%Y"}
_MOST = 8  # problems, columns or rows in a message
_BY_COLUMN = (Identity, GaussianNoise, Permutation, Shuffle, SignChange, Composition, FiniteProduct)


@dataclass(frozen=True)
class Columns:
    """How the columns of a table become inputs; the training data decide.

    Attributes:
        columns: the columns of a table that are inputs.
        levels: the words of each column that holds words. Each becomes an input of 0 and 1.
        fills: what is put for a missing value, by column.
        features: the names of the inputs that were made from the columns.
        scales: (shift, unit) of each input of a standardised table.
    """

    columns: tuple[str, ...] | None = None
    levels: dict[str, list[str]] = field(default_factory=dict)
    fills: dict[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    scales: Scales | None = None

    def table(self) -> Columns | None:
        """These columns alone; None where there are none."""
        return Columns(**{f.name: getattr(self, f.name) for f in fields(Columns)}) if self.features else None

    def learned(self: Known, frame: DataFrame, impute: bool) -> Known:
        """The same with the words of these columns and, to ``impute``, their medians or most frequent words."""
        words = {str(name): sorted(set(column.dropna())) for name, column in frame.items() if is_words(column)}
        fills = {name: str(c.mode()[0]) if name in words else float(in_days(c).median()) for name, c in frame.items()}
        return replace(self, columns=tuple(frame), levels=words, fills=fills if impute else {})

    def inputs(self, frame: DataFrame, notes: list[str]) -> dict[str, Float[np.ndarray, " rows"]]:
        """The inputs of these rows by name, before they are scaled."""
        features: dict[str, Float[np.ndarray, " rows"]] = {}
        for name in self.columns or ():
            features |= self._inputs_of(frame[name], notes)
        return features

    def _inputs_of(self, column: Series, notes: list[str]) -> dict[str, Float[np.ndarray, " rows"]]:
        """The inputs of a column: its numbers, or one of 0 and 1 for each word; of two words, for the second one."""
        name, words, dated = str(column.name), self.levels.get(str(column.name)), column.dtype.kind == "M"
        column = in_days(column)
        if (holes := column.isna()).any() and name in self.fills:
            fill = self.fills[name]
            shown = np.datetime64(int(fill // 1), "D") if dated else f"{fill:.7g}" if isinstance(fill, float) else fill
            notes.append(f"column {name!r} has no value in {said_rows(holes)}: {shown} is put there.")
            column = column.astype(np.float64 if words is None else object).fillna(fill)
        if words is None and is_words(column):
            word = column.dropna().iloc[0][:LONGEST]
            raise ValueError(f"column {name!r} holds words, such as {word!r}, where numbers were.")
        if words is None:
            return {name: column.to_numpy(np.float64, na_value=np.nan)}
        values, two = column.astype(str), len(words) == 2
        if (new := ~values.isin(words)).any():
            said = f"column {name!r} is {values[new].iloc[0][:LONGEST]!r} in {said_rows(new)}"
            notes.append(f"{said}, which the training data do not have: it counts as none of {', '.join(words)}.")
        # A new word is none of several, and lies midway between two.
        neutral = (0.5 if two else 0.0) * new
        words = words[1:] if two else words
        return {f"{name}={word}": ((values == word) + neutral).to_numpy(np.float64) for word in words}

    def scaled(self, x: Shaped[np.ndarray, "rows columns"]) -> Shaped[np.ndarray, "rows columns"]:
        """Inputs in the scales of the training data."""
        if self.scales is None:
            return x
        shift, unit = np.array(self.scales).T
        return (x - shift) / unit


def column_scales(x: Shaped[np.ndarray, "rows dim"], names: Sequence[str], orbits: Sequence[Orbit]) -> Scales | None:
    """(shift, unit) of each column: its mean and standard deviation. None if an orbit acts on all columns alike.

    Columns that an orbit exchanges share a scale, as they would not be exchangeable otherwise, and those whose sign
    changes are not shifted. Columns of 0 and 1, and those that do not vary, stay.
    """
    parts = [part for orbit in orbits for part in orbit.modules() if isinstance(part, Orbit)]
    if not all(type(part) in _BY_COLUMN for part in parts):
        return None
    group = np.arange(len(names))
    for part in parts:
        if isinstance(part, Permutation | Shuffle):
            moved = group[part.moved]
            group[np.isin(group, moved)] = moved.min(initial=len(names))
    signed = {column for part in parts if isinstance(part, SignChange) for column in part.coordinates}
    scales = []
    for column, name in enumerate(names):
        values = x[:, group == group[column]]
        with np.errstate(over="ignore", invalid="ignore"):
            shift, unit = float(values.mean()), float(values.std())
        if not np.isfinite([shift, unit]).all():
            raise DatasetError(f"column {name!r} holds numbers so large that their variance is infinite: mend them.")
        stays = unit == 0 or np.isin(values, (0, 1)).all()
        scales.append((0.0, 1.0) if stays else (0.0 if column in signed else shift, unit))
    return tuple(scales)


def table_of(X: Any, always: bool = False) -> DataFrame | None:
    """A data frame in plain columns, where it has words, dates or gaps, or ``always``; None for whatever else."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return None
    if not always and all(dtype.kind in "biuf" for dtype in X.dtypes) and not X.isna().to_numpy().any():
        return None
    return X.rename(columns=str).apply(plain).apply(as_dates)


def columns_of(frame: DataFrame) -> Columns:
    """How this table becomes inputs, or ValueError where a column cannot be one."""
    for name, column in frame.items():
        if not column.notna().any():
            raise ValueError(f"column {name!r} of X has no value at all: leave it out.")
        if words := too_many_words(column):
            advice = f"leave it out, X.drop(columns={name!r}), or make it numbers."
            raise ValueError(f"column {name!r} of X holds {words}: {advice}")
    found = Columns().learned(frame, impute=True)
    return replace(found, features=tuple(found.inputs(frame.iloc[:1], [])))


def plain(column: Series) -> Series:
    """Numbers as they are, also those of other Python types, durations in days, and the rest as words."""
    from pandas.api.types import infer_dtype

    if column.dtype.kind in "iuf":
        return column
    if column.dtype.kind == "m":
        return column / np.timedelta64(1, "D")
    if infer_dtype(column) in ("integer", "floating", "decimal", "mixed-integer-float"):
        return column.astype(np.float64)
    return column.astype(object).map(lambda cell: str(cell).strip(), na_action="ignore")


def as_dates(column: Series) -> Series:
    """Words that are dates, such as 2026-05-01 or 1.5.2026, as dates; other columns as they are."""
    import pandas

    formats = [f for date, f in _DATES.items() if is_words(column) and column.dropna().str.fullmatch(date).all()]
    if not formats:
        return column
    dates = pandas.to_datetime(column, errors="coerce", utc=True, format=formats[0])
    return column if dates.isna().sum() > column.isna().sum() else dates


def in_days(column: Series) -> Series:
    """Dates as days since 1970; other columns as they are."""
    import pandas

    return (column - pandas.Timestamp(0, tz="UTC")) / pandas.Timedelta(days=1) if column.dtype.kind == "M" else column


def is_words(column: Series) -> bool:
    """Whether a plain column holds words."""
    return column.dtype.kind == "O" and bool(column.notna().any())


def too_many_words(column: Series) -> str | None:
    """The words of a column, in words, where they are too many to be inputs or name its rows."""
    known = column.dropna()
    if not is_words(column) or (known.nunique() <= MAX_LEVELS and not known.is_unique):
        return None
    return f"{known.nunique():,} different words, such as {known.iloc[0][:LONGEST]!r}"


def said_rows(mask: Series) -> str:
    """The rows where this is true, as the table counts them: "row 3", "rows 3 and 5", "rows 1, 2, … and 7 more"."""
    found = [str(row) for row in mask.index[mask]]
    return f"row{'' if len(found) == 1 else 's'} {listed(first_few(found))}"


def first_few(said: list[str]) -> list[str]:
    """The first of many, and how many more there are."""
    return [*said[:_MOST], f"{len(said) - _MOST:,} more"] if len(said) > _MOST else said
