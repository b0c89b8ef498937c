"""ingest where content decides what is recorded: each message alone, in whatever batch it comes."""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.ingest.rig import item
from tests.ingest.test_recording import A, Bench, accepted, pack, persisted, refused, unrecorded
from zbroker.config import RecordConfig
from zbroker.ingest.splitter import About, BatchPart, Splitter
from zbroker.limits import FILTERED_RUNS_MAX
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import bodies, codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RECORDING = Recording(
    [
        RecordConfig("r"),
        RecordConfig("j", type="json", filter="/keep > 0"),
        RecordConfig("p", type="nvfix", filter="/keep = 'yes'"),
    ]
)
KEEP, DROP = b'{"keep":1}', b'{"keep":0}'
MAX = 10_000


def bench() -> Bench:
    return Bench(recording=RECORDING)


def one(seq: int, data: bytes, topic: str = "j", prev: int | None = None) -> Received:
    return item(A, m.Publish(seq, topic, prev=prev, ack=["persisted"]), data)


def packed(seq: int, *messages: bytes, topic: str = "j", prev: int | None = None) -> Received:
    publish = m.Publish(seq, topic, count=len(messages), prev=prev, ack=["persisted"])
    return item(A, publish, pack(messages))


def entry(
    count: int,
    topics: list[str] | None = None,
    columns: m.Columns | None = None,
    time_ns: int | None = None,
) -> i.Entry:
    return i.Entry(1, 1, 100, count, 99, 0, None, topics or ["j"], time_ns, columns)


# -- one decision per message -----------------------------------------------------------------


def test_a_batch_is_cut_where_the_answer_changes() -> None:
    listener = bench()
    listener.turn(packed(1, KEEP, KEEP, DROP, KEEP, DROP, prev=0))
    assert listener.runs() == [(1, 2, 0), (4, 1, 2)]
    assert listener.live() == [(3, 1), (5, 1)]
    assert [body for _, _, body in listener.appended] == [pack([KEEP, KEEP]), pack([KEEP])]


def test_singles_are_packed_together_and_then_cut() -> None:
    listener = bench()
    data = [KEEP, DROP, KEEP, KEEP]
    listener.turn(*(one(n + 1, message, prev=n) for n, message in enumerate(data)))
    assert listener.runs() == [(1, 1, 0), (3, 2, 1)]
    assert listener.live() == [(2, 1)]


def test_singles_keep_their_order_between_topics_of_each_kind() -> None:
    listener = bench()
    rows = [("r", DROP), ("j", KEEP), ("j", DROP), ("u", KEEP), ("r", DROP), ("j", KEEP)]
    listener.turn(*(one(n + 1, data, topic, n) for n, (topic, data) in enumerate(rows)))
    assert listener.runs() == [(1, 1, 0), (2, 1, 1), (5, 1, 2), (6, 1, 5)]
    assert listener.live() == [(3, 1), (4, 1)]


def test_each_topic_is_read_by_its_own_table() -> None:
    rows = [("r", DROP), ("j", KEEP), ("p", b"keep=yes\1"), ("p", KEEP), ("u", KEEP), ("j", DROP)]
    assert recorded_of(rows, compress=False) == [True, True, True, False, False, False]


Row = tuple[str, bytes]
rows_ = st.lists(
    st.tuples(st.sampled_from("rjpu"), st.sampled_from([KEEP, DROP, b"keep=yes\1", b"{", b""])),
    min_size=1,
    max_size=30,
)


def wanted(row: Row) -> bool:
    return row in {("j", KEEP), ("p", b"keep=yes\1")} or row[0] == "r"


def recorded_of(rows: list[Row], *, compress: bool) -> list[bool]:
    """What became of each message; checks that the parts are the batch."""
    parts = cut(rows, 100, compress=compress)
    rest = [row for part in parts for row in rows_of(part)]
    assert rest == rows
    assert parts[0].entry.seq == 100
    for before, after in pairwise(parts):
        assert after.entry.seq == before.entry.seq + before.entry.count
        assert before.recorded is not after.recorded, "a run was cut"
    return [part.recorded for part in parts for _ in range(part.entry.count)]


