"""A fitted estimator in a few lines: as text, and as HTML with a picture for notebooks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

from orbitgp.inference.model import InvariantGP
from orbitgp.orbits import Orbit
from orbitgp.plotting import show
from orbitgp.report.fitted import Fitted
from orbitgp.report.words import finding_of, seen_by_g, why_not_plausible


def summary(model: Fitted, over_plain: float | None = None) -> str:
    """What may be said, what was learned, the evidence, and how it was found."""
    described = model.describe()
    learned = [repr(described), ""] if described else []
    lines = [f"{name}: {text}" for name, text in _how(model)]
    return "\n".join([finding_of(model, over_plain).text, "", *learned, *lines])


def _how(model: Fitted) -> list[tuple[str, str]]:
    """The evidence, and how it was found."""
    last = model.history_[-1]
    how = f"sparse, {len(model.model_.inducing):,} inducing points" if isinstance(model.model_, InvariantGP) else "exact"
    why = why_not_plausible(model.inference_, model.describe(), model.plausible_)
    sees = seen_by_g(model)
    return [
        *[("g sees", sees)] * bool(sees),
        ("evidence", str(model.evidence_)),
        *[("plausible", why)] * bool(why),
        ("inference", f"{how}; {last['step']:,} steps, {last['seconds']:,.1f} s"),
    ]


def html(model: Fitted) -> str:
    """The same, with samples of the orbit around a typical input."""
    said, described = finding_of(model).text, model.describe()
    samples = orbit_picture(model.orbit_, model.examples_[0][0]) if described else ""
    learned = [(name, f"{quantity}{quantity.plausibly}") for name, quantity in described.quantities.items()]
    return f"<div><p><b>{escape(said)}</b></p>{samples}{table((), [*learned, *_how(model)])}</div>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as an element of a page: numbers to the right, the first and the last column to the left."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left", *["right"] * (len(cells) - 2), "left"]
        styled = (f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True))
        return f"<tr>{''.join(styled)}</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def orbit_picture(orbit: Orbit, x: Any) -> str:
    """Samples of an orbit around an input, as an element of a page; nothing without matplotlib."""
    try:
        return picture(show(orbit, x), "samples of the orbit")
    except ImportError:
        return ""


def picture(figure: Any, alt: str) -> str:
    """A figure as an element of a page that needs no other file."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{b64encode(file.getvalue()).decode("ascii")}">'
