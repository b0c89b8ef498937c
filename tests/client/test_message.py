"""Decoding batches into messages."""

from __future__ import annotations

import sys
from array import array
from datetime import UTC, datetime

import msgspec
import pytest
import zstandard

from zbroker.checksums import crc32c
from zbroker.client.message import NO_MESSAGES, MessageBatch, PayloadUse, decode
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire.messages import Columns, Msg

OWN = Origin(5, 1)
DATA = [b"a", b"b", b"c", b"d"]
BODY = msgspec.msgpack.encode(DATA)


def msg(**fields):
    given = {"sid": "s", "publisher": 9, "seq": 100, "position": 50, "time_ns": 10**9, "count": 4}
    given |= {"topic": "t"} | fields
    return Msg(**given)


def seen(message, body=BODY):
    return [(m.data, m.sequence, m.position) for m in decode(message, body, OWN, 1_000)]


def test_messages_are_numbered_from_the_first():
    assert seen(msg()) == [(b"a", 100, 50), (b"b", 101, 51), (b"c", 102, 52), (b"d", 103, 53)]


def test_only_what_counts_is_seen():
    assert seen(msg(skip=1, take=2)) == [(b"b", 100, 50), (b"c", 101, 51)]


def test_skip_without_take_goes_to_the_end():
    assert seen(msg(skip=3)) == [(b"d", 100, 50)]


def test_a_packed_again_body_says_how_far_its_messages_are_apart():
    offset = array("I", [0, 3, 4, 9]).tobytes()
    assert [p for _, _, p in seen(msg(columns=Columns(offset=offset)))] == [50, 53, 54, 59]


@pytest.mark.seed("004-08")
@pytest.mark.seed("004-30")
def test_a_message_knows_its_batch():
    first = decode(msg(), BODY, OWN, 1_000)[0]
    assert (first.topic, first.publisher, first.bookmark) == ("t", 9, "9|100|")
    assert (first.time_ns, first.time) == (10**9, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert first.origin == OWN


def test_columns_give_each_message_its_topic_and_time():
    columns = Columns(
        index=array("H", [1, 0, 1, 0]).tobytes(), time=array("q", [-1, 2, 3, 4]).tobytes()
    )
    batch = decode(msg(topic=None, topics=["x", "y"], columns=columns, skip=1), BODY, OWN, 1_000)
    assert [(m.topic, m.time_ns) for m in batch] == [("x", 2), ("y", 3), ("x", 4)]


def test_a_message_has_what_its_publisher_gave_it():
    headers = {"s": "é", "i": -1, "f": 0.5, "b": True, "bin": b"\xff", "none": None}
    columns = Columns(
        keys=msgspec.msgpack.encode([b"k", None, b"", b"x"]),
        headers=msgspec.msgpack.encode([None, headers, {}, {"a": 1}]),
        expiry=array("q", [0, 10**18 + 1, 0, 1]).tobytes(),
    )
    batch = decode(msg(columns=columns, take=3), BODY, OWN, 1_000)
    assert [m.key for m in batch] == [b"k", None, b""]
    assert [m.headers for m in batch] == [{}, headers, {}]
    assert [m.expires_ns for m in batch] == [None, 10**18 + 1, None]
    assert [m.expires for m in batch] == [None, datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), None]


OFFSETS = Columns(offset=array("I", [0, 3, 4, 9]).tobytes())
SHAPES = {
    "whole": msg(),
    "a part": msg(skip=1, take=2),
    "packed again": msg(columns=OFFSETS),
    "a part of one that was packed again": msg(columns=OFFSETS, skip=1),
    "not recorded": msg(position=0),
}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES)
def test_columns_of_a_batch_say_what_its_messages_say(message):
    batch = decode(message, BODY, OWN, 1_000)
    messages = list(batch)
    assert batch.data == [m.data for m in messages]
    assert list(batch.sequences) == [m.sequence for m in messages]
    assert list(batch.positions) == [m.position for m in messages]
    assert [batch[i].sequence for i in range(len(batch))] == list(batch.sequences)
    assert batch[-1].data == messages[-1].data


def triples(messages):
    return [(m.data, m.sequence, m.position) for m in messages]


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES)
def test_a_slice_of_a_batch_is_a_batch(message):
    batch = decode(message, BODY, OWN, 1_000)
    for part in (slice(1, None), slice(None, 1), slice(0, 0), slice(None, None, 2)):
        assert isinstance(batch[part], MessageBatch)
        assert triples(batch[part]) == triples(list(batch)[part])


def test_a_batch_is_cut_after_a_sequence_or_a_position():
    batch = decode(msg(columns=OFFSETS), BODY, OWN, 1_000)
    assert batch.after_position(53).data == [b"c", b"d"]
    assert batch.after_position(49).data == DATA
    assert batch.after_sequence(104).data == [b"d"]
    assert not batch.after_sequence(109)


