"""The receiving end of a link: what a source sends goes to the journal. Pure.

    Hello --the journal drops what it has of the link before, and says what it holds--> Welcome
    SendUnits --Replicate--> the journal --receipt, after the sync--> LinkReceipt

A session ends with its connection, by silence, with the next Hello of the same source, and when the
journal is another one. The source sends again all that was on its way then.
"""

from __future__ import annotations

from typing import Final

from zbroker.ids import Origin
from zbroker.link_topics import EVERYTHING
from zbroker.replication.holdings import Holdings
from zbroker.wire import replication as w
from zbroker.wire.internal import ReceiptItem, Record

CREDIT_BYTES: Final = 16 << 20  # of one link
ANY_TOPIC: Final = ".*"  # as a right has it


class IncomingLink:
    """The link from one source. welcomed: the journal has said what it holds. number: of this
    session for the journal."""

    def __init__(self, rid: bytes, key: str, hello: w.LinkHello, number: int, now_ms: int) -> None:
        """key: of its connection, "" without CURVE."""
        self.key = key
        self.rid, self.session, self.number, self.name = rid, hello.session, number, hello.name
        self.instance, self.digest = hello.statement.instance, hello.digest
        self.wants = EVERYTHING  # that it carries
        self.feature_level = hello.feature_level
        self.covered: dict[Origin, int] = {}  # what these leave out, up to here; for people
        self.peer = Holdings()
        self.peer.take(hello.statement, whole=True)
        self.topics: list[str] = []  # patterns of those that it may bring
        self.welcomed = False
        self.lacks: frozenset[int] = frozenset()  # instances of which others have to send something
        self.heard_ms = now_ms
        self.heard_counter = 0  # counter of the own statement that this source has heard
        self.beat_ms = 0
        self._next = 1  # ordinal that comes next
        self._through = self._since = 0
        self._refused: list[w.LinkItem] = []

    @property
    def received(self) -> int:
        """The ordinal of the newest record that came."""
        return self._next - 1

    @property
    def answered(self) -> int:
        """The ordinal of the newest record that a receipt was about."""
        return self._since

    @property
    def brings_everything(self) -> bool:
        """It may bring all topics, and does."""
        return ANY_TOPIC in self.topics and not self.digest

    def follows(self, units: w.SendUnits) -> bool:
        """Takes note of what came; False: something before it did not come."""
        if units.ordinal != self._next:
            return False
        self._next += len(units.records)
        return True

    def judged(self, ordinal: int, item: ReceiptItem) -> None:
        """The journal has judged a record, and all before it."""
        self._through = ordinal
        if item.code:
            self._refused.append(w.LinkItem(ordinal, item.code, item.reason))

    def receipt(self) -> w.LinkReceipt:
        """All that was judged since the last one."""
        refused, self._refused = self._refused, []
        since, self._since = self._since, self._through
        return w.LinkReceipt(self.session, since, self._through, refused)


def last_of(record: Record) -> int:
    """The origin position of the last message of a record; 0 of a name."""
    if not record.position:
        return 0
    return record.position + record.count - record.skip - record.cut - 1
