"""Tables: what is read, and all that is said about one that cannot be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp.datasets import DatasetError
from orbitgp.datasets.files import ReadOptions, load, load_inputs, read_option
from orbitgp.orbits import GaussianNoise, Permutation, SignChange, TimeShift

RNG = np.random.default_rng(0)


def test_csv_with_words_as_targets_and_its_columns_kept_for_prediction(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,b,label\n1,2.5,cat\n3,4,dog\n5,6,cat\n7,8,"dog"\n')
    data = load(tmp_path / "t.csv")
    np.testing.assert_array_equal(data.x, [[1, 2.5], [3, 4], [5, 6], [7, 8]])
    assert data.y.tolist() == ["cat", "dog", "cat", "dog"]
    assert data.options.columns == ("a", "b")
    assert data.task == "classification"
    # Another order, another column, no target: still the same inputs.
    (tmp_path / "new.csv").write_text("other,b,a\nx,20,10\ny,40,30\n")
    new = load_inputs(tmp_path / "new.csv", data.options)
    np.testing.assert_array_equal(new.x, [[10, 20], [30, 40]])
    assert new.y is None
    (tmp_path / "with.csv").write_text("a,b,label\n1,2,dog\n")
    assert load_inputs(tmp_path / "with.csv", data.options).y.tolist() == ["dog"]
    (tmp_path / "less.csv").write_text("a,label\n1,dog\n")
    with pytest.raises(DatasetError, match="no column 'b'"):
        load_inputs(tmp_path / "less.csv", data.options)


def test_csv_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2,3\n4,5,6\n")
    data = load(tmp_path / "t.csv", ReadOptions(target="2", read={"header": None}))
    np.testing.assert_array_equal(data.x, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(data.y, [3, 6])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("a,y\n", "no rows"),
        ("a,y\n1,2,3\n", "has rows that are longer than its first line: --read sep"),
        ("a,a,y\n1,2,3\n", "two columns of the name 'a'"),
        (
            "a,y\n1,0\nred,1\n",
            "column 'a' is 'red' in row 2, .*: correct it, or say --read na_values=red, or .*--drop a",
        ),
        ("a,y\n1,0\n,1\n", "column 'a' has no value in row 2: .*--drop-missing"),
        ("y,a\n1,0\n1\n", "column 'a' has no value in row 2"),
        ("a,y\n1,0\n2,\n3,NA\n", "the target column 'y' has no value in rows 2 and 3: .*--drop-missing"),
        ("a,y\n" + "1,\n" * 9, "no value in rows 1, 2, 3, 4, 5, 6, 7, 8 and 1 more"),
        ("a,b\n1,0\n", "--target NAME: its columns are a, b"),
        ("y\n1\n", "no column but the target"),
        ("a,y\nnan,1\n2,3\n", "column 'a' has no value in row 1"),
        ("a,y\n-inf,1\n2,3\n", "not finite in row 1"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DatasetError, match=sentence):
        load(tmp_path / "t.csv")


def test_rows_with_missing_values_are_left_out_on_request(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i / 7}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}50,\n,0.5\n")
    (tmp_path / "held.csv").write_text("a,y\n1,2\n3,\n")
    options = ReadOptions(drop_missing=True)
    data = load(tmp_path / "t.csv", options, test=tmp_path / "held.csv")
    np.testing.assert_array_equal(data.x[:, 0], np.arange(40))
    np.testing.assert_allclose(data.y, np.arange(40) / 7, rtol=1e-15)
    assert data.task == "regression"
    held = f"{tmp_path / 'held.csv'}: 1 of 2 rows have missing values and are left out."
    assert data.notes == ["2 of 42 rows have missing values and are left out.", held]
    filled = load(tmp_path / "t.csv", ReadOptions(drop_missing=True, impute=True))
    assert filled.notes[0] == "1 of 42 rows have no target and are left out."
    np.testing.assert_array_equal(data.test.x, [[1]])
    # To predict, targets may be missing.
    inputs = load_inputs(tmp_path / "t.csv", ReadOptions(columns=("a",), target="y", drop_missing=True))
    assert len(inputs.x) == 40
    (tmp_path / "open.csv").write_text("a,y\n1,2\n3,\n")
    inputs = load_inputs(tmp_path / "open.csv", ReadOptions(columns=("a",), target="y"))
    np.testing.assert_array_equal(inputs.x, [[1], [3]])
    np.testing.assert_array_equal(inputs.y, [2])
    np.testing.assert_array_equal(inputs.with_target, [0])
    (tmp_path / "whole.csv").write_text(f"a,y\n{rows}")
    with pytest.raises(DatasetError, match="some of them are missing"):
        load(tmp_path / "whole.csv", test=tmp_path / "open.csv")


def test_a_missing_target_in_a_parquet_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"a": list(range(6)), "target": [0, 1, None, 1, 0, 1]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"'target' has no value in row 3"):
        load(tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet", ReadOptions(drop_missing=True))
    assert data.y.tolist() == [0, 1, 1, 0, 1]


def test_a_table_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00a,b\n")
    with pytest.raises(DatasetError, match=r"not in UTF-8: .*--read encoding=latin-1"):
        load(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes("größe,y\n1,2\n3,4\n".encode("latin-1"))
    assert load(tmp_path / "t.csv", ReadOptions(read={"encoding": "latin-1"})).options.columns == ("größe",)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3, 4], "target": ["u", "v"]}), tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(data.x, [[1, 3], [2, 4]])
    assert data.y.tolist() == ["u", "v"]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DatasetError, match="parquet"):
        load(tmp_path / "bad.parquet")


def test_numbers_and_words_of_other_types(tmp_path: Path) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    from decimal import Decimal

    from pyarrow import parquet

    columns = {"price": [Decimal("1.50"), None, Decimal("2.25"), Decimal("1.5")], "sold": [True, False, None, True]}
    columns |= {"kind": pandas.Categorical(["u", "v", "u", "v"]), "y": [1, 2, 3, 5]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet", ReadOptions(impute=True))
    np.testing.assert_array_equal(data.x, [[1.5, 1, 0], [1.5, 0, 1], [2.25, 1, 0], [1.5, 1, 1]])
    parquet.write_table(pyarrow.table({"a": [1], "a ": [2], "y": [3]}), tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match="two columns of the name 'a'"):
        load(tmp_path / "t.parquet")


def test_parquet_without_its_reader_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"pip install 'orbitgp\[tables\]'"):
        load(tmp_path / "t.parquet")


def test_tables_without_pandas_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    with pytest.raises(DatasetError, match=r"pip install 'orbitgp\[tables\]'"):
        load(tmp_path / "t.csv")


def test_a_table_is_read_in_double_precision(tmp_path: Path) -> None:
    values = RNG.normal(size=(50, 2)) * 10.0 ** RNG.integers(-300, 300, (50, 2))
    (tmp_path / "t.tsv").write_text("a\ty\n" + "\n".join(f" {a!r} \t{y!r}" for a, y in values.tolist()))
    data = load(tmp_path / "t.tsv")
    np.testing.assert_allclose(np.column_stack([data.x, data.y]), values, rtol=1e-15)  # pandas 2 may miss the last bit


TABLE = "id,age,sex,site,bmi,y\n" + "".join(
    f"p{i},{20 + 3 * i},{'mf'[i % 2]},{('north', 'south', 'west')[i % 3]},{25 + i / 10},{i / 7}\n" for i in range(30)
)


def test_an_id_names_the_rows_and_words_become_inputs_of_0_and_1(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    data = load(tmp_path / "t.csv", ReadOptions(drop=("bmi",)), test_fraction=0.2)
    assert data.options.id == "id"
    assert data.notes == [
        "column 'id' names the rows and is no input; --id COLUMN names another one.",
        "columns 'sex' and 'site' hold words: each word is an input of 0 and 1.",
    ]
    assert data.options.features == ("age", "sex=m", "site=north", "site=south", "site=west")
    for row, name in zip(data.test.x, data.test.rows, strict=True):
        i = int(name[1:])
        np.testing.assert_array_equal(row, [20 + 3 * i, i % 2 == 0, i % 3 == 0, i % 3 == 1, i % 3 == 2])
    (tmp_path / "new.csv").write_text("site,sex,age,id\nwest,f,33,q7\n")
    new = load_inputs(tmp_path / "new.csv", data.options)
    np.testing.assert_array_equal(new.x, [[33, 0, 0, 0, 1]])
    assert new.rows == ["q7"]
    (tmp_path / "bad.csv").write_text("site,sex,age\neast,f,33\n")
    strange = load_inputs(tmp_path / "bad.csv", data.options)
    np.testing.assert_array_equal(strange.x, [[33, 0, 0, 0, 0]])
    (note,) = strange.notes
    assert note == (
        "column 'site' is 'east' in row 1, which the training data do not have: "
        "it counts as none of north, south, west."
    )
    (tmp_path / "bad.csv").write_text("site,sex,age\nwest,x,33\n")
    np.testing.assert_array_equal(load_inputs(tmp_path / "bad.csv", data.options).x, [[33, 0.5, 0, 0, 1]])
    with pytest.raises(DatasetError, match="no column 'bim' to drop"):
        load(tmp_path / "t.csv", ReadOptions(drop=("bim",)))
    with pytest.raises(DatasetError, match=r"column 'id' holds 30 different words, .* --drop id, .* --id id"):
        load(tmp_path / "t.csv", ReadOptions(id="site"))


def test_missing_inputs_are_imputed_on_request(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n1,red,1.5\n,red,2.5\n3,blue,3.5\n8,,4.5\n9,red,5.5\n")
    with pytest.raises(
        DatasetError,
        match=r"column 'a' has no value in row 2 and column 'b' has no value in row 4: .*--drop-missing, .*--impute",
    ):
        load(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv", ReadOptions(impute=True))
    np.testing.assert_array_equal(data.x, [[1, 1], [5.5, 1], [3, 0], [8, 1], [9, 1]])
    assert "column 'a' has no value in row 2: 5.5 is put there." in data.notes
    (tmp_path / "new.csv").write_text("a,b\n,\n7,blue\n")
    new = load_inputs(tmp_path / "new.csv", data.options)
    np.testing.assert_array_equal(new.x, [[5.5, 1], [7, 0]])
    assert new.notes == [
        f"column {name!r} has no value in row 1: {fill} is put there." for name, fill in (("a", 5.5), ("b", "red"))
    ]
    (tmp_path / "new.csv").write_text("a,b\n7,\n")
    np.testing.assert_array_equal(load_inputs(tmp_path / "new.csv", data.options).x, [[7, 1]])


def test_dates_become_days(tmp_path: Path) -> None:
    days = [f"2026-0{1 + i // 28}-{1 + i % 28:02d}" for i in range(40)]
    (tmp_path / "t.csv").write_text("day,y\n" + "".join(f"{day},{i / 7}\n" for i, day in enumerate(days)))
    data = load(tmp_path / "t.csv")
    expected = (np.array(days, dtype="datetime64[D]") - np.datetime64("1970-01-01")).astype(float)
    np.testing.assert_array_equal(data.x[:, 0], expected)
    assert data.notes == ["column 'day' holds dates: the input is days since 1970."]
    (tmp_path / "new.csv").write_text("day\n2026-05-01 06:00\n")
    np.testing.assert_allclose(load_inputs(tmp_path / "new.csv", data.options).x, [[20574.25]])
    (tmp_path / "new.csv").write_text("day\n2026-02-31\n")
    with pytest.raises(DatasetError, match=r"column 'day' is '2026-02-31' in row 1, which is no number"):
        load_inputs(tmp_path / "new.csv", data.options)


def test_a_date_that_is_put_somewhere_is_said_as_one(tmp_path: Path) -> None:
    days = ["2026-05-01", "2026-05-03", "", "2026-05-09", "2026-05-02", "2026-05-02", "2026-05-03"]
    (tmp_path / "t.csv").write_text("day,a,y\n" + "".join(f"{day},{i},{i / 7}\n" for i, day in enumerate(days)))
    data = load(tmp_path / "t.csv", ReadOptions(impute=True))
    assert "column 'day' has no value in row 3: 2026-05-02 is put there." in data.notes  # at noon
    np.testing.assert_allclose(data.x[:, 0], [20574, 20576, 20575.5, 20582, 20575, 20575, 20576])
    (tmp_path / "new.csv").write_text("day,a\n2026-05-01,1\n,2\n")
    new = load_inputs(tmp_path / "new.csv", data.options)
    assert new.notes == ["column 'day' has no value in row 2: 2026-05-02 is put there."]
    np.testing.assert_allclose(new.x, [[20574, 1], [20575.5, 2]])


def test_rows_keep_their_numbers_when_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,1.5\n,2.5\n4,3.5\n")
    data = load(tmp_path / "t.csv", ReadOptions(impute=True, drop_missing=True))
    assert "column 'a' has no value in row 3: 3 is put there." in data.notes
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,1.5\nx,2.5\n4,3.5\n")
    with pytest.raises(DatasetError, match=r"column 'a' is 'x' in row 3"):
        load(tmp_path / "t.csv", ReadOptions(drop_missing=True))


def test_the_median_is_said_without_rounding_errors(tmp_path: Path) -> None:
    rows = "".join(
        f"{a},{i}\n" for i, a in enumerate(["44.8", "44.9", "", "1", "99"])
    )  # (44.8 + 44.9) / 2 = 44.849999999999994
    (tmp_path / "t.csv").write_text(f"a,target\n{rows}")
    assert (
        "column 'a' has no value in row 3: 44.85 is put there."
        in load(tmp_path / "t.csv", ReadOptions(impute=True)).notes
    )


def test_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b;y\n1,5;2;0,25\n-3,25;4;1\n")
    with pytest.raises(DatasetError, match=r"--read sep=';'; .*--read decimal=','"):
        load(tmp_path / "t.csv")
    data = load(
        tmp_path / "t.csv", ReadOptions(read=dict(map(read_option, ("sep=';'", "decimal=,"))))
    )  # one has its quotes
    np.testing.assert_array_equal(data.x, [[1.5, 2], [-3.25, 4]])
    np.testing.assert_array_equal(data.y, [0.25, 1])


def test_xlsx(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    if importlib.util.find_spec("openpyxl") is None:
        (tmp_path / "t.xlsx").write_bytes(b"PK")
        with pytest.raises(DatasetError, match=r"needs the package openpyxl|cannot be read as a xlsx table"):
            load(tmp_path / "t.xlsx")
        return
    pandas.DataFrame({"a": [1, 2, 3], "y": [0.5, 1.5, 2.5]}).to_excel(tmp_path / "t.xlsx", index=False)
    np.testing.assert_array_equal(load(tmp_path / "t.xlsx").x, [[1], [2], [3]])


def test_standardised_columns_and_those_that_are_exchanged(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    raw = load(tmp_path / "t.csv")
    data = raw.standardised([Permutation.swap(0, 5)])
    assert raw.options.features[5] == "bmi"
    both = raw.x[:, [0, 5]]
    np.testing.assert_allclose(data.x[:, [0, 5]], (both - both.mean()) / both.std())
    np.testing.assert_array_equal(data.x[:, 1:5], raw.x[:, 1:5])
    alone = raw.standardised([GaussianNoise(), SignChange(5)])
    np.testing.assert_allclose(alone.x[:, [0, 5]].std(0), 1)
    np.testing.assert_allclose(alone.x[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(alone.x[:, 5] * raw.x[:, 5].std(), raw.x[:, 5])  # zero stays zero
    chain = raw.standardised([Permutation.swap(0, 5), Permutation.swap(5, 1)]).options.scales
    assert chain[0] == chain[1] == chain[5] != chain[2]
    np.testing.assert_array_equal(raw.standardised([TimeShift()]).x, raw.x)
    np.testing.assert_allclose(load_inputs(tmp_path / "t.csv", alone.options).x, alone.x)


class TestTablesThatMayBeMisread:
    """What may be read in two ways is refused, or a note says how it was read."""

    @staticmethod
    def table(tmp_path: Path, *lines: Any, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    @pytest.mark.parametrize("first", ["0,1,2", "0.5,1,2"])
    def test_a_first_line_of_numbers(self, tmp_path: Path, first: str) -> None:
        path = self.table(tmp_path, first, *(f"{i / 3},{i % 4},{i / 7}" for i in range(8)))
        with pytest.raises(DatasetError, match=r"--read header=0 if they name the columns, or --read header=none"):
            load(path, ReadOptions(target="2"))
        named, rows = (ReadOptions(target="2", read=dict([read_option(text)])) for text in ("header=0", "header=none"))
        assert load(path, named).x.shape == (8, 2)
        assert load(path, rows).x.shape == (9, 2)

    def test_one_cell_that_is_no_number(self, tmp_path: Path) -> None:
        rows = [f"{i},{'?' if i == 6 else i / 3}" for i in range(20)]
        path = self.table(tmp_path, "a,y", *rows)
        with pytest.raises(
            DatasetError, match=r"target column 'y' is '\?' in row 7, .*: correct it, or say --read na_values='\?'"
        ):
            load(path)
        unknown = dict([read_option("na_values=?,none")])
        assert len(load(path, ReadOptions(drop_missing=True, read=unknown)).x) == 19
        classes = [f"{i},{'?' if i == 6 else i % 3}" for i in range(20)]
        assert set(load(self.table(tmp_path, "a,y", *classes)).y) == {"0", "1", "2", "?"}

    def test_an_encoding_a_separator_and_the_cells_behind_them_are_said_at_once(self, tmp_path: Path) -> None:
        rows = "".join(f"{i},5;k.A.;{i}\n" if i == 3 else f"{i},5;{i};{i}\n" for i in range(9))
        (tmp_path / "t.csv").write_bytes(f"Höhe;Gerät;Ertrag\n{rows}".encode("latin-1"))
        with pytest.raises(DatasetError) as caught:
            load(tmp_path / "t.csv")
        said = ["encoding=latin-1", "sep=';'", "--target NAME: its columns are Höhe, Gerät, Ertrag", "decimal=','"]
        assert all(part in str(caught.value) for part in [*said, "'Gerät' is 'k.A.' in row 4", "na_values=k.A."])
        assert "--read sep='\\t'" in self.refusal(tmp_path, "a\tb\n1\t2\n")
        assert "header=none" in self.refusal(tmp_path, "1;2\n3;4\n")

    @staticmethod
    def refusal(tmp_path: Path, text: str) -> str:
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(DatasetError) as caught:
            load(tmp_path / "t.csv")
        return str(caught.value)

    @pytest.mark.parametrize(
        ("cells", "option"),
        [("1.005 2,5", "thousands='.'"), ("19.86 2,5", "decimal='.'"), ("1'000 2,5", 'thousands="\'"')],
    )
    def test_the_option_fits_the_number(self, tmp_path: Path, cells: str, option: str) -> None:
        rows = [f"{cell};{i}" for i, cell in enumerate(cells.split() * 5)]
        path = self.table(tmp_path, "a;y", *rows)
        read = ReadOptions(read={"sep": ";", "decimal": ","})
        with pytest.raises(DatasetError, match=f"say --read {option}"):
            load(path, read)

    def test_no_option_makes_a_number_of_two_points(self, tmp_path: Path) -> None:
        rows = [f"{i}.5,{i}" for i in range(5)]
        with pytest.raises(DatasetError, match=r"is '1\.2\.3' in row 6, .* say --read na_values=1\.2\.3,"):
            load(self.table(tmp_path, "a,y", *rows, "1.2.3,7"))

    def test_separators_between_thousands(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "a,y", *(f'{i},"1,{i:03d}.2"' for i in range(3, 12)))
        with pytest.raises(
            DatasetError, match=r"'y' is '1,003\.2' in row 1, .* say --read decimal=',' or --read thousands=','"
        ):
            load(path)
        assert load(path, ReadOptions(read={"thousands": ","})).y[0] == 1003.2
        with pytest.raises(DatasetError, match=r"'a b' is '1,000' in row 1, .* --drop 'a b'\."):
            load(self.table(tmp_path, "a b,y", '"1,000",1', '"2,000",2', '"2,000",3'))

    @pytest.mark.parametrize("labels", [("001", "1", "010"), ("1_1", "11", "2")])
    def test_labels_that_are_no_numbers_stay_apart(self, tmp_path: Path, labels: tuple[str, str, str]) -> None:
        data = load(self.table(tmp_path, "a,y", *(f"{i},{label}" for i, label in enumerate(3 * labels))))
        assert set(data.y) == set(labels)

    def test_underscores_are_no_part_of_a_number(self, tmp_path: Path) -> None:
        data = load(self.table(tmp_path, "a,y", "1_2,0.5", "1_3,0.7", "1_2,0.9"))
        assert data.options.features == ("a=1_3",)

    def test_words_stay_words_in_the_test_set(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "a,y", *(f"{i},{label}" for i, label in enumerate(4 * ("1", "2", "b"))))
        test = self.table(tmp_path, "a,y", "1,1", "2,2", name="test.csv")
        assert load(path, test=test).test.y.tolist() == ["1", "2"]

    def test_dots_among_decimal_commas(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "a;b;y", "21,73;939;4,019", "22,23;1.005;4,429")
        with pytest.raises(DatasetError, match=r"'b' is '1\.005' in row 2, .* --read thousands='\.'"):
            load(path, ReadOptions(read={"sep": ";", "decimal": ","}))
        data = load(path, ReadOptions(read={"sep": ";", "decimal": ",", "thousands": "."}))
        np.testing.assert_array_equal(data.x, [[21.73, 939], [22.23, 1005]])

    @pytest.mark.parametrize("thousands", [{}, {"thousands": "."}])
    def test_dates_with_dots_are_no_thousands(self, tmp_path: Path, thousands: dict[str, str]) -> None:
        path = self.table(tmp_path, "day;a;y", "31.12.2025;1,5;2,0", "01.02.2026;2,5;4,4")
        data = load(path, ReadOptions(read={"sep": ";", "decimal": ",", **thousands}))
        np.testing.assert_array_equal(np.diff(data.x, axis=0), [[32, 1]])

    @pytest.mark.parametrize("start", [0, 1])
    def test_the_index_of_a_data_frame_is_no_input(self, tmp_path: Path, start: int) -> None:
        data = load(self.table(tmp_path, ",a,y", *(f"{i + start},{i * i},{i / 3}" for i in range(8))))
        assert data.options.columns == ("a",)
        assert data.notes == [
            "the column without a name names the rows and is no input; --id COLUMN names another one."
        ]
        new = load_inputs(self.table(tmp_path, "a", "3", name="new.csv"), data.options)
        assert new.x.shape == (1, 1)

    def test_a_separator_at_the_end_of_lines(self, tmp_path: Path) -> None:
        assert load(self.table(tmp_path, "a,y,", "1,0.5,", "2,0.7,", "3,0.1,")).options.columns == ("a",)

    def test_what_stands_above_the_header(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "# made today", "a,b,y", "1,2,3")
        with pytest.raises(DatasetError, match=r"rows that are longer than its first line: .*--read skiprows=1"):
            load(path)
        for option in ("skiprows=1", "comment=#"):
            assert load(path, ReadOptions(read=dict([read_option(option)]))).x.shape == (1, 2)

    def test_an_option_that_pandas_does_not_have(self, tmp_path: Path) -> None:
        with pytest.raises(
            DatasetError, match=r"--read takes KEY=VALUE, where KEY is one of sep, .*, not 'seperator=;'"
        ):
            read_option("seperator=;")
        path = self.table(tmp_path, "a,y", "1,2", "3,4")
        with pytest.raises(DatasetError, match=r"cannot be read as a table .*unknown encoding"):
            load(path, ReadOptions(read={"encoding": "klingon"}))

    def test_all_problems_are_said_at_once(self, tmp_path: Path) -> None:
        rows = (f"n{i},{i},{'' if i == 3 else i},{'x' if i == 5 else i},{i}" for i in range(30))
        path = self.table(tmp_path, "name,size,gap,odd,wish", *rows)
        with pytest.raises(DatasetError) as caught:
            load(path, ReadOptions(drop=("sise",)))
        parts = (
            "(1) say which column is the target, --target",
            "(2) there is no column 'sise' to drop",
            "(3) column 'gap'",
            "(4) column 'name' holds 30 different words",
            "(5) column 'odd' is 'x' in row 6",
            "columns are size, name, gap",
        )
        assert [part for part in parts if part not in str(caught.value)] == []

    def test_the_list_of_columns_ends_with_the_last(self, tmp_path: Path) -> None:
        names = [f"c{i}" for i in range(100)]
        path = self.table(tmp_path, ",".join([*names, "wish"]), ",".join(map(str, range(101))))
        with pytest.raises(DatasetError, match=r"its columns are c0, .*, … 86 more …, c96, c97, c98, c99, wish\."):
            load(path)

    def test_a_constant_column_is_noted(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "a,b,y", *(f"{i},7,{i / 3}" for i in range(9)))
        assert load(path).notes == ["column 'b' holds one value only: no help to predict."]

    @pytest.mark.parametrize("options", [{"drop": ("y",)}, {"id": "y"}])
    def test_a_target_is_nothing_else(self, tmp_path: Path, options: dict[str, tuple[str] | str]) -> None:
        with pytest.raises(DatasetError, match=r"'y' is the target, which --drop and --id cannot take"):
            load(self.table(tmp_path, "a,y", "1,0.5", "2,0.7"), ReadOptions(**options))

    def test_no_row_to_test(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, "a,y", *(f"{i},{i / 3}" for i in range(20)))
        with pytest.raises(DatasetError, match=r"a test fraction of 0\.01 leaves none of 20 rows to test"):
            load(path, test_fraction=0.01)
