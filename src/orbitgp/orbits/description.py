"""What an orbit has learned, in physical units: for people to read and programs to look up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Value = float | tuple[float, float]


@dataclass(frozen=True)
class Quantity:
    """One learned quantity in physical units: a number, or a (low, high) range."""

    value: Value
    unit: str = ""

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return " … ".join(self._number(end, "+") for end in self.value)
        return self._number(self.value)

    def _number(self, value: float, sign: str = "") -> str:
        if self.unit == "×":
            return f"×{value:.4g}"
        return f"{value:{sign}.4g}{self.unit if self.unit == '°' else ' ' + self.unit}".rstrip()


class Description(Mapping[str, Value]):
    """What an orbit has learned, by name, in physical units. A mapping to plain numbers that prints as a small table."""

    def __init__(self, title: str, quantities: Mapping[str, Quantity] | None = None) -> None:
        self.title = title
        self.quantities = dict(quantities or {})

    def __getitem__(self, name: str) -> Value:
        return self.quantities[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.quantities)

    def __len__(self) -> int:
        return len(self.quantities)

    def to_dict(self) -> dict[str, Value]:
        return dict(self)

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        lines = [f"  {name:<{width}}  {quantity}" for name, quantity in self.quantities.items()]
        return "\n".join([self.title, *lines])

    @classmethod
    def join(cls, parts: Sequence[Description]) -> Description:
        """Several descriptions as one; a name that occurs more than once carries its title, and then a number, in front."""
        counts = Counter(name for part in parts for name in part)
        titles = Counter(part.title for part in parts)
        seen: Counter[str] = Counter()
        joined: dict[str, Quantity] = {}
        for part in parts:
            seen[part.title] += 1
            label = part.title.lower() + (str(seen[part.title]) if titles[part.title] > 1 else "")
            for name, quantity in part.quantities.items():
                joined[f"{label}.{name}" if counts[name] > 1 else name] = quantity
        return cls(" * ".join(part.title for part in parts), joined)
