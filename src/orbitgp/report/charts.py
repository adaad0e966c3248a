"""Charts as SVG. They scale, follow the page's light or dark theme, and need no script.

Colours are classes of the page's style sheet: ``ink``, ``soft``, ``accent``, ``grid``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

from orbitgp.orbits.description import Change, number
from orbitgp.report.html import Markup, tag

Number = float | int
Pair = tuple[Number, Number]

WIDTH, HEIGHT = 460.0, 250.0
_CHAR = 7.2  # about the width of a letter


def ticks(low: Number, high: Number, count: int = 5) -> list[Number]:
    """About so many round numbers between two numbers."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10.0 ** floor(log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    return [round(i * step, 12) for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def whole(value: Number) -> str:
    """A number on an axis, with commas between thousands and without trailing zeros."""
    return f"{value:,.10g}".replace("-", "−")


def counted(value: Number) -> str:
    """A number on an axis of counts: fractions get no label."""
    return whole(value) if float(value).is_integer() else ""


@dataclass
class Frame:
    """A chart's axes: from data to places on the page."""

    x: Pair
    y: Pair
    left: Number = 60.0
    right: Number = 14.0
    top: Number = 12.0
    bottom: Number = 42.0
    width: Number = WIDTH
    height: Number = HEIGHT

    def px(self, x: Number) -> Number:
        span = (self.x[1] - self.x[0]) or 1.0
        return self.left + (x - self.x[0]) / span * (self.width - self.left - self.right)

    def py(self, y: Number) -> Number:
        span = (self.y[1] - self.y[0]) or 1.0
        return self.height - self.bottom - (y - self.y[0]) / span * (self.height - self.top - self.bottom)

    def axes(
        self, x_label: str, y_label: str = "", x_name: Callable[[Number], str] = whole, y_name: Callable[[Number], str] = whole
    ) -> list[Markup]:
        """Grid lines with their numbers, and the names of the axes."""
        base = self.height - self.bottom
        parts = []
        for value in ticks(*self.y):
            at = self.py(value)
            parts.append(tag("line", x1=self.left, x2=self.width - self.right, y1=at, y2=at, class_="grid"))
            parts.append(tag("text", y_name(value), x=self.left - 7, y=at + 4, text_anchor="end", class_="tick"))
        for value in ticks(*self.x):
            parts.append(tag("text", x_name(value), x=self.px(value), y=base + 17, text_anchor="middle", class_="tick"))
        middle = (self.left + self.width - self.right) / 2
        parts.append(tag("line", x1=self.left, x2=self.width - self.right, y1=base, y2=base, class_="axis"))
        parts.append(tag("text", x_label, x=middle, y=self.height - 6, text_anchor="middle", class_="label"))
        if y_label:
            parts.append(tag("text", y_label, x=4, y=self.top - 14, class_="label"))
        return parts

    def svg(self, *parts: Markup, title: str) -> Markup:
        """The chart, with a title for screen readers."""
        box = f"0 0 {self.width:g} {self.height:g}"
        return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="chart")

    def points(self, xs: Sequence[Number], ys: Sequence[Number]) -> str:
        return " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in zip(xs, ys, strict=True))


