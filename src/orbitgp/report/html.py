"""HTML and SVG as nested calls. Text is escaped once; text that is markup already has the type :class:`Markup`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | Markup | None | Iterable["Child"]

_VOID = ("img", "meta", "br", "line", "path", "rect", "circle", "polyline", "polygon")


def tag(name: str, /, *children: Child, **attributes: str | float | int | bool | None) -> Markup:
    """An element: ``tag("p", "a < b", class_="note")``. Underscores in names of attributes stand for hyphens."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        parts.append(word if value is True else f'{word}="{escape(_text(value), quote=True)}"')
    opening = " ".join(parts)
    if name in _VOID:
        return Markup(f"<{opening}>" if name in ("img", "meta", "br") else f"<{opening}/>")
    return Markup(f"<{opening}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other."""
    pieces: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            pieces.append(child)
        elif isinstance(child, str):
            pieces.append(escape(child, quote=False))
        else:
            pieces.append(join(*child))
    return Markup("".join(pieces))


def _text(value: str | float | int) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
