"""Pages that name places in the code: each place exists, in the file that the page links."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[`([\w.]+)`\]\((?:\.\./)+((?:src|experiments)/[\w/]+\.py)\)")


def links(page: str) -> list[tuple[str, str]]:
    return LINK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "file"), links("explanation/how-it-works.md"))
def test_a_place_of_the_method_is_where_the_page_says(name: str, file: str) -> None:
    place = inspect.unwrap(resolve_name(name))
    assert f"src/{place.__module__.replace('.', '/')}.py" == file


def test_the_method_has_five_places() -> None:
    assert len(links("explanation/how-it-works.md")) == 5


@pytest.mark.parametrize(("name", "file"), links("reference/glossary.md"))
def test_a_name_of_the_glossary_is_in_its_file(name: str, file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    owner, _, member = name.rpartition(".")
    if owner:
        assert re.search(rf"^class {owner}\b", source, flags=re.MULTILINE)
        assert re.search(rf"(def |self\.|^    ){member}\b", source, flags=re.MULTILINE)
    else:
        assert re.search(rf"^(class|def) {name}\b", source, flags=re.MULTILINE)


def test_the_glossary_has_names() -> None:
    assert len(links("reference/glossary.md")) > 15


def test_every_link_into_the_source_leads_to_a_file() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"\]\((?:\.\./)+((?:src|experiments)/[^)]*)\)", text):
            assert (ROOT / path).is_file(), f"{page.name} links {path}, which does not exist"
