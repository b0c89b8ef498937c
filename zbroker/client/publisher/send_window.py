"""One publisher's line of batches: numbered, kept in the store, sent as the window allows. No I/O.

A *round* is one uninterrupted run of sends. Its number travels as `cid` of each publish, so that an
error about a send that was given up for a newer one is known for what it is: when a message is
refused, everything sent after it is refused too, and they must start one new round only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.client.effects import Backoff, SendCommand
from zbroker.client.publisher.packer import PackedBatch
from zbroker.client.publisher.store import MemoryStore
from zbroker.client.publisher.unrecorded import ReturnedMessages, Unrecorded
from zbroker.limits import WINDOW_BYTES
from zbroker.wire.messages import Error, Publish

REFUSED_MS: Final = (50, 1_000)
PROBE_MS: Final = 10_000  # without progress: the newest sent batch goes again
QUICKEST_MS: Final = 10_000  # for how long the quickest ack counts; until twice as long, at most


class QuickestAck:
    """The shortest time from a send to its ack, of the last seconds.

    The shortest, not the mean: with the mean an overload would allow itself more batches.
    """

    def __init__(self) -> None:
        self.ms = 0  # as long as nothing was acknowledged
        self._last = self._now = QUICKEST_MS  # of the seconds before, and of these
        self._until_ms = 0

    def note(self, took_ms: int, now_ms: int) -> None:
        """A batch was acknowledged so long after it was sent."""
        if now_ms >= self._until_ms:
            self._last, self._now, self._until_ms = self._now, took_ms, now_ms + QUICKEST_MS
        elif took_ms < self._now:
            self._now = took_ms
        self.ms = min(self._last, self._now)


class SendWindow:
    """What of the store was sent, in which round, and what follows the newest batch."""

    def __init__(self, store: MemoryStore, start_ns: int, jitter: Callable[[], float]) -> None:
        self.store, self._batches = store, store.batches
        self.stage: str | None = None
        self.unrecorded = Unrecorded()
        self.returned = ReturnedMessages()
        self.window = WINDOW_BYTES
        self.next_sequence = store.next_sequence or start_ns
        self.chain = self.next_sequence - 1  # `prev` of the next batch
        self.sent = 0  # batches of the store sent in this round
        self.sent_ms = self.progress_ms = 0
        self.resume_ms: int | None = None  # sends pause until then
        self._asking = 0  # how many had been sent when this round began
        self._in_flight = self._round = 0  # bytes of what was sent; the number of the round
        self._rewound_to = -1  # where this round began; no progress since then means to wait
        self._again = Backoff(REFUSED_MS, jitter)
        #: the newest sequence that was sent; the one that was when this session began: a broker may
        #: have all up to that. A store does not know what the process before it has sent
        self._sent_to = self._resent_to = self._batches[-1].last if self._batches else 0
        self._quickest = QuickestAck()

    @property
    def settled(self) -> int:
        """Everything up to this sequence is durable, or not recorded, or finally refused."""
        return self._batches[0].first - 1 if self._batches else self.next_sequence - 1

    @property
    def is_open(self) -> bool:
        """A batch that is added now would be sent at once, and should be, though it is not full.

        That is when all before it are acknowledged: each costs five processes a turn. For a distant
        broker it is one more for each ms of a round trip.
        """
        return (
            self.resume_ms is None
            and self.sent == len(self._batches)
            and self._in_flight < self.window
            and self.sent <= self._quickest.ms
        )

    def forget_returned(self, high: int) -> None:
        """The broker had everything up to `high` before this session, and does not say any more
        what of it went to no queue."""
        for batch in self._batches:
            if batch.first > high:
                break
            if batch.mandatory:
                self.returned.unknown.add_run(batch.first, min(batch.last, high))

    def begin(self, high: int) -> None:
        """The journal holds everything up to `high`: numbers go on above it."""
        self.next_sequence = max(self.next_sequence, high + 1)
        self.store.begin(self.next_sequence)

    def add(self, batch: PackedBatch) -> None:
        """Numbers and keeps `batch`."""
        batch.first, batch.prev = self.next_sequence, self.chain
        batch.last = self.chain = batch.first + batch.count - 1
        self.next_sequence = batch.last + 1
        self.store.append(batch)

    # -- sending ------------------------------------------------------------------------------

    def pump(self, now_ms: int) -> list[SendCommand]:
        """Sends what the window allows; a batch larger than the window goes alone."""
        sends: list[SendCommand] = []
        while self.resume_ms is None and self.sent < len(self._batches):
            batch = self._batches[self.sent]
            if self._in_flight and self._in_flight + batch.size > self.window:
                break
            if self._again.attempt and self.sent > self._asking:
                break  # refused a moment ago: one batch asks whether it goes on
            batch.round, batch.sent_ms = self._round, now_ms
            self._sent_to = max(self._sent_to, batch.last)
            sends.append(self._send(self.sent))
            self.sent += 1
            self._in_flight += batch.size
            self.sent_ms = self.progress_ms = now_ms
        return sends

    def resume(self, now_ms: int) -> list[SendCommand]:
        """Goes on after a pause that is over."""
        if self.resume_ms is None or now_ms < self.resume_ms:
            return []
        self.resume_ms = None
        return self.pump(now_ms)

    def probe(self, now_ms: int) -> list[SendCommand]:
        """A net below everything: whatever answer was lost, this message has it given again."""
        if not self.sent or now_ms < self.progress_ms + PROBE_MS:
            return []
        self.sent_ms = self.progress_ms = now_ms
        return [self._send(self.sent - 1)]

    def next_probe_ms(self) -> int | None:
        return self.progress_ms + PROBE_MS if self.sent else None

    def _send(self, index: int) -> SendCommand:
        batch = self.store.load(index)
        command = Publish(
            seq=batch.first,
            topic=batch.topic,
            topics=batch.topics,
            count=batch.count,
            prev=batch.prev,
            crc=batch.crc,
            columns=batch.columns,
            ack=["persisted"],
            cid=str(batch.round),
            stage=self.stage,
            mandatory=batch.mandatory,
            resent=batch.last <= self._resent_to,
        )
        return SendCommand(command, batch.body)

    # -- rounds -------------------------------------------------------------------------------

    def new_session(self, high: int, now_ms: int) -> None:
        """The journal holds everything up to `high`; all that is kept is sent again."""
        self.sent_ms = now_ms
        self._resent_to = self._sent_to
        self._new_round(0)
        self.resume_ms = None
        self._relink(high)

    def rewind(self, high: int, now_ms: int) -> None:
        """The journal lacks everything after `high`."""
        self._new_round(self.store.find(high + 1))
        self._relink(high)
        if high == self._rewound_to:  # the last time did not help; do not spin
            self.resume_ms = now_ms + self._again.next_ms()
        self._rewound_to = high

    def hold(self, sequence: int | None, now_ms: int) -> None:
        """Refused for now: the same goes again, a little later."""
        self._new_round(self.store.find(sequence) if sequence else 0)
        self.resume_ms = now_ms + self._again.next_ms()

    def give_up(self, sequence: int) -> PackedBatch | None:
        """Refused for good: the next batch follows the one before the refused one."""
        index = self.store.find(sequence)
        if index == len(self._batches) or self._batches[index].first > sequence:
            return None  # nothing of ours: given up before
        self._new_round(index)
        batch = self.store.remove(index)
        if index < len(self._batches):
            self._batches[index].prev = batch.prev
        else:
            self.chain = batch.prev
        self.store.settled()
        return batch

    def is_news(self, error: Error) -> bool:
        """False for an error about a send that was already given up for a newer one."""
        if error.cid is None:
            return True
        if error.seq is None:
            return error.cid == str(self._round)
        index = self.store.find(error.seq)
        return index < self.sent and error.cid == str(self._batches[index].round)

    def settle(self, through: int, now_ms: int) -> None:
        """Gives up what is settled: everything up to sequence `through`."""
        while self._batches and self._batches[0].last <= through:
            batch = self.store.popleft()
            if self.unrecorded.topics:
                self.unrecorded.settled(batch.names)
            self._again.attempt = self._asking = 0
            self.progress_ms = now_ms
            if self.sent:
                self.sent -= 1
                self._in_flight -= batch.size
                self._quickest.note(now_ms - batch.sent_ms, now_ms)
        self.store.settled()

    def _new_round(self, sent: int) -> None:
        """What the first `sent` batches of the store carry has arrived; the rest is sent again."""
        for index in range(sent, self.sent):
            self._batches[index].round = 0
        self._round += 1
        self.sent = self._asking = sent
        self._in_flight = sum(self._batches[i].size for i in range(sent))

    def _relink(self, high: int) -> None:
        """The next batch must follow something that the journal holds."""
        if self.sent < len(self._batches):
            self._batches[self.sent].prev = min(self._batches[self.sent].prev, high)
        elif not self._batches:
            self.chain = min(self.chain, high)
