"""Several processes that share the data of one run end where one process does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("fit_shared.py")


def run(processes: int, *arguments: object, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    alone = [sys.executable]
    together = [*alone, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*(together if processes > 1 else alone), str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_three_processes_end_where_one_does(tmp_path: Path) -> None:
    for count in (1, 3):
        done = run(count, tmp_path, 6)
        assert done.returncode == 0, done.stderr
    one, many = (np.load(tmp_path / f"{count}.npz") for count in (1, 3))
    assert len(one.files) == 12
    for name in one.files:
        np.testing.assert_allclose(many[name], one[name], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_whose_process_was_killed_goes_on_with_any_number(processes: int, tmp_path: Path) -> None:
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    folder.mkdir()
    whole.mkdir()
    killed = run(2, folder, 8, 5)
    assert killed.returncode != 0
    assert list(folder.glob("*.checkpoint"))
    assert not list(folder.glob("*.npz"))
    assert run(processes, folder, 8, 100).returncode == 0
    assert run(1, whole, 8, 100).returncode == 0
    resumed, expected = np.load(folder / f"{processes}.npz"), np.load(whole / "1.npz")
    for name in expected.files:
        np.testing.assert_allclose(resumed[name], expected[name], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_processes_that_do_not_fit_together_get_a_sentence_each(tmp_path: Path) -> None:
    done = run(2, tmp_path, script=SCRIPT.with_name("fit_badly.py"))
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    expected = {
        "settings": "process 1 fits with other settings than process 0: all must have the same.",
        "shape": "process 1 has inputs of shape (7, 8), but process 0 of shape (8, 8).",
        "empty": "process 1: Found array with 0 sample(s) (shape=(0, 8, 8)) while a minimum of 1 is required by "
        "InvariantGPClassifier.",
        "nan": "process 1: Input X contains NaN.",
        "lengths": "process 1: Found input variables with inconsistent numbers of samples: [12, 11]",
        "exact": "inference='exact' needs all data in one place, but they are shared by several processes: "
        "take 'auto' or 'sparse'.",
        "no folder": "process 1: X is the folder nowhere, which holds no .npy files.",
    }
    assert {name: sentence.splitlines()[0].partition(": ")[2] for name, sentence in first.items()} == expected
    assert list(second) == list(expected)  # it fails where the first does, and goes on to the next
