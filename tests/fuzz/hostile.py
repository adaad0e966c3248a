"""Hostile files: models, checkpoints, data and configurations that were cut, flipped, exchanged or written to do harm.

Each case is made from one seed. A reader may load it, or refuse it in one sentence. It may not crash, hang, run code,
or take more than ``MEMORY`` beyond what the process had.
"""

from __future__ import annotations

import copy
import json
import resource
import shutil
import signal
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.begin import configuration
from orbitgp.cli.predict import _open, load_model
from orbitgp.cli.run import Run
from orbitgp.datasets.files import ReadOptions, load, load_inputs
from orbitgp.orbits import Flip, GaussianNoise
from orbitgp.saving.container import read, write
from orbitgp.training.checkpoint import read_checkpoint
from tests.fuzz.invariants import is_sentence

MEMORY = 2 * 2**30  # bytes that reading a file may take beyond what the process had
SECONDS = 30
EVIL = "\x00\x1b[31m<script>alert(1)</script>"


class Hangs(BaseException):
    """Reading takes too long."""


@cache
def originals() -> Path:
    """A folder with one good file of each kind."""
    folder = Path(tempfile.mkdtemp(prefix="orbitgp-hostile-"))
    rng = np.random.default_rng(0)
    images, classes = rng.random((12, 4, 4)), np.arange(12) % 3
    quick: dict[str, Any] = {"max_steps": 2, "num_samples": 4, "random_state": 0}
    sparse = InvariantGPClassifier(Flip(), num_inducing=4, **quick)
    sparse.fit(images, classes, checkpoint=folder / "checkpoint.safetensors").save(folder / "sparse.safetensors")
    exact = InvariantGPRegressor(GaussianNoise(), **quick).fit(images.reshape(12, -1)[:, :3], rng.normal(size=12))
    exact.save(folder / "exact.safetensors")
    np.savez_compressed(folder / "data.npz", x=images, y=classes)
    np.save(folder / "data.npy", images)
    rows = "\n".join(",".join(f"{v:.4f}" for v in row) for row in rng.normal(size=(12, 3)))
    (folder / "data.csv").write_text(f"a,b,target\n{rows}\n")
    _picture(folder / "data.png", rng)
    Run(folder, {}).write_json(folder / "data.json", _config(folder / "data.npz"))
    return folder


def _config(path: Path) -> dict[str, Any]:
    """The configuration of a run on these data."""
    settings = TrainingSettings(max_steps=2)
    return configuration("learn", DataOptions(data="data.npz"), settings, load(path), ["flip"], {"baseline": False})


def _picture(path: Path, rng: np.random.Generator) -> None:
    from PIL import Image

    Image.fromarray((255 * rng.random((8, 8))).astype(np.uint8)).save(path)


def _load_and_predict(path: Path) -> None:
    model = load_model(path)
    model.predict(np.zeros((2, *model.input_shape_)))


def _read_config(path: Path) -> None:
    run = path.parent / "run"
    run.mkdir()
    shutil.copy(path, run / "config.json")
    shutil.copy(originals() / "sparse.safetensors", run / "model.safetensors")
    _open(run)
    Run.unfinished(run, "learn")


READERS: dict[str, Callable[[Path], Any]] = {
    "sparse.safetensors": _load_and_predict,
    "exact.safetensors": _load_and_predict,
    "checkpoint.safetensors": read_checkpoint,
    "data.npz": lambda path: load(path),
    "data.npy": lambda path: load_inputs(path, ReadOptions()),
    "data.csv": lambda path: load(path),
    "data.png": lambda path: load_inputs(path, ReadOptions()),
    "data.json": _read_config,
}


def bad_file(seed: int) -> list[str]:
    """What is wrong with how the file of this seed is read."""
    name, change = case(seed)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        try:
            change(originals() / name, path, rng)
        except Untouched:
            return []
        return judged(READERS[name], path)


