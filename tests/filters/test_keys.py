"""Keys of conflation: paths and expressions (zbroker/filters/expressions.py)."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError
from zbroker.filters import Path, parse_key


def test_a_path_stays_a_path() -> None:
    assert isinstance(parse_key("/a/b"), Path)
    assert parse_key("[/odd name (x)]")({"odd name (x)": 5}) == 5


@pytest.mark.parametrize(
    ("text", "payload", "key"),
    [
        ("UPPER(/a)", {"a": "x"}, "X"),
        ("COALESCE(/a, /b)", {"b": 5}, 5),
        ("(/a + 1)", {"a": 5}, 6),
        ("UPPER(/none)", {"a": "x"}, None),
        ("LEFT(/a, 2)", None, None),
        ("LEFT(/35, 1)", {35: "xy"}, "x"),
    ],
)
def test_a_function_makes_a_key(text: str, payload: object, key: object) -> None:
    assert parse_key(text)(payload) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/a b", "column 3 of a path: `/` and a name are expected"),
        ("a", "column 1 of a path: `/` and a name are expected"),
        ("NONE(/a)", "in a key, column 1: there is no function NONE"),
        ("UPPER(/a", "in a key, column 9: "),
        ("UUID7()", "in a key, column 1: UUID7 cannot be called here"),
        ("CONCAT(TOPIC_NAME(), /a)", "a key is made of the payload only"),
    ],
)
def test_what_is_no_key_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ClientError) as caught:
        parse_key(text)
    assert caught.value.code == "bad_field"
    assert caught.value.reason.startswith(reason)
