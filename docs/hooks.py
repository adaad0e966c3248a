"""What a page needs beyond its text.

Docstrings name classes as Sphinx does, which is code and nothing else here.

Pictures lie beside the records that they are drawn from, in results/ and not among the pages. A page refers to them as
is right in the repository, ``../../results/NAME.png``; the site gets copies. A picture that is not drawn yet is left
out.

Source files are linked as in the repository too, ``../../src/NAME.py``. On the site these links lead to the project's
home.

``<!-- options: learn -->`` becomes the table of that command's options. A page with jupytext's header
is a notebook, too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

RESULTS = Path(__file__).parents[1] / "results"
HOME = "https://github.com/orbitgp/orbitgp/blob/main"

_ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?(.*?)</code>")
_PICTURE = re.compile(r"(!\[[^\]]*\]\()\.\./((?:\.\./)*results/(\w+\.png)\))")
_OPTIONS = re.compile(r"<!-- options: (\w+) -->")
_CELL = re.compile(r"^```python\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(r"^```\n.*?^```\n|^!\[.*\n", flags=re.DOTALL | re.MULTILINE)  # a notebook shows its own
_OPTION = re.compile(r"<code>(?=--[\w-]+</code>)")
_SOURCE = re.compile(r"\]\((?:\.\./)+(src|experiments)/")


def on_files(files: Any, config: Any) -> Any:
    """Every picture of results/ is a file of the site, and every notebook, to download."""
    for page in list(files.documentation_pages()):
        if page.content_string.startswith("---\njupyter:"):
            files.append(
                File.generated(config, page.src_uri.replace(".md", ".ipynb"), content=notebook(page.content_string))
            )
    for picture in sorted(RESULTS.glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``../../results/toy.png`` becomes ``../results/toy.png``, or nothing; ``(../../src/`` leads to the project's
    home."""
    markdown = _SOURCE.sub(rf"]({HOME}/\1/", markdown)
    markdown = _OPTIONS.sub(lambda found: options(found[1]), markdown)
    return _PICTURE.sub(lambda found: found[1] + found[2] if (RESULTS / found[3]).exists() else "", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`orbitgp.Evidence``` becomes `orbitgp.Evidence`. No line breaks inside of ``--max-data``."""
    return _OPTION.sub('<code class="option">', _ROLE.sub(r"<code>\1</code>", html))


def options(command: str) -> str:
    """The options of a command, as a table."""
    import typer

    from orbitgp.cli.app import app

    found = typer.main.get_command(app).commands[command]
    lines = [f"{found.help.split(chr(10) + chr(10))[0]}\n", "| option | what it does |", "|---|---|"]
    for option in found.params:
        if not getattr(option, "hidden", False):
            names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
            text = (getattr(option, "help", None) or "").replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {names if names[1] == '-' else f'`{option.metavar}`'} | {text} |")
    return "\n".join(lines)


def notebook(page: str) -> str:
    """A page as a Jupyter notebook: its Python in cells of code, and what stands between in cells of text."""
    parts = _CELL.split(page.split("---\n", 2)[2].strip() + "\n")
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        code = {"execution_count": None, "outputs": []} if number % 2 else {}
        if part.strip():
            kind = "code" if number % 2 else "markdown"
            source = part.strip() if number % 2 else _SHOWN.sub("", part).strip()
            cells.append({"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source, **code})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )
