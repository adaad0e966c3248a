"""The tables of README.md and docs/results.md, written from the records in results/: no figure in them is typed.

A page says where a table goes, ``<!-- table: NAME -->`` … ``<!-- end -->``, and what stands between is replaced. Under a table
stands what it was made with, and which of its experiment's claims do not hold.

``python -m experiments.tables`` in the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from experiments import (
    augmentation,
    exact,
    learning_curve,
    mnist,
    odd_even,
    profiles,
    rotated_mnist,
    runs,
    small_data,
    toy,
)

PAGES = ("README.md", "docs/results.md")
OF_RUNS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module for module in (mnist, learning_curve, rotated_mnist, small_data, augmentation)
}
OF_PROFILES = {"odd_even": odd_even.check} | dict.fromkeys(
    ("rotated_digits", "rotated_digits_m800", "deformations"), profiles.check
)
_MARKED = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str, results: Path) -> str:
    """The same page with its tables as the records have them."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{table(found[2], results)}\n\n{found[3]}", text)


def table(name: str, results: Path) -> str:
    """The table of this name in Markdown, or that there is no record of it yet."""
    names = ("settings", "toy", "exact", *OF_RUNS, *OF_PROFILES)
    if name not in names:
        raise ValueError(f"there is no table {name!r}: there are {', '.join(names)}.")
    if name == "settings":
        return settings(results)
    found = records(name, results)
    if not found:
        return "*Not recorded yet.*"
    if name in OF_RUNS:
        return _page_text(OF_RUNS[name].table(found), found, OF_RUNS[name].check(found))
    record = found[0]
    if name in OF_PROFILES:
        return _page_text(profiles.table(record["summaries"]), found, OF_PROFILES[name](record["summaries"]))
    if name == "exact":
        return _page_text(exact.table(record["results"]), found, exact.check(record["results"]))
    fits = [toy.Fit(**result, mean=torch.zeros(0)) for result in record["results"]]  # the numbers, not the picture
    return _page_text(toy.markdown(fits), found, toy.check(fits))


def records(name: str, results: Path) -> list[runs.Record]:
    """The records of an experiment: one file, or a folder of them in the order of its models and seeds."""
    paths = sorted((results / name).glob("*.json")) if name in OF_RUNS else [results / f"{name}.json"]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    if name in OF_RUNS:
        models = list(OF_RUNS[name].MODELS)
        found.sort(key=lambda record: (models.index(record["settings"]["model"]), record["settings"]["seed"]))
    return found


def settings(results: Path) -> str:
    """What every recorded model was trained with."""
    names = {"num_inducing": "M", "inducing_samples": "P", "num_samples": "S", "batch_size": "batch", "max_steps": "steps"}
    lines = ["| experiment | data | " + " | ".join(names.values()) + " | seeds | seconds a model |", "|---" * 9 + "|"]
    for name in OF_RUNS:
        found = records(name, results)
        if found:
            cells = [_range([record["settings"].get(key, 1) for record in found]) for key in names]
            train, test = (_range([record["data"][key] for record in found]) for key in ("train", "test"))
            seeds = len({record["settings"]["seed"] for record in found})
            seconds = _range([round(record["seconds"]["fit"]) for record in found])
            lines.append(f"| {name} | {train} / {test} | " + " | ".join(cells) + f" | {seeds} | {seconds} |")
    for name in OF_PROFILES:
        for record in records(name, results):
            every = record["results"]
            cells = [_range([result["settings"].get(key, 1) for result in every]) for key in names]
            seeds, seconds = len({result["seed"] for result in every}), _range([round(result["seconds"]) for result in every])
            lines.append(f"| {name} | | " + " | ".join(cells) + f" | {seeds} | {seconds} |")
    return "\n".join(lines) if len(lines) > 2 else "*Not recorded yet.*"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _page_text(lines: str, found: Sequence[runs.Record], claims: runs.Claims) -> str:
    made = sorted({_made_with(record) for record in found})
    failing = [claim for claim, holds in claims.items() if not holds]
    verdict = "All that was to be shown holds." if not failing else "Does not hold: " + "; ".join(failing) + "."
    return f"{lines}\n\nMade with {'; '.join(made)}. {verdict}"


def _made_with(record: dict[str, Any]) -> str:
    hardware = record["hardware"]
    machine = f"one {hardware['gpu']}" if "gpu" in hardware else f"{hardware['cpus']} CPU cores"
    return f"{machine}, torch {record['versions']['torch']}"


def main(arguments: list[str] | None = None) -> None:
    """Write the tables into the pages."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(), help="of the repository (default: here)")
    root = parser.parse_args(arguments).root
    for name in PAGES:
        path = root / name
        text = path.read_text(encoding="utf-8")
        path.write_text(page(text, root / "results"), encoding="utf-8")


if __name__ == "__main__":
    main()
