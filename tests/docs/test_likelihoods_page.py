"""The code in docs/reference/likelihoods.md runs, and its tables say what the code and the records say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from experiments import harness, likelihoods, local_parameters, logistic_bound
from orbitgp.likelihoods import CLASSIFICATION, REGRESSION

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "likelihoods.md"


def page() -> str:
    return PAGE.read_text().replace("\N{MINUS SIGN}", "-")


def table(header: str) -> list[list[str]]:
    """The cells below the line that starts so."""
    _, found, rest = page().partition(f"\n| {header}")
    assert found, header
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def recorded(module: Any, **settings: Any) -> list[dict[str, str]]:
    """The rows of an experiment's own table, for the records with these settings: cells by their titles."""
    found = harness.load(ROOT / "results" / f"{module.EXPERIMENT.name}.jsonl").values()
    chosen = [record for record in found if settings.items() <= record["settings"].items()]
    text = module.EXPERIMENT.table(chosen).rpartition("\n\n")[2].replace("%", " %")
    titles, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines())
    return [dict(zip(titles, row, strict=True)) for row in rows]


@pytest.mark.slow
def test_code_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["interval"][0].shape == (5, 3)
    assert names["probs"].sum() == pytest.approx(len(names["probs"]))
    said = re.search(r"the NLL is ([\d.]+)\. With 1e-4 it is ([\d.]+),", page())
    assert said
    assert names["scores"]["chosen"] == pytest.approx(float(said[1]), abs=0.02)
    assert names["scores"]["believing"] == pytest.approx(float(said[2]), abs=0.02)


def test_every_name_is_in_the_first_table() -> None:
    named = {row[0].strip("`") for row in table("name")}
    assert named == {"bernoulli", *CLASSIFICATION, *REGRESSION}


def test_table_of_gaps() -> None:
    assert logistic_bound.gap_markdown(logistic_bound.gap_table()) in page()


def test_table_of_whole_bounds() -> None:
    rows = [list(row.values()) for row in recorded(logistic_bound)]
    assert len(rows) == 6
    assert table("data | rows | SVGP") == rows


def test_table_of_ten_classes() -> None:
    titles = ["likelihood", "orbit", "error", "NLL", "Brier", "ECE", "chance", "pooled", "evidence a datum", "angle"]
    rows = [[row[title] for title in titles] for row in recorded(likelihoods)]
    assert len(rows) == 6
    assert table(" | ".join(titles)) == rows


def test_table_of_local_parameters() -> None:
    rows = [[cell.removesuffix(" gradients").lower() for cell in row] for row in table("q(u) | source")]
    assert sorted(rows) == sorted(list(row.values()) for row in recorded(local_parameters))
