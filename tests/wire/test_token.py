"""The token of the listeners (zbroker/wire/token.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.errors import ClientError
from zbroker.wire import token

KEY = b"k" * 32
MADE = token.make(KEY, token.Token("ann", "ann@host", "i1", 7, 100))


def code_of(text: str, key: bytes = KEY, now_s: float = 0) -> str:
    with pytest.raises(ClientError) as caught:
        token.verify(key, text, now_s)
    return caught.value.code


def test_a_token_says_who_was_authenticated():
    assert token.verify(KEY, MADE, 99.9) == token.Token("ann", "ann@host", "i1", 7, 100)


def test_a_token_expires():
    assert code_of(MADE, now_s=100) == "auth_failed"


def test_another_key_does_not_verify():
    assert code_of(MADE, key=b"x" * 32) == "auth_failed"


def test_every_changed_character_is_noticed():
    for at in range(len(MADE)):
        other = "A" if MADE[at] != "A" else "B"
        forged = MADE[:at] + other + MADE[at + 1 :]
        try:
            reported = token.verify(KEY, forged, 0)
        except ClientError:
            continue
        assert reported == token.verify(KEY, MADE, 0), "only unused bits of the encoding may differ"


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    assert code_of(text) == "auth_failed"


def test_a_token_of_another_layout_is_refused():
    import msgspec

    payload = msgspec.msgpack.encode(["ann"])
    text = token._text(payload) + "." + token._text(token._sign(KEY, payload))
    assert code_of(text) == "auth_failed"


def test_names_that_are_too_long_for_a_token_are_refused():
    with pytest.raises(ClientError, match="too_large"):
        token.make(KEY, token.Token("n" * 255, "p", "i" * 2_000, 1, 1))
    longest = token.make(KEY, token.Token("n" * 255, "n" * 255, "i" * 900, 1, 1))
    assert len(longest) <= token.TOKEN_MAX_CHARS
