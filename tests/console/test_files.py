"""zbroker/admin/console: what its files may not contain, whatever a browser makes of them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.console.fake import FILES

LINES_MAX = 300
#: what takes text for markup or for a program
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval\(|Function\("
)
OUTSIDE = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|//[a-z]+\.[a-z]+/")
SCRIPTS = sorted(FILES.glob("*.js"))


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_no_file_names_a_place_outside(path: Path) -> None:
    text = path.read_text()
    assert not OUTSIDE.search(text)
    assert text.count("\n") <= LINES_MAX


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text(path: Path) -> None:
    assert not MARKUP.search(path.read_text())


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    class Page(HTMLParser):
        found: list[str] = []  # noqa: RUF012 - one page

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            inline = tag == "style" or (tag == "script" and "src" not in named)
            handlers = [name for name in named if name == "style" or name.startswith("on")]
            self.found += [tag] * inline + handlers

    page = Page()
    page.feed((FILES / "index.html").read_text())
    assert page.found == []


def test_every_script_is_reached_from_the_page() -> None:
    reached, new = set[str](), {"console.js"}
    while new:
        name = new.pop()
        reached.add(name)
        new |= set(re.findall(r'from "\./([a-z]+\.js)"', (FILES / name).read_text())) - reached
    assert reached == {path.name for path in SCRIPTS}
