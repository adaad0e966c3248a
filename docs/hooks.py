"""What a page needs beyond its text: docstrings name classes as Sphinx does, which is code and nothing else here."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?(.*?)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`orbitgp.Evidence``` becomes `orbitgp.Evidence`."""
    return _ROLE.sub(r"<code>\1</code>", html)
