"""Folders of images, as cameras, scanners and hard disks leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp.datasets import DatasetError
from orbitgp.datasets.files import ReadOptions, load, load_inputs

RNG = np.random.default_rng(0)


def images(rows: int = 8) -> np.ndarray:
    return RNG.integers(0, 256, (rows, 4, 5)).astype(np.uint8)


def write_images(folder: Path, pixels: list[np.ndarray] | np.ndarray, mode: str = "L") -> None:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for i, one in enumerate(pixels):
        Image.fromarray(one).convert(mode).save(folder / f"{i}.png")


def test_folders_of_images_are_classes(tmp_path: Path) -> None:
    x = images(6)
    write_images(tmp_path / "train" / "bird", x[:2])
    write_images(tmp_path / "train" / "cat", x[2:4])
    write_images(tmp_path / "test" / "bird", x[4:5])
    write_images(tmp_path / "test" / "cat", x[5:])
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    data = load(tmp_path)
    np.testing.assert_allclose(data.x, x[:4] / np.float32(255))
    assert data.y.tolist() == ["bird", "bird", "cat", "cat"]
    np.testing.assert_allclose(data.test.x, x[4:] / np.float32(255))
    # One image, and a folder of them, to predict for.
    one = load_inputs(tmp_path / "test" / "cat" / "0.png", data.options)
    np.testing.assert_allclose(one.x, x[5:] / np.float32(255))
    assert one.rows == ["0.png"]
    assert load_inputs(tmp_path / "test" / "bird", data.options).x.shape == (1, 4, 5)
    assert load_inputs(tmp_path / "test", data.options).rows == ["bird/0.png", "cat/0.png"]
    with pytest.raises(DatasetError, match="is a single image"):
        load(tmp_path / "test" / "cat" / "0.png")
    inverted = load(tmp_path, ReadOptions(invert=True))
    np.testing.assert_allclose(inverted.x, 1 - data.x)


def test_one_colour_image_makes_all_of_them_colour(tmp_path: Path) -> None:
    write_images(tmp_path / "a", images(2))
    write_images(tmp_path / "b", images(2), "RGB")
    data = load(tmp_path)
    assert data.x.shape == (4, 3, 4, 5)
    assert data.options.colour == "RGB"


def test_images_of_two_sizes(tmp_path: Path) -> None:
    write_images(tmp_path / "a", images(2))
    write_images(tmp_path / "b", [np.zeros((7, 7), np.uint8)])
    with pytest.raises(DatasetError, match="--resize"):
        load(tmp_path)
    assert load(tmp_path, ReadOptions(resize=(6, 3))).x.shape == (3, 6, 3)


@pytest.mark.parametrize("invert", [False, True])
def test_resize_keeps_the_aspect_ratio(tmp_path: Path, invert: bool) -> None:
    """A square in a 40x20 image stays one in 10x10 pixels, and the bars are 0 with and without --invert."""
    wide = np.full((20, 40), 255 if invert else 0, np.uint8)
    wide[4:16, 12:24] = 0 if invert else 255
    write_images(tmp_path / "a", [wide])
    write_images(tmp_path / "b", [wide])
    x = load(tmp_path, ReadOptions(resize=(10, 10), invert=invert)).x[0]
    np.testing.assert_array_equal(x[[0, 1, 8, 9]], 0)
    inside = np.argwhere(x > 0.5)
    assert np.ptp(inside, axis=0).tolist() == [2, 2]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_white(tmp_path: Path, mode: str) -> None:
    """Black ink on a transparent ground is what a viewer shows, not a black image."""
    from PIL import Image

    for name in "ab":
        image = Image.new("RGBA", (6, 5))
        image.putpixel((2, 3), (0, 0, 0, 255))
        (tmp_path / name).mkdir()
        image.convert(mode).save(tmp_path / name / "0.png")
    data = load(tmp_path)
    x = data.x.reshape(2, -1, 5, 6)
    assert x.shape[1] == (3 if mode == "RGBA" else 1)
    assert x.sum() == x.size - 2 * x.shape[1]
    assert (x[:, :, 3, 2] == 0).all()
    assert "is about 1.0: outside an image its edge goes on" in data.notes[0]


def test_bad_images(tmp_path: Path) -> None:
    write_images(tmp_path / "a", images(1))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.png").write_bytes(b"not a png")
    with pytest.raises(DatasetError, match=r"only images of a are left: 1 of 2 images cannot be read .*x\.png"):
        load(tmp_path)
    with pytest.raises(DatasetError, match=r"x\.png cannot be read as an image"):
        load(tmp_path, ReadOptions(strict=True))


def test_images_that_would_not_fit_into_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            image.fromarray(images(1)[0]).save(tmp_path / "photos" / name / f"{i}.png")
    assert load(tmp_path / "photos").rows[4] == "b/1.png"
    monkeypatch.setattr("orbitgp.datasets.files.data.free_memory", lambda device: 1000.0)
    with pytest.raises(DatasetError, match=r"6 images of 5x4 pixels, .* GB are free: .*--resize 64x64"):
        load(tmp_path / "photos")


def test_the_rows_of_a_test_folder_keep_their_names(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            image.fromarray(images(1)[0]).save(tmp_path / part / name / f"{part}.png")
    data = load(tmp_path)
    assert data.test.rows == ["a/test.png", "b/test.png"]


class TestPictures:
    """Cameras, scanners and hard disks as they are."""

    @staticmethod
    def save(folder: Path, pixels: np.ndarray, name: str = "0.png", **kwargs: Any) -> None:
        from PIL import Image

        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name, **kwargs)

    def test_a_photograph_is_read_upright(self, tmp_path: Path) -> None:
        from PIL import Image

        x = images(1)[0]
        exif = Image.Exif()
        exif[0x0112] = 6  # the camera was held so that the right side of the picture is down
        self.save(tmp_path / "a", x, exif=exif)
        self.save(tmp_path / "b", np.rot90(x, -1).copy())
        upright = load(tmp_path).x
        np.testing.assert_array_equal(upright[0], upright[1])

    @pytest.mark.parametrize(("kind", "white"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1)])
    def test_white_is_one_in_every_type_of_pixels(self, tmp_path: Path, kind: type[np.number], white: int) -> None:
        x = np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
        stored = (white * x).astype(kind)
        for name in "ab":
            self.save(tmp_path / name, stored, "0.tif")
        np.testing.assert_allclose(load(tmp_path).x[0], stored / white, atol=1e-7)
        turned = load(tmp_path, ReadOptions(resize=(8, 5), invert=True)).x[0]  # with bars above and below
        np.testing.assert_array_equal(turned[[0, 1, 6, 7]], 0)
        self.save(tmp_path / "b", np.dstack([(255 * x).astype(np.uint8)] * 3), "0.tif")
        np.testing.assert_allclose(load(tmp_path).x, np.repeat(x[None, None], 3, 1).repeat(2, 0), atol=1 / 255)

    def test_decimals_that_are_no_pixels_are_refused(self, tmp_path: Path) -> None:
        for name in "ab":
            self.save(tmp_path / name, np.linspace(0, 900, 20, dtype=np.float32).reshape(4, 5), "0.tif")
        with pytest.raises(
            DatasetError, match=r"0\.tif has pixels from 0 to 900, and not from 0 to 1: bring them to 0 to 1"
        ):
            load(tmp_path)

    def test_images_that_cannot_be_read_are_left_out_and_listed(self, tmp_path: Path) -> None:
        x = images(4)
        write_images(tmp_path / "a", x[:2])
        write_images(tmp_path / "b", x[2:])
        whole = load(tmp_path)
        (tmp_path / "a" / "00.png").write_bytes(b"")
        data = load(tmp_path)
        np.testing.assert_array_equal(data.x, whole.x)
        assert (data.y.tolist(), data.rows) == (whole.y.tolist(), whole.rows)
        assert data.notes == [f"1 of 5 images cannot be read and are left out: {tmp_path / 'a' / '00.png'}."]
        new = load_inputs(tmp_path / "a", data.options)
        assert (new.rows, len(new.notes)) == (["0.png", "1.png"], 1)
        for options in (ReadOptions(strict=True), data.options):
            with pytest.raises(DatasetError, match=r"00\.png cannot be read as an image"):
                load_inputs(tmp_path / "a" / "00.png", options)

    def test_folders_that_are_no_classes_of_images(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="is empty: training takes"):
            load(tmp_path)
        (tmp_path / "walk").mkdir()
        (tmp_path / "walk" / "1.csv").write_text("1,2,3")
        with pytest.raises(
            DatasetError, match=r"holds no images, but 1 \.csv file; signals are read from one table, .*--signal"
        ):
            load(tmp_path)
        write_images(tmp_path, images(1))
        with pytest.raises(DatasetError, match="holds images, but no folder for each class"):
            load(tmp_path)
        write_images(tmp_path / "walk", images(1))
        with pytest.raises(DatasetError, match="holds images of one class only, walk"):
            load(tmp_path)
