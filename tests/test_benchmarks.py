"""The benchmarks find the parts of a step that they measure."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytest
import torch

from benchmarks import answers, page, profiling
from benchmarks.problem import Shape
from orbitgp.inference import orbit_gram


def test_every_stage_of_a_step_takes_time() -> None:
    args = argparse.Namespace(device=torch.device("cpu"), clock=time.perf_counter)
    parts = profiling.profiled(Shape(8, 4, 10), args)["parts"]
    assert all(parts[f"{stage}, {way}"] > 0 for stage in profiling.STAGES for way in ("forward", "backward"))


def test_the_page_of_speed_is_written_from_the_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python -m benchmarks --page"


class TestAnswers:
    """Default fits in processes of their own."""

    def test_a_fit_runs_in_a_process_that_knows_its_checkout(self) -> None:
        found = answers.in_new_process(answers.ROOT, "scikit-learn", "table 60", "cpu")
        assert found["seconds"] > 0
        assert 0.3 < found["score"] < 1

    def test_fits_of_a_folder_are_compared_case_by_case(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "src").mkdir()
        monkeypatch.setattr(answers, "SMALL", ("table 9", "digits 9"))
        monkeypatch.setattr(answers, "RIVALS", {"digits 9": ("network",)})
        monkeypatch.setattr(
            answers, "in_new_process", lambda checkout, who, case, device: {"by": [str(checkout), who, case]}
        )
        ours, earlier, rival = answers.answers(False, "cpu", str(tmp_path), jobs=3)[1]["fits"].values()
        assert ours["by"] == [str(answers.ROOT), "orbitgp", "digits 9"]
        assert earlier["by"] == [str(tmp_path), "orbitgp", "digits 9"]
        assert rival["by"] == [str(answers.ROOT), "network", "digits 9"]

    def test_a_fit_that_fails_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "torch.py").write_text("raise ImportError('this checkout has none')")
        found = answers.in_new_process(tmp_path, "scikit-learn", "table 60", "cpu")
        assert found == {"failed": ["ImportError: this checkout has none"]}

    def test_the_table_has_the_mean_ratio(self) -> None:
        fit = {
            "seconds": 2.0,
            "wall": 2.0,
            "pairs": 0.5,
            "evaluations": 9,
            "evidence": -3.0,
            "error": 0.1,
            "draws": 32,
            "score": 1.0,
        }
        fits = {"orbitgp": fit, "orbitgp abc": {**fit, "seconds": 8.0}, "network": {"seconds": 1.0, "score": 0.5}}
        failed = {"orbitgp": {"failed": ["ValueError: no"]}, "orbitgp abc": fit}
        text = answers.answers_table([{"case": "digits 3 none", "fits": fits}, {"case": "table 9", "fits": failed}])
        assert "| digits 3 none | orbitgp | 2.0 | 9 | 50% | 32 | -3.0 ± 0.1 | 1.000 |" in text
        assert "| table 9 | orbitgp | ValueError: no |" in text
        assert text.endswith("over those before: 0.25.")

    @pytest.mark.parametrize("case", [*answers.SMALL, *answers.LARGE])
    def test_cases_have_the_rows_that_they_say(self, case: str) -> None:
        x, y, x_test, y_test = answers.data_of(case)
        assert len(x) == len(y) == int(case.split()[1])
        assert len(x_test) == len(y_test) >= 100

    def test_pairs_are_timed_and_the_library_is_left_as_it_was(self) -> None:
        before = orbit_gram.gram
        with answers.pairs_timed() as spent:
            found = answers.orbitgp_fit("table 20", "cpu")
        assert 0 < found["pairs"] < 1
        assert spent
        assert orbit_gram.gram is before
