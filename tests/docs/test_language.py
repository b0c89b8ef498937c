"""Claims about the words of the manual: plain English, and the field's words in the glossary."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import ROOT, Page, prose_of, read_pages
from tests.docs.source_prose import sentences_of

#: a word that is easily written for another one, and that other one
FORBIDDEN: Final = {
    r"\b(anew)\b": "again",
    r"\b(behind)\b": "after",
    r"(?<!ipc )(?<!-)\b(desks?)\b(?!-)": "admin endpoint",
    r"\b(doors?)\b(?!:)": "listener",
    r"\b(?:a|an|below|its|the) (floor)\b": "log start",
    r"\b(rooms|(?:an?|another|each|every|its|one|that|the|this) room)\b": "process; space",
    r"(?<!there )\b(is no|are no) (?!longer\b)": "is not a, there is no",
    r"\b(nobody)\b": "a client, a consumer, a user",
    r"(?:^|[.;:|] )(?-i:Of) ": "a sentence with a subject",
    r"\b(stands?|stood)\b": "is",
    r"\b(told)\b": "reported",
    r"(?:^|[.;:|] |\b(?:by|for|from|of|to) )(who(?:ever)?) \w": "a noun before it",
    r"(?:^|[.;:] )(what) (?:is|was|were|has|had|comes|came) ": "a noun before it",
}
#: words that a reader who knows other brokers looks for
FIELD: Final = (
    "ack", "backpressure", "compaction", "consumer group", "dead letter", "deduplication", "epoch",
    "exactly once", "exchange", "flow control", "fsync", "idempotent producer", "in flight", "lag",
    "lease", "listener", "log start offset", "nack", "offset", "partition", "poison message",
    "prefetch", "producer", "publisher confirm", "replica", "retention", "retry", "routing key",
    "segment", "stream", "subject", "throttle", "tiered storage", "transaction", "TTL", "user",
    "visibility timeout", "watermark",
)  # fmt: skip
PAGES: Final = {page.name: page for page in read_pages()}
SOURCE: Final = ROOT / "zbroker"
GLOSSARY: Final = "docs/reference/glossary.md"


def complaints(text: str) -> list[str]:
    """Forbidden words in the prose of a page, each with its line."""
    prose = re.sub(r"`[^`\n]*`", "``", prose_of(text))
    return [
        f"{found[0].strip()!r} in {line.strip()!r}: {instead}"
        for line in prose.splitlines()
        for pattern, instead in FORBIDDEN.items()
        if (found := re.search(pattern, line, re.IGNORECASE))
    ]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_no_forbidden_words(name: str) -> None:
    assert complaints(PAGES[name].text) == []


@pytest.mark.parametrize(
    "text",
    [
        "The bytes behind it.", "Who publishes waits.", "It is told to who is subscribed.",
        "What is kept comes again.", "Nobody gets it.", "It begins anew.", "Of all its files.",
        "It stands in the log.", "That is no key.", "Rooms beat.", "The room ends.", "At the door.",
        "Below the floor.", "A desk asks.",
    ],
)  # fmt: skip
def test_a_forbidden_word_is_noticed(text: str) -> None:
    assert complaints(text)


@pytest.mark.parametrize(
    "text",
    [
        "A client that publishes waits.", "It is no longer kept.", "`behind` is a variable.",
        "What it promises", "Standard input is read.", "The store has room again.",
    ],
)  # fmt: skip
def test_plain_words_are_left_alone(text: str) -> None:
    assert complaints(text) == []


# -- source files ---------------------------------------------------------------------------------

#: every package, and "" for the files beside them
PACKAGES: Final = sorted({"", *(path.parent.name for path in SOURCE.glob("*/__init__.py"))})


def complaints_about(source: str) -> list[str]:
    """Forbidden words in the sentences of a source file, each with its line."""
    return [
        f"{line}: {complaint}"
        for line, text in sentences_of(source)
        for complaint in complaints(text)
    ]


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_has_no_forbidden_words(package: str) -> None:
    paths = sorted((SOURCE / package).rglob("*.py")) if package else sorted(SOURCE.glob("*.py"))
    assert paths
    found = {str(path.relative_to(ROOT)): complaints_about(path.read_text()) for path in paths}
    assert {path: reported for path, reported in found.items() if reported} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""Of a queue: its name."""',
        'def f():\n    """Sends it.\n\n    Who asks is\n    told so.\n    """',
        "x = 1  # behind it",
        "# nobody\n# reads it",
        'raise ValueError(f"{x} is no number")',
    ],
)
def test_a_forbidden_word_of_a_source_file_is_noticed(source: str) -> None:
    assert complaints_about(source)


@pytest.mark.parametrize(
    "source", ['BEHIND = "behind"', "behind = told", "x = 1  # `behind` is a name", 'f("stood in")']
)
def test_names_and_keys_of_a_source_file_are_left_alone(source: str) -> None:
    assert complaints_about(source) == []


# -- the glossary ---------------------------------------------------------------------------------


def rows_of(page: Page, columns: int) -> list[list[str]]:
    """Cells of the rows of its tables that have so many columns, without heads."""
    lines = [line for line in prose_of(page.text).splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    stripped = [[cell.strip() for cell in row] for row in cells]
    return [row for row in stripped if len(row) == columns and row[0] != "word"]


def test_every_word_of_the_glossary_has_a_meaning_and_is_there_once() -> None:
    rows = rows_of(PAGES[GLOSSARY], 3)
    words = [row[0] for row in rows]
    assert len(words) > 80
    assert len(set(words)) == len(words)
    assert [row[0] for row in rows if not row[1]] == []


def test_most_words_of_the_glossary_say_what_they_are_called_elsewhere() -> None:
    rows = rows_of(PAGES[GLOSSARY], 3)
    assert sum(bool(row[2]) for row in rows) > 2 * len(rows) / 3


@pytest.mark.parametrize("word", FIELD)
def test_a_word_of_the_field_is_in_the_glossary(word: str) -> None:
    page = PAGES[GLOSSARY]
    sought = [cell for row in rows_of(page, 2) for cell in row[:1]]
    known = [cell for row in rows_of(page, 3) for cell in (row[0], row[2])]
    assert any(re.search(rf"\b{word}", cell, re.IGNORECASE) for cell in (*sought, *known)), word
