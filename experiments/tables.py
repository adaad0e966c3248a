"""The tables of README.md and of the pages, written from the records in results/: no figure in them is typed.

A page says where a table goes, ``<!-- table: NAME -->`` … ``<!-- end -->``, and what stands between is replaced. Under
a table stands what it was made with, and which of its experiment's claims do not hold.

``python -m experiments tables`` in the root of the repository.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments import (
    augmentation,
    battery,
    certainty,
    cifar,
    coverage,
    defaults,
    deformations,
    exact,
    exact_evidence,
    few_photographs,
    harness,
    mnist,
    molecules,
    networks,
    odd_even,
    profiles,
    reduced_mnist,
    regret,
    rotated_digits,
    rotated_mnist,
    sharpness,
    signals,
    slack,
    small_data,
    stability,
    toy,
    verdicts,
    views,
)
from experiments.harness import Claims, Experiment, Record, Records

COMPARISONS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in (mnist, rotated_mnist, small_data, reduced_mnist)
}
OTHERS = (
    certainty,
    cifar,
    coverage,
    stability,
    toy,
    exact,
    exact_evidence,
    few_photographs,
    molecules,
    networks,
    odd_even,
    rotated_digits,
    deformations,
    defaults,
    augmentation,
    signals,
    views,
    battery,
    verdicts,
    sharpness,
    slack,
)
EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in OTHERS} | COMPARISONS


class Excerpt(NamedTuple):
    """A shorter table, of all records of an experiment or of some. Claims below it are those that these records can
    show."""

    experiment: Experiment
    table: Callable[[Records], str]
    chosen: Callable[[Record], bool] = lambda _: True


EXCERPTS = {
    "times": Excerpt(exact_evidence.EXPERIMENT, exact_evidence.times, exact_evidence.is_timed),
    "headlines": Excerpt(exact_evidence.EXPERIMENT, exact_evidence.headlines, exact_evidence.is_free),
    "against the paper": Excerpt(
        exact_evidence.EXPERIMENT, exact_evidence.against_the_paper, exact_evidence.is_in_the_paper
    ),
    "angles": Excerpt(rotated_digits.EXPERIMENT, profiles.grid, rotated_digits.is_exact_within_30),
    "sizes": Excerpt(defaults.EXPERIMENT, defaults.table, lambda record: record["settings"]["part"] == "sizes"),
    "choices": Excerpt(signals.EXPERIMENT, signals.choices),
    "slack by width": Excerpt(slack.EXPERIMENT, slack.by_width),
    "battery by data": Excerpt(battery.EXPERIMENT, battery.by_data),
}
MISSING = "*Not recorded yet.*"
_MARKED = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str, results: Path) -> str:
    """The same page with its tables as the records have them."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{table(found[2], results)}\n\n{found[3]}", text)


def table(name: str, results: Path) -> str:
    """The table of this name in Markdown, or that there is no record of it yet."""
    if name == "settings":
        return settings(results)
    if name == "regret":
        return regret.table([*regret.recorded(results / "regret.jsonl").values()])
    if name not in EXCERPTS | EXPERIMENTS:
        raise ValueError(f"there is no table {name!r}: there are settings, {', '.join([*EXCERPTS, *EXPERIMENTS])}.")
    experiment, written, chosen = EXCERPTS.get(name) or Excerpt(EXPERIMENTS[name], EXPERIMENTS[name].table)
    found = list(filter(chosen, experiment.recorded(results / f"{experiment.name}.jsonl")))
    return _page_text(written(found), found, experiment.check(found)) if found else MISSING


def pages(root: Path) -> Iterator[Path]:
    """The README and the pages that have a table."""
    paths = (root / "README.md", *sorted((root / "docs").rglob("*.md")))
    return (path for path in paths if _MARKED.search(path.read_text(encoding="utf-8")))


def settings(results: Path) -> str:
    """What every recorded model was trained with."""
    names = {
        "num_inducing": "M",
        "inducing_samples": "P",
        "num_samples": "S",
        "batch_size": "batch",
        "max_steps": "steps",
    }
    lines = []
    for name, experiment in COMPARISONS.items():
        found = experiment.recorded(results / f"{name}.jsonl")
        if found:
            sizes = [_range([r["data"][part] for r in found if "data" in r]) for part in ("train", "test")]
            cells = [_range([record["settings"].get(key, 1) for record in found]) for key in names]
            seeds = str(len({record["settings"]["seed"] for record in found}))
            seconds = _range([round(record["seconds"]["fit"]) for record in found])
            lines.append([name, " / ".join(filter(None, sizes)), *cells, seeds, seconds])
    titles = ["experiment", "data", *names.values(), "seeds", "seconds a model"]
    return harness.markdown(titles, lines) if lines else MISSING


def _range(values: Sequence[int]) -> str:
    low, high = min(values, default=None), max(values, default=None)
    if low is None or high is None:
        return ""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _page_text(lines: str, found: Records, claims: Claims) -> str:
    made = sorted({_made_with(record) for record in found})
    failing = [claim for claim, holds in claims.items() if not holds]
    verdict = "All that was to be shown holds." if not failing else "Does not hold: " + "; ".join(failing) + "."
    return f"{lines}\n\nMade with {'; '.join(made)}; {_made_at(found)}. {verdict}"


def _made_with(record: Record) -> str:
    hardware = record["hardware"]
    machine = f"one {hardware['gpu']}" if "gpu" in hardware else f"{hardware['cpus']} CPU cores"
    return f"{machine}, torch {record['versions']['torch']}"


def _made_at(found: Records) -> str:
    """The commits that made the records, in the order of the records."""
    commits = list(dict.fromkeys(record.get("commit") for record in found))
    known = [f"`{commit[:7]}`" for commit in commits if commit]
    words = []
    if known:
        words.append(f"{'commit' if len(known) == 1 else 'commits'} {', '.join(known)}")
    if None in commits:
        words.append("an earlier library, whose commit was not recorded")
    return " and ".join(words)


def main(arguments: list[str] | None = None) -> None:
    """Write the tables into the pages."""
    parser = argparse.ArgumentParser(prog="python -m experiments tables", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(), help="of the repository (default: here)")
    root = parser.parse_args(arguments).root
    for path in pages(root):
        text = path.read_text(encoding="utf-8")
        path.write_text(page(text, root / "results"), encoding="utf-8")
