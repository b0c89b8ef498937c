"""The topics of a destination change while a batch is staged: the sending end of a link, and the
journals of both ends, as they ship."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.journal.test_stages import stored
from tests.journal.whole import LINK, MINE, Whole
from zbroker.ids import Origin
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import FLAG_SHOWS, KIND_PUBLISH
from zbroker.log.reader import Log
from zbroker.replication.contract import LinkIdentity
from zbroker.replication.effects import FindStart, LinkBlock, SayOn, StartFound
from zbroker.replication.log_port import LinkLog
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.replicas import SkipMissing
from zbroker.wire.replication import OriginPosition

ORDERS = LinkTopics(["orders"])
SOURCE, COPY = 0xA, 0xB


class Pair:
    """Two instances, and the link between them; each `connect` is a session of its own."""

    def __init__(self) -> None:
        self.source, self.copy = Whole(SOURCE), Whole(COPY)
        self.session = 1  # the one that the journal of the copy has from the beginning

    @property
    def origin(self) -> Origin:
        return Origin(SOURCE, self.source.core.generation)

    def connect(self, topics: LinkTopics) -> None:
        """The source has this list now, and sends all that the copy takes."""
        source = self.source
        own = OwnHoldings(SOURCE)
        own.begin(source.core.generation, 1, [])
        self.link = OutgoingLink("b", LinkIdentity(SOURCE, "a", "g", 2), own, topics)
        self.link.session = self.session
        self.link.tick(0, 1)
        self.session = self.link.session
        opens = m.OpenLink(1, MINE, SOURCE, self.session, [".*"], [".*"], topics.digest)
        self.copy.hear(LINK, opens)
        self.copy.commit()
        self.first = self.copy.ordinal - 1  # ordinals of the link begin after it
        statement = w.Statement(COPY, self.copy.core.generation, 1, self.session, self.rows())
        welcome = w.LinkWelcome(self.session, 2, "b", "g", statement, 1 << 20)
        self.log = LinkLog(lambda: Log(disk=source.disk), lambda: source.core.persisted)
        self._does(self.link.heard(welcome, 0))
        while (read := self.link.next_read(source.core.persisted)) is not None:
            block = self.log.read(read)  # type: ignore[arg-type]
            assert isinstance(block, LinkBlock)
            effects, wanted = self.link.read(block, {})
            self._does(effects or self.link.go_on(dict(map(self._name, wanted))))
        self.link.check()

    def _name(self, publisher: int) -> tuple[int, tuple[str, str]]:
        known = self.source.core.sessions.get(publisher)
        assert known is not None
        return publisher, (known.name, known.principal)

    def rows(self) -> list[OriginPosition]:
        """What the copy says that it holds."""
        return [
            OriginPosition(row.instance, row.generation, row.position, row.digest, row.since)
            for row in self.copy.core.sessions.origins.rows()
        ]

    def _does(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, FindStart):
                found = self.log.find(effect)
                assert isinstance(found, StartFound)
                self._does(self.link.found(found))
            elif isinstance(effect, SayOn) and isinstance(effect.message, w.SendUnits):
                self._judged(effect.message, list(effect.bodies))

    def _judged(self, sent: w.SendUnits, bodies: list[Any]) -> None:
        first = self.first + sent.ordinal
        given = m.Replicate(MINE, first, first - 1, sent.records, self.session, sent.covered)
        self.copy.hear(LINK, given, bodies)
        self.copy.ordinal += len(sent.records)
        refused = [
            w.LinkItem(item.ordinal - self.first, item.code, item.reason)
            for answer in self.copy.commit()
            if answer.rid == LINK and isinstance(answer.message, m.JournalReceipt)
            for item in answer.message.items
            if item.code
        ]
        through = sent.ordinal + len(sent.records) - 1
        if sent.records:
            receipt = w.LinkReceipt(self.session, sent.ordinal - 1, through, refused)
            self._does(self.link.heard(receipt, 0))

    def skip(self) -> None:
        """A person gives up what the copy refuses."""
        for origin, (first, last) in self.link.selection.skippable.items():
            self.copy.hear(LINK, SkipMissing(MINE, self.session, *origin, first, last))
            self.copy.commit()

    def shown(self) -> list[tuple[int, bool]]:
        """First sequences of what readers of the copy see, and whether a commit shows it."""
        return [
            (batch.sequence, bool(batch.flags & FLAG_SHOWS)) for batch in stored(self.copy)
            if batch.kind == KIND_PUBLISH
        ]  # fmt: skip


def test_a_commit_of_what_was_staged_under_the_older_list_waits_for_a_person() -> None:
    pair = Pair()
    pair.source.stage("one", b"a", b"b")
    pair.connect(ORDERS)
    pair.connect(EVERYTHING)
    assert not pair.source.commit_stages("app", 1, one=2).code
    pair.source.publish("p", 1)
    pair.connect(EVERYTHING)
    assert pair.link.stopped == {pair.origin: "stage_unknown"}
    assert pair.shown() == [], "nothing after it, either"
    pair.skip()
    pair.connect(EVERYTHING)
    assert pair.link.stopped == {}
    assert [sequence for sequence, _ in pair.shown()] == [1]
    [row] = [one for one in pair.copy.core.sessions.missing.rows() if one.why == "skipped"]
    assert row.origin == pair.origin


def test_a_batch_that_is_staged_after_the_change_goes_as_it_is() -> None:
    pair = Pair()
    pair.source.publish("p", 1)
    pair.connect(ORDERS)
    pair.connect(EVERYTHING)
    pair.source.stage("one", b"a", b"b")
    assert not pair.source.commit_stages("app", 1, one=2).code
    pair.connect(EVERYTHING)
    assert pair.link.stopped == {}
    assert pair.shown() == [(1, True)]


def test_a_list_shows_what_was_staged_before_it_as_messages() -> None:
    """The commit does not go there, so the parts stay staged: see the page about replication."""
    pair = Pair()
    pair.source.stage("one", b"a", b"b", topic="orders")
    pair.connect(EVERYTHING)
    assert not pair.source.commit_stages("app", 1, one=2).code
    pair.connect(ORDERS)
    assert pair.link.stopped == {}
    assert [shows for _, shows in pair.shown()] == [False]
    assert len(pair.copy.core.sessions.stages) == 1
