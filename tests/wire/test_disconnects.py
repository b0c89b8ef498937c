"""zbroker/wire/disconnects.py: whose tokens count no more."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError
from zbroker.wire.disconnects import CLIENTS_MAX, NONE, Disconnects, decode, encode
from zbroker.wire.token import Token


def counts(known: Disconnects, name: str, made: int) -> bool:
    """True if a token of `name` counts that was made after `made` disconnects."""
    try:
        known.check(Token(name, "p", "i", 1, 9, disconnects=made))
    except ClientError as error:
        return error.code != "auth_failed"
    return True


def test_tokens_from_before_a_disconnect_count_no_more() -> None:
    known = NONE.add("ann", 1).add("bob", 2)
    assert [counts(known, "ann", made) for made in (0, 1, 2)] == [False, True, True]
    assert [counts(known, "bob", made) for made in (0, 1, 2)] == [False, False, True]
    assert counts(known, "eve", 0)


def test_no_one_was_disconnected() -> None:
    assert counts(NONE, "ann", 0)


def test_order_does_not_matter() -> None:
    known = NONE.add("ann", 2).add("ann", 1).add("bob", 3)
    assert (known.number, known.clients["ann"]) == (3, 2)


def test_names_that_are_forgotten_end_the_tokens_of_everybody_from_then() -> None:
    known = NONE
    for number in range(1, CLIENTS_MAX + 3):
        known = known.add(f"c{number}", number)
    assert len(known.clients) == CLIENTS_MAX
    assert not counts(known, "c2", 1), "forgotten, and refused"
    assert not counts(known, "somebody else", 1), "who logs on again"
    assert counts(known, "somebody else", 2)
    assert not counts(known, "c3", 2)


def test_a_client_that_is_disconnected_again_is_not_the_oldest() -> None:
    known = NONE.add("ann", 1).add("bob", 2).add("ann", 3)
    assert list(known.clients) == ["bob", "ann"]


def test_it_is_read_as_it_was_written() -> None:
    known = NONE.add("ann", 1).add("b\u00f6b", 2)
    assert decode(encode(known)) == known


@pytest.mark.parametrize("data", [b"", b"[]", b'{"number": "1"}', b"\xff"])
def test_what_is_damaged_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
        decode(data)
