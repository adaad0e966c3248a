"""Tables: .csv, .tsv, .parquet and .xlsx with named columns, one of which is the target.

pandas reads them, with the options of ``--read``. Columns of numbers are inputs as they are, and columns of words
become inputs of 0 and 1, one for each word. All that keeps a table from use is said at once, with options that help.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.datasets import columns as column_rules
from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.columns import DOTTED_DATE, LONGEST, as_dates, first_few, is_words, plain, said_rows
from orbitgp.datasets.files.data import PANDAS, Data, ReadOptions
from orbitgp.orbits.description import listed

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")  # columns with these names are targets, unless told otherwise
# A number to a person, perhaps with other separators than pandas expects.
_NUMBERLIKE = r"[+-]?[\d.,' ]*\d[\d.,' ]*(?:[eE][+-]?\d+)?"
_ENCODING = "it is not in UTF-8: say what it is in, as in --read encoding=latin-1"
_LAYOUT = "--read sep=';' says what separates columns, and --read skiprows=1 leaves out a line above the header"


def read_table(path: Path, options: ReadOptions, training: bool) -> Data:
    """Inputs and targets of a table; the options then name its columns."""
    notes, problems = list[str](), list[str]()
    frame = read_frame(path, options, problems)
    target = _target(path, frame, options)
    if training:
        options = _choose_columns(frame, options, target, problems, notes)
    elif options.columns is None:
        options = replace(options, columns=tuple(name for name in frame if name != target))
    columns = [name for name in options.columns or () if name in frame]
    days = {name: as_dates(frame[name]) for name in columns if is_words(frame[name])}
    frame = frame.assign(**days)
    lost = [name for name in options.columns or () if name not in frame]
    problems += [f"there is no column {n!r}, which the model was trained on: {_columns(frame, n)}" for n in lost]
    if options.drop_missing:
        frame = _drop_missing(path, frame, [] if options.impute else columns, target, notes)
    known = frame[target].dropna() if target is not None else frame.iloc[:0, 0]
    holes = "" if target is None or len(known) == len(frame) else said_rows(frame[target].isna())
    problems += _missing_inputs(frame[columns], options, training)
    for name in columns:
        problems += _problems_of(frame[name], options, training)
    if training and holes:
        problems.append(f"the target column {target!r} has no value in {holes}: fill it in, or say --drop-missing")
    if known.nunique() > len(known) / 2 and (odd := _odd_cell(known, options)):
        problems.append(f"the target column {target!r} {odd}")
    if problems:
        raise _refusal(path, problems)
    if training:
        options = options.learned(frame[columns], impute=options.impute and not options.signal)
        _note_columns(frame[columns], [name for name in days if name not in options.levels], options, notes)
    features = options.inputs(frame, notes)
    if holes and len(known):
        notes.append(f"column {target!r} has no value in {holes}: the error is that of the other rows.")
    rows = frame.get(options.id, None if training else frame.index)
    return Data(
        np.stack(list(features.values()), axis=1),
        _labels(path, known, options) if len(known) else None,
        None if rows is None else [str(name) for name in rows],
        notes,
        np.flatnonzero(frame[target].notna()) if holes and len(known) else None,
        replace(options, features=tuple(features)),
    )


def read_frame(path: Path, options: ReadOptions, problems: list[str]) -> DataFrame:
    """The whole table; columns that are not numbers are words, and rows count from 1.

    Where an option is missing, this is one of the problems, and the table is read as that option would have it.
    """
    try:
        frame = _read_frame(path, options, problems)
    except DatasetError as error:
        raise (_refusal(path, problems) if problems else error) from None
    return frame.apply(plain).set_axis(range(1, len(frame) + 1))


def _read_frame(path: Path, options: ReadOptions, problems: list[str]) -> DataFrame:
    try:
        import pandas

        reader = {".parquet": pandas.read_parquet, ".xlsx": pandas.read_excel}.get(path.suffix.lower())
        frame = _read_text(path, options, problems) if reader is None else reader(path, **_asked(options, reader))
    except ImportError:
        raise DatasetError(f"reading {path} needs pandas and its readers: pip install 'orbitgp[tables]'.") from None
    except pandas.errors.EmptyDataError:
        raise DatasetError(f"{path} is empty.") from None
    except pandas.errors.ParserWarning:
        raise DatasetError(f"{path} has rows that are longer than its first line: {_LAYOUT}.") from None
    except DatasetError:
        raise
    except (ValueError, TypeError, OSError, LookupError) as error:  # of pandas and of pyarrow
        reason = (str(error).splitlines() or [type(error).__name__])[0].removeprefix("Error tokenizing data. C error: ")
        advice = _ENCODING if isinstance(error, UnicodeDecodeError) else _LAYOUT
        raise DatasetError(f"{path} cannot be read as a table ({reason.rstrip('.')}): {advice}.") from None
    frame = frame.rename(columns=lambda name: str(name).strip())
    if len(twice := frame.columns[frame.columns.duplicated()]):
        raise DatasetError(f"{path} has two columns of the name {twice[0][:LONGEST]!r}.")
    # A separator at the end of lines makes a column that has neither a name nor values.
    frame = frame[[name for name in frame if not (name.startswith("Unnamed: ") and frame[name].isna().all())]]
    if frame.empty:
        raise DatasetError(f"{path} has no rows below its header.")
    return frame


def _read_text(path: Path, options: ReadOptions, problems: list[str], **more: Any) -> DataFrame:
    """A text file. What pandas would misread silently is a problem: other separators, and a first line of numbers."""
    import pandas

    asked, is_tsv = _asked(options, pandas.read_csv), path.suffix.lower() == ".tsv"
    given = {"sep": "\t" if is_tsv else ",", "encoding": "utf-8-sig", "skipinitialspace": True, **asked}
    if "encoding" not in asked:
        try:
            path.read_bytes().decode()
        except UnicodeDecodeError:
            problems.append(_ENCODING)
            given["encoding"] = "latin-1"
    first = partial(pandas.read_csv, path, header=None, nrows=1)
    marks = "".join(map(str, first(**given).iloc[0])) if not {"sep", "header"} & asked.keys() else ""
    if mark := next((mark for mark in ";\t" if mark in marks), None):
        problems.append(f"its first line has semicolons or tabs: say what separates columns, --read sep={mark!r}")
        given["sep"] = mark
    if "header" not in asked:
        line = first(**given)
        cells = [str(cell).strip() for cell in line.iloc[0].dropna()]
        if all(dtype.kind in "iuf" for dtype in line.dtypes):
            given["header"] = None  # as in the signal archive
            if not (options.signal and is_tsv):
                what = "say --read header=0 if they name the columns, or --read header=none if they are a row"
                problems.append(f"its first line has numbers only: {what}")
        elif twice := [cell for cell in cells if cells.count(cell) > 1]:
            raise DatasetError(f"{path} has two columns of the name {twice[0][:LONGEST]!r}.")
    if asked.get("thousands") == ".":  # 1.5.2026 would become the number 152026
        text = pandas.read_csv(path, **given, dtype=str, nrows=100, index_col=False)
        dates = [name for name in text if text[name].str.strip().str.fullmatch(DOTTED_DATE).any()]
        more = {"dtype": dict.fromkeys(dates, str), **more}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows longer than the header would be cut
        frame: DataFrame = pandas.read_csv(path, **given, **more, index_col=False, low_memory=False)
    return frame


def _refusal(path: Path, problems: list[str]) -> DatasetError:
    """All problems of a table at once."""
    numbered = [f"({i}) {problem}" for i, problem in enumerate(problems, 1)]
    return DatasetError(f"{path}: {problems[0] if len(problems) == 1 else '; '.join(first_few(numbered))}.")


def _asked(options: ReadOptions, reader: Callable[..., Any]) -> dict[str, Any]:
    """The options that this reader has; a configuration may be a stranger's, or of another kind of table."""
    return {key: value for key, value in options.read.items() if key in PANDAS and key in signature(reader).parameters}


