"""Reading data: arrays, names and held-out rows, and a sentence for each thing that can be wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from orbitgp.datasets import DatasetError
from orbitgp.datasets.base import task_of
from orbitgp.datasets.files import ReadOptions, load, load_inputs

RNG = np.random.default_rng(0)


def images(rows: int = 8) -> np.ndarray:
    return RNG.integers(0, 256, (rows, 4, 5)).astype(np.uint8)


def test_npz_of_images_in_bytes_is_brought_to_the_unit_interval(tmp_path: Path) -> None:
    x, y = images(), np.arange(8) % 2
    np.savez(tmp_path / "d.npz", X=x, y=y)
    data = load(tmp_path / "d.npz")
    np.testing.assert_array_equal(data.x, x.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(data.y, y)
    assert data.test is None
    assert data.task == "classification"
    assert data.name == "d"


def test_npz_with_a_test_set_of_its_own(tmp_path: Path) -> None:
    x = RNG.random((10, 3))
    np.savez(tmp_path / "d.npz", x_train=x[:6], y_train=np.arange(6.0), x_test=x[6:], y_test=np.arange(4.0))
    data = load(tmp_path / "d.npz", test_fraction=0.5)
    np.testing.assert_array_equal(data.x, x[:6])
    np.testing.assert_array_equal(data.test.x, x[6:])
    # Predicting for the same file means its test set.
    np.testing.assert_array_equal(load_inputs(tmp_path / "d.npz", data.options).x, x[6:])


def test_npy_pairs_by_option_by_name_and_by_folder(tmp_path: Path) -> None:
    x, y = RNG.random((6, 3)), RNG.random(6)
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "wanted.npy", y)
    with pytest.raises(DatasetError, match="--targets"):
        load(tmp_path / "X.npy")
    given = load(tmp_path / "X.npy", ReadOptions(targets=str(tmp_path / "wanted.npy")))
    np.save(tmp_path / "y.npy", y)
    for data in (given, load(tmp_path / "X.npy"), load(tmp_path)):
        np.testing.assert_array_equal(data.x, x)
        np.testing.assert_array_equal(data.y, y)
        assert data.task == "regression"


def test_channels_last_becomes_channels_first(tmp_path: Path) -> None:
    x = RNG.random((4, 6, 7, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4) % 2)
    np.testing.assert_array_equal(load(tmp_path / "d.npz").x, np.moveaxis(x, -1, 1))


def test_arrays_as_pillow_yields_them(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (4, 6, 7, 4)).astype(np.uint8)
    x[..., 3] = 255
    x[0, 2, 3] = 0, 0, 0, 0
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4) % 2)
    expected = np.moveaxis(x[..., :3], -1, 1) / np.float32(255)
    expected[0, :, 2, 3] = 1
    np.testing.assert_allclose(load(tmp_path / "d.npz").x, expected, atol=1e-6)


def test_a_border_that_is_not_zero_is_noted(tmp_path: Path) -> None:
    edge = "the border of these images is about 1.0: outside an image its edge goes on."
    x = np.full((6, 5, 5), 255, np.uint8)
    x[:, 2, 2] = 0
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6) % 2)
    assert load(tmp_path / "d.npz").notes == [edge]
    assert load(tmp_path / "d.npz", ReadOptions(invert=True)).notes == []
    np.savez(tmp_path / "flat.npz", x=x.reshape(6, 25), y=np.arange(6) % 2)
    assert load(tmp_path / "flat.npz", ReadOptions(image_shape=(5, 5))).notes == [edge]
    np.savez(tmp_path / "low.npz", x=x / 255 - 1.4, y=np.arange(6) % 2)
    assert load(tmp_path / "low.npz").notes[-1] == edge.replace("1.0", "−0.40")
    np.savez(tmp_path / "snow.npz", x=RNG.uniform(0.7, 0.9, (6, 3, 8, 8)), y=np.arange(6) % 2)
    assert load(tmp_path / "snow.npz").notes[0].endswith(": outside an image lies its mirror image.")
    np.savez(tmp_path / "photographs.npz", x=RNG.uniform(size=(6, 3, 8, 8)), y=np.arange(6) % 2)
    assert load(tmp_path / "photographs.npz").notes == []


def test_pixels_beyond_the_range_of_pixels_are_noted_and_not_inverted(tmp_path: Path) -> None:
    x = np.zeros((6, 5, 5))
    x[:, 2, 2] = 2.5e6
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6) % 2)
    assert "the pixels go from 0 to 2,500,000, and not from 0 to 1" in load(tmp_path / "d.npz").notes[0]
    with pytest.raises(
        DatasetError, match=r"--invert turns pixels p into 1 - p, but those in .* go from 0 to 2,500,000"
    ):
        load(tmp_path / "d.npz", ReadOptions(invert=True))
    np.savez(tmp_path / "bright.npz", x=255.0 - 255 * (x > 0), y=np.arange(6) % 2)
    assert "its edge goes on" in load(tmp_path / "bright.npz").notes[1]
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
def test_bad_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], sentence: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match=sentence):
        load(tmp_path / "d.npz")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "y.npy", np.zeros(1))
    with pytest.raises(DatasetError, match="Python objects"):
        load(tmp_path / "x.npy")
    (tmp_path / "d.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(DatasetError, match=r"d\.npz"):
        load(tmp_path / "d.npz")


def test_names_and_what_is_none(tmp_path: Path) -> None:
    digits = load("digits")
    assert digits.x.shape == (1347, 8, 8)
    assert digits.test.x.shape == (450, 8, 8)
    assert load_inputs("digits", digits.options).y.shape == (450,)
    with pytest.raises(DatasetError, match="no data set of that name"):
        load("digist")
    (tmp_path / "d.pkl").write_bytes(b"")
    with pytest.raises(DatasetError, match="no kind that can be read"):
        load(tmp_path / "d.pkl")


def test_held_out_and_fewer_data(tmp_path: Path) -> None:
    x, y = RNG.random((100, 2)), np.repeat([0, 1], [80, 20])
    np.savez(tmp_path / "d.npz", x=x, y=y)
    data = load(tmp_path / "d.npz", test_fraction=0.25, max_data=30)
    assert len(data.test.x) == 25
    assert data.test.y.sum() == 5
    assert len(data.x) == 30
    assert data.y.sum() == 6
    rows = {tuple(row) for row in data.x} & {tuple(row) for row in data.test.x}
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
def test_what_targets_look_like(y: np.ndarray, task: str) -> None:
    assert task_of(y) == task


def test_so_many_rows_as_asked_for() -> None:
    for count in (7, 100, 400, 801):
        assert len(load("digits", max_data=count).x) == count


def test_a_text_file_with_the_name_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match=r"is not a \.npz file of numbers or words: .*, or something else made it"):
        load(tmp_path / "t.npz")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "y.npy", np.arange(1))
    with pytest.raises(DatasetError, match="it holds Python objects, which are not read"):
        load(tmp_path / "o.npy", ReadOptions(targets=str(tmp_path / "y.npy")))


def test_targets_that_are_true_or_false_are_not_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.arange(8.0)[:, None], y=np.arange(8) % 2 == 0)
    assert load(tmp_path / "t.npz").task_reason == "the targets are true and false"


def test_rows_without_a_name_count_from_one(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2)))
    (tmp_path / "x.csv").write_text("a,b\n0,0\n0,0\n0,0\n")
    for suffix in (".npy", ".npz", ".csv"):
        assert load_inputs(tmp_path / f"x{suffix}", ReadOptions()).rows == ["1", "2", "3"]


def test_the_folder_one_is_in_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", RNG.random((6, 3)))
    np.save(tmp_path / "y.npy", RNG.random(6))
    monkeypatch.chdir(tmp_path)
    assert load(".").name == tmp_path.name
