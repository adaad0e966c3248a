"""The code in docs/likelihoods.md runs, and its tables say what the code and the records say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.logistic_bound import Bounds, gap_lines, gap_table, line
from orbitgp.likelihoods.registry import CLASSIFICATION, REGRESSION

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "likelihoods.md"


def page() -> str:
    return PAGE.read_text().replace("\N{MINUS SIGN}", "-")


def table(header: str) -> list[list[str]]:
    """The cells below the line that starts so."""
    _, found, rest = page().partition(f"\n| {header}")
    assert found, header
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def record(name: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads((ROOT / "results" / f"{name}.json").read_text())["results"]
    return results


def test_code_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["interval"][0].shape == (5, 3)
    assert names["probs"].sum() == pytest.approx(4.0)
    said = re.search(r"the NLL is ([\d.]+)\. With 1e-4 it is ([\d.]+),", page())
    assert said
    assert names["scores"]["chosen"] == pytest.approx(float(said[1]), abs=0.02)
    assert names["scores"]["believing"] == pytest.approx(float(said[2]), abs=0.02)


def test_every_name_is_in_the_first_table() -> None:
    named = {row[0].strip("`") for row in table("name")}
    assert named == {"bernoulli", *CLASSIFICATION, *REGRESSION}


def test_table_of_gaps() -> None:
    lines = gap_lines(gap_table())
    assert len(lines) == 7
    for text in lines[2:]:
        assert text in page()


def test_table_of_whole_bounds() -> None:
    lines = [line(Bounds(**row)).replace("%", " %") for row in record("logistic_bound")]
    assert len(lines) == 6
    for text in lines:
        assert text in page()


def angle(row: dict[str, Any]) -> str:
    return f"±{row['degrees']:.0f}°" if row["orbit"] == "rotation" else ""


def test_tables_of_ten_classes() -> None:
    digits, mnist = (
        table("likelihood | orbit | error | NLL | Brier | ECE | chance | pooled"),
        table("likelihood | orbit | error | NLL | Brier | ECE | chance | bound"),
    )
    for found, r in zip(digits, record("likelihoods"), strict=True):
        nll, ece = (f"{r[s]:.4f} ± {r[f'{s}_stderr']:.4f}" for s in ("nll", "ece"))
        scores = [
            f"{100 * r['error']:.2f} %",
            nll,
            f"{r['brier']:.4f}",
            ece,
            f"{r['ece_chance']:.4f}",
            f"{r['ece_pooled']:.4f}",
        ]
        assert found == [r["likelihood"], r["orbit"], *scores, angle(r)]
    for found, r in zip(mnist, record("likelihoods_mnist"), strict=True):
        scores = [f"{100 * r['error']:.2f} %", *(f"{r[s]:.4f}" for s in ("nll", "brier", "ece", "ece_chance"))]
        assert found == [r["likelihood"], r["orbit"], *scores, f"{r['bound']:.3f}", angle(r)]


def test_stick_breaking_on_small_digits() -> None:
    (row,) = record("likelihoods_stick_breaking")
    assert f"its error is {100 * row['error']:.2f} % and its NLL {row['nll']:.4f}" in page()


def test_table_of_local_parameters() -> None:
    found = {(row[0].lower(), row[1]): row[2:] for row in table("q(u) | source")}
    results = record("local_parameters")
    assert len(found) == len(results)
    for r in results:
        scores = [f"{r['own_bound']:.4f}", f"{r['best_bound']:.4f}", f"{100 * r['error']:.2f} %", f"{r['nll']:.4f}"]
        expected = [str(r["steps"]), *scores, f"{r['ece']:.4f}", f"±{r['degrees']:.0f}°"]
        assert found[r["optimizer"], r["source"]] == expected
