"""The report: one HTML file that says what was learned, shows it, and names the command that repeats the run.

It needs no network and no scripts, follows the reader's light or dark theme, and fits a phone. Whatever comes from the
user (names of data, classes and columns, commands) is escaped, and a policy in the page allows only its own style and
images. ``report.html`` is its template, for Jinja.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context

import orbitgp
from orbitgp.inference.evidence import rounded
from orbitgp.orbits.description import Description, changes
from orbitgp.plotting.samples import MOST_NAMES
from orbitgp.report import charts
from orbitgp.report.cases import Scores, score
from orbitgp.report.charts import Compared
from orbitgp.report.finding import Finding, Fitted, finding_of
from orbitgp.report.summary import typical_rows
from orbitgp.report.words import is_absent, nats, quantity_label
from orbitgp.saving.container import replace

_HYPERPARAMETERS = ("outputscale", "lengthscale", "noise", "scale")
_ONE_LINE = 60  # characters of a headline
_PLAUSIBLE = re.compile(r" \((plausible [^)]*)\)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(eq=False)
class Content:
    """What a report is made from."""

    title: str  # the name of the data
    model: Fitted
    x: Shaped[np.ndarray, "rows *features"]  # training data; a few inputs are shown
    y: Shaped[np.ndarray, "rows *outputs"]
    start: Description  # what the orbit was before training
    test: tuple[Any, Any] | None = None  # held-out inputs and targets
    names: Sequence[str] | None = None  # what the rows are called, such as file names
    test_names: Sequence[str] | None = None
    target: str = "y"
    plain: float | int | None = None  # the evidence without any invariance, if known
    certain: bool = True  # whether the difference to that is
    comparison: Compared | None = None
    inverted: bool = False  # whether pixels p were turned into 1 - p
    columns: Sequence[str] = ()  # of a table
    scales: Sequence[tuple[float, float]] = ()  # the (shift, unit) of each column that was standardised
    command: str = ""  # repeats the run
    settings: Mapping[str, str] = field(default_factory=dict)  # to list at the end, as the versions
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # on the data and the run
    remarks: list[str] = field(default_factory=list)  # on what was learned

    @cached_property
    def scores(self) -> Scores | None:
        """The test set in numbers."""
        return None if self.test is None else score(self.model, *self.test)

    @cached_property
    def finding(self) -> Finding:
        """What may be said."""
        over = None if self.plain is None else self.model.evidence_.value - self.plain
        return finding_of(self.model, over, self.certain)


def write_report(path: str | Path, content: Content) -> None:
    """Write the report, whole or not at all."""
    text = page(content)
    replace(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))


def page(content: Content) -> str:
    """The report as text."""
    model = content.model
    x = np.asarray(content.x).reshape(len(content.x), *model.input_shape_)
    learned, scores = model.describe(), content.scores
    comparable, some_data = charts.of_the_same_data(model.history_)
    template = Environment(
        loader=PackageLoader("orbitgp", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    ).get_template("report.html")
    with rc_context(charts.STYLE):
        pictures = charts.Pictures(model.orbit_, x, content.columns, content.inverted, content.scales)
        rendered: str = template.render(
            version=orbitgp.__version__,
            charts=charts,
            content=content,
            **_said(content.finding.text, content.comparison),
            supported=content.finding.supported and (content.comparison is None or content.comparison.settled),
            cards=_cards(content, scores),
            comparison=content.comparison,
            with_units=_unbroken,
            pictures=pictures,
            examples=_examples(x, content) if learned else [],
            changes=changes(content.start, learned),
            label_of=lambda name: quantity_label(name, learned),
            is_absent=lambda name: is_absent(name, learned),
            history=model.history_,
            comparable=comparable,
            some_data=some_data,
            tried_without=any(record.get("without_orbit") for record in comparable),
            exact=model.inference_ == "exact",
            hyperparameters=_hyperparameters(model, content.columns),
            scores=scores,
            x_test=None if content.test is None else np.asarray(content.test[0]).reshape(-1, *model.input_shape_),
        )
    return _CONTROL.sub("\ufffd", rendered)  # names from files may hold anything


def _cards(content: Content, scores: Scores | None) -> list[tuple[str, str]]:
    """The most important numbers, each with what it is; first what the invariance is worth, if that is known."""
    evidence = content.model.evidence_
    entries = []
    over = None if content.plain is None else evidence.value - content.plain
    if content.comparison is not None:  # no gain stands on the page that the verdict is not certain of
        over = content.comparison.over_plain()
    if over is not None and content.finding.supported:
        entries.append(("over no invariance", nats(over, sign=True)))
    # Less than that is beyond the digits of the value.
    stderr = f" ±\u00a0{rounded(evidence.stderr, 1)}" if evidence.stderr >= 0.05 else ""
    places = 0 if evidence.stderr >= 1 else 1
    what = "bound on the log marginal likelihood" if evidence.is_bound else "log marginal likelihood"
    entries.append((f"evidence: {what}, in nats", f"{evidence.value:,.{places}f}{stderr}".replace("-", "−")))
    if scores is not None:
        entries.append((f"{scores.headline[0]}, {scores.count:,} cases", scores.headline[1]))
    learned = evidence.learned_from
    some = f", {learned:,} of them to learn from" if learned < evidence.num_data else ""
    entries.append((f"training data{some}; no validation set needed", f"{evidence.num_data:,}"))
    return entries


def _hyperparameters(model: Fitted, columns: Sequence[str]) -> dict[str, str]:
    """The last record's; where columns have their own lengthscales, the shortest first, as these matter most."""
    last = model.history_[-1]
    found = {name: charts.four_figures(last[name]) for name in _HYPERPARAMETERS if isinstance(last.get(name), float)}
    lengthscale = getattr(getattr(model.kernel_, "base_kernel", None), "lengthscale", None)
    if lengthscale is None or lengthscale.numel() == 1 or lengthscale.numel() != len(columns):
        return found
    del found["lengthscale"]  # a median of them
    shortest = sorted(zip(lengthscale.flatten().tolist(), columns, strict=True))[:MOST_NAMES]
    return found | {f"lengthscale of {name}": f"{length:.3g}" for length, name in shortest}


