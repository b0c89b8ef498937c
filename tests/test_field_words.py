"""tools/field_words.py: a word of the field leads to its file, or is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import field_words

ROOT = Path(__file__).parent.parent
SOURCE = "class Fsync: ...\n\ndef test_deduplication_works() -> None: ...\n"


def test_every_field_word_leads_to_its_file() -> None:
    assert field_words.check(ROOT) == []


@pytest.mark.parametrize(
    ("name", "word", "expected"),
    [
        ("retention", "retention", True),
        ("dead_letters", "dead letter", True),
        ("DeadLetters", "dead letter", True),
        ("test_deduplication_works", "dedup", True),
        ("background", "ack", False),
        ("test_an_ack_is_sent", "ack", True),
        ("test_dead_or_letter", "dead letter", False),
    ],
)
def test_a_name_has_a_word_from_the_beginning_of_a_part(
    name: str, word: str, *, expected: bool
) -> None:
    assert field_words.has(name, word) is expected


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(field_words, "WORDS_MIN", 1)
    for folder in ("docs/reference", "tests", "zbroker"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "zbroker" / "disk.py").write_text(SOURCE)
    (tmp_path / field_words.GLOSSARY).write_text("| log compaction | not there |\n| shard | one |")
    return tmp_path


@pytest.mark.parametrize(
    ("listed", "complaint"),
    [
        ('[words]\n"fsync" = "zbroker/disk.py"\n[not_there]\n"compaction" = ""', ""),
        ("[words]\n[not_there]", "has 0 words"),
        ('[words]\n"fsync" = "zbroker/file.py"\n[not_there]', "which does not exist"),
        ('[words]\n"lease" = "zbroker/disk.py"\n[not_there]', "no name in zbroker/disk.py"),
        ('[words]\n"dedup" = "zbroker/disk.py"\n[not_there]\n"shard" = ""', "has no row"),
        (
            '[words]\n"dedup" = "zbroker/disk.py"\n[not_there]\n"fsync" = ""',
            "has the name Fsync",
        ),
    ],
)
def test_a_word_that_leads_nowhere_is_found(root: Path, listed: str, complaint: str) -> None:
    (root / field_words.LIST).write_text(listed)
    found = field_words.check(root)
    assert any(complaint in what for what in found) if complaint else found == []