def bound_chart(steps: Sequence[Number], bounds: Sequence[Number], plain: Number | None = None) -> Markup:
    """The bound over training, without its steep first rise. The dashed line is the bound without invariance."""
    shown = sorted(bounds)[len(bounds) // 12 :]
    marks = [*shown, *([] if plain is None else [plain])]
    low, high = min(marks), max(marks)
    pad = 0.06 * (high - low) or 1.0
    frame = Frame((0.0, max(steps)), (low - pad, high + pad), top=30.0)
    inside = [(s, b) for s, b in zip(steps, bounds, strict=True) if b >= low - pad]
    parts = frame.axes("steps", "bound on the evidence, in nats", counted)
    if plain is not None:
        at = frame.py(plain)
        parts.append(tag("line", x1=frame.left, x2=frame.width - frame.right, y1=at, y2=at, class_="dashed"))
        parts.append(tag("text", "no invariance, at its end", x=frame.left + 4, y=at - 6, class_="tick"))
    across, up = [s for s, _ in inside], [b for _, b in inside]
    parts.append(tag("polyline", points=frame.points(across, up), class_="line thin"))
    parts.append(tag("polyline", points=frame.points(across, _smooth(up)), class_="line"))
    return frame.svg(*parts, title="The bound over the steps of training")


def _smooth(values: Sequence[Number]) -> list[Number]:
    """Moving means over a twentieth of the values on either side. Windows shrink at the ends, so both ends stay in place."""
    reach = max(1, len(values) // 20)
    windows = [(i, min(reach, i, len(values) - 1 - i)) for i in range(len(values))]
    return [sum(values[i - near : i + near + 1]) / (2 * near + 1) for i, near in windows]


def ranking_chart(names: Sequence[str], behind: Sequence[Number], errors: Sequence[Number], tied: Sequence[str]) -> Markup:
    """Nats against the best with 95 % intervals, one row an orbit. Orbits that tie with the best are in colour."""
    left = min(190.0, 16 + _CHAR * max(len(name) for name in names))
    low = min(-b - e for b, e in zip(behind, errors, strict=True))
    high = max(0.0, *(-b + e for b, e in zip(behind, errors, strict=True)))
    pad = 0.05 * (high - low) or 1.0
    frame = Frame((low - pad, high + pad), (0.0, 1.0), left=left, top=8.0, height=58.0 + 34.0 * len(names))
    zero, base = frame.px(0.0), frame.height - frame.bottom
    parts = [tag("line", x1=zero, x2=zero, y1=frame.top, y2=base, class_="grid")]
    for value in ticks(*frame.x, count=4):
        parts.append(tag("text", whole(value), x=frame.px(value), y=base + 17, text_anchor="middle", class_="tick"))
    middle = (frame.left + frame.width - frame.right) / 2
    parts.append(
        tag("text", "evidence against the best, in nats", x=middle, y=frame.height - 6, text_anchor="middle", class_="label")
    )
    for i, (name, nats, error) in enumerate(zip(names, behind, errors, strict=True)):
        y = frame.top + 17 + 34 * i
        mark = "accent" if name in tied else "soft"
        shown = name if len(name) <= 24 else f"{name[:23]}…"
        parts.append(tag("text", shown, x=frame.left - 10, y=y + 4, text_anchor="end", class_="name"))
        parts.append(tag("line", x1=frame.px(-nats - error), x2=frame.px(-nats + error), y1=y, y2=y, class_=f"whisker {mark}"))
        parts.append(tag("circle", cx=frame.px(-nats), cy=y, r=5.5, class_=f"dot {mark}"))
    return frame.svg(*parts, title="Evidence of each orbit against the best")


def curve_chart(
    xs: Sequence[Number],
    ys: Sequence[Number],
    x_label: str,
    y_label: str,
    title: str,
    mark: Number | None = None,
    unit: str = "",
) -> Markup:
    """A curve through points, with the best (or any x) marked."""
    pad = 0.08 * (max(ys) - min(ys)) or 1.0
    frame = Frame((min(xs), max(xs)), (min(ys) - pad, max(ys) + pad), top=30.0)
    parts = frame.axes(x_label, y_label, x_name=lambda v: f"{whole(v)}{unit}" if unit == "°" else whole(v))
    if mark is not None:
        at = frame.px(mark)
        parts.append(tag("line", x1=at, x2=at, y1=frame.top, y2=frame.height - frame.bottom, class_="dashed"))
    parts.append(tag("polyline", points=frame.points(xs, ys), class_="line"))
    parts += [tag("circle", cx=frame.px(x), cy=frame.py(y), r=3.5, class_="dot accent") for x, y in zip(xs, ys, strict=True)]
    return frame.svg(*parts, title=title)


def calibration_chart(
    said: Sequence[Number], happened: Sequence[Number], weights: Sequence[Number], x_label: str, y_label: str
) -> Markup:
    """How often predictions came true against their probability. Honest probabilities lie on the diagonal."""
    frame = Frame((0.0, 1.0), (0.0, 1.0), top=30.0, height=300.0, width=340.0, left=50.0, right=24.0)

    def percent(value: Number) -> str:
        return f"{100 * value:.0f} %"

    parts = frame.axes(x_label, y_label, x_name=percent, y_name=percent)
    ends = {"x1": frame.px(0), "y1": frame.py(0), "x2": frame.px(1), "y2": frame.py(1)}
    parts.append(tag("line", **ends, class_="dashed"))
    most = max(weights)
    if most == min(weights):  # dots of different weight are not points of one curve
        parts.append(tag("polyline", points=frame.points(said, happened), class_="line thin"))
    for x, y, weight in zip(said, happened, weights, strict=True):
        parts.append(tag("circle", cx=frame.px(x), cy=frame.py(y), r=2.5 + 5.5 * (weight / most) ** 0.5, class_="dot accent"))
    return frame.svg(*parts, title="Calibration")


def range_bars(change: Change) -> Markup:
    """A range before (grey) and after (colour) on a scale with a line where nothing happens."""
    factor = change.after.unit == "×"

    def place(value: Number) -> Number:
        low, high, here = (log(max(v, 1e-9)) if factor else v for v in (*change.limits, value))
        return 6 + 188 * (here - low) / ((high - low) or 1.0)

    neutral = place(change.after.neutral)
    parts = [tag("line", x1=neutral, x2=neutral, y1=1, y2=27, class_="axis")]
    for quantity, y, height, mark in ((change.before, 4.0, 5.0, "soft"), (change.after, 13.0, 10.0, "accent")):
        low, high = sorted(place(end) for end in quantity.span)
        parts.append(tag("rect", x=low, y=y, width=max(1.5, high - low), height=height, rx=1.5, class_=f"bar {mark}"))
    title = tag("title", "before and after")
    return tag("svg", title, *parts, viewBox="0 0 200 28", role="img", class_="ranges")


def history_band(steps: Sequence[Number], lows: Sequence[Number], highs: Sequence[Number]) -> Markup:
    """How a range moved in training; time runs to the right."""
    low, high = min(*lows, *highs), max(*lows, *highs)
    frame = Frame((0.0, max(steps)), (low, high), left=2, right=2, top=3, bottom=3, width=120, height=28)
    there = frame.points(steps, highs)
    back = frame.points(list(reversed(steps)), list(reversed(lows)))
    title = tag("title", f"over the steps of training, between {number(low)} and {number(high)}")
    shape = tag("polygon", points=f"{there} {back}", class_="band")
    return tag("svg", title, shape, viewBox="0 0 120 28", role="img", class_="ranges narrow")
