"""Paths into payloads (zbroker/filters/paths)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.errors import ClientError
from zbroker.filters import parse_path
from zbroker.filters.limits import PATH_MAX_CHARS, PATH_STEPS_MAX

ORDER = {
    "id": 7,
    "odd name": {"x/y": 1, "z": [{"k": "v"}, 2]},
    "legs": [{"price": 1}, {"price": 2}],
    "35": "text",
    44: "number",
    "none": None,
    0: "zero",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/id", 7),
        ("/legs[1]/price", 2),
        ("/legs[0]", {"price": 1}),
        ("[/odd name/z[0]/k]", "v"),
        ("[/odd name/z[1]]", 2),
        ("/35", "text"),
        ("/44", "number"),
        ("/0", "zero"),
        ("/044", None),
        ("/legs[2]", None),
        ("/legs/price", None),
        ("/id[0]", None),
        ("/id/x", None),
        ("/none", None),
        ("/none/x", None),
        ("/missing", None),
    ],
)
def test_a_path_gives_what_is_there(text: str, value: object) -> None:
    assert parse_path(text)(ORDER) == value


@pytest.mark.parametrize("value", [None, 5, "text", [1], b"id"])
def test_a_path_into_no_map_gives_none(value: object) -> None:
    assert parse_path("/id")(value) is None


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("/", 1),
        ("id", 1),
        ("/a//b", 3),
        ("/a b", 3),
        ("/a[x]", 3),
        ("/a[-1]", 3),
        ("/a[1", 3),
        ("/a[9999999999]", 3),
        ("[/a", 4),
        ("[/a[b]]", 4),
        ("[]", 2),
        ("/a/", 3),
        ("/" + "a" * PATH_MAX_CHARS, PATH_MAX_CHARS + 1),
        ("/a" * (PATH_STEPS_MAX + 1), 1),
    ],
)
def test_a_bad_path_is_refused_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ClientError, match=f"column {column} of a path") as refused:
        parse_path(text)
    assert refused.value.code == "bad_field"


def test_paths_are_equal_if_they_lead_to_the_same_place() -> None:
    assert parse_path("/a/b[0]") == parse_path("[/a/b[0]]")
    assert len({parse_path("/a"), parse_path("[/a]"), parse_path("/b")}) == 2


@given(st.text(st.sampled_from("/[]ab 01é.-\n"), max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except ClientError as refused:
        assert_refused(refused)
    else:
        assert path.steps
        assert path({}) is None


def assert_refused(error: ClientError) -> None:
    assert error.code == "bad_field"