def test_a_batch_of_messages_has_these_messages():
    """What a bookmark store keeps is known by identity."""
    messages = [one for one in decode(msg(), BODY, OWN, 1_000) if one.data != b"b"]
    batch = MessageBatch.of(messages)
    assert batch.messages() is messages
    assert batch[1] is messages[1]
    assert batch[1:].messages()[0] is messages[1]
    assert (batch.data, list(batch.sequences)) == ([b"a", b"c", b"d"], [100, 102, 103])
    assert list(batch.positions) == [50, 52, 53]


def test_no_messages_are_a_batch():
    assert (len(NO_MESSAGES), list(NO_MESSAGES), list(NO_MESSAGES.sequences)) == (0, [], [])


def test_a_batch_as_a_record_batch():
    pytest.importorskip("pyarrow")
    columns = Columns(
        index=array("H", [1, 0, 1, 0]).tobytes(), time=array("q", [0, 2000, 3999, 4000]).tobytes()
    )
    batch = decode(msg(topic=None, topics=["x", "y"], columns=columns, skip=1), BODY, OWN, 1_000)
    table = batch.to_arrow()
    moments = [datetime(1970, 1, 1, microsecond=n, tzinfo=UTC) for n in (2, 3, 4)]
    assert table.to_pydict() == {
        "topic": ["x", "y", "x"],
        "publisher": ["9"] * 3,
        "sequence": [100, 101, 102],
        "position": [50, 51, 52],
        "timestamp": moments,
        "payload": [b"b", b"c", b"d"],
    }
    assert decode(msg(), BODY, OWN, 1_000)[:2].to_arrow().column("topic").to_pylist() == ["t", "t"]


LONG = [b"%03d" % i for i in range(140)]
LONG_SHAPES = {
    "whole": msg(count=140),
    "a part": msg(count=140, skip=1, take=137),
    "packed again": msg(
        count=140, skip=2, columns=Columns(offset=array("I", range(0, 280, 2)).tobytes())
    ),
}


def lazy(message, use=None):
    """A batch with payloads of one length, whose reader has not looked at any yet."""
    return decode(message, msgspec.msgpack.encode(LONG), OWN, 1_000, use or PayloadUse())


@pytest.mark.parametrize("message", LONG_SHAPES.values(), ids=LONG_SHAPES)
def test_payloads_of_one_length_are_the_same_where_they_are(message):
    plain = decode(message, msgspec.msgpack.encode(LONG), OWN, 1_000)
    assert plain.strided is None
    assert lazy(message).strided is not None
    assert triples(lazy(message)) == triples(plain)
    assert lazy(message).data == plain.data
    assert lazy(message).size == plain.size == 3 * len(plain)
    assert len(lazy(message)) == len(plain)
    for i in (0, 5, -1):
        assert triples([lazy(message)[i]]) == triples([plain[i]])
    assert triples(lazy(message).after_sequence(105)) == triples(plain.after_sequence(105))


@pytest.mark.parametrize("part", [slice(0, 0), slice(None, None, -1), slice(2, 90, 3)])
def test_a_slice_as_a_record_batch(part):
    pytest.importorskip("pyarrow")
    columns = Columns(
        index=array("H", [i % 2 for i in range(140)]).tobytes(),
        time=array("q", range(0, 140_000, 1_000)).tobytes(),
    )
    batch = lazy(msg(count=140, topic=None, topics=["x", "y"], columns=columns))[part]
    assert batch.to_arrow().select(["topic", "sequence", "payload"]).to_pylist() == [
        {"topic": one.topic, "sequence": one.sequence, "payload": one.data} for one in batch
    ]
    assert batch.to_arrow()["timestamp"].to_pylist() == [one.time for one in batch]


@pytest.mark.parametrize("message", LONG_SHAPES.values(), ids=LONG_SHAPES)
def test_a_record_batch_is_the_same_of_payloads_where_they_are(message):
    pytest.importorskip("pyarrow")
    plain, batch = decode(message, msgspec.msgpack.encode(LONG), OWN, 1_000), lazy(message)
    assert batch.to_arrow().equals(plain.to_arrow())
    assert batch.strided is not None, "no payload was made"
    assert batch.to_arrow()["payload"].to_pylist() == plain.data


def test_payloads_are_unpacked_as_they_come_once_a_reader_looked_at_some():
    use = PayloadUse()
    first, second = lazy(msg(count=140), use), lazy(msg(count=140), use)
    assert list(first.sequences) == list(range(100, 240))
    assert second[-1].data == LONG[-1]
    assert lazy(msg(count=140), use).strided is not None
    assert list(second)[3].data == LONG[3]
    assert second.strided is None
    assert lazy(msg(count=140), use).strided is None