def cut(rows: list[Row], seq: int, *, compress: bool) -> list[BatchPart]:
    names = sorted({topic for topic, _ in rows})
    index = array("H", [names.index(topic) for topic, _ in rows])
    body = pack([data for _, data in rows])
    columns = m.Columns(bodies.to_little(index)) if len(names) > 1 else None
    batch = entry(len(rows), names, columns)
    batch.seq, batch.prev = seq, seq - 1
    if compress:
        batch.codec, body = "zstd", zstandard.compress(body)
    return Splitter(RECORDING, MAX).split(batch, body)


def rows_of(part: BatchPart) -> list[Row]:
    at, columns = part.entry, part.entry.columns
    index = bodies.indexes(columns.index) if columns and columns.index else bytes(at.count)
    data = bodies.unpack(part.body, at.codec, at.count, MAX)
    return [(at.topics[topic], message) for topic, message in zip(index, data, strict=True)]


@pytest.mark.seed("004-03")
@given(rows=rows_, compress=st.booleans())
def test_what_is_recorded_is_what_the_tables_say_of_each_message(
    rows: list[Row], compress: bool
) -> None:
    assert recorded_of(rows, compress=compress) == [wanted(row) for row in rows]


@given(rows=rows_, at=st.integers(0, 30))
def test_the_answer_is_the_same_in_whatever_batch_a_message_comes(rows: list[Row], at: int) -> None:
    halves = [half for half in (rows[:at], rows[at:]) if half]
    apart = [kind for half in halves for kind in recorded_of(half, compress=False)]
    assert apart == recorded_of(rows, compress=False)


# -- what is left as it is --------------------------------------------------------------------


def test_a_batch_of_one_answer_goes_on_as_it_is() -> None:
    for message in (KEEP, DROP):
        body = zstandard.compress(pack([message] * 5))
        batch = entry(5)
        batch.codec = "zstd"
        [part] = Splitter(RECORDING, MAX).split(batch, body)
        assert part == (message is KEEP, batch, body)
        assert part.body is body


BY_HEADER = Recording(
    [
        RecordConfig("h", type="json", filter="HEADER('keep') = 'yes'"),
        RecordConfig("b", type="json", filter="/keep > 0 AND NOT HEADER('keep') = 'no'"),
    ]
)
headers_ = st.sampled_from([None, {}, {"keep": "yes"}, {"keep": "no"}, {"keep": b"yes"}, {"k": 1}])
headed_ = st.lists(
    st.tuples(st.sampled_from("hb"), st.sampled_from([KEEP, DROP, b"{"]), headers_),
    min_size=1,
    max_size=12,
)


def wanted_with(topic: str, data: bytes, headers: dict[str, object] | None) -> bool:
    keep = (headers or {}).get("keep")
    return keep == "yes" if topic == "h" else data == KEEP and keep == "yes"


def encoded(headers: dict[str, object] | None) -> dict[str, Raw] | None:
    """Headers of a single message as the wire has them."""
    if headers is None:
        return None
    return {name: Raw(codec.encode(value)) for name, value in headers.items()}


