"""Loaders against files made here byte by byte, downloads against a local server, rotations against numpy and torch."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orbitgp import datasets
from orbitgp.datasets import DatasetError
from orbitgp.datasets import images as image_sets

fetch = image_sets.fetch
NAMES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_mnist(num_train: int = 20, num_test: int = 10) -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    files = {}
    for split, count in (("train", num_train), ("test", num_test)):
        images, labels = NAMES[split]
        files[images] = gzip.compress(idx(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)))
        files[labels] = gzip.compress(idx(rng.integers(0, 10, count, dtype=np.uint8)))
    return files


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test here may find a user's files or reach a real mirror unless it says so."""
    monkeypatch.delenv("ORBITGP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(image_sets, "fetch", lambda *args: pytest.fail("a download was tried"))


def known(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The same files, which now are the published ones of MNIST."""
    sums = {name: "sha256:" + hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(image_sets, "MNIST", replace(image_sets.MNIST, checksums=sums))
    return files


class TestMnist:
    @pytest.mark.parametrize("where", ["", "mnist"])
    @pytest.mark.parametrize("how", ["argument", "environment", "cache"])
    def test_found_in_every_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str) -> None:
        root = tmp_path / "cache" / "orbitgp" if how == "cache" else tmp_path / "data"
        files = known(tiny_mnist(), monkeypatch)
        write(root / where, files)
        if how == "environment":
            monkeypatch.setenv("ORBITGP_DATA", str(root))
        data = datasets.mnist(root=root if how == "argument" else None)
        assert data.x_train.shape == (20, 28, 28)
        assert data.x_test.shape == (10, 28, 28)
        assert data.x_train.dtype == data.x_test.dtype == np.float32
        assert data.y_train.dtype == data.y_test.dtype == np.int64
        # The bytes of the file, pixel for pixel: 16 bytes of header, then rows.
        raw = gzip.decompress(files[NAMES["test"][0]])[16:]
        np.testing.assert_array_equal(np.rint(data.x_test * 255).astype(np.uint8).tobytes(), raw)
        assert data.y_test.tolist() == list(gzip.decompress(files[NAMES["test"][1]])[8:])
        assert data.x_train.max() == 1.0
        assert data.x_train.min() == 0.0
        assert data.name == "MNIST"

    def test_fashion_does_not_take_mnist_for_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, known(tiny_mnist(), monkeypatch))
        assert len(datasets.mnist(root=tmp_path).y_test) == 10
        with pytest.raises(DatasetError, match="of Fashion-MNIST, with the published checksum, is neither in"):
            datasets.fashion_mnist(root=tmp_path, download=False)

    def test_missing_or_changed_without_download(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        message = r"train-images-idx3-ubyte.gz of MNIST, with .*, is neither in .* nor in .*ORBITGP_DATA"
        with pytest.raises(DatasetError, match=message):
            datasets.mnist(root=tmp_path, download=False)
        files = known(tiny_mnist(), monkeypatch)
        images = NAMES["train"][0]
        write(tmp_path, files | {images: files[images] + bytes(8)})
        with pytest.raises(DatasetError, match=message):
            datasets.mnist(root=tmp_path, download=False)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes and types go unchecked, as they do for a user, so that our own sentence is what a wrong one meets."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@dataclass
class Server:
    """Serves ``content``; breaks off after ``allowance`` bytes of a body as often as the list says (None: all of
    it)."""

    content: bytes
    allowances: list[int | None] = field(default_factory=list)
    status: int | None = None
    declare_length: bool = True
    requests: int = 0
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        if self.status is not None:
            return handler.send_error(self.status)
        handler.send_response(200)
        if self.declare_length:
            handler.send_header("Content-Length", str(len(self.content)))
        handler.end_headers()
        handler.wfile.write(self.content[: self.allowances.pop(0) if self.allowances else None])
        return None


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(np.random.default_rng(2).bytes(700_000))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        state.url = f"http://127.0.0.1:{http.server_port}/file"
        yield state
        http.shutdown()


class TestDownload:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "deep" / "file"

    @staticmethod
    def checksum(server: Server, algorithm: str = "sha256") -> str:
        return f"{algorithm}:{hashlib.new(algorithm, server.content).hexdigest()}"

    @staticmethod
    def folder(path: Path) -> set[str]:
        return {entry.name for entry in path.parent.iterdir()}

    @pytest.mark.parametrize("algorithm", ["sha256", "md5"])
    def test_whole(self, server: Any, path: Any, algorithm: str) -> None:
        fetch([server.url], path, self.checksum(server, algorithm))
        assert path.read_bytes() == server.content
        assert self.folder(path) == {"file"}
        assert server.requests == 1

    def test_broken_transfer_goes_to_the_next_mirror(self, server: Any, path: Any) -> None:
        server.allowances = [300_000]
        fetch([server.url, server.url], path, self.checksum(server))
        assert path.read_bytes() == server.content
        assert self.folder(path) == {"file"}

    def test_broken_transfer_leaves_nothing(self, server: Any, path: Any) -> None:
        server.allowances = [1000]
        with pytest.raises(DatasetError, match=r"cannot download file .* broke off .*: try again, or put the file in"):
            fetch([server.url], path, self.checksum(server))
        assert self.folder(path) == set()

    def test_wrong_checksum_leaves_nothing(self, server: Any, path: Any) -> None:
        with pytest.raises(DatasetError, match="another checksum"):
            fetch([server.url], path, "sha256:" + "0" * 64)
        assert self.folder(path) == set()

    def test_truncation_that_the_server_hides_fails_the_checksum(self, server: Any, path: Any) -> None:
        server.declare_length = False
        server.allowances = [1000] * 10
        with pytest.raises(DatasetError, match="another checksum"):
            fetch([server.url], path, self.checksum(server))
        assert self.folder(path) == set()

    @pytest.mark.parametrize("status", [404, 403, 500])
    def test_refusal_goes_to_the_next_mirror(self, server: Any, path: Any, status: int) -> None:
        server.status = status
        with pytest.raises(DatasetError, match=rf"{server.url}: the server answered {status} .*; .*/2: the server"):
            fetch([server.url, server.url + "/2"], path, self.checksum(server))
        assert server.requests == 2
        assert self.folder(path) == set()

    def test_nobody_there(self, server: Any, path: Any) -> None:
        with pytest.raises(DatasetError, match="no connection"):
            fetch(["http://127.0.0.1:1/file"], path, self.checksum(server))
        fetch(["http://127.0.0.1:1/file", server.url], path, self.checksum(server))
        assert path.read_bytes() == server.content

    def test_without_pooch_one_sentence_and_files_that_are_there_are_read(
        self, path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pooch", None)
        with pytest.raises(DatasetError, match="needs the package pooch: pip install pooch, or put the file in"):
            fetch(["http://127.0.0.1:1/file"], path, "sha256:")
        write(tmp_path, known(tiny_mnist(), monkeypatch))
        assert len(datasets.mnist(tmp_path).x_test) == 10

    def test_unwritable_folder(self, server: Any, tmp_path: Path) -> None:
        (tmp_path / "occupied").write_text("a file")
        with pytest.raises(DatasetError, match="choose another folder"):
            fetch([server.url], tmp_path / "occupied" / "file", self.checksum(server))

    def test_missing_file_is_fetched_into_its_folder(
        self, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = known(tiny_mnist(), monkeypatch)
        images, _ = NAMES["test"]
        server.content = files.pop(images)
        write(tmp_path, files)
        monkeypatch.setattr(image_sets, "MNIST", replace(image_sets.MNIST, mirrors=(server.url + "/",)))
        monkeypatch.setattr(image_sets, "fetch", fetch)
        assert len(datasets.mnist(tmp_path).x_test) == 10
        assert (tmp_path / "mnist" / images).read_bytes() == server.content
        datasets.mnist(tmp_path)
        assert server.requests == 1  # the second time it is there


class TestDigits:
    def test_split_is_a_stratified_partition(self) -> None:
        from sklearn.datasets import load_digits

        data = datasets.digits(test_fraction=0.3)
        assert data.x_train.shape[1:] == (8, 8)
        assert data.x_train.dtype == np.float32
        both = np.concatenate([data.x_train, data.x_test]).reshape(-1, 64)
        raw = load_digits()
        # Together exactly the original rows, in another order.
        assert sorted(map(bytes, both)) == sorted(map(bytes, (raw.data / 16).astype(np.float32)))
        assert len(data.y_train) + len(data.y_test) == 1797
        for label in range(10):
            count = (raw.target == label).sum()
            assert abs((data.y_test == label).sum() - 0.3 * count) <= 0.5
        originals = {
            bytes(row): label for row, label in zip((raw.data / 16).astype(np.float32), raw.target, strict=True)
        }
        assert all(
            originals[bytes(row)] == label for row, label in zip(both, [*data.y_train, *data.y_test], strict=True)
        )

    def test_split_is_fixed(self) -> None:
        one, two, other = datasets.digits(), datasets.digits(), datasets.digits(seed=1)
        np.testing.assert_array_equal(one.x_test, two.x_test)
        assert not np.array_equal(one.x_test, other.x_test)

    @pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
    def test_bad_fraction(self, fraction: float) -> None:
        with pytest.raises(ValueError, match="test_fraction"):
            datasets.digits(fraction)


def smooth_images(count: int, height: int, width: int) -> np.ndarray:
    """Blobs well inside the frame: interpolation and the border then hardly matter."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:height, :width]
    centre = rng.uniform(-2, 2, (count, 2))
    dy = y - (height - 1) / 2 - centre[:, 0, None, None]
    dx = x - (width - 1) / 2 - centre[:, 1, None, None]
    return np.exp(-(dx**2 / 18 + dy**2 / 6)).astype(np.float32)


class TestRotate:
    @pytest.mark.parametrize("shape", [(7, 10), (28, 28)])
    def test_zero_is_the_identity_exactly(self, shape: tuple[int, int]) -> None:
        images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
        np.testing.assert_array_equal(datasets.rotate(images, 0.0)[0], images)

    @pytest.mark.parametrize("side", [7, 8])
    @pytest.mark.parametrize("quarter", [-1, 1, 2])
    def test_quarter_turns_are_those_of_numpy(self, side: int, quarter: int) -> None:
        images = np.random.default_rng(0).random((2, side, side), dtype=np.float32)
        turned = datasets.rotate_by(images, np.full(2, 90.0 * quarter))
        np.testing.assert_allclose(turned, np.rot90(images, quarter, axes=(1, 2)), atol=1e-6)

    def test_agrees_with_grid_sample(self) -> None:
        images = np.random.default_rng(0).random((4, 28, 28), dtype=np.float32)
        degrees = np.array([17.0, -33.0, 128.0, -170.0])
        ours = datasets.rotate_by(images, degrees)
        cos, sin = torch.from_numpy(np.deg2rad(degrees)).cos(), torch.from_numpy(np.deg2rad(degrees)).sin()
        theta = torch.stack([cos, -sin, 0 * cos, sin, cos, 0 * cos], 1).view(4, 2, 3)
        grid = F.affine_grid(theta, [4, 1, 28, 28], align_corners=False)
        theirs = F.grid_sample(torch.from_numpy(images).double()[:, None], grid, align_corners=False)[:, 0]
        np.testing.assert_allclose(ours, theirs, atol=1e-6)

    def test_oblong_images_keep_their_shape(self) -> None:
        """A blob turned by 90° about the centre of a 28x40 image is the same blob, not one stretched by 40/28."""
        images = smooth_images(3, 28, 40)
        square = datasets.rotate_by(images, np.full(3, 90.0))[:, :, 6:34]
        np.testing.assert_allclose(square, np.rot90(images[:, :, 6:34], axes=(1, 2)), atol=1e-5)

    def test_angles_are_uniform_in_range_and_fixed_by_the_seed(self) -> None:
        images = np.zeros((4000, 2, 2), dtype=np.float32)
        _, degrees = datasets.rotate(images, 45.0, seed=5)
        assert np.abs(degrees).max() <= 45
        # Kolmogorov-Smirnov distance to the uniform law; 1.63 / sqrt(n) is its 1 % point.
        empirical = np.arange(1, 4001) / 4000
        assert np.abs(np.sort(degrees) / 90 + 0.5 - empirical).max() < 1.63 / np.sqrt(4000)
        np.testing.assert_array_equal(datasets.rotate(images, 45.0, seed=5)[1], degrees)
        # The first number of numpy's generator with seed 0, as in its manual: a generated set stays the same set.
        assert datasets.rotate(images, 45.0, seed=0)[1][0] == pytest.approx(
            45 * (2 * 0.6369616873214543 - 1), abs=1e-12
        )
        assert not np.array_equal(datasets.rotate(images, 45.0, seed=6)[1], degrees)

    @pytest.mark.parametrize("max_degrees", [-1.0, 181.0, float("nan")])
    def test_bad_range(self, max_degrees: float) -> None:
        with pytest.raises(ValueError, match="max_degrees"):
            datasets.rotate(np.zeros((1, 2, 2), np.float32), max_degrees)

    @pytest.mark.parametrize(
        "images", [np.zeros((2, 4), np.float32), np.zeros((2, 4, 4), np.uint8), np.zeros((3, 4, 4), np.float32)]
    )
    def test_bad_images(self, images: np.ndarray, unchecked: Any) -> None:
        with pytest.raises(ValueError, match="rotation takes float32 images"):
            datasets.rotate_by(images, np.zeros(2))


def test_importing_the_package_is_light() -> None:
    """scikit-learn's data sets are loaded by the loader that needs them, not by the import."""
    code = "import sys, orbitgp.datasets; sys.exit('sklearn.datasets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


REAL = os.environ.get("ORBITGP_DATA")


@pytest.mark.skipif(
    not REAL or not any((Path(REAL) / part / NAMES["train"][0]).is_file() for part in ("", "mnist")),
    reason="ORBITGP_DATA names no folder with the MNIST files",
)
class TestRealMnist:
    def test_is_mnist(self) -> None:
        data = datasets.mnist(root=REAL)
        assert data.source == "the canonical files"
        assert (data.x_train.shape, data.x_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
        # Well-known facts: the class counts, the mean and standard deviation of the pixels, the first labels.
        assert np.bincount(data.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert data.x_train.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
        assert data.x_train.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)
        assert data.y_train[:5].tolist() == [5, 0, 4, 1, 9]
        assert data.y_test[:5].tolist() == [7, 2, 1, 0, 4]


def test_generated_signals_have_their_shapes_and_planted_sizes() -> None:
    from orbitgp.datasets import movements, spectra

    mixture = spectra(train=30, test=10, seed=1)
    assert mixture.x_train.shape == (30, 100)
    assert mixture.y_train.shape == (30,)
    assert 0 < mixture.y_train.min() < mixture.y_train.max() < 100
    sensors = movements(train=300, test=10)
    assert repr(sensors) == "Dataset(movements (generated): 300 train, 10 test, 2x100; orbitgp, seed 0)"
    pushes = sensors.x_train[sensors.y_train == 0, 0].mean(0)
    assert abs(pushes.argmax() - 49.5) < 10  # they begin around the middle
    assert (movements(train=5, test=5).x_train == movements(train=5, test=5).x_train).all()