def _examples(x: Shaped[np.ndarray, "rows *features"], content: Content) -> list[tuple[Any, str]]:
    """A few inputs and their names."""
    y = np.asarray(content.y)
    labelled = y.ndim == 1 and y.dtype.kind != "f"

    def name(row: int) -> str:
        if labelled:
            return str(y[row])
        value = np.array2string(np.asarray(y[row]), precision=3).rstrip(".")
        return f"{content.names[row] if content.names else f'row {row + 1}'}: {content.target} = {value}"

    return [(x[row], name(row)) for row in typical_rows(x, y).tolist()]


def _said(finding: str, compared: Compared | None = None) -> dict[str, Any]:
    """The headline, which fits one line where it can, and the sentences below it, each with the name of its subject."""
    found = _unbroken(finding)
    if found.count("(plausible") > 1:  # they stand in the table of ranges
        found = _PLAUSIBLE.sub("", found)
    if compared is None:
        short, rest = _first_clause(found)
        return {"headline": short, "lead": [("", rest)] * bool(rest)}
    verdict = _unbroken(compared.sentences[0])
    short, rest = (verdict, "") if len(verdict) <= _ONE_LINE else _first_clause(verdict)
    return {"headline": short, "lead": [("", rest)] * bool(rest) + [(f"{compared.best}: ", found)]}


def _first_clause(sentence: str) -> tuple[str, str]:
    """The first clause as a sentence, and the rest as another, which begins with what is plausible in the first."""
    first, *others = re.split(r"(?<=[;:]) ", sentence, maxsplit=1)
    plausible = _PLAUSIBLE.findall(first)
    rest = "; ".join([*plausible, *others])
    return _PLAUSIBLE.sub("", first).rstrip(".;:") + ".", rest[:1].upper() + rest[1:]


def _unbroken(sentence: str) -> str:
    """A unit stays in the line of its number."""
    return re.sub(r"(?<=\d) (?!(?:to|and|of|over|by)\b)(?=[^\W\d_]{1,5}\b)", "\u00a0", sentence)