def _target(path: Path, frame: DataFrame, options: ReadOptions) -> str | None:
    """The column to predict, if exactly one may be it; the signal archive has it first, without a name."""
    is_archive = options.signal and path.suffix.lower() == ".tsv" and "0" in frame
    asked = "0" if options.target is None and is_archive else options.target
    found = [name for name in frame if (name.lower() in TARGETS if asked is None else name == asked)]
    return found[0] if len(found) == 1 else None


def _choose_columns(
    frame: DataFrame, options: ReadOptions, target: str | None, problems: list[str], notes: list[str]
) -> ReadOptions:
    """Which column is the target, which names the rows, and which are inputs."""
    if target is None:
        name = options.target
        what = f"there is no column {name!r}" if name else "say which column is the target, --target NAME"
        problems.append(f"{what}: {_columns(frame, name)}")
    for name in (*options.drop, *([options.id] if options.id is not None else [])):
        if name not in frame:
            problems.append(f"there is no column {name!r} to drop or to name the rows: {_columns(frame, name)}")
        elif name == target:
            problems.append(f"column {name!r} is the target, which --drop and --id cannot take: --target names another")
    others = [name for name in frame if name != target and name not in options.drop]
    names = options.id or next((name for name in others if name.lower() == "id" or name.startswith("Unnamed: ")), None)
    if names is not None and options.id is None:
        which = f"column {names!r}" if names.lower() == "id" else "the column without a name"
        notes.append(f"{which} names the rows and is no input; --id COLUMN names another one.")
    columns = tuple(name for name in others if name != names)
    if not columns:
        problems.append(f"there is no column but the target {target!r}")
    return replace(options, target=target, id=names, columns=columns)