@given(rows=headed_, single=st.booleans())
def test_headers_say_what_is_recorded_however_messages_come(
    rows: list[tuple[str, bytes, dict[str, object] | None]], single: bool
) -> None:
    listener = Bench(recording=BY_HEADER)
    if single:
        publishes = [
            item(A, m.Publish(n + 1, topic, prev=n, headers=encoded(headers)), data)
            for n, (topic, data, headers) in enumerate(rows)
        ]
        listener.turn(*publishes)
    else:
        names = sorted({topic for topic, _, _ in rows})
        columns = m.Columns(headers=codec.encode([headers for _, _, headers in rows]))
        several = len(names) > 1
        if several:
            columns.index = bodies.to_little(array("H", [names.index(row[0]) for row in rows]))
        publish = m.Publish(
            1, None if several else names[0], names if several else None, len(rows), 0,
            columns=columns,
        )  # fmt: skip
        listener.turn(item(A, publish, pack([data for _, data, _ in rows])))
    recorded = {n for seq, count, _ in listener.runs() for n in range(seq, seq + count)}
    assert recorded == {n for n, row in enumerate(rows, 1) if wanted_with(*row)}


def test_a_body_is_opened_only_where_a_filter_looks() -> None:
    batch = entry(3, ["r"])
    batch.codec = "zstd"
    [part] = Splitter(RECORDING, MAX).split(batch, b"not zstd")
    assert part == (True, batch, b"not zstd")


def test_a_batch_in_which_nothing_can_be_meant_is_not_unpacked() -> None:
    splitter = Splitter(Recording([RecordConfig("j", type="json", filter="/a = 'needle'")]), MAX)
    [part] = splitter.split(entry(2), pack([b"{", b"hay"]))
    assert not part.recorded
    assert (splitter.contents.filtered, splitter.contents.unreadable) == (2, 0)


# -- counts -----------------------------------------------------------------------------------


def test_payloads_that_cannot_be_read_are_live_only_and_counted() -> None:
    listener = bench()
    listener.turn(packed(1, KEEP, b"{", DROP, b'{"keep":"', prev=0), one(5, b'{"keep":', prev=4))
    assert (listener.runs(), listener.live()) == ([(1, 1, 0)], [(2, 3), (5, 1)])
    assert listener.unrecorded() == {
        "unrecorded": 4, "live_dropped": 0, "filtered": 4, "unreadable": 3,
    }  # fmt: skip


def test_a_payload_without_the_field_is_not_unreadable() -> None:
    listener = bench()
    listener.turn(packed(1, b"{}", b'{"keep":null}', b"[]", b"7"))
    assert listener.runs() == []
    assert listener.unrecorded()["unreadable"] == 0


# -- acks and what comes again ----------------------------------------------------------------


def test_acks_come_in_their_place() -> None:
    listener = bench()
    assert listener.turn(packed(1, DROP, DROP, prev=0)) == [filtered(2, (1, 2))]
    assert listener.turn(packed(3, DROP, KEEP, DROP, KEEP, DROP, prev=2)) == [filtered(3, (3, 3))]
    assert listener.settle(accepted(1, 4)) == [persisted(4), filtered(5, (5, 5))]
    assert listener.settle(accepted(2, 6)) == [persisted(6), filtered(7, (7, 7))]


def test_acks_of_one_settling_are_merged_with_their_runs() -> None:
    listener = bench()
    listener.turn(packed(1, KEEP, DROP, KEEP, DROP, DROP, KEEP, DROP, prev=0), one(8, DROP, prev=7))
    reported = listener.settle(accepted(1, 1), accepted(2, 3), accepted(3, 6))
    assert reported == [filtered(5, (2, 2), (4, 5)), persisted(6), filtered(8, (7, 8))]


def test_topics_that_are_never_recorded_are_named_and_what_is_filtered_is_numbered() -> None:
    listener = bench()
    rows = [("r", KEEP), ("u", KEEP), ("j", DROP), ("r", KEEP), ("v", KEEP)]
    listener.turn(*(one(n + 1, data, topic, n) for n, (topic, data) in enumerate(rows)))
    assert listener.settle(accepted(1, 1), accepted(2, 4)) == [
        m.Ack("processed", seq=3, unrecorded=["u"], filtered=pack_runs((3, 3))),
        persisted(4), unrecorded(5, "v"),
    ]  # fmt: skip


