"""Messages made of batches (zbroker/delivery/blocks.py)."""

from __future__ import annotations

from tests.delivery.world import HERE, World, expand
from zbroker.delivery.blocks import Block, Maker
from zbroker.ids import Origin
from zbroker.journal.format import Batch
from zbroker.journal.reader import Cursor
from zbroker.limits import HEADER_MAX_BYTES
from zbroker.wire import codec
from zbroker.wire import messages as m

MAKER = Maker(HERE)


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
    [own] = Maker(Origin(9, 2)).some(block, 0, _span(2, 3), (True,), zstd=False)
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


def _span(first: int, last: int):
    from zbroker.delivery.blocks import Span

    return Span(first, last)
