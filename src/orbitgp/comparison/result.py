"""The result of a comparison: a table that prints, plots and converts, with a verdict in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

from orbitgp.comparison.parallel import Trained, best_of
from orbitgp.comparison.verdict import Standing, leaders, verdict
from orbitgp.inference.evidence import Evidence
from orbitgp.plotting.figures import ACCENT, SOFT, new_axes, pyplot_axes
from orbitgp.report.summary import picture, table
from orbitgp.report.words import learned_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADER = ("orbit", "evidence", "lies between", "behind the best", "inference", "models")


@dataclass(frozen=True)
class Row:
    """One orbit in the ranking.

    Attributes:
        orbit: its name.
        evidence: nats, of the best model.
        low, high: what the log evidence lies between, at the best hyperparameters (``high``: None where nothing is
            known, or training met a limit).
        behind: nats below the best (0 for the best itself).
        certain: whether it is known to be worse than the best.
        inference: exact or sparse.
        models: how many were trained.
        learned: what was learned, in physical units, by the best model.
        seconds: of training, for all models.
    """

    orbit: str
    evidence: float
    low: float
    high: float | None
    behind: float
    certain: bool
    inference: str
    models: int
    learned: dict[str, Any]
    seconds: float


class Comparison:
    """Orbits ranked by evidence. ``print`` it; ``verdict`` is its result in words; ``best`` the name of the first.

        >>> x = np.random.default_rng(0).normal(size=(30, 2))
        >>> list(compare(x, x.sum(1), ["none", "swap(0, 1)"]).models)
        ['swap(0,1)', 'none']

    Attributes:
        rows: the ranking, best first.
        sentences: what the numbers say, or that they cannot tell, and why; ``verdict`` is all of them.
        settled: whether one orbit is certainly better than every other, even if its training would take it further.
        tied: the names that cannot be told from the best, the best included.
        standings: the numbers that the verdict rests on.
        models: a fitted estimator for each orbit, that with the most evidence.
    """

    def __init__(self, standings: Sequence[Standing], trained: dict[str, list[Trained]], plain: str | None) -> None:
        self.trained, self.plain = trained, plain
        first, self.against = leaders(standings)
        self.standings = [first[0], *(difference.worse for difference in self.against.values())]
        self.tied = [standing.name for standing in first]
        self.settled = len(first) == 1
        self.models = {standing.name: best_of(trained[standing.name]).model for standing in self.standings}
        self.rows = [self._row(standing) for standing in self.standings]
        exact = [model.evidence_ for model in self.models.values() if model.inference_ == "exact"]
        self.sentences = verdict(standings, plain) + _note_on_bounds(exact)

    def _row(self, standing: Standing) -> Row:
        difference = self.against.get(standing.name)
        model, trained = self.models[standing.name], self.trained[standing.name]
        return Row(
            orbit=standing.name,
            evidence=standing.value,
            low=standing.low,
            high=standing.high if isfinite(standing.high) and standing.converged else None,
            behind=0.0 if difference is None else difference.nats,
            certain=difference is not None and difference.certain,
            inference=model.inference_,
            models=len(trained),
            learned=model.orbit_.describe().to_dict(),
            seconds=sum(each.seconds for each in trained),
        )

    @property
    def verdict(self) -> str:
        return " ".join(self.sentences)

    @property
    def best(self) -> str:
        return self.rows[0].orbit

    def over_plain(self) -> float | None:
        """Nats of the best over no invariance, if that was among the orbits and is certainly worse."""
        found = None if self.plain is None else self.against.get(self.plain)
        return found.nats if found is not None and found.certain else None

    def __str__(self) -> str:
        cells = [_HEADER, *((row.orbit, *self.columns(row)) for row in self.rows)]
        first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
        lines = [
            "  ".join([name.ljust(first), *(text.rjust(width) for text, width in zip(texts, widths, strict=True))])
            for name, *texts in cells
        ]
        tied = [(name, self.learned(name)) for name in self.tied]
        said = [f"  {name:<{first}}  {words or 'nothing'}" for name, words in tied]
        several = len(tied) > 1 and any(words for _, words in tied)
        return "\n".join([*lines, "", *self.sentences, *(["They have learned:", *said] if several else [])])

    __repr__ = __str__

    def learned(self, orbit: str) -> str:
        """What the best model of this orbit has learned, in words; nothing where there is nothing to learn."""
        return learned_sentence(self.models[orbit].describe())

    def columns(self, row: Row) -> tuple[str, str, str, str, str]:
        """The table: evidence, what it lies between, nats behind the best, kind of inference, and how many models."""
        between = f"{row.low:,.1f} and {'?' if row.high is None else f'{row.high:,.1f}'}"
        behind = "" if row.orbit == self.best else f"{row.behind:,.1f}" + ("" if row.certain else " ?")
        return f"{row.evidence:,.1f}", between, behind, row.inference, str(row.models)

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, the chart and the table."""
        try:
            chart = picture(self.plot(new_axes(*self._chart_size)).figure, "evidence against the best")
        except ImportError:  # without matplotlib
            chart = ""
        first, *others = (f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        rows = [(row.orbit, *self.columns(row), self.learned(row.orbit)) for row in self.rows]
        return f"<div><b>{first}</b>{chart}{table((*_HEADER, 'learned'), rows)}{''.join(others)}</div>"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain numbers, lists and strings."""
        return {
            "verdict": self.verdict,
            "settled": self.settled,
            "best": self.best,
            "tied": self.tied,
            "plain": self.plain,
            "rows": [asdict(row) for row in self.rows],
            "models": {name: [_model(each) for each in trained] for name, trained in self.trained.items()},
        }

    def to_pandas(self) -> Any:
        """The ranking as a pandas.DataFrame, one row for each orbit."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs the package pandas: pip install pandas.") from None
        records = [{**asdict(row), "learned": None, **row.learned} for row in self.rows]
        return pandas.DataFrame.from_records(records).drop(columns="learned").set_index("orbit")

    @property
    def _chart_size(self) -> tuple[float, float]:
        return 6.0, 1 + 0.45 * len(self.rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Nats against the best, with each orbit's interval, on these axes or on new ones, which a notebook shows."""
        ax = pyplot_axes(*self._chart_size) if ax is None else ax
        best = self.standings[0].value
        farthest = max((abs(s.high - best) for s in self.standings if isfinite(s.high)), default=0.0)
        for place, standing in enumerate(self.standings):
            colour = ACCENT if standing.name in self.tied else SOFT
            high = standing.high if isfinite(standing.high) else max(best + farthest, standing.value)
            errors = [[standing.value - standing.low], [high - standing.value]]
            ax.errorbar([standing.value - best], [place], xerr=errors, fmt="o", color=colour, capsize=3)
        ax.axvline(0, color=SOFT, lw=0.5, zorder=0)
        ax.set_yticks(range(len(self.rows)), [row.orbit for row in self.rows])
        ax.invert_yaxis()
        ax.set_xlabel("evidence: nats against the best")
        return ax


def _note_on_bounds(inferred_exactly: Iterable[Evidence]) -> list[str]:
    """A sentence where even exact inference gives a bound, as the likelihood enters by one."""
    names = [evidence.likelihood for evidence in inferred_exactly if evidence.is_bound]
    said = "Each evidence is the lower bound that the {} likelihood gives, and the intervals are of that bound."
    return [said.format(names[0])] if names else []


def _model(trained: Trained) -> dict[str, Any]:
    return {
        "trained for": trained.job.purpose or "the comparison",
        "inference": trained.model.inference_,
        "evidence": trained.evidence,
        "stderr": trained.model.evidence_.stderr,
        "upper": trained.model.evidence_.upper,
        "seconds": trained.seconds,
    }
