"""What an orbit has learned, in physical units: for people to read and programs to look up.

The table, the sentence, the figure, the page and the progress line all take the text of a quantity from
``str(quantity)``, and the part of a scale that it covers from ``quantity.span``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import floor, inf, isfinite, log10
from typing import Any, NamedTuple

Value = float | tuple[float, float]

_SIGNS = ("", "°", "×")  # units that stand at every number; others are words, said once


def number(value: float | int, sign: bool = False, decimals: int | None = None) -> str:
    """Two figures, or all that stand before the point; a minus sign is not a hyphen."""
    places = _decimals(value) if decimals is None else decimals
    text = f"{value:,.{places}f}" if places <= 6 else f"{value:.1e}"
    if float(text.replace(",", "")) == 0:
        return "0"
    return ("+" if sign and value > 0 else "") + text.replace("-", "−")


def _decimals(value: float | int, figures: int = 2) -> int:
    """Digits after the point that show this many figures."""
    return 0 if value == 0 or not isfinite(value) else max(0, figures - 1 - floor(log10(abs(value))))


def with_unit(text: str, unit: str) -> str:
    """As in "17°", "×1.17", "0.40 px"."""
    return f"×{text}" if unit == "×" else f"{text}{unit}" if unit in _SIGNS else f"{text} {unit}"


def listed(phrases: Sequence[str]) -> str:
    """As in "a, b and c"; an empty text of none."""
    return " and ".join(filter(None, (", ".join(phrases[:-1]), *phrases[-1:])))


@dataclass(frozen=True)
class Quantity:
    """One learned quantity in physical units: a number, or a (low, high) range.

    A number of degrees is half the width of a range around zero. Any other number is a size. ``plausible`` is the
    narrowest and the widest that the data support about as well, where that is known. ``extent`` is that of an input:
    lengths beyond it are alike.

        >>> Quantity(3.0, "px").span
        (0.0, 3.0)
        >>> print(Quantity(3.0, "px"))
        3.0 px
    """

    value: Value
    unit: str = ""
    plausible: tuple[Quantity, Quantity] | None = None
    extent: float = inf

    @classmethod
    def of(cls, value: Any, unit: str = "") -> Quantity:
        """From a record of the history, in which a range may be a list."""
        return cls((float(value[0]), float(value[1])) if isinstance(value, list | tuple) else float(value), unit)

    @property
    def neutral(self) -> float:
        """The value at which nothing happens: one for factors, else zero."""
        return 1.0 if self.unit == "×" else 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Its part of a scale: a range as it is, degrees as ±, another number from where nothing happens to itself."""
        if isinstance(self.value, tuple):
            return self.value
        return -self.value if self.unit == "°" else self.neutral, self.value

    def ends(self, unit: str | None = None) -> list[str]:
        """Both ends of a range in words, with the decimals of the larger one, and a plus if one is negative."""
        assert isinstance(self.value, tuple)
        decimals = _decimals(max(self.value, key=abs), figures=3 if self.unit == "×" else 2)
        texts = (number(end, min(self.value) < 0, decimals) for end in self.value)
        return [with_unit(text, self.unit if unit is None else unit) for text in texts]

    @property
    def is_nothing(self) -> bool:
        """Whether nothing happens, as far as its digits tell: a range from ×1.00 to ×1.00."""
        ends = self.ends("") if isinstance(self.value, tuple) else [number(self.value)]
        return all(float(end.replace(",", "").replace("−", "-")) == self.neutral for end in ends)

    @property
    def is_symmetric(self) -> bool:
        """Whether it lies around zero, by its digits: a range, or the half-width that a number of degrees is."""
        if not isinstance(self.value, tuple):
            return self.unit == "°"
        low, high = (text.lstrip("−+") for text in self.ends(""))
        return low == high and min(self.value) <= 0 <= max(self.value)

    def __str__(self) -> str:
        """As in "±17°", "−16° … +40°", "×0.90 … ×1.17", "0.40 px", "±1.0 px", "−1.0 … +2.0 px"."""
        if self.is_beyond:
            return f"more than {with_unit(number(self.extent), self.unit)}"
        if not isinstance(self.value, tuple):
            counted = not self.unit and float(self.value).is_integer()
            text = number(self.value, decimals=0 if counted else None)
        elif self.is_symmetric:
            text = self.ends("")[1].lstrip("+")
        else:
            ends = dict.fromkeys(self.ends("" if self.unit not in _SIGNS else None))  # one where they read the same
            return with_unit(" … ".join(ends), "" if self.unit in _SIGNS else self.unit)
        return ("±" if self.is_symmetric else "") + with_unit(text, self.unit)

    @property
    def is_beyond(self) -> bool:
        """Whether it is a length beyond the extent of an input."""
        return not isinstance(self.value, tuple) and self.value > self.extent

    @property
    def plausible_words(self) -> str:
        """As in "plausible ±30° to ±42°"; nothing where that is not known, or no wider than the digits shown."""
        least, most = self.plausible or (self, self)
        if str(least) == str(most):
            return ""
        if not all(map(isfinite, most.span)):
            return "not determined" if least.is_nothing else f"plausible at least {least}, not determined above"
        return f"plausible none, or up to {most}" if least.is_nothing else f"plausible {least} to {most}"

    @property
    def plausibly(self) -> str:
        """The same in brackets, to stand behind the quantity."""
        return f" ({self.plausible_words})" if self.plausible_words else ""


