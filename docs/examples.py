"""Examples in docstrings become sections of the reference, where they are shown as code."""

from __future__ import annotations

import re
from textwrap import dedent, indent
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?<=\n\n) *>>>.*?(?=\n\s*\n|\Z)", flags=re.DOTALL)


class Examples(griffe.Extension):
    """For mkdocstrings: lines after ``>>>`` get the heading that its parser asks for."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class and function."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: "Examples:\n" + indent(dedent(found[0]), "    "), obj.docstring.value
            )
