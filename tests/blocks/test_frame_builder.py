"""Messages made of batches (zbroker/blocks/frame_builder.py)."""

from __future__ import annotations

from array import array

import pytest
from msgspec.msgpack import encode as pack

from tests.delivery.world import HERE, World, expand
from zbroker.blocks.frame_builder import Block, FrameBuilder, Projection
from zbroker.delivery.conflation import Conflation, messages_of
from zbroker.ids import Origin
from zbroker.limits import HEADER_MAX_BYTES
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor
from zbroker.wire import bodies, codec
from zbroker.wire import messages as m

MAKER = FrameBuilder(HERE)


def block_of(batch: Batch) -> Block:
    return Block(Cursor(1, 0, batch.position), [batch], Cursor(1, 1, batch.end_position))


def decoded(part) -> m.Msg:
    message = codec.decode(codec.ANSWERS, part.before + b"\xa1s" + part.after)
    assert isinstance(message, m.Msg)
    return message


def test_a_sid_put_in_between_gives_the_same_header():
    batch = World().publish("t", "t")
    [part] = MAKER.whole(block_of(batch), 0, (True,), zstd=False)
    plain = codec.encode(m.Msg("s", 1, 1, batch.log_time, 2, 1, "t", crc=batch.body_crc))
    assert part.before + b"\xa1s" + part.after == plain
    assert part.body is batch.body


def test_a_batch_wanted_by_many_is_made_once():
    batch = World().publish("t", "u", "t")
    block = block_of(batch)
    for wanted in ((True, True), (True, False)):
        first = MAKER.whole(block, 0, wanted, zstd=False)
        assert MAKER.whole(block, 0, wanted, zstd=False) is first


def test_a_compressed_body_goes_to_those_who_take_it_only():
    batch = World().publish("t", "t", zstd=True)
    block = block_of(batch)
    [plain] = MAKER.whole(block, 0, (True,), zstd=False)
    [packed] = MAKER.whole(block, 0, (True,), zstd=True)
    assert (decoded(plain).codec, decoded(packed).codec) == (None, "zstd")
    assert packed.body is batch.body
    assert expand(decoded(plain), plain.body) == expand(decoded(packed), packed.body)


def test_an_origin_is_named_only_if_it_is_another():
    batch = World().publish("t", "t", "t", skip=1)
    batch.origin_instance, batch.origin_generation, batch.origin_position = 9, 2, 500
    block = block_of(batch)
    [part] = MAKER.some(block, 0, _span(2, 3), (True,), zstd=False)
    assert decoded(part).origin == (9, 2, 501)
    [back] = FrameBuilder(Origin(9, 2)).some(block, 0, _span(2, 3), (True,), zstd=False)
    assert decoded(back).origin == (9, 2, 501), "it was lost here, and came back from a peer"
    batch.origin_position = batch.position
    [own] = FrameBuilder(Origin(9, 2)).some(block_of(batch), 0, _span(2, 3), (True,), zstd=False)
    assert decoded(own).origin is None


def test_a_header_stays_within_its_limit_however_many_messages_match():
    world = World()
    count = 6_000
    batch = world.publish(*["t", "u"] * (count // 2), times=list(range(1, count + 1)))
    block = block_of(batch)
    for wanted in ((True, False), (True, True)):
        parts = MAKER.whole(block, 0, wanted, zstd=False)
        assert all(len(part.before + part.after) + 66 <= HEADER_MAX_BYTES for part in parts)
        seen = [one for part in parts for one in expand(decoded(part), part.body)]
        assert seen == [one for one in world.published if one.topic == "t" or wanted[1]]
        assert sum(part.messages for part in parts) == len(seen)


def test_keys_headers_and_expiry_go_with_their_messages():
    batch = World().publish("t", "u", "t", "u")
    batch.columns.keys = pack([b"0", None, b"2", b"3"])
    batch.columns.headers = pack([None, {"n": 1}, {"n": 2}, None])
    batch.columns.expiry = array("q", [0, 10, 20, 0]).tobytes()
    block = block_of(batch)
    [whole] = MAKER.whole(block, 0, (True, True), zstd=False)
    assert decoded(whole).columns == batch.columns
    [part] = MAKER.whole(block, 0, (False, True), zstd=False)
    assert decoded(part).columns == m.Columns(
        keys=pack([None, b"3"]), headers=pack([{"n": 1}, None]),
        expiry=array("q", [10, 0]).tobytes(), offset=array("I", [0, 2]).tobytes(),
    )  # fmt: skip


def test_a_conflated_message_has_the_key_of_its_newest():
    batch = World().publish("t", "t", "u")
    batch.columns.keys = pack([b"old", b"new", None])
    batch.columns.expiry = array("q", [5, 0, 0]).tobytes()
    conflation = Conflation(10**12)
    conflation.add(messages_of(block_of(batch), 0, lambda _: "binary"), range(3))
    look = Projection(lambda _: "binary")
    heads = [decoded(MAKER.held(held, look)) for held in conflation.flush()]
    assert [(head.topic, head.columns) for head in heads] == [
        ("t", m.Columns(keys=pack([b"new"]))),
        ("u", None),
    ]


def test_long_keys_are_sent_in_several_parts():
    world, count = World(), 8
    batch = world.publish(*["t"] * count)
    batch.columns = m.Columns(keys=pack([b"%d" % i + bytes(16_000) for i in range(count)]))
    parts = MAKER.whole(block_of(batch), 0, (True,), zstd=False)
    assert all(len(part.before + part.after) + 66 <= HEADER_MAX_BYTES for part in parts)
    heads = [decoded(part) for part in parts]
    keys = [key for head in heads for key in bodies.keys(head.columns.keys, head.count)]
    assert [key[:1] for key in keys] == [b"%d" % i for i in range(count)]
    seen = [one for part in parts for one in expand(decoded(part), part.body)]
    assert seen == world.published


def test_only_a_selection_asks_for_types():
    with pytest.raises(AssertionError):
        Projection().type_of("t")


def _span(first: int, last: int):
    from zbroker.blocks.frame_builder import MessageSpan

    return MessageSpan(first, last)