class Change(NamedTuple):
    """A quantity before and after training, and the ends of a scale for both."""

    name: str
    before: Quantity
    after: Quantity
    limits: tuple[float, float]


def changes(before: Description, after: Description) -> list[Change]:
    """The quantities that both have, apart from counts. Those that differ in their axis only, as in shift_x and
    shift_y, share a scale. A scale includes the value at which nothing happens."""
    names = [name for name in after if name in before and not name.endswith("elements")]
    ends: dict[str, list[float]] = {}
    for name in names:
        for quantity in (before.quantities[name], after.quantities[name]):
            ends.setdefault(_without_axis(name), []).extend((*quantity.span, quantity.neutral))
    limits = {family: (min(values), max(values)) for family, values in ends.items()}
    return [Change(n, before.quantities[n], after.quantities[n], limits[_without_axis(n)]) for n in names]


def _without_axis(name: str) -> str:
    return name.removesuffix("_x").removesuffix("_y")


class Description(dict[str, Value]):
    """What an orbit has learned, by name, in physical units. A dictionary of plain numbers that prints as a table.

    ``owners`` are the titles of the parts that the quantities belong to, where an orbit has several parts.

        >>> Rotation(30).describe()["degrees"]
        30.000007665015225
        >>> Rotation(30).describe().to_dict()
        {'degrees': 30.000007665015225}
    """

    def __init__(
        self, title: str, quantities: Mapping[str, Quantity] | None = None, owners: Mapping[str, str] | None = None
    ) -> None:
        self.title = title
        self.quantities = dict(quantities or {})
        self.owners = {name: (owners or {}).get(name, title) for name in self.quantities}
        super().__init__({name: quantity.value for name, quantity in self.quantities.items()})

    def to_dict(self) -> dict[str, Value]:
        return dict(self)

    def with_plausible(self, ranges: Mapping[str, tuple[Quantity, Quantity]]) -> Description:
        """The same with what is plausible of each quantity, where that is known."""
        known = {name: replace(quantity, plausible=ranges.get(name)) for name, quantity in self.quantities.items()}
        return Description(self.title, known, self.owners)

    def within(self, extent: float) -> Description:
        """The same for inputs of this extent, beyond which no smoothness can be told from another."""
        known = {n: replace(q, extent=extent) if "smoothness" in n else q for n, q in self.quantities.items()}
        return Description(self.title, known, self.owners)

    def only(self, names: Collection[str]) -> Description:
        """The same with these quantities alone."""
        return Description(self.title, {name: self.quantities[name] for name in names}, self.owners)

    def rows(self) -> list[tuple[str, str]]:
        """Names, and quantities in words."""
        return [(name, f"{quantity}{quantity.plausibly}") for name, quantity in self.quantities.items()]

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        return "\n".join([self.title, *(f"  {name:<{width}}  {text}" for name, text in self.rows())])

    def _repr_html_(self) -> str:
        """For notebooks."""
        cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in self.rows())
        return f"<table><caption>{escape(self.title)}</caption>{cells}</table>"

    @classmethod
    def join(cls, parts: Sequence[Description]) -> Description:
        """Several descriptions as one; a repeated name carries its title, and then a number, in front."""
        counts, titles = Counter(name for part in parts for name in part), Counter(part.title for part in parts)
        seen: Counter[str] = Counter()
        joined: dict[str, Quantity] = {}
        owners: dict[str, str] = {}
        for part in parts:
            seen[part.title] += 1
            label = part.title.lower() + (str(seen[part.title]) if titles[part.title] > 1 else "")
            for name, quantity in part.quantities.items():
                unique = f"{label}.{name}" if counts[name] > 1 else name
                joined[unique], owners[unique] = quantity, part.owners[name]
        return cls(" * ".join(part.title for part in parts), joined, owners)
