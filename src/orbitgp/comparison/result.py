"""The result of a comparison: a table that prints, plots and converts, with a verdict in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from math import isinf, sqrt
from typing import TYPE_CHECKING, Any

from orbitgp.comparison.parallel import Estimator, Trained
from orbitgp.comparison.verdict import MORE, Evidences, leaders, verdict
from orbitgp.orbits.description import listed
from orbitgp.plotting import PAPER, new_axes
from orbitgp.report.summary import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Row:
    """One orbit in the ranking.

    Attributes:
        orbit: its name.
        evidence: nats, the mean over seeds; ``stderr`` is the Monte-Carlo error of that mean.
        behind: nats below the best (0 for the best itself), with the half-width of a 95 % interval.
        certain: whether it is known to be worse than the best.
        remaining: nats that training might still gain (None: the bound rises without slowing down).
        more_inducing: nats gained with twice the inducing points (None: not checked).
        learned: what was learned, in physical units, from the best seed.
        seconds: of training, for one seed.
    """

    orbit: str
    evidence: float
    stderr: float
    behind: float
    error: float
    certain: bool
    remaining: float | None
    more_inducing: float | None
    learned: dict[str, Any]
    seconds: float


class Comparison:
    """Orbits ranked by evidence. ``print`` it; ``verdict`` is its result in words; ``best`` the name of the first.

    Attributes:
        rows: the ranking, best first.
        sentences: what the numbers say, or that they cannot tell, and why; ``verdict`` is all of them.
        settled: whether one orbit is certainly better than every other.
        tied: the names that cannot be told from the best, the best included.
        evidences: the numbers that the verdict rests on.
        models: a fitted estimator for each orbit, that of the best seed.
    """

    def __init__(self, evidences: Evidences, trained: list[list[Trained]], plain: str | None) -> None:
        self.evidences = evidences
        self.trained, self.plain = trained, plain
        first, self.against = leaders(evidences)
        self.tied = [evidences.names[i] for i in first]
        self.settled = len(first) == 1
        self.sentences = verdict(evidences, plain)
        best = {row[0].job.name: max(row, key=lambda r: r.evidence) for row in trained}
        self.models: dict[str, Estimator] = {name: trained.model for name, trained in best.items()}
        self.rows = [self._row(i, best[evidences.names[i]]) for i in evidences.order()]

    def _row(self, i: int, best: Trained) -> Row:
        e = self.evidences
        difference = self.against.get(i)
        seeds = e.values.shape[1]
        return Row(
            orbit=e.names[i],
            evidence=float(e.values[i].mean()),
            stderr=sqrt(float((e.stderrs[i] ** 2).sum())) / seeds,
            behind=0.0 if difference is None else difference.nats,
            error=0.0 if difference is None else difference.error,
            certain=difference is not None and difference.certain,
            remaining=None if isinf(e.remaining[i]) else float(e.remaining[i]),
            more_inducing=None if e.more is None else float(e.more[i] - e.values[i, 0]),
            learned=best.model.orbit_.describe().to_dict(),
            seconds=sum(r.seconds for r in self.trained[i]) / seeds,
        )

    @property
    def verdict(self) -> str:
        return " ".join(self.sentences)

    @property
    def best(self) -> str:
        return self.rows[0].orbit

    def over_plain(self) -> float | None:
        """Nats of the best over no invariance, if that was among the orbits."""
        return next((row.behind for row in self.rows if row.orbit == self.plain and row.orbit != self.best), None)

    @property
    def checks(self) -> list[str]:
        """What was checked before the verdict, in words."""
        e = self.evidences
        seeds = e.values.shape[1]
        scatter, freedom = e.scatter()
        exact = [] if e.settled is None else [name for name, settled in zip(e.names, e.settled, strict=True) if settled]
        lines = [] if not exact else [f"Inference: exact for {listed(exact)}."]
        if len(exact) < len(e.names):
            lines.append(
                f"Restarts: {seeds} each; a bound differs by about ±{scatter:,.0f} nats from one to the next."
                if freedom
                else "Restarts: one each, so how much a restart matters is not known."
            )
        rising = [e.names[i] for i, gain in enumerate(e.remaining) if isinf(gain)]
        most = max((float(g) for g in e.remaining if not isinf(g)), default=0.0)
        lines.append(
            f"Convergence: {', '.join(rising)} still rising when the budget ended."
            if rising
            else f"Convergence: going on would gain about {most:,.0f} nats at most."
        )
        if e.more is not None:
            order = [e.names[int(i)] for i in (-e.more).argsort(kind="stable")]
            gains = e.more - e.values[:, 0]
            same = order == [row.orbit for row in self.rows]
            holds = "the order is the same" if same else f"the order becomes {', '.join(order)}"
            lines.append(f"Inducing points: with {MORE} times as many, {_span(gains)} nats more; {holds}.")
        return lines

    def __str__(self) -> str:
        header = ("orbit", "evidence", "behind the best", "to come", "more inducing")
        cells = [header, *((row.orbit, f"{row.evidence:,.1f}", *self.doubts(row)) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        lines = [
            "  ".join([f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        return "\n".join([*lines, "", *self.checks, "", *self.sentences])

    __repr__ = __str__

    def doubts(self, row: Row) -> tuple[str, str, str]:
        """The last columns of the table: how far behind the best, what is still to come, what more inducing points gain."""
        behind = "" if row.orbit == self.best else f"{row.behind:,.0f} ± {row.error:,.0f}" + ("" if row.certain else " ?")
        remaining = "rising" if row.remaining is None else f"{row.remaining:+,.0f}"
        more = "" if row.more_inducing is None else f"{round(row.more_inducing):+,}"
        return behind, remaining, more

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, the chart and the table."""
        try:
            chart = picture(self.plot().figure, "evidence against the best")
        except ImportError:  # without matplotlib
            chart = ""
        return f"<div><p><b>{escape(self.sentences[0])}</b></p>{chart}<pre>{escape(str(self))}</pre></div>"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain numbers, lists and strings."""
        e = self.evidences
        return {
            "verdict": self.verdict,
            "settled": self.settled,
            "best": self.best,
            "tied": self.tied,
            "plain": self.plain,
            "checks": self.checks,
            "rows": [asdict(row) for row in self.rows],
            "evidence": {name: e.values[i].tolist() for i, name in enumerate(e.names)},
            "stderr": {name: e.stderrs[i].tolist() for i, name in enumerate(e.names)},
        }

    def to_pandas(self) -> Any:
        """The ranking as a pandas.DataFrame, one row for each orbit."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs the package pandas: pip install pandas.") from None
        records = [{**asdict(row), "learned": None, **row.learned} for row in self.rows]
        return pandas.DataFrame.from_records(records).drop(columns="learned").set_index("orbit")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Nats behind the best, with 95 % intervals, on matplotlib axes."""
        ax = new_axes(6.0, 1 + 0.45 * len(self.rows)) if ax is None else ax
        for place, row in enumerate(self.rows):
            colour = PAPER.accent if row.orbit in self.tied else PAPER.soft
            ax.errorbar([-row.behind], [place], xerr=[row.error], fmt="o", color=colour, capsize=3)
        ax.axvline(0, color=PAPER.soft, lw=0.5, zorder=0)
        ax.set_yticks(range(len(self.rows)), [row.orbit for row in self.rows])
        ax.invert_yaxis()
        ax.set_xlabel("evidence: nats against the best")
        return ax


def _span(gains: Any) -> str:
    low, high = float(gains.min()), float(gains.max())
    return f"{round(low):+,}" if round(low) == round(high) else f"{round(low):+,} to {round(high):+,}"  # never -0
