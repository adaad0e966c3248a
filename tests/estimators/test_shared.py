"""Several processes that share the data of one run end where one process does."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.estimators import fit_badly, fit_shared
from tests.estimators.together import together


@pytest.mark.slow
def test_three_processes_end_where_one_does(tmp_path: Path) -> None:
    assert together(3, fit_shared.main, tmp_path, 6) == [0, 0, 0]
    fit_shared.main(tmp_path, 6)
    one, many = (np.load(tmp_path / f"{count}.npz") for count in (1, 3))
    assert len(one.files) == 8
    for name in one.files:
        np.testing.assert_allclose(many[name], one[name], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_run_whose_process_was_killed_goes_on_with_any_number(tmp_path: Path) -> None:
    alone, whole = tmp_path / "alone", tmp_path / "whole"
    whole.mkdir()
    assert together(2, fit_shared.main, tmp_path, 8, 5) == [1, -signal.SIGKILL]  # the other one ends with an error
    (checkpoint,) = tmp_path.glob("*.checkpoint")
    assert not list(tmp_path.glob("*.npz"))
    alone.mkdir()
    shutil.copy(checkpoint, alone)
    assert together(2, fit_shared.main, tmp_path, 8, 100) == [0, 0]
    fit_shared.main(alone, 8, 100)
    fit_shared.main(whole, 8, 100)
    expected = np.load(whole / "1.npz")
    for resumed in (np.load(alone / "1.npz"), np.load(tmp_path / "2.npz")):
        for name in expected.files:
            np.testing.assert_allclose(resumed[name], expected[name], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_processes_that_do_not_fit_together_get_a_sentence_each(tmp_path: Path) -> None:
    assert together(2, fit_badly.main, tmp_path) == [0, 0]
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
    }
    assert {name: sentence.splitlines()[0].partition(": ")[2] for name, sentence in first.items()} == expected
    assert list(second) == list(expected)  # it fails where the first does, and goes on to the next
