"""The column with the names that messages had in an older generation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.journal.build import publish
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.former_names import FormerName, former_ends, former_names, wrong

OLD, NOW = Origin(9, 1), Origin(9, 3)
NAME = FormerName(OLD, 6, 20)


def test_a_column_says_what_it_was_made_of() -> None:
    extra = [(8, b"crc!"), NAME.column()]
    assert list(former_names(extra)) == [NAME]
    assert wrong(extra, NOW, 6, 8) == ""


def test_it_means_the_same_for_each_part_of_a_batch() -> None:
    assert (NAME.of(6), NAME.of(8), NAME.covered(22)) == (20, 22, 8)
    whole = replace(publish(1, b"x", count=3, sequence=6), extra=[NAME.column()])
    part = replace(whole, sequence=7, skip=1, cut=1)
    assert list(former_ends(whole)) == [(OLD, 22)]
    assert list(former_ends(part)) == [(OLD, 21)]


def test_a_batch_may_have_had_several_names() -> None:
    other = FormerName(Origin(9, 2), 6, 4)
    assert list(former_names([NAME.column(), other.column()])) == [NAME, other]


@pytest.mark.parametrize(
    "extra",
    [
        [(9, b"short")],
        [FormerName(NOW, 6, 20).column()],
        [FormerName(Origin(8, 1), 6, 20).column()],
        [FormerName(OLD, 7, 1).column()],
        [FormerName(OLD, 6, U63_MAX).column()],
    ],
)
def test_a_name_that_cannot_be_is_found(extra: list[tuple[int, bytes]]) -> None:
    assert wrong(extra, NOW, 6, 8)
