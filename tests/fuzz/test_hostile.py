"""Hostile files: some hundred that are cut, flipped or rewritten, and those that were made to do harm."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp.datasets.files import load
from orbitgp.saving.container import read, replace, write, write_json
from orbitgp.training.checkpoint import read_checkpoint
from tests.fuzz.faults import run, workplace
from tests.fuzz.hostile import READERS, bad_file, case, judged, nested, originals

pytest.importorskip("typer")
SEEDS = [
    *range(0, 100 * len(READERS), 35),
    *range(100 * len(READERS), 100 * len(READERS) + 160),
]  # every 35th cut, and others


@pytest.mark.parametrize("part", range(4))
def test_hostile_files(part: int) -> None:
    wrong = {f"seed {seed}, {case(seed)[0]}": found for seed in SEEDS[part::4] if (found := bad_file(seed))}
    assert not wrong


FOUND = {
    912: "a group of 12! permutations",
    1073: "a kernel that fails at the first prediction",
    1313: "a model without the mean of its targets",
    2313: "a reason of 10,000 characters",
    2939: "a reason with the bytes of the file",
    12232: "two to the power of 2^60 elements",
}


@pytest.mark.parametrize("seed", FOUND, ids=list(FOUND.values()))
def test_files_that_were_once_bad(seed: int) -> None:
    assert bad_file(seed) == []


CHANGES = {
    "an unknown setting": lambda config: config["settings"].update(speed=1),
    "another seed": lambda config: config["settings"].update(seed=1),
    "no checksum": lambda config: config.pop("checksum"),
    "500 lists for a shape": lambda config: config["read_options"].update(image_shape=nested(500)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("command", [["predict", "run", "data.npz"], ["learn", "--resume", "run"]])
def test_a_configuration_that_was_changed(change: str, command: list[str]) -> None:
    with workplace() as folder:
        shutil.copytree(folder / "model", "run")
        Path("run/result.json").unlink()
        config = json.loads(Path("run/config.json").read_text())
        CHANGES[change](config)
        Path("run/config.json").write_text(json.dumps(config))
        code, said = run(command)
    assert code == 1
    assert said.startswith("error: run/config.json is damaged, or it was changed")


@pytest.mark.parametrize("content", [[], {}, {"interrupted": 1}, {"summary": 5, "checksum": 5}])
@pytest.mark.parametrize("command", [["show", "run"], ["learn", "--resume", "run"]])
def test_a_result_of_another_form(content: dict[str, int] | list[Any], command: list[str]) -> None:
    with workplace() as folder:
        shutil.copytree(folder / "model", "run")
        Path("run/result.json").write_text(json.dumps(content))
        outcome = run(command)
    assert outcome.code == 1
    assert outcome.said.startswith("error: run/result.json is damaged, or it was changed")


@pytest.mark.parametrize("steps", ["many", None, {}])
def test_a_checkpoint_of_another_form(steps: dict[Any, Any] | str | None, tmp_path: Path) -> None:
    kind, config, tensors = read(originals() / "checkpoint.safetensors")
    write(tmp_path / "checkpoint.safetensors", kind, {**config, "steps": steps}, tensors)
    with pytest.raises(ValueError, match="damaged: its header is not that of a checkpoint"):
        read_checkpoint(tmp_path / "checkpoint.safetensors")


@pytest.mark.slow
def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '|u1', 'fortran_order': False, 'shape': (100000000,), }".ljust(117)
        + b"\n"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("x.npy", header + bytes(10**8))
        packed.writestr("y.npy", header + bytes(10**8))
    assert path.stat().st_size < 1e6
    monkeypatch.setattr("orbitgp.datasets.files.data.free_memory", lambda device: 1e8)
    monkeypatch.setattr(np, "load", lambda *args, **kwargs: pytest.fail("it was opened"))
    with pytest.raises(ValueError, match=r"unpacks to 0\.2 GB, and only 0\.1 GB"):
        load(path)


def test_a_class_folder_may_have_any_name(tmp_path: Path) -> None:
    """Control characters and markup in a name are only a name."""
    from PIL import Image

    for name in ("\x1b[31m<b>red", "plain"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(np.full((3, 3), 60 * i + len(name), dtype=np.uint8)).save(tmp_path / name / f"{i}.png")
            Image.fromarray(np.eye(3, dtype=np.uint8)).save(tmp_path / name / f"e{i}.png")
    assert judged(load, tmp_path) == []


def test_writing_does_not_follow_links(tmp_path: Path) -> None:
    """Neither a link at the name itself, nor one at the name of the file beside."""
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    for link in (folder / "config.json", folder / f".config.{os.getpid()}.json"):
        link.symlink_to(outside)
    write_json(folder / "config.json", {"a": 1})
    assert outside.read_text() == "mine"
    assert not (folder / "config.json").is_symlink()
    assert [p.name for p in folder.iterdir()] == ["config.json"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fails(beside: Path) -> None:
        beside.write_text("half")
        raise OSError(28, "No space left on device", str(beside))

    with pytest.raises(OSError, match="No space left") as caught:
        replace(tmp_path / "model", fails)
    assert caught.value.filename == str(tmp_path / "model")
    assert not list(tmp_path.iterdir())
