"""Claims about delivery-semantics.md: each promise names a test, which exists and always runs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pytest

from tests.docs import seeds
from tests.docs.pages import ROOT, Page, prose_of, read_pages

NAME: Final = "docs/explanation/delivery-semantics.md"
#: needs root, which not every desk has; long ones run in scripts/test-all only
NOT_ALWAYS: Final = seeds.NOT_RUN | {"long", "powercut", "netns", "spark"}
_LINK: Final = re.compile(r"\[`([\w/]+\.py)::(\w+)`\]\(([^)]+)\)")
_ROW: Final = re.compile(r"^\|(?!-)(.*)\|$", re.MULTILINE)


class Link(NamedTuple):
    """A test as a page names it: path below tests/, name, and where the link leads."""

    path: str
    test: str
    target: str


def links_in(text: str) -> list[Link]:
    return [Link(*found) for found in _LINK.findall(text)]


def complaints(page: Page) -> list[str]:
    """What is wrong with the promises of a page; empty: nothing."""
    reported = [
        f"no test: {row.strip()}"
        for row in _ROW.findall(prose_of(page.text))
        if not links_in(row) and "shown by" not in row
    ]
    for link in links_in(page.text):
        where = f"{link.path}::{link.test}"
        path = ROOT / "tests" / link.path
        if (page.path.parent / link.target).resolve() != path or not path.exists():
            reported.append(f"leads elsewhere: {where}")
            continue
        marks = seeds.marks_in(path.read_text()).get(link.test)
        if marks is None:
            reported.append(f"no such test: {where}")
        elif marks & NOT_ALWAYS:
            reported.append(f"does not always run: {where}")
    return reported


def test_every_promise_has_a_test_that_runs() -> None:
    (page,) = [each for each in read_pages() if each.name == NAME]
    assert len(links_in(page.text)) > 20
    assert complaints(page) == []


HERE = "../../tests/docs/test_promises.py"
THIS = "docs/test_promises.py::test_every_promise_has_a_test_that_runs"
LONG = "process/test_kills.py::test_twenty_kills_under_load_lose_and_double_nothing"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (f"| It holds. | [`{THIS}`]({HERE}) |", ""),
        ("| what | shown by |\n|---|---|", ""),
        ("| It holds. | |", "no test"),
        (f"It holds: [`{THIS}x`]({HERE})", "no such test"),
        (f"It holds: [`{THIS}`](../../tests/docs/pages.py)", "leads elsewhere"),
        ("It holds: [`docs/test_none.py::test_a`](../../tests/docs/test_none.py)", "elsewhere"),
        (f"It holds: [`{LONG}`](../../tests/process/test_kills.py)", "does not always run"),
    ],
)
def test_a_promise_without_such_a_test_is_noticed(text: str, reported: str) -> None:
    found = complaints(Page(ROOT / NAME, text + "\n"))
    assert len(found) == bool(reported)
    assert reported in "".join(found)