def test_a_few_payloads_are_unpacked_at_once():
    assert decode(msg(), BODY, OWN, 1_000, PayloadUse()).strided is None


def test_nothing_of_a_damaged_batch_is_used_later():
    """What is not unpacked was proved."""
    body = bytearray(msgspec.msgpack.encode(LONG))
    for at in (*range(3, len(body), 5), *range(4, len(body), 5)):
        body[at] ^= 0xFF
        with pytest.raises(ZBrokerError, match="bad_frame"):
            decode(msg(count=140), bytes(body), OWN, 1_000, PayloadUse())
        body[at] ^= 0xFF


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_record_batch_takes_a_package(monkeypatch, package):
    monkeypatch.delitem(sys.modules, "zbroker.client.record_batch", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ZBrokerError, match="missing_package"):
        decode(msg(), BODY, OWN, 1_000).to_arrow()


def test_a_message_to_which_nothing_was_given_has_nothing():
    message = decode(msg(), BODY, OWN, 1_000)[0]
    assert (message.key, message.headers, message.expires, message.expires_ns) == (
        None,
        {},
        None,
        None,
    )


def test_another_origin_brings_its_own_positions():
    batch = decode(msg(origin=(7, 2, 800)), BODY, OWN, 1_000)
    assert (batch[1].origin, batch[1].position) == (Origin(7, 2), 801)


def test_a_compressed_body_is_read():
    body = zstandard.ZstdCompressor().compress(BODY)
    assert len(seen(msg(codec="zstd", crc=crc32c(body)), body)) == 4


BOMB = zstandard.ZstdCompressor().compress(b"\0" * 100_000)


@pytest.mark.parametrize(
    ("message", "body", "code"),
    [
        (msg(crc=1), BODY, "bad_checksum"),
        (msg(count=5), BODY, "bad_frame"),
        (msg(), BODY[:-1], "bad_frame"),
        (msg(), b"", "bad_frame"),
        (msg(skip=4), BODY, "bad_frame"),
        (msg(skip=2, take=3), BODY, "bad_frame"),
        (msg(codec="zstd"), BOMB, "too_large"),
        (msg(columns=Columns(time=b"1234567")), BODY, "bad_frame"),
        (msg(columns=Columns(offset=b"12345678")), BODY, "bad_frame"),
        (msg(columns=Columns(keys=b"\x91\xc0")), BODY, "bad_frame"),
        (msg(columns=Columns(keys=msgspec.msgpack.encode([1] * 4))), BODY, "bad_frame"),
        (msg(columns=Columns(headers=msgspec.msgpack.encode([{"a": []}] * 4))), BODY, "bad_frame"),
        (msg(columns=Columns(expiry=b"1234567")), BODY, "bad_frame"),
        (msg(columns=Columns(expiry=b"\xff" * 32)), BODY, "bad_frame"),
        (msg(topics=["x"], columns=Columns(index=b"\1\0" * 4)), BODY, "bad_frame"),
    ],
)
def test_nothing_of_a_damaged_batch_is_used(message, body, code):
    with pytest.raises(ZBrokerError) as raised:
        decode(message, body, OWN, 1_000)
    assert raised.value.code == code


def test_a_message_that_is_not_recorded_has_no_place_in_the_log():
    messages = decode(msg(position=0), BODY, OWN, 1_000)
    assert [m.position for m in messages] == [0] * 4
    assert {m.bookmark for m in messages} == {""}
    assert [m.sequence for m in messages] == [100, 101, 102, 103]
    assert not any(m.recorded for m in messages)
    assert "not recorded" in repr(messages[0])
    with pytest.raises(ZBrokerError, match="the batch from sequence 100 on"):
        decode(msg(position=0, crc=1), BODY, OWN, 1_000)


@pytest.mark.parametrize("offsets", [[0, 4, 3, 9], [0, 3, 2, 1]])
def test_offsets_rise(offsets):
    columns = Columns(offset=array("I", offsets).tobytes())
    with pytest.raises(ZBrokerError, match="do not rise") as caught:
        decode(msg(columns=columns), BODY, OWN, 1_000)
    assert caught.value.code == "bad_frame"


def test_a_message_of_a_packed_again_body_finds_its_columns():
    columns = Columns(
        offset=array("I", [0, 3, 4, 9]).tobytes(), index=array("H", [1, 0, 1, 0]).tobytes(),
        keys=msgspec.msgpack.encode([b"k", None, b"", b"x"]),
    )  # fmt: skip
    batch = decode(msg(topic=None, topics=["x", "y"], columns=columns, skip=1), BODY, OWN, 1_000)
    assert [(m.topic, m.key, m.sequence) for m in batch] == [
        ("x", None, 103), ("y", b"", 104), ("x", b"x", 109),
    ]  # fmt: skip
