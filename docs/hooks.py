"""What a page needs beyond its text.

Docstrings name classes as Sphinx does, which is code and nothing else here.

Pictures lie beside the records that they are drawn from, in results/ and not among the pages. A page refers to them as is right
in the repository, ``../../results/NAME.png``; the site gets copies. A picture that is not drawn yet is left out.

Source files are linked as in the repository too, ``../../src/NAME.py``. On the site these links lead to the project's home.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

RESULTS = Path(__file__).parents[1] / "results"
HOME = "https://github.com/orbitgp/orbitgp/blob/main"

_ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?(.*?)</code>")
_PICTURE = re.compile(r"(!\[[^\]]*\]\()\.\./((?:\.\./)*results/(\w+\.png)\))")
_SOURCE = re.compile(r"\]\((?:\.\./)+(src|experiments)/")


def on_files(files: Any, config: Any) -> Any:
    """Every picture of results/ is a file of the site."""
    for picture in sorted(RESULTS.glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``../../results/toy.png`` becomes ``../results/toy.png``, or nothing; ``(../../src/`` leads to the project's home."""
    markdown = _SOURCE.sub(rf"]({HOME}/\1/", markdown)
    return _PICTURE.sub(lambda found: found[1] + found[2] if (RESULTS / found[3]).exists() else "", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`orbitgp.Evidence``` becomes `orbitgp.Evidence`."""
    return _ROLE.sub(r"<code>\1</code>", html)
