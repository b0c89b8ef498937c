"""The journal of the transactions world: commits in its log are read as what they show.

A life of it begins with the newest complete state snapshot, as recovery does, so what a snapshot
leaves out is not known any more. What workers stage comes to it by way of ingest, which sends it
again until it is durable, whatever died meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.sim.queues_journal import INSTANCE, JournalNode, SimLog
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.checksums import crc32c
from zbroker.engine import effects as e
from zbroker.engine.events import Gone
from zbroker.errors import TEMPORARY
from zbroker.ids import publisher_id
from zbroker.journal.core import JournalCore
from zbroker.journal.fold import LogFold
from zbroker.journal.sessions import PublisherState
from zbroker.log import references
from zbroker.log.format import FLAG_SHOWS, KIND_BRANCH, KIND_PUBLISH, KIND_TRANSACTION, Batch
from zbroker.log.records import BRANCH, TRANSACTION
from zbroker.wire import internal as i
from zbroker.wire.units import FOR_NOW

if TYPE_CHECKING:
    from tests.sim.transactions_world import TransactionsWorld

INGEST = b"\0ingest"
_COMMITS: Final[dict[int, Any]] = {KIND_TRANSACTION: TRANSACTION, KIND_BRANCH: BRANCH}
PRINCIPAL = "alice"


def is_commit(batch: Batch) -> bool:
    """Whether it shows messages that were staged before."""
    return batch.kind == KIND_PUBLISH and bool(batch.flags & FLAG_SHOWS)


class ShowingLog(SimLog):
    """Readers see the messages of a commit in its place."""

    def parts(self, commit: Batch) -> list[Batch]:
        """What a commit shows, as if it were there."""
        record = references.decode(commit.body)
        assert record is not None, "its body is its own"
        found, first = [], 0
        for part in record.parts:
            staged = self.batches[self._index(part.position)]
            found.append(references.stand_in(commit, staged, first))
            first += part.count
        return found

    def kept(self, commit: Batch) -> bool:
        """Whether all that it shows can be read."""
        record = references.decode(commit.body)
        assert record is not None, "its body is its own"
        return all(self._index(part.position) >= self.first for part in record.parts)

    def _index(self, position: int) -> int:
        return bisect_right(self.ends, position)

    def read(self, read: Read) -> Block:
        block = super().read(read)
        if read.headers:
            return block
        items: list[Any] = []
        for batch in block.items:
            if isinstance(batch, Batch) and is_commit(batch):
                self._world.judge.demand(self.kept(batch), "a commit shows what is removed", batch)
                items += self.parts(batch)
            else:
                items.append(batch)
        return Block(block.start, items, block.next)


@dataclass
class StagedEntry:
    """Messages that a program has given to ingest. staged: called when they are durable."""

    seq: int
    topics: list[str]
    body: bytes
    count: int
    token: str
    staged: Callable[[], None]


class Ingest:
    """It takes what is staged, and sends one batch of a publisher at a time."""

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world
        self._waiting: dict[str, deque[StagedEntry]] = {}  # by publisher
        self._last: dict[str, int] = {}  # sequences that were given
        self._journal: TransactionsJournal | None = None
        self._known: dict[str, PublisherState] = {}  # of this journal
        self._sent: dict[int, str] = {}  # ordinals under way, of which publishers
        self._ordinal = self._confirmed = 0

    def stage(
        self, publisher: str, topic: str, payloads: list[bytes], token: str,
        staged: Callable[[], None],
    ) -> None:  # fmt: skip
        """A batch of messages, under a token."""
        seq = self._last.get(publisher, 0) + 1
        self._last[publisher] = seq + len(payloads) - 1
        entry = StagedEntry(
            seq, [topic], msgspec.msgpack.encode(payloads), len(payloads), token, staged
        )
        self._waiting.setdefault(publisher, deque()).append(entry)

    def gone(self, publisher: str) -> None:
        """A program has died: what was not sent yet may never be, but what was is."""
        waiting = self._waiting.pop(publisher, None)
        if waiting and publisher in self._sent.values():
            self._waiting[publisher] = deque([waiting[0]])

    @property
    def open(self) -> int:
        """Batches that are not durable yet."""
        return sum(map(len, self._waiting.values()))

    def pump(self, journal: TransactionsJournal) -> None:
        """Sends what is due to this life of the journal."""
        if journal is not self._journal:
            self._journal, self._known = journal, {}
            self._sent, self._ordinal, self._confirmed = {}, 0, 0
            journal.hear(INGEST, i.Hello("staging", 1))
        under_way = set(self._sent.values())
        for publisher, waiting in self._waiting.items():
            if waiting and publisher not in under_way and self._world.rng.random() < 0.5:
                self._send(journal, publisher, waiting[0])
        if self._sent or self._confirmed < self._ordinal:
            self._confirmed = min(self._sent, default=self._ordinal + 1) - 1
            journal.hear(INGEST, i.Confirm(self._incarnation(journal), self._confirmed))

    def _send(self, journal: TransactionsJournal, publisher: str, entry: StagedEntry) -> None:
        if publisher not in self._known:
            sessions = journal.core.commit.sessions
            self._known[publisher] = sessions.open(publisher, PRINCIPAL, self._world.wall_ns())
        known = self._known[publisher]
        self._ordinal += 1
        self._sent[self._ordinal] = publisher
        made = i.Entry(
            publisher_id(publisher), known.session, entry.seq, entry.count, entry.seq - 1,
            crc32c(entry.body), None, entry.topics, stage=entry.token,
        )  # fmt: skip
        append = i.Append(self._incarnation(journal), self._ordinal, self._confirmed, [made])
        journal.hear(INGEST, append, [entry.body])

    @staticmethod
    def _incarnation(journal: TransactionsJournal) -> int:
        return journal.core.commit.settings.incarnation

    def receipts(self, items: list[i.ReceiptItem]) -> None:
        """What became of batches; one that a full disk refused is sent again."""
        for item in items:
            publisher = self._sent.pop(item.ordinal, None)
            if publisher is None:
                continue
            text = f"a staged batch was refused: {item}"
            self._world.judge.demand(not item.code or item.code in TEMPORARY, text)
            if not item.code:
                self._waiting[publisher].popleft().staged()


class TransactionsJournal(JournalNode):
    """One life of the journal process."""

    world: TransactionsWorld
    log: ShowingLog

    def folded(self) -> LogFold:
        """From the newest snapshot on, or everything as long as there is none."""
        log, probe = self.log, LogFold(INSTANCE)
        kept = list(enumerate(log.batches))[log.first :]
        for index, batch in kept:
            probe(batch, log.serial_of(index))
        self.world.judge.demand(probe.complete or not log.first, "removed without a snapshot")
        fold = LogFold(INSTANCE)
        fold.sessions.origins.meet([(1, 1)])
        fold._partial = probe.complete > 1
        fold._firsts = {size.serial: size.first for size in log.sizes()}
        if probe.complete > 1:
            self.world.checks["snapshot"] += 1
        for index, batch in kept:
            if batch.position >= probe.complete:
                fold(batch, log.serial_of(index))
        return fold

    def plant_core(self, core: JournalCore) -> None:
        super().plant_core(core)
        self._note_refusals(core)
        self.world.plant_journal(core)

    def _note_refusals(self, core: JournalCore) -> None:
        """A commit that is refused for good is asked for again where its refusal is lost with this
        process. What it waited for may be there then."""
        units = core.commit._units
        place = units.place

        def noting(ordinal: int, unit: Any, *, fits: bool) -> i.ReceiptItem:
            item = place(ordinal, unit, fits=fits)
            if item.code and item.code not in FOR_NOW and unit.parts[0].kind in _COMMITS:
                record = _COMMITS[unit.parts[0].kind].decode(unit.bodies[0])
                self.world.judge.refused.add((record.by, record.unit))
            return item

        units.place = noting  # type: ignore[method-assign]

    def _take_published(self) -> None:
        super()._take_published()
        self.world.ingest.pump(self)

    def turn(self) -> int | None:
        wait_ms = super().turn()
        commit = self.core.commit
        if commit.persisted == commit.next_position and not commit.sessions.stages.placing:
            self.world.judge.compare_stages(self)
        return wait_ms

    def answer(self, effect: e.Answer) -> Gone | None:
        if effect.rid != INGEST:
            return None if self._dies_with(effect.message) else super().answer(effect)
        here = self.world.rng.random() >= self.world.receipt_loss
        if here and isinstance(effect.message, i.JournalReceipt):
            self.world.ingest.receipts(effect.message.items)
        return None

    def _dies_with(self, message: Any) -> bool:
        """A commit is durable, and no one hears of it."""
        world = self.world
        if not world.dies_at_commit or not isinstance(message, i.JournalReceipt):
            return False
        commits = {KIND_TRANSACTION, KIND_BRANCH}
        if not any(batch.kind in commits for batch in self.log.batches[-4:]):
            return False
        world.dies_at_commit = False
        world.at.after(0, world.kill_journal)
        return True
