"""The connection of one publisher: which batches are sent, kept, sent again, given up. No I/O.

How it comes about and is kept: see ../connection.py. It ends with a final refusal of the logon,
session_ended, a broker that lacks what was acknowledged, or when none is reached in time.

send_window.py has the batches and the rounds in which they are sent. Rules that look like details:
wire.md and journal.md, "Publisher sessions and de-duplication".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from zbroker.client.connection import RECONNECT_MS, Connection, Phase
from zbroker.client.effects import (
    Backoff,
    Behind,
    ConnectionLost,
    Effect,
    Ended,
    Event,
    LogonAccepted,
    MessagesRefused,
    Rejected,
    Republished,
    SendCommand,
    broker_behind,
    gave_up,
    raised,
)
from zbroker.client.publisher.packer import PackedBatch
from zbroker.client.publisher.send_window import SendWindow
from zbroker.client.publisher.store import MemoryStore
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.heartbeats import BEATS_PER_INTERVAL, Silence
from zbroker.wire.messages import Ack, Error, Heartbeat, Logoff, Logon

ANSWER_MS: Final = 2_000  # for an answer to a logon
HEARTBEAT_MS: Final = 1_000  # while something is unacknowledged: an unknown connection hears of it
BEHIND_MAX_MS: Final = 5_000  # as long others are tried, and replication may bring what is lacking
GO_ON_MAX_MS: Final = 1_000  # the same of a client that goes on without it
#: A logon refused with one of these is tried again
LOGON_AGAIN: Final = TEMPORARY | {"internal", "too_many"}


class Policy(Struct, frozen=True):
    """What the user decides.

    accept_behind: go on with a broker that lacks messages which another one, or an older copy of
    it, acknowledged. give_up_ms: without a session for so long it ends; None: never. brokers: how
    many addresses there are, at least. stage: the token that everything is staged under.
    """

    accept_behind: bool = False
    give_up_ms: int | None = None
    brokers: int = 1
    stage: str | None = None

    @property
    def several(self) -> bool:
        """An address without a listener is left for the next one; else the socket tries again."""
        return self.brokers > 1


class PublisherCore(Connection):
    """`start_ns` is where a fresh store begins to number, at the least."""

    logon_answer_ms = ANSWER_MS

    def __init__(
        self,
        logon: Logon,
        start_ns: int,
        jitter: Callable[[], float],
        store: MemoryStore | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(jitter, logon.heartbeat_s)
        self.store = MemoryStore() if store is None else store
        self.error: ZBrokerError | None = None
        self.refusal: Error | None = None  # the last temporary one: the reason of a time-out
        self._out = SendWindow(self.store, start_ns, jitter)
        self.unrecorded = self._out.unrecorded  # by the broker, as far as it said so
        self.returned = self._out.returned  # likewise: what went to no queue
        self._policy = policy or Policy()
        # each of them once before any is waited for longer: one may be as good as ever
        self._reconnect = Backoff(RECONNECT_MS, jitter, self._policy.brokers)
        self._out.stage = self._policy.stage
        self._logon = logon
        self._logons = 0
        self._fresh = not self.store.next_sequence
        self.queued = 0  # messages that the shell has and that have no number yet
        self._republish = 0  # the last sequence that was owed at the logon; 0: all settled
        self._down_since_ms: int | None = None  # without a session
        self._skipping = False  # no broker listens where it connects to: on to the next one
        self._announced = False  # the user knows of a session, and not of its end
        self._missing = 0  # ranges of instances that the broker says it does not have
        self._behind_until_ms: int | None = None  # another broker may have what the last ones lack

    # -- what the shell asks ------------------------------------------------------------------

    @property
    def settled(self) -> int:
        """Everything up to this sequence is durable, or not recorded, or finally refused."""
        return self._out.settled

    @property
    def next_sequence(self) -> int:
        """What the next message gets."""
        return self._out.next_sequence

    @property
    def can_send(self) -> bool:
        """A batch that is added now would be sent at once."""
        return self.state is Phase.LIVE and self._out.is_open

    @property
    def stages(self) -> bool:
        """Nothing that is added is shown before a commit."""
        return self._out.stage is not None

    # -- the three methods, and what the application wants ------------------------------------

    def add(self, batch: PackedBatch, now_ms: int) -> list[Effect]:
        """Numbers and keeps `batch`; sends it if the window allows."""
        self._out.add(batch)
        return self._pump(now_ms)

    def _pass_time(self, now_ms: int) -> list[Effect]:
        if self.state is not Phase.LIVE and self._is_hopeless(now_ms):
            return self._end(gave_up(self._policy.give_up_ms, self.refusal))
        effects, out = super()._pass_time(now_ms), self._out
        if self.state is Phase.LIVE:
            effects += [*out.resume(now_ms), *out.probe(now_ms), *self._beat(now_ms)]
        return effects

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do at the latest."""
        if self.state is Phase.ENDED:
            return None
        times = [super().next_wake_ms()]
        if self.state is Phase.LIVE:
            beat_ms = self._beat_ms()
            times += [
                self._out.resume_ms,
                self._out.next_probe_ms(),
                None if beat_ms is None else self._out.sent_ms + beat_ms,
            ]
        elif self._down_since_ms is not None and self._policy.give_up_ms is not None:
            times.append(self._down_since_ms + self._policy.give_up_ms)
        return min((time for time in times if time is not None), default=None)

    def stage(self, token: str | None) -> None:
        """Stages all that is added from now on under this token; all before it is settled."""
        assert not self.store.batches, "a batch that is sent again has the token of its time"
        self._out.stage = token

    def log_on_again(self, now_ms: int) -> list[Effect]:
        """Opens a new session on the same connection: somebody needs a fresh token."""
        return self._log_on(now_ms) if self.state is Phase.LIVE else []

    def beat_each(self, interval_s: float | None, now_ms: int) -> list[Effect]:
        """Another interval of heartbeats from now on; None: none."""
        self._logon.heartbeat_s, self._silence = interval_s, Silence(interval_s)
        if self.state is Phase.LOGON_SENT:
            return self._log_on(now_ms)
        return [SendCommand(Heartbeat(interval_s or 0))] if self.state is Phase.LIVE else []

    def log_off(self) -> list[Effect]:
        """Ends the session, so that the name is free at once."""
        live = self.state is Phase.LIVE
        self._stop()
        return [SendCommand(Logoff())] if live else []

    def _pump(self, now_ms: int) -> list[Effect]:
        return [*self._out.pump(now_ms)] if self.state is Phase.LIVE else []

    # -- connecting ---------------------------------------------------------------------------

    def _connect(self, now_ms: int) -> list[Effect]:
        self._skipping = False
        return super()._connect(now_ms)

    def _unreached(self, now_ms: int) -> None:
        """The next one is tried soon, at the latest when a silent one would be given up."""
        if self.state is Phase.CONNECTING and self._policy.several and not self._skipping:
            self._skipping = True
            assert self._deadline_ms is not None, "it is connecting"
            self._deadline_ms = min(self._deadline_ms, now_ms + self._reconnect.next_ms())

    def _rejected(self, event: Rejected, now_ms: int) -> list[Effect]:
        """Its key is not accepted; another broker may."""
        error = Error("auth_failed", event.why, event.hint)
        return self._logon_refused(error, now_ms, again=self._policy.several)

    def _lose(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [ConnectionLost()] if self._announced else []
        self._announced = False
        return effects + super()._lose(now_ms)

    def _is_hopeless(self, now_ms: int) -> bool:
        """No broker was reached for too long. The first look starts the watch."""
        if self._down_since_ms is None:
            self._down_since_ms = now_ms
        patience_ms = self._policy.give_up_ms
        return patience_ms is not None and now_ms >= self._down_since_ms + patience_ms

    def _make_logon(self) -> Logon:
        self._logons += 1
        self._logon_cid = self._logon.cid = f"logon-{self._logons}"
        return self._logon

    def _logged_on(self, answer: Ack, now_ms: int) -> list[Effect]:
        """A session is open: learns what the journal holds and sends the rest again."""
        high, out, self._missing = answer.seq or 0, self._out, answer.missing or 0
        lags, self.store.may_lag = self.store.may_lag, False
        if not self._fresh and self.store.batches and high >= out.next_sequence and not lags:
            return self._end(self._another_client(high))
        if self._seeks_another(high, now_ms):
            error = broker_behind(self.store.recorded, high, self._missing)
            refusal = Error(error.code, error.reason, error.hint)
            self._reconnect.attempt = 0  # all that it answers is that it lacks something
            return self._logon_refused(refusal, now_ms, again=True)
        effects = self._check_behind(high)
        if self.state is Phase.ENDED:
            return effects
        if self._fresh:
            self._fresh, out.chain = False, high
        out.begin(high)
        out.forget_returned(high)
        owed = self.store.batches or self.queued
        self._republish = out.next_sequence - 1 + self.queued if owed else 0
        out.window = answer.window_bytes or out.window
        self.state, self._deadline_ms, self._down_since_ms = Phase.LIVE, None, None
        self._live_since_ms, self._announced = now_ms, True
        out.unrecorded.new_session()
        self._learn(min(high, answer.acked or 0))
        if answer.recording is None:
            out.settle(answer.acked or 0, now_ms)
        # else all of it is sent again: the log does not know what became of unrecorded messages
        out.new_session(high, now_ms)
        return [LogonAccepted(answer), *effects, *self._pump(now_ms), *self._republished()]

    def _another_client(self, high: int) -> ZBrokerError:
        return ZBrokerError(
            "session_ended",
            f"another client published as {self._logon.client!r} up to sequence {high}; here "
            f"{self.store.messages} messages from {self.settled + 1} on are unacknowledged",
            "their fate is unknown; give each client its own name",
        )

    def _seeks_another(self, high: int, now_ms: int) -> bool:
        """True if this broker lacks something, and the others are tried first, for a while.

        Where instances replicate, one of them has it, or gets it soon.
        """
        if self._fresh or high >= self.store.recorded or not self._policy.several:
            self._behind_until_ms = None
            return False
        if self._behind_until_ms is None:
            patience_ms = GO_ON_MAX_MS if self._policy.accept_behind else BEHIND_MAX_MS
            self._behind_until_ms = now_ms + patience_ms
        if now_ms < self._behind_until_ms:
            return True
        self._behind_until_ms = None
        return False

    def _check_behind(self, high: int) -> list[Effect]:
        """A broker whose highest sequence is `high`, below what was acknowledged, lost something.

        Whether that ends this client is for the user to say; it is never silent.
        """
        recorded = self.store.recorded
        if self._fresh or high >= recorded:
            return []
        if not self._policy.accept_behind:
            return self._end(broker_behind(recorded, high, self._missing))
        self.store.recorded = high
        return [Behind(high + 1, recorded)]

    def _learn(self, recorded: int) -> None:
        self.store.recorded = max(self.store.recorded, recorded)

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Ack):
            return self._acked(event, now_ms)
        return self._error(event, now_ms) if isinstance(event, Error) else []

    def _acked(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.seq is None:
            return []
        if ack.type == "persisted":
            if ack.returned:
                self.returned.known.add(ack.returned)
            self._learn(ack.seq)
        elif ack.unrecorded is not None:
            self._out.unrecorded.named(ack.unrecorded, ack.filtered)
        else:
            return []
        self._out.settle(ack.seq, now_ms)
        return [*self._pump(now_ms), *self._republished()]

    def _republished(self) -> list[Effect]:
        if not self._republish or self.settled < self._republish:
            return []
        self._republish = 0
        return [Republished()]

    def _error(self, error: Error, now_ms: int) -> list[Effect]:
        if self.state is Phase.LOGON_SENT and error.cid == self._logon_cid:
            return self._logon_refused(error, now_ms, again=error.code in LOGON_AGAIN)
        if self.state is not Phase.LIVE or not self._out.is_news(error):
            return []
        if error.code == "not_logged_on":  # with heartbeats: nothing of ours arrives any more
            again = self._log_on if self._logon.heartbeat_s is None else self._lose
            return again(now_ms)
        if error.code in ("session_ended", "auth_failed"):
            return self._end(raised(error))
        if error.code == "sequence_gap":
            return self._gap(error.high or 0, now_ms)
        if error.code in TEMPORARY or error.seq is None:
            self.refusal = error
            self._out.hold(error.seq, now_ms)
            return []
        return self._refused_for_good(error, error.seq, now_ms)

    def _logon_refused(self, error: Error, now_ms: int, *, again: bool) -> list[Effect]:
        if not again:
            return self._end(raised(error))
        self.refusal = error
        return self._lose(now_ms)

    def _gap(self, high: int, now_ms: int) -> list[Effect]:
        """Goes back to what the journal lacks."""
        effects = self._check_behind(high)
        if self.state is Phase.ENDED:
            return effects
        self._out.rewind(high, now_ms)
        return [*effects, *self._pump(now_ms)]

    def _refused_for_good(self, error: Error, sequence: int, now_ms: int) -> list[Effect]:
        batch = self._out.give_up(sequence)
        if batch is None:
            return []
        refused = MessagesRefused(batch.first, batch.last, raised(error))
        return [refused, *self._pump(now_ms), *self._republished()]

    def _end(self, error: ZBrokerError) -> list[Effect]:
        self.error = error
        self._stop()
        return [Ended(error)]

    # -- beats --------------------------------------------------------------------------------

    def _beat(self, now_ms: int) -> list[Effect]:
        beat_ms = self._beat_ms()
        if beat_ms is None or now_ms < self._out.sent_ms + beat_ms:
            return []
        self._out.sent_ms = now_ms
        return [SendCommand(Heartbeat())]

    def _beat_ms(self) -> int | None:
        """How often the broker hears of this client: as promised, or while an answer is due."""
        if self._logon.heartbeat_s is not None:
            return int(self._logon.heartbeat_s * 1_000 / BEATS_PER_INTERVAL)
        return HEARTBEAT_MS if self.store.batches else None
