"""The report: one HTML file that says what was learned, shows it, and names the command that repeats the run.

It needs no network and no scripts, follows the reader's light or dark theme, and fits a phone. Whatever comes from the user
(names of data, classes and columns, commands) is escaped, and a policy in the page allows only its own style and images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

import orbitgp
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits.description import Description
from orbitgp.report import sections
from orbitgp.report.cases import Scores, score
from orbitgp.report.html import Markup, join, tag
from orbitgp.report.pictures import Shown
from orbitgp.report.words import nats, sentence
from orbitgp.saving.atomic import replace

if TYPE_CHECKING:
    from orbitgp.comparison import Comparison, Profile

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_GRIDS = 4
_LONG = 90  # characters: longer headlines are set smaller


@dataclass(eq=False)
class Content:
    """What a report is made from.

    Attributes:
        title: the name of the data.
        model: the fitted estimator.
        x, y: training data; a few inputs are shown.
        start: what the orbit was before training (``orbit.describe()``).
        test: held-out inputs and targets, if any.
        plain: the evidence without any invariance, if known.
        comparison, profile: results of :mod:`orbitgp.comparison`, if any.
        command: the command that repeats the run.
        settings, versions, notes: what to list at the end.
    """

    title: str
    model: InvariantGPClassifier | InvariantGPRegressor
    x: Shaped[np.ndarray, "rows *features"]
    y: Shaped[np.ndarray, "rows *outputs"]
    start: Description
    test: tuple[Any, Any] | None = None
    plain: float | int | None = None
    comparison: Comparison | None = None
    profile: Profile | None = None
    command: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def scores(self) -> Scores | None:
        """The test set in numbers, computed once."""
        if self.test is None:
            return None
        if not hasattr(self, "_scores"):
            self._scores = score(self.model, *self.test)
        return self._scores


def write_report(path: str | Path, content: Content) -> None:
    """Write the report, whole or not at all."""
    text = page(content)
    replace(Path(path), lambda beside: beside.write_text(text, encoding="utf-8"))


def page(content: Content) -> str:
    """The report as text."""
    model = content.model
    shape = model.input_shape_
    x = np.asarray(content.x).reshape(len(content.x), *shape)
    shown = Shown(x)
    learned = model.orbit_.describe()
    over = None if content.plain is None else model.evidence_.value - content.plain
    said = sentence(learned, over)
    scores = content.scores()
    rows, labels = _examples(x, content.y)
    free = learned.get(content.profile.quantity) if content.profile else None
    body: list[Markup | None] = [
        sections.comparison_section(content.comparison) if content.comparison else None,
        sections.profile_section(content.profile, free if isinstance(free, float) else None) if content.profile else None,
        sections.samples_section(model.orbit_, x[rows], labels, shown) if learned else None,
        sections.ranges_section(content.start, learned, model.history_),
        sections.training_section(model.history_, content.plain),
        sections.test_section(scores),
    ]
    if scores is not None and content.test is not None:
        x_test = np.asarray(content.test[0]).reshape(-1, *shape)
        body.append(sections.cases_section(scores, x_test, model.orbit_, shown))
    body.append(sections.settings_section(content.settings, content.versions, content.command, content.notes))
    header = tag("header", tag("p", content.title, class_="over"), _headline(content, said), _cards(content, over, scores))
    made = f"Made by orbitgp {orbitgp.__version__}, which learns from data what a function should not care about."
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", f"{content.title}: {said}"),
        tag("style", Markup(files("orbitgp.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    whole = tag("html", head, tag("body", header, tag("main", *body), tag("footer", made)), lang="en")
    return join(Markup("<!doctype html>\n"), whole, Markup("\n"))


def _headline(content: Content, said: str) -> Markup:
    """The headline. For a comparison it is the verdict, followed by what the best model has learned."""
    if content.comparison is None:
        return tag("h1", said, class_="long" if len(said) > _LONG else None)
    verdict = content.comparison.sentences[0]
    best = tag("p", tag("b", f"{content.comparison.best}: "), sentence(content.model.orbit_.describe()), class_="lead")
    return join(tag("h1", verdict, class_="long" if len(verdict) > _LONG else None), best)


def _cards(content: Content, over: float | None, scores: Scores | None) -> Markup:
    evidence = content.model.evidence_
    entries = []
    if over is not None:
        entries.append(("over no invariance", nats(over, sign=True)))
    stderr = f" ± {evidence.stderr:.1g}" if evidence.stderr else ""
    entries.append(
        ("evidence: bound on the log marginal likelihood, in nats", f"{evidence.value:,.0f}{stderr}".replace("-", "−"))
    )
    if scores is not None:
        entries.append((f"{scores.headline[0]}, {scores.count:,} cases", scores.headline[1]))
    entries.append(("training data, and no validation set", f"{len(content.x):,}"))
    return sections.cards(entries)


def _examples(x: Shaped[np.ndarray, "rows *features"], y: Shaped[np.ndarray, "rows *outputs"]) -> tuple[list[int], list[str]]:
    """A few rows and their names. For classes these are the inputs nearest to the means of their classes."""
    y = np.asarray(y)
    if y.ndim == 1 and y.dtype.kind != "f":
        classes = np.unique(y)
        chosen = classes[np.linspace(0, len(classes) - 1, min(_GRIDS, len(classes))).round().astype(int)]
        return [_typical(x, np.flatnonzero(y == one)) for one in chosen], [str(one) for one in chosen]
    rows = np.linspace(0, len(y) - 1, min(_GRIDS, len(y))).round().astype(int)
    return [int(r) for r in rows], [f"row {r}: y = {np.array2string(np.asarray(y[r]), precision=3)}" for r in rows]


def _typical(x: Shaped[np.ndarray, "rows *features"], members: Shaped[np.ndarray, " members"]) -> int:
    """The row of these nearest to their mean."""
    some = x[members].reshape(len(members), -1)
    return int(members[np.square(some - some.mean(0)).sum(1).argmin()])