def test_many_runs_are_named_in_several_acks() -> None:
    listener = Bench(window=1 << 20, recording=RECORDING)
    count = 2 * FILTERED_RUNS_MAX + 200
    for seq in range(1, count + 1, 100):
        listener.turn(packed(seq, *[DROP, KEEP] * 50, prev=seq - 1))
    reported = listener.settle(*(accepted(n + 1, 2 * n + 2) for n in range(count // 2)))
    assert listener.turn(packed(count + 1, DROP)) == [filtered(count + 1, (count + 1, count + 1))]
    sizes = [len(ack.filtered or b"") // 16 for ack in reported if isinstance(ack, m.Ack)]
    assert (max(sizes), sum(sizes)) == (FILTERED_RUNS_MAX, count // 2 - 1), "one came at once"


def pack_runs(*runs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *run) for run in runs)


def filtered(seq: int, *runs: tuple[int, int]) -> m.Ack:
    return m.Ack("processed", seq=seq, unrecorded=[], filtered=pack_runs(*runs))


def test_what_comes_again_gets_the_same_answer() -> None:
    listener = bench()
    batch = packed(1, KEEP, DROP, KEEP, prev=0)
    listener.turn(batch)
    listener.turn(*(one(n, data, prev=n - 1) for n, data in ((1, KEEP), (2, DROP), (3, KEEP))))
    assert listener.live() == [(2, 1)], "it went there the first time"
    assert listener.runs() == [(1, 1, 0), (3, 1, 1), (1, 1, 0), (3, 1, 1)]


def test_after_a_refused_message_the_rest_of_its_batch_comes_again() -> None:
    listener = bench()
    batch = packed(1, KEEP, DROP, KEEP, prev=0)
    listener.turn(batch)
    listener.settle(accepted(1, 1), refused(2, 1, "disk_full"))
    listener.turn(batch)
    assert listener.live() == [(2, 1)]
    reported = listener.settle(i.ReceiptItem(3, 1, 1, 1), accepted(4, 3))
    assert reported == [filtered(2, (2, 2)), persisted(3, 1)]


# -- what a filter may ask --------------------------------------------------------------------


def about_of(entry: i.Entry, index: list[int]) -> About:
    return About(entry.topics, index, entry)


def test_a_message_that_has_no_place_yet_has_no_bookmark() -> None:
    about = about_of(entry(2, ["a", "b"]), [1, 0])
    assert [about.topic(n) for n in (0, 1)] == ["b", "a"]
    assert [about.bookmark(n) for n in (0, 1)] == ["", ""]


def test_its_headers_are_those_that_its_publisher_gave() -> None:
    column = m.Columns(headers=codec.encode([{"a": 1}, None]))
    about = about_of(entry(2, columns=column), [0, 0])
    assert [about.header(n, "a") for n in (0, 1)] == [1, None]
    single = m.Publish(seq=1, topic="a", headers={"a": Raw(b"\xa1x")})
    alone = About(["a"], [0], single)
    assert (alone.header(0, "a"), alone.header(0, "b")) == ("x", None)


def test_its_key_is_the_one_that_its_publisher_gave() -> None:
    column = m.Columns(keys=codec.encode([b"k", None]))
    about = about_of(entry(2, columns=column), [0, 0])
    assert [about.key(n) for n in (0, 1)] == [b"k", None]
    assert about_of(entry(1), [0]).key(0) is None
    single = m.Publish(seq=1, topic="a", key=b"own")
    assert About(["a"], [0], single).key(0) == b"own"


def test_its_time_is_the_one_that_its_publisher_gave() -> None:
    column = m.Columns(None, bodies.to_little(array("q", [5, -6])))
    assert [about_of(entry(2, columns=column), [0, 0]).time_ns(n) for n in (0, 1)] == [5, -6]
    assert about_of(entry(1, time_ns=7), [0]).time_ns(0) == 7
    assert about_of(entry(1), [0]).time_ns(0) == 0, "the broker's would be another one next time"
