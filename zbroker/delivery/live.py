"""Messages that are not recorded: from ingest to whoever is subscribed now. Pure.

ingest sends within the bytes granted here and is told what was taken, so what it has to drop for
lack of credit is bounded by this room alone. Each subscription gets what it wants while it has
credit; what comes when it has none is dropped and counted, never kept.

A room in which nobody is logged on grants nothing: ingest then sends it nothing. It grants from the
first logon on, so long before the first subscription is answered, and a while longer than anybody
stays.

The link begins with a Hello: ZeroMQ hands frames that were queued for a dead delivery to this one,
which knows neither them nor their sender, drops them and asks for a Hello.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zbroker.blocks.making import Block, Maker, Parts, counting
from zbroker.delivery.effects import Counts, Effect
from zbroker.delivery.subscription import Subscription
from zbroker.effects import Send
from zbroker.ids import Origin
from zbroker.journal.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.journal.reader import Cursor
from zbroker.limits import LIVE_CREDIT_BYTES
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry, Grant, Hello

WANTED_MS: Final = 10_000  # longer than the last one stays: most come back

_NOWHERE: Final = Cursor(0, 0, 0)


class Taking:
    """This end of the link: who said Hello last, and how much was taken from it."""

    def __init__(self, incarnation: int) -> None:
        self.requester: bytes | None = None
        self._mine = incarnation
        self._theirs = 0
        self._taken = 0
        self._wanted = True
        self._wanted_until_ms = 0

    def hello(self, rid: bytes, hello: Hello) -> Grant:
        """A new ingest, or a new socket of it: only the newest is listened to."""
        self.requester, self._theirs, self._taken = rid, hello.incarnation, 0
        return self.grant()

    def takes(self, rid: bytes, incarnation: int, size: int) -> bool:
        """False for what was sent to another incarnation, or by who has not said Hello."""
        if rid != self.requester or incarnation != self._mine:
            return False
        self._taken += size
        return True

    def grant(self) -> Grant:
        """What may be sent now."""
        credit = LIVE_CREDIT_BYTES if self._wanted else 0
        return Grant(self._mine, self._theirs, self._taken, credit)

    def want(self, now_ms: int, *, wanted: bool) -> bool:
        """Whether there is anybody to send it to; True if ingest should hear of a change."""
        if wanted:
            self._wanted_until_ms = now_ms + WANTED_MS
        before, self._wanted = self._wanted, now_ms < self._wanted_until_ms
        return before is not self._wanted

    def ask_hello(self) -> Grant:
        """The answer to a stranger."""
        return Grant(self._mine, 0, 0, 0)


class Live:
    """Running subscriptions that want what is not recorded."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._exact: dict[str, dict[int, Subscription]] = {}
        self._patterns: dict[int, Subscription] = {}
        self._maker = Maker(Origin(0, 0))
        self.over: list[Subscription] = []  # whose limit was reached here; the core ends them

    def add(self, one: Subscription, *, regex: bool) -> None:
        """From now on it gets what matches."""
        place = self._patterns if regex else self._exact.setdefault(one.topic, {})
        place[one.names.key] = one

    def remove(self, one: Subscription) -> None:
        """It is over; it may never have been here."""
        if one in self.over:
            self.over.remove(one)
        self._patterns.pop(one.names.key, None)
        exact = self._exact.get(one.topic)
        if exact is not None and exact.pop(one.names.key, None) is not None and not exact:
            del self._exact[one.topic]

    def fan_out(
        self, entries: Sequence[Entry], bodies: Sequence[bytes], wall_ns: int
    ) -> list[Effect]:
        """Sends batches that just came; `wall_ns` is the time of those that bring none."""
        batches = [_batch(*pair, wall_ns) for pair in zip(entries, bodies, strict=True)]
        block = Block(_NOWHERE, batches, _NOWHERE)
        effects: list[Effect] = []
        for at, batch in enumerate(batches):
            for one in self._wanting(batch.topics):
                effects += self._sends(one, block, at)
        return effects

    def _wanting(self, topics: list[str]) -> Iterator[Subscription]:
        """Who may want a batch, each once: an exact topic is wanted by its own name only."""
        for topic in dict.fromkeys(topics):
            if topic in self._exact:
                yield from self._exact[topic].values()
        yield from self._patterns.values()

    def _sends(self, one: Subscription, block: Block, at: int) -> Iterator[Send]:
        for part in self._parts(one, block, at):
            if one.credit <= 0:
                one.dropped += part.messages
                self._counts.dropped += part.messages
                continue
            one.credit -= part.size
            one.left -= part.messages
            one.sent_messages += part.messages
            one.sent_bytes += len(part.body)
            self._counts.messages_out += part.messages
            self._counts.bytes_out += len(part.body)
            header = part.before + one.sid_packed + part.after
            yield Send(one.names.rid, header, part.body)
        if one.left <= 0:
            self.over.append(one)

    def _parts(self, one: Subscription, block: Block, at: int) -> Parts:
        """What it wants of a batch."""
        batch = block.batch(at)
        if one.plain:
            wanted = one.wish.wanted(batch)
            if True not in wanted:
                return ()
            return self._maker.whole(block, at, wanted, zstd=one.look.zstd)
        picks, _ = one.wish.picks(block, at, counting(batch), one.look.type_of)
        picks = picks[: one.left]
        if not picks:
            return ()
        return self._maker.picked(block, at, picks, one.look, sees_all=one.wish.sees_all(batch))

    def check(self, running: dict[int, Subscription]) -> None:
        """Asserts what is always true."""
        known = dict(self._patterns)
        for topic, exact in self._exact.items():
            assert exact, topic
            known |= exact
        assert known.items() <= running.items()


def told_of_drops(one: Subscription) -> bytes | None:
    """The ack that tells a subscription what it missed, if it does not know."""
    if one.dropped == one.dropped_told:
        return None
    one.dropped_told = one.dropped
    return codec.encode(m.Ack("dropped", sid=one.names.sid, dropped=one.dropped))


def _batch(entry: Entry, body: bytes, wall_ns: int) -> Batch:
    """A batch without a position, for what makes messages of batches."""
    time_ns = entry.time_ns if entry.time_ns is not None else wall_ns
    return Batch(
        KIND_PUBLISH, 0, entry.publisher, entry.session, entry.seq, 0, entry.count, time_ns,
        entry.topics, body, entry.crc, len(body), flags=FLAG_ZSTD if entry.codec else 0,
        columns=entry.columns,
    )  # fmt: skip
