"""What is held, reported and counted in unusual cases: a lost tail, a gap, no credit."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from tests.delivery.world import ANN, HERE, World, ready
from zbroker.blocks.block_reader import READ_CACHE_BYTES, BlockReader
from zbroker.blocks.frame_builder import Block, FrameBuilder
from zbroker.blocks.read_request import Read
from zbroker.checksums import crc32c
from zbroker.config import RecordConfig
from zbroker.ids import EPOCH, NOW, parse_vector
from zbroker.limits import CREDIT_MAX_BYTES, MIB
from zbroker.log.reader import Cursor, Skipped
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RECORDING = Recording([RecordConfig("t.*", regex=True)])
PLENTY = 1 << 40


# -- a power cut takes what was written ---------------------------------------------------------


def restart(world: World, persisted: int) -> None:
    """The journal lost what was written after `persisted`."""
    world.log = [batch for batch in world.log if batch.position < persisted]
    world.published = [seen for seen in world.published if seen.position < persisted]
    world.next_position = world.written = world.persisted = persisted
    world.sequences = {seen.publisher: seen.seq for seen in world.published}
    world.incarnation += 1
    world.welcome()
    world.pump()


def holding(interval_s: float) -> tuple[World, int]:
    """A live, conflating subscription, and the position after what is durable."""
    world = ready()
    world.publish("t")
    world.persist()
    options = m.Options(delivery="live", conflation_s=interval_s, conflation_key=["/id"])
    world.subscribe("t", bookmark=NOW, options=options)
    return world, world.next_position


def test_what_was_held_and_lost_is_no_resume_point() -> None:
    world, at = holding(1_000.0)
    world.publish("u")
    world.publish("t", payloads=[b'{"id":1}'])
    world.write()
    restart(world, at)
    world.publish("t", payloads=[b'{"id":2}'], publisher=6)
    world.publish("u", publisher=6)
    world.persist()
    world.pass_time(3_000)
    assert world.got() == []
    reported = [parse_vector(ack.vector or "")[HERE] for ack in world.acks("persisted")]
    assert all(one < at for one in reported), (reported, at)


def test_what_was_held_and_lost_is_not_sent() -> None:
    world, at = holding(10.0)
    world.publish("t", payloads=[b'{"id":1}'])
    world.publish("t", payloads=[b'{"id":2}'])
    world.write()
    restart(world, at)
    world.publish("t", payloads=[b'{"id":3}'], publisher=6)
    world.persist()
    world.pass_time(60_000)
    assert [seen.data for seen in world.got()] == [b'{"id":3}']


def test_the_bookmark_that_is_reported_is_not_that_of_a_lost_message() -> None:
    world = ready()
    world.subscribe("t", bookmark=NOW, options=m.Options(delivery="live"))
    world.publish("t")
    world.publish("t")
    world.persist()
    at = world.next_position
    world.publish("t")
    world.write()
    lost = world.got()[-1]
    restart(world, at)
    world.pass_time(5_000)
    reported = [ack.bookmark for ack in world.acks("persisted") + world.acks("completed")]
    assert f"{lost.publisher}|{lost.seq}|" not in reported


# -- gaps and ends ------------------------------------------------------------------------------


def test_what_is_held_before_a_gap_is_sent_before_the_gap_is_reported() -> None:
    world = ready()
    world.publish("t")
    world.damage(2)
    world.publish("t")
    world.persist()
    world.subscribe("t", options=m.Options(conflation_s=1_000.0))
    assert world.errors() == ["gap"]
    assert [seen.position for seen in world.got()] == [1]


def test_one_that_ends_before_a_gap_ends_well_beside_one_that_meets_it() -> None:
    """Both share a replay, which goes on for the other one in the same turn."""
    world = ready()
    world.publish("t")
    world.publish("u")
    world.damage(2)
    world.persist()
    world.subscribe("t", "a", until="1|1|", options=m.Options(paused=True))
    world.subscribe("u", "b", options=m.Options(paused=True))
    world.send(m.Resume(["a", "b"]))
    assert [seen.position for seen in world.got("a")] == [1]
    assert [seen.position for seen in world.got("b")] == [2]
    assert [ack.sid for ack in world.acks("completed") if ack.ended] == ["a"]
    assert [a.sid for _, a in world.answers if isinstance(a, m.Error)] == ["b"]
    assert world.errors() == ["gap"]
    assert [note.name for note in world.notes] == ["delivery.gap"]


def test_one_that_caught_up_before_a_gap_learns_so_and_then_of_the_gap() -> None:
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe("t", options=m.Options(paused=True))
    world.damage(2)
    world.persist()
    world.send(m.Resume(["s"]))
    completed, gap = (answer for _, answer in world.answers[-2:])
    assert (completed.type, completed.ended) == ("completed", False)
    assert parse_vector(completed.vector)[HERE] == 1
    assert gap.code == "gap"


def test_a_bookmark_does_not_go_beyond_the_end_of_a_range() -> None:
    """A run without wanted topics that goes on after the end is one Skipped."""
    world = ready()
    world.publish("t")
    run = world.publish("u", "u", "u", publisher=2)
    world.persist()
    plain = world.read

    def read(asked: Read) -> Block:
        block = plain(asked)
        skipped = Skipped(run.position, run.end_position, 2, 3)
        block.items = [skipped if item is run and asked.wants else item for item in block.items]
        return block

    world.read = read  # type: ignore[method-assign]
    world.subscribe("t", bookmark=EPOCH, until="2|1|")
    (ack,) = [ack for ack in world.acks("completed") if ack.ended]
    assert parse_vector(ack.vector or "")[HERE] in (1, 2)
    assert ack.bookmark in (None, "1|1|", "2|1|")


# -- what is not recorded -----------------------------------------------------------------------


def pass_on(world: World, *topics: str, seq: int = 1) -> None:
    names = sorted(set(topics))
    body = bodies.pack([b"%d" % (seq + n) for n in range(len(topics))])
    columns = m.Columns(array("H", map(names.index, topics)).tobytes()) if len(names) > 1 else None
    entry = i.Entry(7, 1, seq, len(topics), None, crc32c(body), None, names, columns=columns)
    world.pass_on([entry], [body])
    world.core.check()


def test_an_unrecorded_message_leaves_a_subscription_on_the_fast_path() -> None:
    world = ready(recording=RECORDING)
    world.subscribe("u", bookmark=None)
    one = world.core.connections[ANN].subscriptions["s"]
    pass_on(world, "u")
    assert len(world.got()) == 1
    assert one.plain


def test_a_limit_reached_by_unrecorded_messages_ends_it() -> None:
    world = ready(recording=RECORDING)
    world.subscribe("u", bookmark=None, options=m.Options(limit=2))
    pass_on(world, "u", "u")
    pass_on(world, "u", seq=3)
    assert len(world.got()) == 2
    assert world.acks("completed")[-1].ended
    assert world.core.subscriptions == {}


# -- credit and memory --------------------------------------------------------------------------


def test_what_is_given_back_while_others_have_the_credit_is_not_lost() -> None:
    world = ready()
    half = CREDIT_MAX_BYTES // 2
    world.subscribe("t", sid="a", bookmark=NOW, credit=half)
    world.subscribe("u", sid="b", bookmark=NOW, credit=half)
    for number in range(3):
        size = half // 2
        for _ in range(4):
            world.publish("t", size=size // 4)
            world.persist()
        world.subscribe("v", sid=f"c{number}", bookmark=NOW, credit=size)
        world.send(m.Flow("a", size + 1_000))
    assert world.core.connections[ANN].subscriptions["a"].credit >= half // 2


class Zeros:
    """A log of batches that are a hundred bytes on disk and a megabyte unpacked."""

    def __init__(self, world: World) -> None:
        self.world = world

    def read_wanted(self, _cursor: Cursor, *_more: Any, **_wants: Any) -> tuple[list[Any], Cursor]:
        batch = self.world.publish("t", payloads=[bytes(MIB)], zstd=True)
        return [batch], Cursor(1, batch.offset + 1, batch.end_position)


def test_the_cache_counts_what_was_made_of_a_block(tmp_path: Path) -> None:
    reading, maker, cursor = BlockReader(tmp_path), FrameBuilder(HERE), Cursor(1, 0, 1)
    reading._logs = (Zeros(ready()),) * 2  # type: ignore[assignment]
    for _ in range(40):
        block = reading.read(Read(1, cursor, False, PLENTY, 1 << 16))
        maker.whole(block, 0, (True,), zstd=False)  # for one that takes no zstd
        cursor = block.next
    assert len(reading._blocks) <= 2 + READ_CACHE_BYTES // MIB
