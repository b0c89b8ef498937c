"""Links of one instance: Hellos, what goes to the journal, what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.replication.build import HERE, THERE, THIRD, WALL_NS, batch, statement
from zbroker.engine.contract import Now
from zbroker.engine.effects import JOURNAL, Answer, Say
from zbroker.limits import BEAT_MS, MIB
from zbroker.log.reader import Cursor
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.core import Event, FromDestination, ReplicationCore
from zbroker.replication.durability import DestinationRule
from zbroker.replication.effects import LinkBlock, ReadLink, SayOn, StartFound
from zbroker.replication.outgoing_link import SILENCE_MS
from zbroker.replication.sources import FromSource
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.internal import ReceiptItem, Record
from zbroker.wire.replicas import (
    AskOrigins,
    FirstStartRow,
    OriginRows,
    PeerHolds,
    PublisherName,
    PublisherNames,
)
from zbroker.wire.replication import AskingInstance, OriginPosition

MINE, JOURNAL_1, JOURNAL_2 = 50, 60, 61
SOURCE = b"source"


class Process:
    """The core, whose journal and peers are typed."""

    def __init__(self, *destinations: str, sync: bool = True) -> None:
        rules = [DestinationRule(name, sync=sync) for name in destinations]
        settings = ReplicationSettings(HERE.instance, "here", "g", MINE, rules)
        self.core = ReplicationCore(settings)
        self.now_ms = 0
        self.effects: list[Any] = []

    def hears(self, event: Event) -> list[Any]:
        return self._kept(self.core.handle(event, Now(self.now_ms, WALL_NS)))

    def tick(self, ms: int = 0) -> list[Any]:
        self.now_ms += ms
        return self._kept(self.core.tick(Now(self.now_ms, WALL_NS), drained=True))

    def welcomed(self, journal: int = JOURNAL_1, rows: Sequence[OriginPosition] = ()) -> None:
        """The journal listens, and says what it holds."""
        self.tick()
        welcome = m.Welcome(journal, MINE, HERE.instance, HERE.generation, 1, "disk", 1, 1, 1)
        self.hears(welcome)
        self.begun(rows)

    def begun(self, rows: Sequence[OriginPosition] = (), **more: Any) -> list[Any]:
        """It answers the newest question for what it holds."""
        asked = [one for one in self.said() if isinstance(one, AskOrigins)][-1]
        return self.hears(OriginRows(asked.cid, HERE.generation, 1, list(rows), **more))

    def linked(self, session: int = 1, rid: bytes = SOURCE) -> list[Any]:
        """A source says Hello, and the journal what it holds."""
        hello = w.LinkHello(w.PROTOCOL, 1, session, "there", "g", statement(1, {}))
        self.hears(FromSource(rid, hello))
        return self.begun()

    def units(self, *records: Record, ordinal: int = 1, session: int = 1) -> list[Any]:
        sent = w.SendUnits(session, ordinal, list(records))
        return self.hears(FromSource(SOURCE, sent, [b"body"] * len(records)))

    def receipt(self, *items: ReceiptItem, journal: int = JOURNAL_1) -> list[Any]:
        return self.hears(m.JournalReceipt(journal, 9, list(items)))

    def said(self) -> list[Any]:
        """Messages to the journal so far."""
        return [e.message for e in self.effects if isinstance(e, Say) and e.link == JOURNAL]

    def _kept(self, effects: Sequence[Any]) -> list[Any]:
        self.core.check()
        self.effects += effects
        return list(effects)


def record(position: int) -> Record:
    return Record(1, *THERE, position, position - 1, 0, 77, 1, position, position - 1)


def answers(effects: list[Any], kind: type) -> list[Any]:
    found = [effect.message for effect in effects if isinstance(effect, Answer)]
    return [message for message in found if isinstance(message, kind)]


def test_no_hello_goes_out_before_the_journal_has_said_what_it_holds() -> None:
    process = Process("there")
    assert not [effect for effect in process.tick() if isinstance(effect, SayOn)]
    process.welcomed()
    assert [effect for effect in process.tick() if isinstance(effect, SayOn)]


def test_a_source_is_welcomed_with_what_the_journal_says_then() -> None:
    process = Process()
    process.welcomed(rows=[OriginPosition(*THERE, 3)])
    process.hears(FromSource(SOURCE, w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", statement(1, {}))))
    (welcome,) = answers(process.begun([OriginPosition(*THERE, 5)]), w.LinkWelcome)
    assert [row.position for row in welcome.statement.rows] == [5]
    assert welcome.statement.sources == [THERE.instance]


def test_records_go_to_the_journal_and_the_receipt_goes_back_after_the_sync() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    (say,) = process.units(record(1), record(2))
    assert isinstance(say.message, m.Replicate)
    assert say.message.ordinal == 1
    (receipt,) = answers(process.receipt(ReceiptItem(1, 1, 1), ReceiptItem(2, 2, 2)), w.LinkReceipt)
    assert (receipt.since, receipt.through, receipt.refused) == (0, 2, [])
    assert process.core.own.position(THERE) == 2


def test_a_refused_record_is_listed_and_counts_for_nothing() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    process.units(record(1))
    refused = ReceiptItem(1, 0, 0, 0, "disk_full", "no space")
    (receipt,) = answers(process.receipt(refused), w.LinkReceipt)
    assert [(item.ordinal, item.code) for item in receipt.refused] == [(1, "disk_full")]
    assert process.core.own.position(THERE) == 0


def test_a_repeated_receipt_is_answered_once() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    process.units(record(1))
    item = ReceiptItem(1, 1, 1)
    assert answers(process.receipt(item), w.LinkReceipt)
    assert not answers(process.receipt(item), w.LinkReceipt)


def test_receipts_count_in_order_so_that_a_lost_one_is_repeated() -> None:
    """The journal repeats what is not confirmed; a confirmation covers everything before it."""
    process = Process()
    process.welcomed()
    process.linked()
    process.units(record(1))
    process.units(record(2), ordinal=2)
    assert not answers(process.receipt(ReceiptItem(2, 2, 2)), w.LinkReceipt)
    (say,) = process.units(record(3), ordinal=3)
    assert say.message.confirmed == 0
    (receipt,) = answers(process.receipt(ReceiptItem(1, 1, 1), ReceiptItem(2, 2, 2)), w.LinkReceipt)
    assert receipt.through == 2


def test_a_lost_message_ends_the_session() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    assert answers(process.units(record(2), ordinal=2), w.LinkEnded)
    assert not process.core.sources.links


def test_a_beat_that_names_a_record_that_did_not_come_ends_the_session() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    beat = w.LinkBeat(1, statement(2, {}), ordinal=1)
    assert answers(process.hears(FromSource(SOURCE, beat)), w.LinkEnded)


def test_another_journal_ends_every_session() -> None:
    """What was on its way to the one before may be lost: its sources send it again."""
    process = Process()
    process.welcomed()
    process.linked()
    process.units(record(1))
    process.hears(m.UnknownRequester())
    process.welcomed(JOURNAL_2)
    assert answers(process.effects, w.LinkEnded)
    process.linked(session=2)
    assert not answers(process.receipt(ReceiptItem(1, 1, 1), journal=JOURNAL_2), w.LinkReceipt)


def test_a_new_session_of_a_source_takes_the_place_of_the_old_one() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    process.linked(session=2, rid=b"again")
    assert list(process.core.sources.links) == [b"again"]


def test_a_late_hello_of_an_older_session_is_dropped() -> None:
    process = Process()
    process.welcomed()
    process.linked(session=2)
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", statement(1, {}))
    assert process.hears(FromSource(b"late", hello)) == []
    assert list(process.core.sources.links) == [SOURCE]


def test_a_silent_source_is_forgotten() -> None:
    process = Process()
    process.welcomed()
    process.linked()
    process.tick(SILENCE_MS + 1)
    assert not process.core.sources.links
    assert process.core.own.sources == frozenset()


def test_a_copy_of_this_instance_is_refused_with_both_names() -> None:
    process = Process()
    process.welcomed()
    said = statement(1, {})
    said.instance = HERE.instance
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "copy", "g", said)
    (refused,) = answers(process.hears(FromSource(SOURCE, hello)), w.LinkRefused)
    assert refused.code == "same_instance"
    assert "copy" in refused.reason
    assert "here" in refused.reason


@pytest.mark.parametrize("instance", [0, -1, 1 << 64])
def test_a_statement_about_an_instance_that_cannot_be_is_refused(instance: int) -> None:
    process = Process()
    process.welcomed()
    said = statement(1, {THERE: 3})
    said.rows[0].instance = instance
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", said)
    (refused,) = answers(process.hears(FromSource(SOURCE, hello)), w.LinkRefused)
    assert refused.code == "bad_field"


def test_another_protocol_is_refused() -> None:
    process = Process()
    process.welcomed()
    hello = w.LinkHello(w.PROTOCOL + 1, 1, 1, "there", "g", statement(1, {}))
    (refused,) = answers(process.hears(FromSource(SOURCE, hello)), w.LinkRefused)
    assert refused.code == "unknown_version"


def test_a_source_without_a_hello_is_told_to_say_it() -> None:
    process = Process()
    process.welcomed()
    assert answers(process.units(record(1)), w.LinkEnded)


def test_a_generation_that_began_while_the_journal_runs_is_asked_for() -> None:
    process = Process()
    process.welcomed()
    before = len(process.said())
    process.hears(m.Watermarks(JOURNAL_1, HERE.instance, HERE.generation + 1, 1, 9, 9, 1, 0))
    assert isinstance(process.said()[before], AskOrigins)
    assert not process.core.own.known


def test_what_is_durable_here_is_stated_with_the_next_beat() -> None:
    process = Process("there")
    process.welcomed()
    process.tick()
    link = process.core.outgoing["there"]
    said = statement(1, {})
    welcome = w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20)
    process.hears(FromDestination("there", welcome))
    process.hears(m.Watermarks(JOURNAL_1, *HERE, 1, 9, 9, 1, 0, [], 8))
    (beat,) = (e.message for e in process.tick(1) if isinstance(e, SayOn))
    assert isinstance(beat, w.LinkBeat)
    assert [(row.instance, row.position) for row in beat.statement.rows] == [(HERE.instance, 8)]


def test_a_link_sends_what_the_journal_says_before_that_is_durable() -> None:
    process = Process("there")
    sending(process)
    asked = [one for one in process.said() if isinstance(one, m.Holds)]
    assert not asked[0].eager
    assert asked[-1].eager, "the journal says it only to who asks"
    process.hears(m.Watermarks(JOURNAL_1, *HERE, 1, 9, 3, 1, 0, sendable=7))
    assert process.core.persisted == 3
    read = process.core.next_read()
    assert isinstance(read, ReadLink)
    assert (read.limit, read.newest) == (7, 1)
    process.hears(m.Watermarks(JOURNAL_1, *HERE, 1, 9, 9, 1, 0, sendable=9))
    assert process.core.next_read() == read._replace(limit=9)


def test_nothing_waits_for_an_asynchronous_link_so_it_sends_what_is_durable() -> None:
    process = Process("there", sync=False)
    sending(process)
    assert not any(one.eager for one in process.said() if isinstance(one, m.Holds))


def test_a_link_that_sent_what_another_journal_lost_reads_on_after_its_next_hello() -> None:
    """The positions may belong to something else by now, and the cursor be in the middle of it."""
    process = Process("there")
    sending(process)
    process.hears(m.Watermarks(JOURNAL_1, *HERE, 1, 9, 3, 1, 0, sendable=7))
    read = process.core.next_read()
    assert isinstance(read, ReadLink)
    process.hears(PublisherNames(1, [PublisherName(77, "pricer", "ann")]))
    process.hears(LinkBlock(read, [batch(1, count=6)], Cursor(1, 0, 7)))
    assert process.core.next_read() is None, "all of it was read"
    process.hears(m.Welcome(JOURNAL_2, MINE, HERE.instance, HERE.generation, 1, "disk", 1, 3, 3))
    process.hears(m.Watermarks(JOURNAL_2, *HERE, 1, 20, 20, 1, 0, sendable=20))
    assert process.core.next_read() is None
    process.begun()
    hello = next(one.message for one in process.tick() if isinstance(one, SayOn))
    assert hello.session > read.session


def sending(process: Process) -> None:
    """There is a link, which has begun to read."""
    process.welcomed()
    process.tick()
    link = process.core.outgoing["there"]
    welcome = w.LinkWelcome(link.session, 1, "there", "g", statement(1, {}), MIB)
    process.hears(FromDestination("there", welcome))
    process.hears(StartFound("there", link.session, Cursor(1, 0, 1), {}))
    process.tick()


@pytest.mark.parametrize("answered", [False, True])
def test_what_an_earlier_session_heard_is_no_answer_to_a_hello(*, answered: bool) -> None:
    """An empty log would open to publishers, as if the destination held nothing; or a generation
    would be closed that the destination had not heard of when it answered."""
    process = Process("there")
    process.welcomed()
    process.tick()
    link = process.core.outgoing["there"]
    said = statement(1, {THERE: 9})

    def answered_with(message: w.LinkMessage) -> bool:
        effects = process.hears(FromDestination("there", message))
        return any(isinstance(e, Say) and isinstance(e.message, PeerHolds) for e in effects)

    earlier = link.session
    if answered:
        assert answered_with(w.LinkWelcome(earlier, 1, "there", "g", said, 1 << 20))
        assert answered_with(w.LinkBeat(earlier, statement(2, {THERE: 10})))
    link.ask_again(process.now_ms)
    process.tick()
    assert link.session > earlier
    assert not answered_with(w.LinkBeat(earlier, statement(3, {THERE: 11})))
    assert not answered_with(w.LinkBeat(link.session, statement(4, {THERE: 11})))
    assert answered_with(w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20))
    assert not answered_with(w.LinkWelcome(earlier, 1, "there", "g", said, 1 << 20))
    assert not answered_with(w.LinkBeat(earlier, statement(5, {THERE: 12})))
    assert answered_with(w.LinkBeat(link.session, statement(6, {THERE: 12})))


def test_what_readers_have_seen_goes_to_peers_and_comes_from_them() -> None:
    process = Process("there")
    process.welcomed()
    process.hears(m.Watermarks(JOURNAL_1, *HERE, 1, 9, 9, 1, 0, closed=1))
    process.begun(later=[(*THIRD,)])
    process.tick()
    link = process.core.outgoing["there"]
    assert process.core.own.statement().later == [w.LaterGeneration(*THIRD)]
    said = replace(statement(1, {}), later=[w.LaterGeneration(*HERE)])
    welcome = w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20)
    effects = process.hears(FromDestination("there", welcome))
    (holds,) = (e.message for e in effects if isinstance(e, Say) and e.link == JOURNAL)
    assert isinstance(holds, PeerHolds)
    assert holds.later == [(*HERE,)]


# -- empty logs that ask --------------------------------------------------------------------------


def asking() -> Process:
    """Its log is empty, and waits for the destination."""
    process = Process("there")
    process.tick()
    process.hears(m.Welcome(JOURNAL_1, MINE, HERE.instance, HERE.generation, 1, "disk", 1, 1, 1))
    process.begun(awaits=["there"])
    return process


def test_an_instance_says_whom_it_waits_for_from_the_first_hello_on_until_it_is_open() -> None:
    process = asking()
    (hello,) = (e.message for e in process.tick() if isinstance(e, SayOn))
    assert hello.statement.asking == [AskingInstance("here", ["there"])]
    link = process.core.outgoing["there"]
    others = [AskingInstance("there", ["third"]), AskingInstance("third", ["there"], 1)]
    said = replace(statement(1, {}), asking=others)
    process.hears(
        FromDestination("there", w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20))
    )
    process.hears(FirstStartRow(0, "open"))
    (beat,) = (e.message for e in process.tick(BEAT_MS) if isinstance(e, SayOn))
    assert beat.statement.asking == [
        AskingInstance("there", ["third"], 1), AskingInstance("third", ["there"], 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("awaits", "less"), [(["here"], False), (["here", "third"], True)])
def test_the_word_of_one_that_asks_counts_when_all_that_it_waits_for_ask(
    awaits: list[str], *, less: bool
) -> None:
    process = asking()
    process.tick()
    link = process.core.outgoing["there"]
    said = replace(statement(1, {}), asking=[AskingInstance("there", awaits)])
    welcome = w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20)
    effects = process.hears(FromDestination("there", welcome))
    (holds,) = (e.message for e in effects if isinstance(e, Say) and e.link == JOURNAL)
    assert isinstance(holds, PeerHolds)
    assert holds.filling == less


def test_the_journal_hears_when_a_peer_does_not_ask_any_more() -> None:
    """Its log is open as well, so the word of that peer counts from now on."""
    process = Process("there")
    process.welcomed()
    process.hears(FirstStartRow(0, "open"))
    process.tick()
    link = process.core.outgoing["there"]
    said = replace(statement(1, {}), asking=[AskingInstance("there", ["here"])])
    process.hears(
        FromDestination("there", w.LinkWelcome(link.session, 1, "there", "g", said, 1 << 20))
    )
    effects = process.hears(FromDestination("there", w.LinkBeat(link.session, statement(2, {}))))
    (holds,) = (e.message for e in effects if isinstance(e, Say) and e.link == JOURNAL)
    assert not holds.filling
