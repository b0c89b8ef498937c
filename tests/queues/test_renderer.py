"""zbroker/queues/renderer.py: messages for consumers, made of what was read."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import ANN, HERE, STEP_NS, WALL_NS, Bench
from zbroker.blocks.frame_builder import FrameBuilder
from zbroker.filters import Payloads, compile_filter
from zbroker.queues import renderer
from zbroker.queues.clients import RemoteConsumer
from zbroker.queues.effects import Give
from zbroker.queues.message_finder import FoundMessages
from zbroker.queues.renderer import Renderer
from zbroker.wire import bodies, codec
from zbroker.wire.queue_messages import Job

TO = RemoteConsumer(1, ANN, "s", "ann", "q", 0, sid_packed=codec.encode("s"))
GIVING = Renderer(FrameBuilder(HERE, Job))


def _found(at: Bench, positions: list[int]) -> FoundMessages:
    [found] = at._found(BitMap64(positions))
    return found


def _jobs(
    give: Give, found: FoundMessages, *, sees_all: bool = True
) -> list[tuple[Job, list[bytes]]]:
    """What a consumer gets: header, and the messages that count."""
    jobs = []
    parts = GIVING.parts(give, found, sees_all=sees_all)
    for send in renderer.sends(give, parts):
        assert send.rid == ANN
        job = codec.decode(codec.QUEUES_ANSWERS, send.header)
        assert isinstance(job, Job)
        assert job.sid == "s"
        assert send.body is not None
        data = bodies.unpack(send.body, job.codec, job.count, 1 << 30)
        last = job.count if job.take is None else job.skip + job.take
        jobs.append((job, data[job.skip : last]))
    return jobs


def _counts(job: Job) -> list[int] | None:
    return None if job.deliveries is None else list(memoryview(job.deliveries).cast("H"))


def test_a_whole_batch_goes_as_it_came() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    [(job, data)] = _jobs(Give(TO, found.positions), found)
    assert (job.position, job.count, job.topic, job.skip, job.take) == (1, 3, "t", 0, None)
    assert data == [b"a", b"b", b"c"]
    assert (job.deliveries, job.barrier, job.acked) == (None, False, None)
    [part] = GIVING.parts(Give(TO, found.positions), found, sees_all=True)
    assert part.body is at.log[0].body


def test_most_of_a_batch_goes_as_it_came_and_the_rest_packed_anew() -> None:
    at = Bench()
    positions = at.publish(*[b"%d" % n for n in range(10)])
    most = _found(at, positions[2:9])
    [(job, data)] = _jobs(Give(TO, most.positions), most)
    assert (job.count, job.skip, job.take, job.position) == (10, 2, 7, positions[2])
    assert data == [b"%d" % n for n in range(2, 9)]
    few = _found(at, [positions[1], positions[8]])
    [(job, data)] = _jobs(Give(TO, few.positions), few)
    assert (job.count, job.position, data) == (2, positions[1], [b"1", b"8"])
    assert job.columns is not None
    assert list(bodies.offsets(job.columns.offset)) == [0, 7]


def test_who_may_not_see_everything_gets_only_what_counts() -> None:
    at = Bench()
    positions = at.publish(*[b"%d" % n for n in range(10)])
    most = _found(at, positions[2:9])
    [(job, data)] = _jobs(Give(TO, most.positions), most, sees_all=False)
    assert (job.count, job.skip) == (7, 0)
    assert data == [b"%d" % n for n in range(2, 9)]


def test_deliveries_are_told_unless_each_is_the_first() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    for counts, told in (([1, 3, 70_000], [1, 3, 65_535]), ([1, 1, 1], None), (None, None)):
        [(job, _)] = _jobs(Give(TO, found.positions, counts), found)
        assert _counts(job) == told


def test_deliveries_are_those_of_the_messages_in_a_batch() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b") + at.publish(b"c", b"d")
    give = Give(TO, BitMap64(positions), [1, 2, 3, 4])
    told = [
        (_counts(job), data) for found in at._found(give.positions)
        for job, data in _jobs(give, found)
    ]  # fmt: skip
    assert told == [([1, 2], [b"a", b"b"]), ([3, 4], [b"c", b"d"])]


def test_deliveries_go_with_their_messages_where_a_header_is_split() -> None:
    at = Bench()
    keys = [b"%d" % n + bytes(16_000) for n in range(8)]
    positions = at.publish(*[b"%d" % n for n in range(8)], keys=keys)
    found = _found(at, positions)
    jobs = _jobs(Give(TO, found.positions, list(range(1, 9))), found)
    assert len(jobs) > 1
    assert [count for job, _ in jobs for count in _counts(job) or [1]] == list(range(1, 9))


def test_a_barrier_says_so() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b")
    found = _found(at, positions[1:])
    [(job, data)] = _jobs(Give(TO, found.positions, barrier=True), found)
    assert job.barrier
    assert data == [b"b"]


@pytest.mark.parametrize(
    ("acked", "told"), [([], None), ([0, 2], b"\1\0\1")]
)  # fmt: skip
def test_what_was_acknowledged_is_told(acked: list[int], told: bytes | None) -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    marks = BitMap64([positions[i] for i in acked])
    [(job, _)] = _jobs(Give(TO, found.positions, acked=marks), found)
    assert job.acked == told


# -- filters ----------------------------------------------------------------------------------


def _matching(at: Bench, positions: list[int], text: str, type_: str = "json") -> list[int]:
    found, hits = at._found(BitMap64(positions)), BitMap64()
    for one in found:
        hits |= renderer.matching(one, compile_filter(text), lambda _: type_, Payloads)
    return list(hits)


def test_a_filter_is_compared_with_what_is_asked_for() -> None:
    at = Bench()
    positions = at.publish(*[b'{"n": %d}' % n for n in range(5)])
    assert _matching(at, positions, "/n > 2") == positions[3:]
    assert _matching(at, [positions[0], positions[3]], "/n > 2") == positions[3:4]


def test_each_topic_is_read_as_its_type() -> None:
    at = Bench()
    positions = at.publish(b'{"n": 1}', b"\x81\xa1n\x01", b'{"n": 2}', topics=["j", "m", "j"])
    [found] = at._found(BitMap64(positions))
    types = {"j": "json", "m": "msgpack"}
    hits = renderer.matching(found, compile_filter("/n = 1"), types.__getitem__, Payloads)
    assert list(hits) == positions[:2]


def test_a_filter_may_ask_for_what_is_not_in_the_payload() -> None:
    at = Bench()
    positions = at.publish(b"{}", b"{}", topics=["a", "b"])
    [found] = at._found(BitMap64(positions))
    about = found.block.about(found.at)
    assert [about.topic(i) for i in range(2)] == ["a", "b"]
    assert about.time_ns(1) == WALL_NS + STEP_NS
    assert [about.bookmark(i) for i in range(2)] == [at.bookmark(one) for one in positions]


def test_a_filter_may_ask_for_headers() -> None:
    at = Bench()
    positions = at.publish(b"{}", b"{}", headers=[{"n": 1}, None])
    [found] = at._found(BitMap64(positions))
    about = found.block.about(found.at)
    assert about.header(0, "n") == 1


# -- one by one -------------------------------------------------------------------------------


def test_messages_are_looked_at_as_they_were_published() -> None:
    at = Bench()
    more: dict[str, Any] = {"keys": [b"k", None, None], "headers": [None, {"a": 1}, None]}
    positions = at.publish(b"a", b"b", b"c", **more)
    rows = renderer.looked(_found(at, positions[:2]))
    assert [(row.position, row.topic, row.data, row.key, row.headers) for row in rows] == [
        (positions[0], "t", b"a", b"k", None),
        (positions[1], "t", b"b", None, {"a": 1}),
    ]
    assert [f"{row.publisher}|{row.sequence}|" for row in rows] == [
        at.bookmark(one) for one in positions[:2]
    ]
    assert {row.time_ns for row in rows} == {WALL_NS + STEP_NS}


def test_messages_without_columns_have_neither_keys_nor_headers() -> None:
    at = Bench()
    [row] = renderer.looked(_found(at, at.publish(b"a")))
    assert (row.key, row.headers) == (None, None)
    [row] = renderer.looked(_found(at, at.publish(b"a", headers=[{"a": 1}])))
    assert row.key is None


def test_nothing_is_rewritten() -> None:
    with pytest.raises(AssertionError):
        renderer._plain("t")
