"""A fitted estimator in a few lines: as text, and as HTML with a picture for notebooks."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

from orbitgp.plotting import show
from orbitgp.report.words import finding_of


def summary(model: Any, over_plain: float | None = None) -> str:
    """What may be said, what was learned, the evidence, and how it was found."""
    evidence, last = model.evidence_, model.history_[-1]
    how = "exact" if model.inference_ == "exact" else f"sparse, {len(model.model_.inducing):,} inducing points"
    if model.inference_ == "sparse" and model.describe():
        how += " (what else is plausible, only exact inference says)"
    lines = [f"evidence   {evidence}", f"inference  {how}; {last['step']:,} steps, {last['seconds']:,.1f} s"]
    described = model.describe()
    learned = [repr(described), ""] if described else []
    return "\n".join([finding_of(model, over_plain).text, "", *learned, *lines])


def html(model: Any) -> str:
    """The same, with samples of the orbit around a typical input."""
    said, _, rest = summary(model).partition("\n\n")
    samples = orbit_picture(model.orbit_, model.examples_[0][0]) if model.describe() else ""
    return f"<div><p><b>{escape(said)}</b></p>{samples}<pre>{escape(rest)}</pre></div>"


def orbit_picture(orbit: Any, x: Any) -> str:
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
