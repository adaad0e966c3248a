"""Reading data: every form, and a sentence for each thing that can be wrong with one."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest

from orbitgp.datasets import DatasetError
from orbitgp.datasets.files import ReadOptions, load, load_inputs, standardised
from orbitgp.estimators.defaults import task_of

RNG = np.random.default_rng(0)


def images(rows: int = 8) -> np.ndarray:
    return RNG.integers(0, 256, (rows, 4, 5)).astype(np.uint8)


def test_npz_of_images_in_bytes_is_brought_to_the_unit_interval(tmp_path):
    x, y = images(), np.arange(8) % 2
    np.savez(tmp_path / "d.npz", X=x, y=y)
    data = load(tmp_path / "d.npz")
    np.testing.assert_array_equal(data.x_train, x.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(data.y_train, y)
    assert data.x_test is None
    assert data.task == "classification"
    assert data.name == "d"


def test_npz_with_a_test_set_of_its_own(tmp_path):
    x = RNG.random((10, 3))
    np.savez(tmp_path / "d.npz", x_train=x[:6], y_train=np.arange(6.0), x_test=x[6:], y_test=np.arange(4.0))
    data = load(tmp_path / "d.npz", test_fraction=0.5)
    np.testing.assert_array_equal(data.x_train, x[:6])
    np.testing.assert_array_equal(data.x_test, x[6:])
    # Predicting for the same file means its test set.
    np.testing.assert_array_equal(load_inputs(tmp_path / "d.npz", data.read_options).x, x[6:])


def test_npy_pairs_by_option_by_name_and_by_folder(tmp_path):
    x, y = RNG.random((6, 3)), RNG.random(6)
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "wanted.npy", y)
    with pytest.raises(DatasetError, match="--targets"):
        load(tmp_path / "X.npy")
    given = load(tmp_path / "X.npy", ReadOptions(targets=str(tmp_path / "wanted.npy")))
    np.save(tmp_path / "y.npy", y)
    for data in (given, load(tmp_path / "X.npy"), load(tmp_path)):
        np.testing.assert_array_equal(data.x_train, x)
        np.testing.assert_array_equal(data.y_train, y)
        assert data.task == "regression"


def test_channels_last_becomes_channels_first(tmp_path):
    x = RNG.random((4, 6, 7, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4) % 2)
    np.testing.assert_array_equal(load(tmp_path / "d.npz").x_train, np.moveaxis(x, -1, 1))


def test_csv_with_words_as_targets_and_its_columns_kept_for_prediction(tmp_path):
    (tmp_path / "t.csv").write_text('a,b,label\n1,2.5,cat\n3,4,dog\n5,6,cat\n7,8,"dog"\n')
    data = load(tmp_path / "t.csv")
    np.testing.assert_array_equal(data.x_train, [[1, 2.5], [3, 4], [5, 6], [7, 8]])
    assert data.y_train.tolist() == ["cat", "dog", "cat", "dog"]
    assert data.read_options.columns == ("a", "b")
    assert data.task == "classification"
    # Another order, another column, no target: still the same inputs.
    (tmp_path / "new.csv").write_text("other,b,a\nx,20,10\ny,40,30\n")
    new = load_inputs(tmp_path / "new.csv", data.read_options)
    np.testing.assert_array_equal(new.x, [[10, 20], [30, 40]])
    assert new.y is None
    (tmp_path / "with.csv").write_text("a;b;label\n1;2;dog\n")
    assert load_inputs(tmp_path / "with.csv", data.read_options).y.tolist() == ["dog"]
    (tmp_path / "less.csv").write_text("a,label\n1,dog\n")
    with pytest.raises(DatasetError, match="no column 'b'"):
        load_inputs(tmp_path / "less.csv", data.read_options)


def test_csv_without_a_header_has_numbered_columns(tmp_path):
    (tmp_path / "t.csv").write_text("1,2,3\n4,5,6\n")
    data = load(tmp_path / "t.csv", ReadOptions(target="2"))
    np.testing.assert_array_equal(data.x_train, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(data.y_train, [3, 6])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("a,y\n", "no rows"),
        ("a,y\n1,2,3\n", "Expected 2 fields in line 2, saw 3"),
        ("a,a,y\n1,2,3\n", "two columns of the name 'a'"),
        ("a,y\n1,0\nred,1\n", "column 'a' .* is 'red' in row 2"),
        ("a,y\n1,0\n,1\n", "column 'a' .* has no value in row 2: .*--drop-missing"),
        ("y,a\n1,0\n1\n", "column 'a' .* has no value in row 2"),
        ("a,y\n1,0\n2,\n3,NA\n", "the target column 'y' .* has no value in rows 2, 3: .*--drop-missing"),
        ("a,y\n" + "1,\n" * 9, "no value in rows 1, 2, 3, 4, 5 and 4 more"),
        ("a,b\n1,0\n", "--target NAME: its columns are a, b"),
        ("y\n1\n", "no column but the target"),
        ("a,y\nnan,1\n2,3\n", "column 'a' .* has no value in row 1"),
        ("a,y\n-inf,1\n2,3\n", "not finite in row 1"),
    ],
)
def test_bad_tables(tmp_path, text, sentence):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DatasetError, match=sentence):
        load(tmp_path / "t.csv")


def test_rows_with_missing_values_are_left_out_on_request(tmp_path):
    rows = "".join(f"{i},{i / 7}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}50,\n,0.5\n")
    (tmp_path / "held.csv").write_text("a,y\n1,2\n3,\n")
    options = ReadOptions(drop_missing=True)
    data = load(tmp_path / "t.csv", options, test=tmp_path / "held.csv")
    np.testing.assert_array_equal(data.x_train[:, 0], np.arange(40))
    np.testing.assert_array_equal(data.y_train, np.arange(40) / 7)
    assert data.task == "regression"
    held = f"{tmp_path / 'held.csv'}: 1 of 2 rows have missing values and are left out."
    assert data.notes == ["2 of 42 rows have missing values and are left out.", held]
    filled = load(tmp_path / "t.csv", ReadOptions(drop_missing=True, impute=True))
    assert filled.notes[0] == "1 of 42 rows have no target and are left out."
    np.testing.assert_array_equal(data.x_test, [[1]])
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


def test_a_missing_target_in_a_parquet_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"a": list(range(6)), "target": [0, 1, None, 1, 0, 1]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"'target' .* has no value in row 3"):
        load(tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet", ReadOptions(drop_missing=True))
    assert data.y_train.tolist() == [0, 1, 1, 0, 1]


def test_a_table_that_is_not_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00a,b\n")
    with pytest.raises(DatasetError, match="UTF-8"):
        load(tmp_path / "t.csv")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3, 4], "target": ["u", "v"]}), tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(data.x_train, [[1, 3], [2, 4]])
    assert data.y_train.tolist() == ["u", "v"]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DatasetError, match="parquet"):
        load(tmp_path / "bad.parquet")


def test_parquet_without_its_reader_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(DatasetError, match="pip install pyarrow"):
        load(tmp_path / "t.parquet")


def test_tables_without_pandas_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    with pytest.raises(DatasetError, match=r"pip install 'orbitgp\[tables\]'"):
        load(tmp_path / "t.csv")


def test_a_table_is_read_to_the_last_bit(tmp_path):
    values = RNG.normal(size=(50, 2)) * 10.0 ** RNG.integers(-300, 300, (50, 2))
    (tmp_path / "t.tsv").write_text("a\ty\n" + "\n".join(f" {a!r} \t{y!r}" for a, y in values.tolist()))
    data = load(tmp_path / "t.tsv")
    np.testing.assert_array_equal(np.column_stack([data.x_train, data.y_train]), values)


def write_images(folder, pixels, mode="L"):
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for i, one in enumerate(pixels):
        Image.fromarray(one).convert(mode).save(folder / f"{i}.png")


def test_folders_of_images_are_classes(tmp_path):
    x = images(6)
    write_images(tmp_path / "train" / "bird", x[:2])
    write_images(tmp_path / "train" / "cat", x[2:4])
    write_images(tmp_path / "test" / "bird", x[4:5])
    write_images(tmp_path / "test" / "cat", x[5:])
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    data = load(tmp_path)
    np.testing.assert_allclose(data.x_train, x[:4] / np.float32(255))
    assert data.y_train.tolist() == ["bird", "bird", "cat", "cat"]
    np.testing.assert_allclose(data.x_test, x[4:] / np.float32(255))
    # One image, and a folder of them, to predict for.
    one = load_inputs(tmp_path / "test" / "cat" / "0.png", data.read_options)
    np.testing.assert_allclose(one.x, x[5:] / np.float32(255))
    assert one.rows == ["0.png"]
    assert load_inputs(tmp_path / "test" / "bird", data.read_options).x.shape == (1, 4, 5)
    assert load_inputs(tmp_path / "test", data.read_options).rows == ["bird/0.png", "cat/0.png"]
    with pytest.raises(DatasetError, match="is a single image"):
        load(tmp_path / "test" / "cat" / "0.png")
    inverted = load(tmp_path, ReadOptions(invert=True))
    np.testing.assert_allclose(inverted.x_train, 1 - data.x_train)


def test_one_colour_image_makes_all_of_them_colour(tmp_path):
    write_images(tmp_path / "a", images(2))
    write_images(tmp_path / "b", images(2), "RGB")
    data = load(tmp_path)
    assert data.x_train.shape == (4, 3, 4, 5)
    assert data.read_options.colour == "RGB"


def test_images_of_two_sizes(tmp_path):
    write_images(tmp_path / "a", images(2))
    write_images(tmp_path / "b", [np.zeros((7, 7), np.uint8)])
    with pytest.raises(DatasetError, match="--resize"):
        load(tmp_path)
    assert load(tmp_path, ReadOptions(resize=(6, 3))).x_train.shape == (3, 6, 3)


@pytest.mark.parametrize("invert", [False, True])
def test_resize_keeps_the_aspect_ratio(tmp_path, invert):
    """A square in a 40x20 image stays one in 10x10 pixels, and the bars are 0 with and without --invert."""
    wide = np.full((20, 40), 255 if invert else 0, np.uint8)
    wide[4:16, 12:24] = 0 if invert else 255
    write_images(tmp_path / "a", [wide])
    write_images(tmp_path / "b", [wide])
    x = load(tmp_path, ReadOptions(resize=(10, 10), invert=invert)).x_train[0]
    np.testing.assert_array_equal(x[[0, 1, 8, 9]], 0)
    inside = np.argwhere(x > 0.5)
    assert np.ptp(inside, axis=0).tolist() == [2, 2]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_white(tmp_path, mode):
    """Black ink on a transparent ground is what a viewer shows, not a black image."""
    from PIL import Image

    for name in "ab":
        image = Image.new("RGBA", (6, 5))
        image.putpixel((2, 3), (0, 0, 0, 255))
        (tmp_path / name).mkdir()
        image.convert(mode).save(tmp_path / name / "0.png")
    data = load(tmp_path)
    x = data.x_train.reshape(2, -1, 5, 6)
    assert x.shape[1] == (3 if mode == "RGBA" else 1)
    assert x.sum() == x.size - 2 * x.shape[1]
    assert (x[:, :, 3, 2] == 0).all()
    assert "--invert" in data.notes[0]


def test_arrays_as_pillow_yields_them(tmp_path):
    x = RNG.integers(0, 256, (4, 6, 7, 4)).astype(np.uint8)
    x[..., 3] = 255
    x[0, 2, 3] = 0, 0, 0, 0
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4) % 2)
    expected = np.moveaxis(x[..., :3], -1, 1) / np.float32(255)
    expected[0, :, 2, 3] = 1
    np.testing.assert_allclose(load(tmp_path / "d.npz").x_train, expected, atol=1e-6)


def test_images_of_one_colour_are_refused(tmp_path):
    x = np.zeros((4, 5, 5), np.uint8) + np.arange(4, dtype=np.uint8)[:, None, None]
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4) % 2)
    with pytest.raises(DatasetError, match="of one colour all over"):
        load(tmp_path / "d.npz")


def test_bad_images(tmp_path):
    write_images(tmp_path / "a", images(1))
    with pytest.raises(DatasetError, match="at least two folders"):
        load(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.png").write_bytes(b"not a png")
    with pytest.raises(DatasetError, match=r"x\.png cannot be read as an image"):
        load(tmp_path)


def test_a_bright_background_is_noted(tmp_path):
    x = np.full((6, 5, 5), 255, np.uint8)
    x[:, 2, 2] = 0
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6) % 2)
    assert "--invert" in load(tmp_path / "d.npz").notes[0]
    assert load(tmp_path / "d.npz", ReadOptions(invert=True)).notes == []
    np.savez(tmp_path / "flat.npz", x=x.reshape(6, 25), y=np.arange(6) % 2)
    assert "--invert" in load(tmp_path / "flat.npz", ReadOptions(image_shape=(5, 5))).notes[0]


def test_a_background_is_told_by_its_value(tmp_path):
    x = np.zeros((6, 5, 5))
    x[:, 2, 2] = 1
    np.savez(tmp_path / "ink.npz", x=x, y=np.arange(6) % 2)
    assert "do without --invert" in load(tmp_path / "ink.npz", ReadOptions(invert=True)).notes[0]
    np.savez(tmp_path / "low.npz", x=x - 0.4, y=np.arange(6) % 2)
    assert "the background of these images is about −0.40" in load(tmp_path / "low.npz").notes[0]


def test_pixels_beyond_the_range_of_pixels_are_noted_and_not_inverted(tmp_path):
    x = np.zeros((6, 5, 5))
    x[:, 2, 2] = 2.5e6
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6) % 2)
    assert "the pixels go from 0 to 2,500,000, and not from 0 to 1" in load(tmp_path / "d.npz").notes[0]
    with pytest.raises(DatasetError, match=r"--invert turns pixels p into 1 - p, but those in .* go from 0 to 2,500,000"):
        load(tmp_path / "d.npz", ReadOptions(invert=True))
    np.savez(tmp_path / "bright.npz", x=255.0 - 255 * (x > 0), y=np.arange(6) % 2)
    assert "bring the background to 0" in load(tmp_path / "bright.npz").notes[1]
    np.savez(tmp_path / "usual.npz", x=1.1 * (x > 0), y=np.arange(6) % 2)
    assert load(tmp_path / "usual.npz").notes == []


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "3 inputs but 4 targets"),
        ({"x": np.zeros((3, 2))}, "no targets"),
        ({"z": np.zeros(3)}, "must hold arrays x and y"),
        ({"x": np.zeros(3), "y": np.zeros(3)}, "must have shape"),
        ({"x": np.array([["a"]]), "y": np.zeros(1)}, "must be numbers"),
        ({"x": np.array([[1.0], [np.inf]]), "y": np.zeros(2)}, "not finite in row 2"),
        ({"x": np.zeros((2, 1)), "y": np.array([0.0, np.nan])}, "targets .* not finite in row 2"),
        ({"x": np.zeros((0, 1)), "y": np.zeros(0)}, "no inputs"),
    ],
)
def test_bad_arrays(tmp_path, arrays, sentence):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match=sentence):
        load(tmp_path / "d.npz")


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "y.npy", np.zeros(1))
    with pytest.raises(DatasetError, match="Python objects"):
        load(tmp_path / "x.npy")
    (tmp_path / "d.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(DatasetError, match=r"d\.npz"):
        load(tmp_path / "d.npz")


def test_names_and_what_is_none(tmp_path):
    digits = load("digits")
    assert digits.x_train.shape == (1347, 8, 8)
    assert digits.x_test.shape == (450, 8, 8)
    assert load_inputs("digits", digits.read_options).y.shape == (450,)
    with pytest.raises(DatasetError, match="no data set of that name"):
        load("digist")
    (tmp_path / "d.pkl").write_bytes(b"")
    with pytest.raises(DatasetError, match="no kind that can be read"):
        load(tmp_path / "d.pkl")


def test_held_out_and_fewer_data(tmp_path):
    x, y = RNG.random((100, 2)), np.repeat([0, 1], [80, 20])
    np.savez(tmp_path / "d.npz", x=x, y=y)
    data = load(tmp_path / "d.npz", test_fraction=0.25, max_data=30)
    assert len(data.x_test) == 25
    assert data.y_test.sum() == 5
    assert len(data.x_train) == 30
    assert data.y_train.sum() == 6
    rows = {tuple(row) for row in data.x_train} & {tuple(row) for row in data.x_test}
    assert not rows
    np.savez(tmp_path / "t.npz", x=x[:5, :1], y=y[:5])
    with pytest.raises(DatasetError, match="have shape"):
        load(tmp_path / "d.npz", test=tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.array(["a", "b"]), "classification"),
        (np.array([True, False]), "classification"),
        (np.array([0, 1, 2] * 5), "classification"),
        (np.array([0.0, 1.0, 1.0, 0.0]), "classification"),
        (np.array([0.5, 1.0, 1.5]), "regression"),
        (np.arange(200), "regression"),
        (np.zeros((4, 2)), "regression"),
    ],
)
def test_what_targets_look_like(y, task):
    assert task_of(y) == task


TABLE = "id,age,sex,site,bmi,y\n" + "".join(
    f"p{i},{20 + 3 * i},{'mf'[i % 2]},{('north', 'south', 'west')[i % 3]},{25 + i / 10},{i / 7}\n" for i in range(30)
)


def test_an_id_names_the_rows_and_words_become_inputs_of_0_and_1(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    data = load(tmp_path / "t.csv", ReadOptions(drop=("bmi",)), test_fraction=0.2)
    assert data.read_options.id == "id"
    assert data.notes == [
        "column 'id' names the rows and is no input; --id COLUMN names another one.",
        "columns 'sex' and 'site' hold words: each word is an input of 0 and 1.",
    ]
    assert data.read_options.features == ("age", "sex=m", "site=north", "site=south", "site=west")
    for row, name in zip(data.x_test, data.rows_test, strict=True):
        i = int(name[1:])
        np.testing.assert_array_equal(row, [20 + 3 * i, i % 2 == 0, i % 3 == 0, i % 3 == 1, i % 3 == 2])
    (tmp_path / "new.csv").write_text("site,sex,age,id\nwest,f,33,q7\n")
    new = load_inputs(tmp_path / "new.csv", data.read_options)
    np.testing.assert_array_equal(new.x, [[33, 0, 0, 0, 1]])
    assert new.rows == ["q7"]
    (tmp_path / "bad.csv").write_text("site,sex,age\neast,f,33\n")
    with pytest.raises(DatasetError, match=r"column 'site' .* is 'east' in row 1, which the training data do not have: north"):
        load_inputs(tmp_path / "bad.csv", data.read_options)
    with pytest.raises(DatasetError, match="no column 'bim' to drop"):
        load(tmp_path / "t.csv", ReadOptions(drop=("bim",)))
    with pytest.raises(DatasetError, match=r"column 'id' .* holds 30 different words, .* with --drop id"):
        load(tmp_path / "t.csv", ReadOptions(id="site"))


def test_missing_inputs_are_imputed_on_request(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,red,1.5\n,red,2.5\n3,blue,3.5\n8,,4.5\n9,red,5.5\n")
    with pytest.raises(
        DatasetError,
        match=r"column 'a' .* has no value in row 2 and column 'b' in row 4: .*--drop-missing, or let --impute put the median",
    ):
        load(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv", ReadOptions(impute=True))
    np.testing.assert_array_equal(data.x_train, [[1, 1], [5.5, 1], [3, 0], [8, 1], [9, 1]])
    assert "column 'a' has no value in row 2: 5.5 is put there." in data.notes
    (tmp_path / "new.csv").write_text("a,b\n,\n7,blue\n")
    new = load_inputs(tmp_path / "new.csv", data.read_options)
    np.testing.assert_array_equal(new.x, [[5.5, 1], [7, 0]])
    assert new.notes == [
        f"column {name!r} has no value in row 1: {fill} is put there." for name, fill in (("a", 5.5), ("b", "red"))
    ]


def test_rows_keep_their_numbers_when_others_are_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,1.5\n,2.5\n4,3.5\n")
    data = load(tmp_path / "t.csv", ReadOptions(impute=True, drop_missing=True))
    assert "column 'a' has no value in row 3: 3.0 is put there." in data.notes
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,1.5\nx,2.5\n4,3.5\n")
    with pytest.raises(DatasetError, match=r"column 'a' .* is 'x' in row 3"):
        load(tmp_path / "t.csv", ReadOptions(drop_missing=True))


def test_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;y\n1,5;2;0,25\n-3,25;4;1\n")
    data = load(tmp_path / "t.csv")
    np.testing.assert_array_equal(data.x_train, [[1.5, 2], [-3.25, 4]])
    np.testing.assert_array_equal(data.y_train, [0.25, 1])


def test_xlsx(tmp_path):
    pandas = pytest.importorskip("pandas")
    if importlib.util.find_spec("openpyxl") is None:
        (tmp_path / "t.xlsx").write_bytes(b"PK")
        with pytest.raises(DatasetError, match=r"needs the package openpyxl|cannot be read as a xlsx table"):
            load(tmp_path / "t.xlsx")
        return
    pandas.DataFrame({"a": [1, 2, 3], "y": [0.5, 1.5, 2.5]}).to_excel(tmp_path / "t.xlsx", index=False)
    np.testing.assert_array_equal(load(tmp_path / "t.xlsx").x_train, [[1], [2], [3]])


def test_standardised_columns_and_those_that_are_exchanged(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    raw = load(tmp_path / "t.csv")
    data = standardised(raw, [{0, 5}])
    assert raw.read_options.features[5] == "bmi"
    both = raw.x_train[:, [0, 5]]
    np.testing.assert_allclose(data.x_train[:, [0, 5]], (both - both.mean()) / both.std())
    np.testing.assert_array_equal(data.x_train[:, 1:5], raw.x_train[:, 1:5])
    alone = standardised(raw)
    np.testing.assert_allclose(alone.x_train[:, [0, 5]].std(0), 1)
    np.testing.assert_allclose(load_inputs(tmp_path / "t.csv", alone.read_options).x, alone.x_train)


def test_so_many_rows_as_asked_for():
    for count in (7, 100, 400, 801):
        assert len(load("digits", max_data=count).x_train) == count


def test_images_that_would_not_fit_into_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            image.fromarray(images(1)[0]).save(tmp_path / "photos" / name / f"{i}.png")
    assert load(tmp_path / "photos").rows_train[4] == "b/1.png"
    monkeypatch.setattr("orbitgp.datasets.files.images.free_memory", lambda device: 1000.0)
    with pytest.raises(DatasetError, match=r"6 images of 5x4 pixels, .* GB are free: .*--resize 64x64"):
        load(tmp_path / "photos")


def test_the_rows_of_a_test_folder_keep_their_names(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            image.fromarray(images(1)[0]).save(tmp_path / part / name / f"{part}.png")
    data = load(tmp_path)
    assert data.rows_test == ["a/test.png", "b/test.png"]


def test_a_text_file_with_the_name_of_arrays(tmp_path):
    (tmp_path / "t.npz").write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match=r"is not a \.npz file of numbers or words: it was made by something else"):
        load(tmp_path / "t.npz")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "y.npy", np.arange(1))
    with pytest.raises(DatasetError, match="it holds Python objects, which are not read"):
        load(tmp_path / "o.npy", ReadOptions(targets=str(tmp_path / "y.npy")))


def test_targets_that_are_true_or_false_are_not_words(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(8.0)[:, None], y=np.arange(8) % 2 == 0)
    assert load(tmp_path / "t.npz").task_reason == "the targets are true and false"


class TestTablesThatMayBeMisread:
    """What may be read in two ways is refused, or a note says how it was read."""

    @staticmethod
    def table(tmp_path, *lines, name="t.csv"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def test_numbers_that_pandas_writes_are_a_header(self, tmp_path):
        path = self.table(tmp_path, "0,1,2", *(f"{i / 3},{i % 4},{i / 7}" for i in range(8)))
        data = load(path, ReadOptions(target="2"))
        assert (data.x_train.shape, data.read_options.columns) == ((8, 2), ("0", "1"))
        assert data.notes == ["the first line, 0, 1, 2, is taken for names of columns."]
        new = load_inputs(self.table(tmp_path, "1,0", "0.5,7", name="new.csv"), data.read_options)
        assert new.x.shape == (1, 2)
        assert new.x[0, 0] * 1.0 == pytest.approx(7.0)

    @pytest.mark.parametrize("lines", [("0.5,1,2", "1,2,3"), ("0,1,2", "3,4,5", "0,1,2"), ("1,2,3", "4,5,6")])
    def test_other_numbers_are_a_row(self, tmp_path, lines):
        data = load(self.table(tmp_path, *lines), ReadOptions(target="2"))
        assert len(data.x_train) == len(lines)
        assert data.notes == []

    @pytest.mark.parametrize("lines", [("1,5;2", "2,5;3"), ("1,5;2,5", "2,5;3,5"), ("1,5\t2,5", "2\t3")])
    def test_a_row_of_decimal_commas_is_no_header(self, tmp_path, lines):
        assert len(load(self.table(tmp_path, *lines), ReadOptions(target="1")).x_train) == 2

    def test_one_cell_that_is_no_number(self, tmp_path):
        rows = [f"{i},{'?' if i == 6 else i / 3}" for i in range(20)]
        with pytest.raises(DatasetError, match=r"target column 'y' of .* is '\?' in row 7 and a number elsewhere: correct it"):
            load(self.table(tmp_path, "a,y", *rows))
        classes = [f"{i},{'?' if i == 6 else i % 3}" for i in range(20)]
        assert set(load(self.table(tmp_path, "a,y", *classes)).y_train) == {"0", "1", "2", "?"}

    def test_separators_between_thousands(self, tmp_path):
        with pytest.raises(DatasetError, match=r"'y' of .* is '1,003\.2' in row 1, which is no number as it stands: write"):
            load(self.table(tmp_path, "a,y", *(f'{i},"1,{i:03d}.2"' for i in range(3, 12))))
        with pytest.raises(DatasetError, match=r"'a b' of .* is '1,000' in row 1, .* with --drop 'a b'\."):
            load(self.table(tmp_path, "a b,y", '"1,000",1', '"2,000",2', '"2,000",3'))

    @pytest.mark.parametrize("labels", [("001", "1", "010"), ("1_1", "11", "2")])
    def test_labels_that_are_no_numbers_stay_apart(self, tmp_path, labels):
        data = load(self.table(tmp_path, "a,y", *(f"{i},{label}" for i, label in enumerate(3 * labels))))
        assert set(data.y_train) == set(labels)

    def test_underscores_are_no_part_of_a_number(self, tmp_path):
        data = load(self.table(tmp_path, "a,y", "1_2,0.5", "1_3,0.7", "1_2,0.9"))
        assert data.read_options.features == ("a=1_3",)

    def test_words_stay_words_in_the_test_set(self, tmp_path):
        path = self.table(tmp_path, "a,y", *(f"{i},{label}" for i, label in enumerate(4 * ("1", "2", "b"))))
        test = self.table(tmp_path, "a,y", "1,1", "2,2", name="test.csv")
        assert load(path, test=test).y_test.tolist() == ["1", "2"]

    def test_dots_among_decimal_commas(self, tmp_path):
        with pytest.raises(DatasetError, match=r"'b' of .* is '1\.005' in row 2, and other numbers have a decimal comma"):
            load(self.table(tmp_path, "a;b;y", "21,73;939;4,019", "22,23;1.005;4,429"))
        fine = load(self.table(tmp_path, "a;b;y", "21.73;939;4.019", "22.23;1.005;4.429"))
        assert fine.x_train[1, 1] == 1.005

    def test_decimal_commas_with_exponents(self, tmp_path):
        data = load(self.table(tmp_path, "a;y", "1,5e-03;1,0", "-2,5E+02;2,5", "3;4,5"))
        assert data.x_train[:, 0].tolist() == [1.5e-3, -250.0, 3.0]

    @pytest.mark.parametrize("start", [0, 1])
    def test_the_index_of_a_data_frame_is_no_input(self, tmp_path, start):
        data = load(self.table(tmp_path, ",a,y", *(f"{i + start},{i * i},{i / 3}" for i in range(8))))
        assert data.read_options.columns == ("a",)
        assert data.notes == ["the column without a name names the rows and is no input; --id COLUMN names another one."]
        new = load_inputs(self.table(tmp_path, "a", "3", name="new.csv"), data.read_options)
        assert new.x.shape == (1, 1)

    def test_a_separator_at_the_end_of_lines(self, tmp_path):
        assert load(self.table(tmp_path, "a,y,", "1,0.5,", "2,0.7,", "3,0.1,")).read_options.columns == ("a",)

    def test_separators_within_quotes_and_as_excel_says(self, tmp_path):
        rows = ("1;2;0,5", "3;4;0,7", "5;6;0,9")
        data = load(self.table(tmp_path, '"Temp, mean";"Press, mean";y', *rows))
        assert data.read_options.columns == ("Temp, mean", "Press, mean")
        assert load(self.table(tmp_path, "sep=;", "a;b;y", *rows)).x_train.shape == (3, 2)

    def test_what_stands_above_the_header(self, tmp_path):
        with pytest.raises(DatasetError, match=r"no table of rows of one length .*: its first line must be the header"):
            load(self.table(tmp_path, "# made today", "a,b,y", "1,2,3"))

    @pytest.mark.parametrize("options", [{"drop": ("y",)}, {"id": "y"}])
    def test_a_target_is_nothing_else(self, tmp_path, options):
        with pytest.raises(DatasetError, match=r"'y' of .* is the target, which --drop and --id cannot take"):
            load(self.table(tmp_path, "a,y", "1,0.5", "2,0.7"), ReadOptions(**options))

    def test_no_row_to_test(self, tmp_path):
        path = self.table(tmp_path, "a,y", *(f"{i},{i / 3}" for i in range(20)))
        with pytest.raises(DatasetError, match=r"a test fraction of 0\.01 leaves none of 20 rows to test"):
            load(path, test_fraction=0.01)
