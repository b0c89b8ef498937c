"""zbroker/ingest/checks.py: a message of exactly the limit is taken, in whatever form it comes."""

from __future__ import annotations

import pytest
import zstandard

from zbroker.errors import ClientError
from zbroker.ingest.checks import PublishChecks
from zbroker.wire import bodies
from zbroker.wire.messages import Publish

LIMIT = 70_000


def check(publish: Publish, body: bytes, limit: int = LIMIT, batch: int = 1_000) -> None:
    PublishChecks(limit, batch, publisher_time=False).check(publish, body)


@pytest.mark.parametrize("limit", [100, 255, 256, 65_535, 65_536, LIMIT])
def test_a_message_of_exactly_the_limit_is_taken_in_every_form(limit: int) -> None:
    data = bytes(limit)
    packed = bodies.pack([data])
    check(Publish(1, "t"), data, limit)
    check(Publish(1, "t", count=1), packed, limit)
    check(Publish(1, "t", count=1, codec="zstd"), zstandard.compress(packed), limit)


@pytest.mark.parametrize("limit", [100, 255, 256, 65_535, 65_536, LIMIT])
def test_one_byte_more_is_too_large_and_reported_as_it_is(limit: int) -> None:
    data = bytes(limit + 1)
    for publish, body in (
        (Publish(1, "t"), data),
        (Publish(1, "t", count=1), bodies.pack([data])),
    ):
        with pytest.raises(ClientError) as raised:
            check(publish, body, limit)
        assert raised.value.code == "too_large"
        assert raised.value.reason == f"a message has at most {limit} bytes, this one {limit + 1}"


@pytest.mark.parametrize("body", [b"", b"\x91", b"\xdc", b"\xdc\x00\x01", b"\x90", b"\xc4\x01"])
def test_what_is_no_packed_message_is_reported(body: bytes) -> None:
    with pytest.raises(ClientError) as raised:
        check(Publish(1, "t", count=1), body)
    assert raised.value.code == "bad_frame"


def test_prev_is_below_seq_and_both_below_two_to_the_63rd() -> None:
    for publish in (Publish(5, "t", prev=5), Publish(2**63 - 1, "t", count=2)):
        with pytest.raises(ClientError) as raised:
            check(publish, bodies.pack([b"x", b"y"]))
        assert raised.value.code == "bad_field"
