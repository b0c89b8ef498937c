"""The text of ranges."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError
from zbroker.ids import EPOCH, RangeText, is_range, parse_range


@pytest.mark.parametrize(
    ("text", "first", "last", "cuts"),
    [
        ("[1|2|:1|5|)", "1|2|", "1|5|", ("at", "at")),
        ("(1|2|:1|5|]", "1|2|", "1|5|", ("behind", "behind")),
        ("[1|2|,3|4|:0|1|]", "1|2|,3|4|", "0|1|", ("at", "behind")),
        ("(20200101T000000:)", "20200101T000000", "", ("behind", "at")),
        ("[:000000000000000a.1.5)", "0", "000000000000000a.1.5", ("at", "at")),
    ],
)
def test_a_range_has_two_ends_and_two_brackets(text, first, last, cuts):
    found = parse_range(text)
    assert (found.first, found.last) == (first, last)
    assert (found.first_cut, found.last_cut) == cuts
    assert parse_range(found.text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a:b", "is between"),
        ("a:b)", "is between"),
        ("]a:b[", "is between"),
        ("", "is between"),
        ("[", "is between"),
        ("[)", "no colon"),
        ("[1|2|)", "no colon"),
        ("[a:b:c)", "more than one colon"),
        ("[12:00:00)", "more than one colon"),
        ("[:)", "no end at all"),
    ],
)
def test_what_is_no_range_is_refused_with_the_place(text, why):
    with pytest.raises(ClientError, match=why) as raised:
        parse_range(text)
    assert raised.value.code == "bad_bookmark"


def test_what_is_left_behind_a_vector_keeps_its_end():
    left = parse_range("[1|2|:1|5|]").after("000000000000000a.1.5")
    assert left == RangeText("(", "000000000000000a.1.5", "1|5|", "]")


@pytest.mark.parametrize("text", ["", "0", "1|2|", "20200101T000000", "000000000000000a.1.5"])
def test_a_point_is_no_range(text):
    assert not is_range(text)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("[point:a:point:b)", "point:a", "point:b"),
        ("(point:a:]", "point:a", ""),
        ("[:point:b]", EPOCH, "point:b"),
        ("[0:point:b)", "0", "point:b"),
        ("[point:a:5|1|)", "point:a", "5|1|"),
    ],
)
def test_points_with_names_are_ends_too(text, first, last):
    found = parse_range(text)
    assert (found.first, found.last) == (first, last)
    assert parse_range(found.text) == found


@pytest.mark.parametrize("text", ["[point:a:point:b:c)", "[a:point:b:c)", "[point:a:b:c)"])
def test_a_name_in_a_range_has_no_colon(text):
    with pytest.raises(ClientError, match="more than one colon"):
        parse_range(text)