def _drop_missing(path: Path, frame: DataFrame, columns: list[str], target: str | None, notes: list[str]) -> DataFrame:
    """The rows that have a target, if the table does, and a value in each of these columns."""
    found = frame.dropna(subset=[*columns, *([] if target is None else [target])])
    if found.empty:
        raise DatasetError(f"{path} has no row without a missing value.")
    if len(found) < len(frame):
        what = "missing values" if columns else "no target"
        notes.append(f"{len(frame) - len(found):,} of {len(frame):,} rows have {what} and are left out.")
    return found


def _missing_inputs(frame: DataFrame, options: ReadOptions, training: bool) -> list[str]:
    """The columns without some of their values, where nothing is put for these: one problem, however many they are."""
    if options.signal or (training and options.impute):
        return []
    holes = {name: column.isna() for name, column in frame.items() if column.isna().any() and name not in options.fills}
    said = [f"column {name!r} has no value in {said_rows(where)}" for name, where in holes.items()]
    remedy = ", or leave such rows out, --drop-missing, or put the median, --impute" if training else ""
    return [f"{listed(first_few(said))}: fill in what is missing{remedy}"] if holes else []


def _problems_of(column: Series, options: ReadOptions, training: bool) -> list[str]:
    """What keeps this column from being an input."""
    known, what, name = column.dropna(), f"column {column.name!r}", shlex.quote(str(column.name))
    if training and not len(known) and not options.signal:  # a signal may end before
        return [f"{what} has no value at all: leave it out, --drop {name}"]
    if column.name not in options.levels and (odd := _odd_cell(known, options, always=not training)):
        return [f"{what} {odd}, or leave the column out, --drop {name}"]
    if training and (words := column_rules.too_many_words(known)):
        return [f"{what} holds {words}: leave it out, --drop {name}, or let it name the rows, --id {name}"]
    return []


def _odd_cell(words: Series, options: ReadOptions, always: bool = False) -> str | None:
    """The cell that keeps a column from being read as numbers, and what to do about it; None for a column of words."""
    if not is_words(words) or not (always or words.str.fullmatch(_NUMBERLIKE).any()):
        return None
    if len(odd := words[~words.str.fullmatch(_NUMBERLIKE)]):
        option = f"na_values={shlex.quote(odd.iloc[0][:LONGEST])}"
    else:
        decimal, order = (",", "' .") if options.read.get("decimal") == "," else (".", "' ,.")
        unread = words[~words.str.fullmatch(rf"[+-]?\d*[{decimal}]?\d*(?:[eE][+-]?\d+)?")]
        marks = {mark: found for mark in order if len(found := unread[unread.str.contains(mark, regex=False)])}
        mark, odd = next(iter(marks.items()), (".", words))
        if mark == "." and not odd.iloc[:1].str.contains(r"\.\d{3}(?!\d)").item():
            option = "decimal='.'" if decimal == "," else f"na_values={shlex.quote(odd.iloc[0][:LONGEST])}"
        else:
            option = "decimal=',' or --read " * (mark == ",") + f"thousands={mark!r}"
    return f"is {odd.iloc[0][:LONGEST]!r} in row {odd.index[0]}, which is no number: correct it, or say --read {option}"


def _note_columns(frame: DataFrame, dates: list[str], options: ReadOptions, notes: list[str]) -> None:
    """What a person should know about columns that are no plain numbers."""
    is_table = not options.signal and options.image_shape is None
    constant = [name for name in frame if is_table and frame[name].nunique() == 1]
    held = {"words: each word is an input of 0 and 1": [*options.levels], "dates: the input is days since 1970": dates}
    for hold, names in {**held, "one value only: no help to predict": constant}.items():
        if names:
            said = listed(first_few([repr(name) for name in names]))
            notes.append(f"column {said} holds {hold}." if len(names) == 1 else f"columns {said} hold {hold}.")


def _labels(path: Path, column: Series, options: ReadOptions) -> Shaped[np.ndarray, " rows"]:
    """The targets: numbers, or words. Labels such as 001 are words, because 1 may be another one."""
    if is_words(column):
        return column.to_numpy(str)
    with np.errstate(invalid="ignore"):  # pandas makes decimals of whole numbers where some are missing, and tries all
        y = np.array(column.convert_dtypes().tolist())
    if y.dtype.kind in "iu" and path.suffix.lower() in (".csv", ".tsv"):
        written = _read_text(path, options, [], dtype=str).rename(columns=lambda name: str(name).strip())[column.name]
        words = written.iloc[column.index - 1].str.strip()
        return words.to_numpy(str) if words.str.fullmatch(r"[+-]?0\d+").any() else y
    return y


def _columns(frame: DataFrame, asked: str | None) -> str:
    """The columns: first those with a name like the one asked for, and always the last ones, where targets stand."""
    names = [str(name)[:LONGEST] for name in dict.fromkeys([*get_close_matches(asked or "", frame), *frame])]
    names[10:-5] = names[10:-5] if len(names) <= 20 else [f"… {len(names) - 15:,} more …"]
    return f"its columns are {', '.join(names)}"
