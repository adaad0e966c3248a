"""The tables of the pages on likelihoods say what the code and the records say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import harness, likelihoods, local_parameters, logistic_bound
from orbitgp.likelihoods import CLASSIFICATION, REGRESSION

ROOT = Path(__file__).parents[2]
REFERENCE, NOTES = (ROOT / "docs" / folder / "likelihoods.md" for folder in ("reference", "notes"))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")


def table(header: str, page: Path = NOTES) -> list[list[str]]:
    """The cells below the line that starts so."""
    _, found, rest = read(page).partition(f"\n| {header}")
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


def test_every_name_is_in_the_first_table() -> None:
    named = {row[0].strip("`") for row in table("name", REFERENCE)}
    assert named == {"bernoulli", *CLASSIFICATION, *REGRESSION}


def test_table_of_gaps() -> None:
    assert logistic_bound.gap_markdown(logistic_bound.gap_table()) in read(NOTES)


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
