"""ingest where not everything is recorded: cut, linked again, passed on, acknowledged in order."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import msgspec
import pytest
import zstandard

from tests.ingest.rig import MINE, Reported, Rig, item, made
from zbroker.config import RecordConfig
from zbroker.engine.effects import JOURNAL, Say
from zbroker.ingest.chain import Chain
from zbroker.ingest.contract import Granted, PublishLimits
from zbroker.ingest.splitter import Splitter
from zbroker.limits import UNRECORDED_NAMED_MAX
from zbroker.log.format import crc32c
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import bodies, codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

DELIVERY = 21
A = b"\0aaaa"
RECORDING = Recording([RecordConfig("r.*", regex=True)])
pack = msgspec.msgpack.encode


class Bench(Rig):
    """A core with one publisher, and a delivery."""

    def __init__(
        self,
        high: int = 0,
        credit: int = 1 << 20,
        window: int = 10_000,
        recording: Recording = RECORDING,
    ) -> None:
        super().__init__(made(PublishLimits(1_000, 2_000, window, 3), recording))
        self.high = high
        self.passed: list[tuple[i.Entry, bytes]] = []
        if credit:
            self.grant(credit)
        [self.hello] = self.turn(item(A, m.Logon("p", "x", "1"), None))

    def grant(self, credit: int) -> None:
        self.hear(Granted(0, i.LiveCredit(DELIVERY, MINE, 0, credit)))

    def said(self, say: Say) -> list[Reported]:
        if say.link == JOURNAL:
            return super().said(say)
        assert isinstance(say.message, i.Live)
        assert say.message.incarnation == DELIVERY
        pairs = zip(say.message.entries, say.bodies, strict=True)
        self.passed += [(entry, bytes(body)) for entry, body in pairs]
        return []

    def opened(self, asked: i.Open) -> i.Opened:
        return i.Opened(asked.cid, "p", 42, 100, self.high, self.high)

    def unrecorded(self) -> dict[str, Any]:
        """What the process reports of messages that are not recorded."""
        names = ("unrecorded", "live_dropped", "filtered", "unreadable")
        return {name: count for name, count in self.core.stats().items() if name in names}

    def runs(self) -> list[tuple[int, int, int | None]]:
        """(first sequence, messages, prev) of what went to the journal."""
        return [(entry.seq, entry.count, entry.prev) for _, entry, _ in self.appended]

    def live(self) -> list[tuple[int, int]]:
        return [(entry.seq, entry.count) for entry, _ in self.passed]


def single(seq: int, topic: str = "r", prev: int | None = None, *ack: str) -> Received:
    asked = list(ack) or ["persisted"]
    return item(A, m.Publish(seq, topic, prev=prev, ack=asked), b"data%d" % seq)


def mixed(seq: int, topics: str, prev: int | None = None, **more: object) -> Received:
    """One packed publish: a message per letter, whose topic it is."""
    names = sorted(set(topics))
    body = pack([b"%d" % (seq + n) for n in range(len(topics))])
    columns = m.Columns(index=array("H", map(names.index, topics)).tobytes())
    publish = m.Publish(
        seq, topics=names, count=len(topics), prev=prev, columns=columns, ack=["persisted"],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return item(A, publish, body)


def persisted(seq: int, duplicate: int = 0) -> m.Ack:
    return m.Ack("persisted", seq=seq, durability="disk", duplicate=duplicate)


def unrecorded(seq: int, *topics: str) -> m.Ack:
    return m.Ack("processed", seq=seq, unrecorded=list(topics))


def accepted(ordinal: int, high: int) -> i.ReceiptItem:
    return i.ReceiptItem(ordinal, ordinal, high)


def refused(ordinal: int, high: int, code: str) -> i.ReceiptItem:
    return i.ReceiptItem(ordinal, 0, high, 0, code, "because")


def codes(answers: list[Reported]) -> list[tuple[str, int | None, int | None]]:
    return [(a.code, a.seq, a.high) for a in answers if isinstance(a, m.Error)]


# -- cutting ----------------------------------------------------------------------------------


def test_a_logon_says_that_not_everything_is_recorded() -> None:
    assert isinstance(Bench().hello, m.Ack)
    assert Bench().hello.recording == "some"


def test_a_batch_of_one_kind_goes_on_untouched() -> None:
    bench = Bench()
    recorded, other = mixed(1, "rsr", prev=0), mixed(4, "uvu", prev=3)
    bench.turn(mixed(1, "rrr", prev=0), other)
    assert bench.runs() == [(1, 3, 0)]
    assert bench.appended[0][2] == recorded.frames[1]
    [(entry, body)] = bench.passed
    publish = codec.decode(codec.INGEST, other.frames[0])
    assert isinstance(publish, m.Publish)
    assert (entry.topics, entry.columns, body) == (["u", "v"], publish.columns, other.frames[1])


def test_a_mixed_batch_is_cut_into_runs() -> None:
    bench = Bench()
    bench.turn(mixed(1, "rruurqu", prev=0))
    assert bench.runs() == [(1, 2, 0), (5, 1, 2)]
    assert bench.live() == [(3, 2), (6, 2)]
    assert [pack([b"1", b"2"]), pack([b"5"])] == [body for _, _, body in bench.appended]
    assert all(entry.crc == crc32c(body) for _, entry, body in bench.appended)
    [_, (last, body)] = bench.passed
    assert (last.topics, last.crc, body) == (["q", "u"], crc32c(body), pack([b"6", b"7"]))
    assert last.columns is not None
    assert last.columns.index == b"\0\0\1\0"


def test_times_and_compressed_bodies_are_cut_too() -> None:
    times = array("q", [10, 20, 30, 40])
    columns = m.Columns(array("H", [0, 1, 0, 0]).tobytes(), times.tobytes())
    plain = pack([b"a", b"b", b"c", b"d"])
    body = zstandard.compress(plain)
    entry = i.Entry(1, 1, 5, 4, 4, 0, "zstd", ["r", "u"], None, columns)
    first, second, third = Splitter(RECORDING, 1_000).split(entry, body)
    assert [part.recorded for part in (first, second, third)] == [True, False, True]
    assert third.entry.columns == m.Columns(None, times[2:].tobytes())
    assert (third.entry.seq, third.entry.prev, third.entry.codec) == (7, 5, None)
    assert second.entry.columns == m.Columns(None, times[1:2].tobytes())
    assert bodies.unpack(third.body, None, 2, 1_000) == [b"c", b"d"]
    assert third.entry.crc == crc32c(third.body)


def test_keys_headers_and_expiry_are_cut_too() -> None:
    columns = m.Columns(
        index=array("H", [0, 1, 0]).tobytes(), keys=pack([b"k", None, None]),
        headers=pack([None, {"a": 1}, None]), expiry=array("q", [0, 5, 6]).tobytes(),
    )  # fmt: skip
    entry = i.Entry(1, 1, 5, 3, 4, 0, None, ["r", "u"], None, columns)
    parts = Splitter(RECORDING, 1_000).split(entry, pack([b"a", b"b", b"c"]))
    assert [part.entry.columns for part in parts] == [
        m.Columns(keys=pack([b"k"])),
        m.Columns(headers=pack([{"a": 1}]), expiry=array("q", [5]).tobytes()),
        m.Columns(expiry=array("q", [6]).tobytes()),
    ]


@pytest.mark.parametrize("seed", range(50))
def test_the_runs_of_a_batch_are_the_batch(seed: int) -> None:
    rng = Random(seed)
    names = ["r1", "u1", "r2", "u2", "r3"]
    index = array("H", [rng.randrange(5) for _ in range(rng.randint(1, 40))])
    data = [b"%d" % n for n in range(len(index))]
    entry = i.Entry(
        1, 1, 100, len(data), 99, 0, None, names, None, m.Columns(index=index.tobytes())
    )
    seen = []
    for part in Splitter(RECORDING, 10_000).split(entry, pack(data)):
        payloads = bodies.unpack(part.body, None, part.entry.count, 10_000)
        topics = part.entry.topics
        columns = part.entry.columns
        which = bodies.indexes(columns.index) if columns and columns.index else [0] * len(payloads)
        for n, payload in enumerate(payloads):
            topic = topics[which[n]]
            assert RECORDING(topic) is part.recorded
            seen.append((part.entry.seq + n, topic, payload))
    assert seen == [(100 + n, names[at], data[n]) for n, at in enumerate(index)]


def test_singles_are_packed_by_kind() -> None:
    bench = Bench()
    kinds = ["r", "r2", "u", "u2", "r"]
    bench.turn(*(single(n + 1, topic, n) for n, topic in enumerate(kinds)))
    assert bench.runs() == [(1, 2, 0), (5, 1, 2)]
    assert bench.live() == [(3, 2)]
    assert bench.passed[0][0].topics == ["u", "u2"]


# -- prev -------------------------------------------------------------------------------------


def test_prev_is_linked_to_the_last_recorded_message() -> None:
    bench = Bench(high=7)
    bench.turn(mixed(20, "u", 7), mixed(21, "r", 20), mixed(30, "uu", 21), mixed(32, "r", 31))
    assert bench.runs() == [(21, 1, 7), (32, 1, 21)]


def test_a_message_before_which_one_is_missing_is_refused_here() -> None:
    bench = Bench(high=7)
    answers = bench.turn(mixed(9, "u", 8), mixed(10, "r", 9), mixed(8, "u", 7), mixed(9, "r", 8))
    assert codes(answers) == [("sequence_gap", 9, 7), ("sequence_gap", 10, 7)]
    assert (bench.live(), bench.runs()) == ([(8, 1)], [(9, 1, 7)])


@pytest.mark.parametrize("topic", ["r", "u"])
def test_prev_must_be_below_seq(topic: str) -> None:
    bench = Bench(high=7)
    assert codes(bench.turn(mixed(5, topic, 5))) == [("bad_field", 5, None)]
    assert codes(bench.turn(mixed(2**63 - 1, topic * 2, 5))) == [("bad_field", 2**63 - 1, None)]


def test_what_comes_again_keeps_its_prev_and_is_not_passed_on_again() -> None:
    bench = Bench()
    bench.turn(mixed(1, "r", 0), mixed(2, "u", 1), mixed(3, "r", 2))
    bench.turn(mixed(2, "u", 1), mixed(3, "r", 2))
    assert bench.live() == [(2, 1)]
    assert bench.runs() == [(1, 1, 0), (3, 1, 1), (3, 1, 2)]


def test_without_prev_it_is_filled_in() -> None:
    bench = Bench()
    bench.turn(mixed(5, "ru"), mixed(9, "ur"))
    assert bench.runs() == [(5, 1, 0), (10, 1, 5)]


# -- acks -------------------------------------------------------------------------------------


def test_unrecorded_messages_are_acknowledged_after_what_is_before_them() -> None:
    bench = Bench()
    assert bench.turn(mixed(1, "u", 0)) == [unrecorded(1, "u")], "nothing is before it"
    assert bench.turn(mixed(2, "r", 1), mixed(3, "u", 2), mixed(4, "r", 3), mixed(5, "v", 4)) == []
    assert bench.settle(accepted(1, 2)) == [persisted(2), unrecorded(3, "u")]
    assert bench.settle(accepted(2, 4)) == [persisted(4), unrecorded(5, "v")]


def test_acks_of_one_settling_are_merged_and_topics_named_before_what_is_after_them() -> None:
    bench = Bench()
    bench.turn(mixed(1, "rurvrw", 0))
    reported = bench.settle(accepted(1, 1), accepted(2, 3), accepted(3, 5))
    assert reported == [unrecorded(4, "u", "v"), persisted(5), unrecorded(6, "w")]


def test_many_topics_are_named_in_several_acks() -> None:
    bench = Bench()
    topics = [f"u{n}" for n in range(UNRECORDED_NAMED_MAX + 1)]
    index = array("H", range(len(topics))).tobytes()
    body = pack([b"x"] * len(topics))
    publish = m.Publish(
        1, topics=topics, count=len(topics), columns=m.Columns(index), ack=["persisted"]
    )
    reported = bench.turn(item(A, publish, body))
    named = [name for ack in reported if isinstance(ack, m.Ack) for name in ack.unrecorded or []]
    assert (len(reported), named) == (2, topics)


def test_who_asked_for_processed_hears_it_twice_of_an_unrecorded_message() -> None:
    bench = Bench()
    asked = item(A, m.Publish(1, "u", ack=["processed"], cid="c"), b"x")
    reported = bench.turn(asked, item(A, m.Publish(2, "r", ack=["processed"], cid="d"), b"x"))
    assert reported == [
        m.Ack("processed", "c", seq=1), m.Ack("processed", "d", seq=2), unrecorded(1, "u"),
    ]  # fmt: skip
    assert bench.settle(accepted(1, 2)) == [], "of a recorded one it was said that it is checked"


def test_who_asks_for_nothing_is_sent_nothing() -> None:
    bench = Bench()
    assert bench.turn(item(A, m.Publish(1, "u"), b"x")) == []


def test_a_flush_is_answered_when_unrecorded_messages_before_it_are_settled_too() -> None:
    bench = Bench(high=3)
    flush = item(A, m.Flush("f"), None)
    assert bench.turn(flush) == [m.Ack("persisted", "f", seq=3, durability="disk")]
    reported = bench.turn(mixed(4, "r", 3), mixed(5, "u", 4), flush)
    assert reported == []
    flushed = m.Ack("persisted", "f", seq=4, durability="disk")
    assert sorted(map(repr, bench.settle(accepted(1, 4)))) == sorted(
        map(repr, [persisted(4), unrecorded(5, "u"), flushed])
    )


def test_a_session_acknowledges_what_came_in_it_only() -> None:
    bench = Bench(high=9)
    bench.turn(mixed(7, "r", 6), mixed(8, "u", 7), mixed(9, "r", 8))
    assert bench.settle(i.ReceiptItem(1, 5, 7, 1)) == [persisted(7, 1), unrecorded(8, "u")]


# -- refusals ---------------------------------------------------------------------------------


def test_unrecorded_messages_after_a_refused_one_are_refused() -> None:
    bench = Bench()
    bench.turn(mixed(1, "u", 0), mixed(2, "r", 1, cid="7"), mixed(3, "u", 2), mixed(4, "r", 3))
    reported = bench.settle(refused(1, 0, "disk_full"), refused(2, 0, "sequence_gap"))
    assert codes(reported) == [("disk_full", 2, 0), ("sequence_gap", 3, 1), ("sequence_gap", 4, 0)]
    assert reported[0].cid == "7"  # type: ignore[union-attr]
    late = bench.turn(mixed(5, "u", 4))
    assert codes(late) == [("sequence_gap", 5, 1)], "it was sent before the refusal was heard"
    bench.turn(mixed(2, "r", 1), mixed(3, "u", 2), mixed(4, "r", 3), mixed(5, "u", 4))
    assert bench.runs()[2:] == [(2, 1, 0), (4, 1, 2)]
    assert bench.live() == [(1, 1), (3, 1), (5, 1)], "3 went there the first time"
    reported = bench.settle(accepted(3, 2), accepted(4, 4))
    assert reported == [unrecorded(3, "u"), persisted(4), unrecorded(5, "u")]


def test_refusals_of_an_older_epoch_change_nothing() -> None:
    bench = Bench()
    bench.turn(mixed(1, "r", 0), mixed(2, "r", 1))
    bench.settle(refused(1, 0, "disk_full"))
    bench.turn(mixed(1, "r", 0), mixed(2, "r", 1))
    bench.settle(refused(2, 0, "sequence_gap"))
    assert bench.turn(mixed(3, "r", 2)) == [], "2 was sent again and may be in the log"
    assert bench.runs() == [(1, 1, 0), (2, 1, 1), (1, 1, 0), (2, 1, 1), (3, 1, 2)]


def test_the_rest_of_a_cut_batch_comes_again_as_a_whole() -> None:
    bench = Bench()
    bench.turn(mixed(1, "rurur", 0))
    reported = bench.settle(
        accepted(1, 1), refused(2, 1, "disk_full"), refused(3, 1, "sequence_gap")
    )
    assert reported[:2] == [persisted(1), unrecorded(2, "u")]
    assert codes(reported) == [("disk_full", 1, 1), ("sequence_gap", 1, 2), ("sequence_gap", 1, 1)]
    bench.turn(mixed(1, "rurur", 0))
    assert bench.runs()[3:] == [(1, 1, 0), (3, 1, 1), (5, 1, 3)]
    reported = bench.settle(i.ReceiptItem(4, 1, 1, 1), accepted(5, 3), accepted(6, 5))
    assert reported == [unrecorded(4, "u"), persisted(5, 1)]


def test_a_final_refusal_lets_the_next_one_follow_what_was_before() -> None:
    bench = Bench()
    bench.turn(mixed(1, "r", 0), mixed(2, "r", 1))
    bench.settle(accepted(1, 1), refused(2, 1, "bad_field"))
    assert bench.turn(mixed(3, "u", 1), mixed(4, "r", 3)) == [unrecorded(3, "u")]
    assert bench.runs()[2:] == [(4, 1, 1)]


def test_without_prev_a_temporary_refusal_holds_unrecorded_messages_too() -> None:
    bench = Bench()
    bench.turn(single(1), single(2, "u"))
    reported = bench.settle(refused(1, 0, "disk_full"))
    assert codes(reported) == [("disk_full", 1, 0), ("sequence_gap", 2, 0)]
    assert codes(bench.turn(single(3, "u"))) == [("sequence_gap", 3, 0)]
    assert codes(bench.turn(single(1), single(2, "u"), single(3, "u"))) == []
    reported = bench.settle(accepted(2, 1))
    assert reported == [persisted(1), unrecorded(3, "u")]


def test_a_copy_that_was_on_its_way_ends_what_the_refusal_of_another_holds() -> None:
    bench = Bench()
    bench.turn(single(1))
    bench.turn(single(1))
    bench.settle(refused(1, 0, "disk_full"), accepted(2, 1))
    assert codes(bench.turn(single(2, "u"))) == []


def test_what_waits_takes_process_in_the_window() -> None:
    bench = Bench(window=300)
    bench.turn(single(1, "r", 0), item(A, m.Publish(2, "u", prev=1), bytes(280)))
    assert codes(bench.turn(item(A, m.Publish(3, "u", prev=2), bytes(50)))) == [
        ("window_full", 3, None)
    ]
    bench.settle(accepted(1, 1))
    assert bench.turn(item(A, m.Publish(3, "u", prev=2), bytes(50))) == []


def test_an_ended_session_is_not_answered_any_more() -> None:
    bench = Bench()
    bench.turn(single(1, "r", 0), single(2, "u", 1))
    bench.gone(A)
    assert bench.settle(accepted(1, 1)) == []


# -- the link to delivery ---------------------------------------------------------------------


def test_without_delivery_or_credit_unrecorded_messages_are_dropped_and_counted() -> None:
    bench = Bench(credit=0)
    assert bench.turn(mixed(1, "uu", 0)) == [unrecorded(2, "u")], "acknowledged all the same"
    assert (bench.live(), bench.unrecorded()) == ([], {"unrecorded": 0, "live_dropped": 2})
    bench.grant(10)
    bench.turn(mixed(3, "u" * 20, 2))
    assert bench.live() == [(3, 20)], "with nothing under way one of any size may go"
    bench.turn(mixed(23, "u", 22))
    assert bench.unrecorded() == {"unrecorded": 20, "live_dropped": 3}


def test_dropping_never_holds_up_what_is_recorded() -> None:
    bench = Bench(credit=0)
    bench.turn(mixed(1, "rur", 0))
    assert bench.runs() == [(1, 1, 0), (3, 1, 1)]
    assert bench.settle(accepted(1, 1), accepted(2, 3)) == [unrecorded(2, "u"), persisted(3)]


def test_a_chain_begins_at_what_the_journal_holds() -> None:
    chain = Chain(7, 7)
    chain.follow(8, 1, 7)
    entry = i.Entry(1, 1, 8, 1, 7, 0, None, ["r"])
    chain.link(entry)
    assert (entry.prev, chain.handled, chain.linked) == (7, 8, 8)
