"""Several processes that share the data of one run end where one process does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("fit_shared.py")


def run(processes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    alone = [sys.executable]
    together = [*alone, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*(together if processes > 1 else alone), str(SCRIPT), *map(str, arguments)]
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
