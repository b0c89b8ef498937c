"""The publishing link of one client: decides what is sent, kept, sent again and given up. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> LIVE
      ^                 |                        |  ^                   |  |
      +---- Lost, no answer in time, silence ----+--|-------------------+  |
                                                    +--- not_logged_on ----+
    any --final refusal of the logon, session_ended, a log that lost acknowledged messages--> ENDED

A *round* is one uninterrupted run of sends. Its number travels as `cid` of each publish, so that an
error about a send that was given up for a newer one is known for what it is: when a message is
refused, everything sent behind it is refused too, and they must start one new round only.

Rules that look like details: wire.md and journal.md, "Publisher sessions and de-duplication".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zbroker.client.effects import (
    Backoff,
    Connect,
    Connected,
    Effect,
    Ended,
    Event,
    LoggedOn,
    Lost,
    Refused,
    Send,
    raised,
    store_ahead,
)
from zbroker.client.publishing.packing import Batch
from zbroker.client.publishing.store import MemoryStore
from zbroker.client.publishing.unrecorded import Unrecorded
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.limits import WINDOW_BYTES
from zbroker.wire.messages import Ack, Error, Heartbeat, Logoff, Logon, Publish

CONNECT_MS: Final = 5_000  # then a new socket, which looks the host up again
ANSWER_MS: Final = 2_000  # for an answer to a logon
HEARTBEAT_MS: Final = 1_000  # while something is unacknowledged: an unknown connection is told so
PROBE_MS: Final = 10_000  # without progress: the newest sent batch goes again
BEATS_PER_INTERVAL: Final = 2  # two silent intervals end a session: be well within one
SILENT_INTERVALS: Final = 3  # of a heartbeat that was asked for
SETTLED_MS: Final = 1_000  # a link that was live for this long is reconnected without delay
RECONNECT_MS: Final = (200, 20_000)
REFUSED_MS: Final = (50, 1_000)
#: A logon refused with one of these is tried again
LOGON_AGAIN: Final = TEMPORARY | {"internal", "too_many"}


class State(Enum):
    """See the picture above."""

    DOWN = "down"
    CONNECTING = "connecting"
    LOGON_SENT = "logon_sent"
    LIVE = "live"
    ENDED = "ended"


class Core:
    """One publisher's link. `start_ns` is where a fresh store begins to number, at the least."""

    def __init__(
        self,
        logon: Logon,
        start_ns: int,
        jitter: Callable[[], float],
        store: MemoryStore | None = None,
    ) -> None:
        self.state = State.DOWN
        self.store = store or MemoryStore()
        self.error: ZBrokerError | None = None
        self.refusal: Error | None = None  # the last temporary one: the reason of a time-out
        self.recorded = 0  # highest sequence that is known to be durable in the log
        self.unrecorded = Unrecorded()
        self.next_sequence = start_ns
        self._chain = 0  # `prev` of the next batch
        self._window = WINDOW_BYTES
        self._logon = logon
        self._logons = 0
        self._fresh = True
        self._sent = self._asking = 0  # batches of the store sent in this round, and at its begin
        self._in_flight = self._round = 0  # bytes of those; the number of the round
        self._rewound_to = -1  # where this round began; no progress since then means to wait
        self._resume_ms: int | None = None  # sends pause until then
        self._deadline_ms: int | None = 0  # of the state: try to connect, give up waiting
        self._live_since_ms = self._sent_ms = self._heard_ms = self._progress_ms = 0
        self._reconnect = Backoff(RECONNECT_MS, jitter)
        self._again = Backoff(REFUSED_MS, jitter)

    # -- what the shell asks ------------------------------------------------------------------

    @property
    def settled(self) -> int:
        """Everything up to this sequence is durable, or not recorded, or finally refused."""
        return self.store[0].first - 1 if len(self.store) else self.next_sequence - 1

    @property
    def can_send(self) -> bool:
        """A batch that is added now would be sent at once."""
        return self._may_send and self._sent == len(self.store) and self._in_flight < self._window

    @property
    def _may_send(self) -> bool:
        return self.state is State.LIVE and self._resume_ms is None

    # -- the three methods, and what the application wants ------------------------------------

    def add(self, batch: Batch, now_ms: int) -> list[Effect]:
        """Numbers and keeps `batch`; sends it if the window allows."""
        batch.first, batch.prev = self.next_sequence, self._chain
        batch.last = self._chain = batch.first + batch.count - 1
        self.next_sequence = batch.last + 1
        self.store.append(batch)
        return self._pump(now_ms)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What follows from an answer of the broker or an event of the socket."""
        if self.state is State.ENDED:
            return []
        if isinstance(event, Connected):
            return self._log_on(now_ms) if self.state is State.CONNECTING else []
        if isinstance(event, Lost):
            return [] if self.state in (State.DOWN, State.CONNECTING) else self._lose(now_ms)
        self._heard_ms = now_ms
        if isinstance(event, Ack):
            return self._acked(event, now_ms)
        return self._error(event, now_ms) if isinstance(event, Error) else []

    def tick(self, now_ms: int) -> list[Effect]:
        """What follows from the time."""
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            return self._past_deadline(now_ms)
        if self.state is not State.LIVE:
            return []
        silence_ms = self._silence_ms()
        if silence_ms is not None and now_ms >= self._heard_ms + silence_ms:
            return self._lose(now_ms)
        effects: list[Effect] = []
        if self._resume_ms is not None and now_ms >= self._resume_ms:
            self._resume_ms = None
            effects = self._pump(now_ms)
        return effects + self._probe(now_ms) + self._beat(now_ms)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do at the latest."""
        times = [self._deadline_ms]
        if self.state is State.LIVE:
            silence_ms, beat_ms = self._silence_ms(), self._beat_ms()
            times += [
                self._resume_ms,
                self._progress_ms + PROBE_MS if self._sent else None,
                None if silence_ms is None else self._heard_ms + silence_ms,
                None if beat_ms is None else self._sent_ms + beat_ms,
            ]
        return min((time for time in times if time is not None), default=None)

    def log_on_again(self, now_ms: int) -> list[Effect]:
        """Opens a new session on the same connection: somebody needs a fresh token."""
        return self._log_on(now_ms) if self.state is State.LIVE else []

    def log_off(self) -> list[Effect]:
        """Ends the session, so that the name is free at once."""
        live, self.state, self._deadline_ms = self.state is State.LIVE, State.ENDED, None
        return [Send(Logoff())] if live else []

    # -- connecting ---------------------------------------------------------------------------

    def _past_deadline(self, now_ms: int) -> list[Effect]:
        if self.state is State.LOGON_SENT:
            return self._lose(now_ms)
        self.state, self._deadline_ms = State.CONNECTING, now_ms + CONNECT_MS
        return [Connect()]

    def _lose(self, now_ms: int) -> list[Effect]:
        """Begins anew with another socket: at once when the link had been good, else later."""
        if self.state is State.LIVE and now_ms - self._live_since_ms >= SETTLED_MS:
            self._reconnect.attempt = 0
            delay_ms = 0
        else:
            delay_ms = self._reconnect.next_ms()
        self.state, self._deadline_ms = State.DOWN, now_ms + delay_ms
        return self.tick(now_ms)

    def _log_on(self, now_ms: int) -> list[Effect]:
        self._logons += 1
        self._logon.cid = f"logon-{self._logons}"
        self.state, self._deadline_ms = State.LOGON_SENT, now_ms + ANSWER_MS
        return [Send(self._logon)]

    def _logged_on(self, answer: Ack, now_ms: int) -> list[Effect]:
        """A session is open: learns what the journal holds and sends the rest again."""
        high = answer.seq or 0
        problem = self._compare(high)
        if problem is not None:
            return self._end(problem)
        if self._fresh:
            self._fresh, self._chain = False, high
        self.recorded = max(self.recorded, min(high, answer.acked or 0))
        self.next_sequence = max(self.next_sequence, high + 1)
        self._window = answer.window_bytes or self._window
        self.state, self._deadline_ms = State.LIVE, None
        self._live_since_ms = self._sent_ms = now_ms
        self.unrecorded.new_session()
        if answer.recording is None:
            self._discard(answer.acked or 0, now_ms)
        # else all of it is sent again: the log does not know what became of unrecorded messages
        self._new_round(0)
        self._resume_ms = None
        self._relink(high)
        return [LoggedOn(answer), *self._pump(now_ms)]

    def _compare(self, high: int) -> ZBrokerError | None:
        """What is wrong when the journal's highest sequence of this publisher is `high`."""
        if self._fresh:
            return None
        if high < self.recorded:
            return store_ahead(self.recorded, high)
        if len(self.store) and high >= self.next_sequence:
            return ZBrokerError(
                "session_ended",
                f"another client published as {self._logon.client!r} up to sequence {high}; here "
                f"{self.store.messages} messages from {self.store[0].first} on are unacknowledged",
                "their fate is unknown; give each client its own name",
            )
        return None

    def _relink(self, high: int) -> None:
        """The next batch must follow something that the journal holds."""
        if self._sent < len(self.store):
            self.store[self._sent].prev = min(self.store[self._sent].prev, high)
        elif not len(self.store):
            self._chain = min(self._chain, high)

    # -- sending ------------------------------------------------------------------------------

    def _pump(self, now_ms: int) -> list[Effect]:
        """Sends what the window allows; a batch larger than the window goes alone."""
        effects: list[Effect] = []
        while self._may_send and self._sent < len(self.store):
            batch = self.store[self._sent]
            if self._in_flight and self._in_flight + len(batch.body) > self._window:
                break
            if self._again.attempt and self._sent > self._asking:
                break  # refused a moment ago: one batch asks whether it goes on
            self._sent += 1
            self._in_flight += len(batch.body)
            batch.round = self._round
            self._sent_ms = self._progress_ms = now_ms
            effects.append(Send(self._publish(batch), batch.body))
        return effects

    def _publish(self, batch: Batch) -> Publish:
        return Publish(
            seq=batch.first,
            topic=batch.topic,
            topics=batch.topics,
            count=batch.count,
            prev=batch.prev,
            crc=batch.crc,
            columns=batch.columns,
            ack=["persisted"],
            cid=str(batch.round),
        )

    def _new_round(self, sent: int) -> None:
        """What the first `sent` batches of the store carry has arrived; the rest is sent again."""
        for index in range(sent, self._sent):
            self.store[index].round = 0
        self._round += 1
        self._sent = self._asking = sent
        self._in_flight = sum(len(self.store[i].body) for i in range(sent))

    def _discard(self, through: int, now_ms: int) -> None:
        """Gives up what is settled."""
        while len(self.store) and self.store[0].last <= through:
            batch = self.store.popleft()
            if self.unrecorded.topics:
                self.unrecorded.settled(batch.names)
            self._again.attempt = self._asking = 0
            self._progress_ms = now_ms
            if self._sent:
                self._sent -= 1
                self._in_flight -= len(batch.body)

    # -- answers ------------------------------------------------------------------------------

    def _acked(self, ack: Ack, now_ms: int) -> list[Effect]:
        if self.state is State.LOGON_SENT and ack.cid == self._logon.cid:
            return self._logged_on(ack, now_ms)
        if ack.seq is None:
            return []
        if ack.type == "persisted":
            self.recorded = max(self.recorded, ack.seq)
        elif ack.unrecorded is not None:
            self.unrecorded.named(ack.unrecorded, ack.filtered)
        else:
            return []
        self._discard(ack.seq, now_ms)
        return self._pump(now_ms)

    def _error(self, error: Error, now_ms: int) -> list[Effect]:
        if self.state is State.LOGON_SENT and error.cid == self._logon.cid:
            return self._logon_refused(error, now_ms)
        if self.state is not State.LIVE or not self._is_news(error):
            return []
        if error.code == "not_logged_on":
            return self._log_on(now_ms)
        if error.code == "session_ended":
            return self._end(raised(error))
        if error.code == "sequence_gap":
            return self._gap(error, now_ms)
        if error.code in TEMPORARY or error.seq is None:
            return self._refused_for_now(error, now_ms)
        return self._refused_for_good(error, error.seq, now_ms)

    def _is_news(self, error: Error) -> bool:
        """False for an error about a send that was already given up for a newer one."""
        if error.cid is None:
            return True
        if error.seq is None:
            return error.cid == str(self._round)
        index = self.store.find(error.seq)
        return index < self._sent and error.cid == str(self.store[index].round)

    def _logon_refused(self, error: Error, now_ms: int) -> list[Effect]:
        if error.code not in LOGON_AGAIN:
            return self._end(raised(error))
        self.refusal = error
        return self._lose(now_ms)

    def _gap(self, error: Error, now_ms: int) -> list[Effect]:
        """Goes back to what the journal lacks."""
        high = error.high or 0
        if high < self.recorded:
            return self._end(store_ahead(self.recorded, high))
        self._new_round(self.store.find(high + 1))
        self._relink(high)
        if high == self._rewound_to:  # the last time did not help; do not spin
            self._resume_ms = now_ms + self._again.next_ms()
        self._rewound_to = high
        return self._pump(now_ms)

    def _refused_for_now(self, error: Error, now_ms: int) -> list[Effect]:
        """Sends the same again, a little later."""
        self.refusal = error
        self._new_round(self.store.find(error.seq) if error.seq else 0)
        self._resume_ms = now_ms + self._again.next_ms()
        return []

    def _refused_for_good(self, error: Error, sequence: int, now_ms: int) -> list[Effect]:
        """Gives up the refused batch; the next one follows what stood before it."""
        index = self.store.find(sequence)
        if index == len(self.store) or self.store[index].first > sequence:
            return []  # nothing of ours: given up before
        self._new_round(index)
        batch = self.store.remove(index)
        if index < len(self.store):
            self.store[index].prev = batch.prev
        else:
            self._chain = batch.prev
        return [Refused(batch.first, batch.last, raised(error)), *self._pump(now_ms)]

    def _end(self, error: ZBrokerError) -> list[Effect]:
        self.state, self.error, self._deadline_ms = State.ENDED, error, None
        return [Ended(error)]

    # -- beats --------------------------------------------------------------------------------

    def _probe(self, now_ms: int) -> list[Effect]:
        """A net below everything: whatever answer was lost, this message has it given again."""
        if not self._sent or now_ms < self._progress_ms + PROBE_MS:
            return []
        self._sent_ms = self._progress_ms = now_ms
        newest = self.store[self._sent - 1]
        return [Send(self._publish(newest), newest.body)]

    def _beat(self, now_ms: int) -> list[Effect]:
        beat_ms = self._beat_ms()
        if beat_ms is None or now_ms < self._sent_ms + beat_ms:
            return []
        self._sent_ms = now_ms
        return [Send(Heartbeat())]

    def _beat_ms(self) -> int | None:
        """How often the broker hears of this client: as promised, or while an answer is due."""
        if self._logon.heartbeat_s is not None:
            return int(self._logon.heartbeat_s * 1_000 / BEATS_PER_INTERVAL)
        return HEARTBEAT_MS if len(self.store) else None

    def _silence_ms(self) -> int | None:
        if self._logon.heartbeat_s is None:
            return None
        return int(self._logon.heartbeat_s * 1_000 * SILENT_INTERVALS)