def judged(reader: Callable[[Path], Any], path: Path) -> list[str]:
    """What is wrong with how this reader takes this file."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader(path)
    except (ValueError, TypeError, FileNotFoundError) as error:
        return [] if is_sentence(str(error)) else [f"not one sentence: {error!r}"]
    except BaseException as error:
        return [f"{type(error).__name__}: {error}"]
    return []


def case(seed: int) -> tuple[str, Callable[[Path, Path, np.random.Generator], None]]:
    """Which file, and what is done to it: every percent of the length in turn, then at random."""
    names = list(READERS)
    name = names[seed % len(names)]
    number = seed // len(names)
    if number < 100:
        return name, lambda source, path, rng: _cut(source, path, number / 100)
    changes = [_flipped, _flipped, _flipped, _moved, _rewritten]
    return name, changes[number % len(changes)]


class Untouched(Exception):
    """This change does not apply to this kind of file."""


def _cut(source: Path, path: Path, share: float) -> None:
    data = source.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


def _flipped(source: Path, path: Path, rng: np.random.Generator) -> None:
    """A few bytes are others; half the time near the beginning, where headers are."""
    data = bytearray(source.read_bytes())
    end = len(data) if rng.random() < 0.5 else min(len(data), 256)
    for place in rng.integers(0, end, int(rng.integers(1, 9))):
        data[place] = int(rng.integers(256))
    path.write_bytes(bytes(data))


def _moved(source: Path, path: Path, rng: np.random.Generator) -> None:
    """A piece is missing, doubled, or zero."""
    data = source.read_bytes()
    start, stop = sorted(rng.integers(0, len(data), 2))
    piece = {0: b"", 1: data[start:stop] * 2, 2: bytes(stop - start)}[int(rng.integers(3))]
    path.write_bytes(data[:start] + piece + data[stop:])


def _rewritten(source: Path, path: Path, rng: np.random.Generator) -> None:
    """What the file says is something else, and the file is whole, its checksum too."""
    if source.suffix == ".safetensors":
        kind, config, tensors = read(source)
        write(path, kind, _changed(config, rng), tensors)
    elif source.suffix == ".json":
        text = json.dumps(_changed(json.loads(source.read_text()), rng))
        path.write_text("[" * 100_000 if rng.random() < 0.05 else text)
    elif source.suffix in (".npz", ".npy"):
        _lying_array(path, rng)
    elif source.suffix == ".csv":
        path.write_bytes(_strange_table(rng))
    else:
        raise Untouched


def hostile_values(rng: np.random.Generator) -> Any:
    """A value that nobody would write."""
    values: list[Any] = [
        None,
        -1,
        0,
        2**60,
        10**30,
        1e308,
        -0.5,
        True,
        "",
        EVIL,
        "x" * 10_000,
        [],
        {},
        [[]],
        nested(500),
        {"a": {}},
    ]
    strings = {"dtype": "<U99999999", "shape": [3], "data": ["a", "b", "c"]}
    objects: list[Any] = [["array", strings], ["array", {"dtype": "<f8", "shape": [2**40], "data": []}], ["array", {}]]
    objects += [
        ["builtins:eval", {"*": ["1"]}],
        ["eval", {}],
        ["exp", {"*": [1]}],
        ["dict", {"*": [[[], 1]]}],
        [],
        "exp",
    ]
    objects += [
        ["size", {"*": [[2**62]]}],
        ["device", {"*": ["cuda:99"]}],
        ["random state", {}],
        ["bytes", {"hex": "€"}],
    ]
    objects += [["tuple", {"*": [2**60]}], ["tuple", 3], ["orbitgp:Permutation", {"permutations": [[0]]}]]
    group = [[*range(1, 12), 0], [1, 0, *range(2, 12)]]
    objects += [["orbitgp:Permutation", {"permutations": group, "close": True}]]
    values += [{"$object": one} for one in objects]
    values += [
        {"$tensor": ["nothing"]},
        {"$tensor": []},
        {"$tensor": 3},
        {"build": None},
        float("nan"),
        "rotation*" * 50,
    ]
    return values[int(rng.integers(len(values)))]


def nested(depth: int) -> list[Any]:
    """A list in a list in a list …"""
    return [nested(depth - 1)] if depth else []


def _changed(value: Any, rng: np.random.Generator) -> Any:
    """The same with one of its parts removed or hostile."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    holder, key = places[int(rng.integers(len(places)))]
    if rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = hostile_values(rng)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _lying_array(path: Path, rng: np.random.Generator) -> None:
    shapes = [(2**60,), (2**40, 3), (2**31, 2**31), (-1,), (0, 2), (10**6, 10**6), (3, 2), ()]
    kinds = ["<f8", "|u1", "|O", "<U1000000000", "<c16", "<M8[s]", "|V5", "<f2"]
    header = {"shape": shapes[int(rng.integers(len(shapes)))], "descr": kinds[int(rng.integers(len(kinds)))]}
    text = f"{{'descr': '{header['descr']}', 'fortran_order': False, 'shape': {header['shape']}, }}".ljust(117) + "\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + rng.bytes(48)
    if path.suffix == ".npy":
        path.write_bytes(data)
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("../../x.npy" if rng.random() < 0.2 else "x.npy", data)
        packed.writestr("y.npy", data)


def _strange_table(rng: np.random.Generator) -> bytes:
    tables = [
        b"",
        b"\n\n\n",
        b"a,a\n1,2\n",
        b"\xff\xfe\x00",
        b"a,b,target\n" + b"1," * 1000,
        b'a,b,target\n"1,2\n3,4,5\n',
    ]
    tables += [
        b"a,b,target\n1e999,2,3\n",
        f"{EVIL},b,target\n1,2,3\n4,5,6\n".encode(),
        b"target\n1\n2\n",
        b"\x00" * 100,
    ]
    tables += [b"a,b,target\n1,2,=cmd|' /C calc'!A0\n3,4,5\n", b"a" * 10**6, b"a,b,target\n0x10,1_0,2\n1,2,3\n", b","]
    return tables[int(rng.integers(len(tables)))]


@contextmanager
def limited() -> Iterator[None]:
    """No more memory than ``MEMORY`` beyond what there is, and no longer than ``SECONDS``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def hangs(*_: Any) -> None:
        raise Hangs(f"it takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)
