"""Messages that are not recorded: from ingest to whoever is subscribed now. Pure.

ingest sends within the bytes that live_grants.py grants, so what it has to drop for lack of credit
is bounded by this process alone. Each subscription gets what it wants while it has credit; what
comes when it has none is dropped and counted, never kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zbroker.blocks.frame_builder import Block, Frame, FrameBuilder, Parts, counting
from zbroker.delivery.conflation import Conflation
from zbroker.delivery.effects import DeliveryStats, Effect
from zbroker.delivery.live_intervals import LiveIntervals
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.effects import Send
from zbroker.ids import Origin
from zbroker.log.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry

_NOWHERE: Final = Cursor(0, 0, 0)


class LiveSubscriptions:
    """Running subscriptions that want what is not recorded."""

    def __init__(self, counts: DeliveryStats) -> None:
        self._counts = counts
        self._exact: dict[str, dict[int, SubscriptionState]] = {}
        self._patterns: dict[int, SubscriptionState] = {}
        self._maker = FrameBuilder(Origin(0, 0))
        self._held = LiveIntervals()
        self.over: list[SubscriptionState] = []  # whose limit was reached here; the core ends them

    @property
    def next_ns(self) -> int | None:
        """When `tick` has something to do, monotonic."""
        return self._held.next_ns

    def add(
        self, one: SubscriptionState, conflation: Conflation | None = None, *, regex: bool
    ) -> None:
        """From now on it gets what matches. conflation: of its own, for what is not recorded."""
        if conflation is not None:
            self._held.add(one, conflation)
        place = self._patterns if regex else self._exact.setdefault(one.topic, {})
        place[one.names.key] = one

    def remove(self, one: SubscriptionState) -> None:
        """It is over; it may never have been here."""
        if one in self.over:
            self.over.remove(one)
        self._held.remove(one)
        self._leave(one)

    def move(self, one: SubscriptionState, topic: str, *, regex: bool) -> None:
        """It wants another topic from now on; what it holds stays."""
        self._leave(one)
        place = self._patterns if regex else self._exact.setdefault(topic, {})
        place[one.names.key] = one

    def forget(self, one: SubscriptionState) -> None:
        """What it holds may not be sent any more."""
        self._held.forget(one)

    def _leave(self, one: SubscriptionState) -> None:
        self._patterns.pop(one.names.key, None)
        exact = self._exact.get(one.topic)
        if exact is not None and exact.pop(one.names.key, None) is not None and not exact:
            del self._exact[one.topic]

    def fan_out(
        self, entries: Sequence[Entry], bodies: Sequence[bytes], wall_ns: int, now_ns: int = 0
    ) -> list[Effect]:
        """Sends batches that just came; `wall_ns` is the time of those that bring none.

        now_ns: monotonic.
        """
        batches = [_batch(*pair, wall_ns) for pair in zip(entries, bodies, strict=True)]
        block = Block(_NOWHERE, batches, _NOWHERE)
        effects: list[Effect] = []
        for at, batch in enumerate(batches):
            for one in self._wanting(batch.topics):
                if one in self._held:
                    effects += self._hold(one, block, at, now_ns)
                else:
                    effects += self._sends(one, block, at)
        return effects

    def is_due(self, now_ns: int) -> bool:
        """True if `tick` has something to do now, or some are over."""
        next_ns = self._held.next_ns
        return bool(self.over) or (next_ns is not None and now_ns >= next_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due because intervals are over."""
        return [send for one in self._held.ended(now_ns) for send in self.drain(one)]

    def drain(self, one: SubscriptionState) -> list[Effect]:
        """What is due for one that conflates, as far as its credit goes."""
        sends: list[Effect] = [  # one by one: each takes of the credit
            self._sent(one, self._maker.held(held, one.look)) for held in self._held.due(one)
        ]
        if one.left <= 0 and one not in self.over:
            self.over.append(one)
        return sends

    def _hold(self, one: SubscriptionState, block: Block, at: int, now_ns: int) -> list[Effect]:
        picks, _ = one.wish.picks(block, at, counting(block.batch(at)), one.look.type_of)
        dropped = self._held.hold(one, block, at, picks, now_ns) if picks else 0
        one.dropped += dropped
        self._counts.dropped += dropped
        return self.drain(one)

    def _wanting(self, topics: list[str]) -> Iterator[SubscriptionState]:
        """Who may want a batch, each once: an exact topic is wanted by its own name only."""
        for topic in dict.fromkeys(topics):
            if topic in self._exact:
                yield from self._exact[topic].values()
        yield from self._patterns.values()

    def _sends(self, one: SubscriptionState, block: Block, at: int) -> Iterator[Send]:
        for part in self._parts(one, block, at):
            if one.credit <= 0:
                one.dropped += part.messages
                self._counts.dropped += part.messages
                continue
            yield self._sent(one, part)
        if one.left <= 0:
            self.over.append(one)

    def _sent(self, one: SubscriptionState, part: Frame) -> Send:
        one.credit -= part.size
        one.trail.spent += part.size
        one.left -= part.messages
        one.sent_messages += part.messages
        one.sent_bytes += len(part.body)
        self._counts.messages_out += part.messages
        self._counts.bytes_out += len(part.body)
        return Send(one.names.rid, part.before + one.sid_packed + part.after, part.body)

    def _parts(self, one: SubscriptionState, block: Block, at: int) -> Parts:
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

    def check(self, running: dict[int, SubscriptionState]) -> None:
        """Asserts what is always true."""
        self._held.check()
        known = dict(self._patterns)
        for topic, exact in self._exact.items():
            assert exact, topic
            known |= exact
        assert known.items() <= running.items()


def told_of_drops(one: SubscriptionState) -> bytes | None:
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
