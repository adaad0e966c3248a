"""Advice for a folder of pictures with a planted symmetry, and what was learned for another tool."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("PIL")

from PIL import Image

from orbitgp.cli.advise import _advice
from orbitgp.comparison.verdict import Standing
from tests.cli.calling import call


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They import torch for seconds."""
    monkeypatch.setattr("joblib.effective_n_jobs", lambda n_jobs: 1)


def pictures(folder: Path, side: int) -> None:
    """Bright bars at a random height on the left or on the right, which are the classes: mirrors swap them, and top and
    bottom do not."""
    rng = np.random.default_rng(0)
    for number in range(24):
        label = ("left", "right")[number % 2]
        pixels = rng.normal(60, 8, (side, side))
        top, edge = rng.integers(0, side - side // 4), 0 if label == "left" else side // 2
        pixels[top : top + side // 4, edge : edge + side // 2] += 120
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / label / f"{number}.png")


@pytest.mark.usefixtures("one_start")
def test_a_mirror_that_swaps_classes_is_not_supported(tmp_path: Path) -> None:
    pictures(tmp_path / "bars", 8)
    orbits = ("-o", "none", "-o", "flip", "-o", "flip(False, True)")
    given = call("advise", tmp_path / "bars", *orbits, "--out", "run", "--json", "--quiet", "--likelihood", "gaussian")
    assert given.exit_code == 0, given.output
    found = {one["augmentation"]: one for one in json.loads(given.stdout)["advice"]}
    assert found["flip"]["supported"] is False
    assert found["flip"]["nats"] < -5
    assert found["flip(False,True)"]["nats"] > found["flip"]["nats"]
    kept = json.loads(Path("run/advice.json").read_text())
    assert kept["pictures"] == 24
    exported = call("export", "run", "--to", "kornia")
    assert "kornia.augmentation" in exported.stdout


def test_no_difference_is_negative_zero() -> None:
    standings = [Standing(name, nats, nats, nats) for name, nats in (("none", -1.0), ("flip", -1.03))]
    rows = [SimpleNamespace(orbit="flip", learned="")]
    ranking = SimpleNamespace(standings=standings, rows=rows, plain="none", learned=lambda name: "")
    assert _advice(ranking)[0]["says"] == "cannot tell (+0.0 nats over none)"


def test_what_is_asked_about_is_held_against_none(tmp_path: Path) -> None:
    pictures(tmp_path / "bars", 40)
    few = ("--max-data", 8, "--max-steps", 2, "--likelihood", "gaussian")
    given = call("advise", tmp_path / "bars", "-o", "flip", *few, "--out", "run", "--json", "--quiet")
    assert given.exit_code == 0, given.output
    assert [one["augmentation"] for one in json.loads(given.stdout)["advice"]] == ["flip"]
    assert json.loads(Path("run/advice.json").read_text())["shape"] == [32, 32]  # of 40 pixels


def test_advice_is_for_pictures() -> None:
    Path("t.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 5},{i / 7}" for i in range(12))]))
    assert "is for pictures" in call("advise", "t.csv").stderr
    assert "no run folder" in call("export", "nowhere").stderr
