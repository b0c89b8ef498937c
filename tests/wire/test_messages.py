"""What is true of every answer (zbroker/wire/messages.py)."""

from __future__ import annotations

import msgspec
import pytest

from zbroker.errors import CODES, hint_of
from zbroker.wire import codec
from zbroker.wire import messages as m


@pytest.mark.parametrize("code", CODES)
def test_an_error_on_the_wire_always_has_a_hint(code: str) -> None:
    said = msgspec.msgpack.decode(codec.encode(m.Error(code, "why", cid="1")))
    assert said["hint"] == hint_of(code) != ""


def test_a_hint_of_the_one_who_refuses_stays() -> None:
    assert m.Error("bad_field", "why", "do this").hint == "do this"


def test_an_error_of_an_older_broker_gets_the_hint_here() -> None:
    reported = msgspec.msgpack.encode({"cmd": "error", "code": "name_in_use", "reason": "why"})
    assert msgspec.msgpack.decode(reported, type=m.Error).hint == hint_of("name_in_use")


def test_a_code_that_is_not_known_has_none() -> None:
    assert m.Error("of_tomorrow", "why").hint == ""
