"""Sessions with a time-out that began at this instance last: attached, waiting, over. Pure.

    its begin lands --> waiting --answered--> attached
                           ^                     |
                           +--connection lost----+
    waiting --timeout_ms--> due: its end is written --lands--> over
    either  --it ended, goes on elsewhere, or began for another program--> over

What it holds stays with its consumers until it is over; a program that attaches its session again
keeps that. Only the instance where a session began last, or to which it was handed over, looks at
the time, and only a record ends it. So its end is after an attach, or the attach after its end: the
journal refuses the other one.
Source: seed 001, "Timeouts of detached sessions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.log.records import EPOCH_MAX, TransactionRecord
from zbroker.wire.transactions import SessionFound, SessionKey, SessionRow

DETACHED: Final = "detached"  # by its program, which has no failure to report
EXCEPTION: Final = "exception"  # its program says why
TIMED_OUT: Final = "timed out"
BY_OPERATOR: Final = "ended by an operator"
DUE_MAX: Final = 100  # of one turn: each is a unit


class SessionBegin(NamedTuple):
    """The highest epoch of a session that is known, and what began in it. instance: where it goes
    on. ended: "": it does."""

    key: SessionKey
    epoch: int
    instance: int
    holder: str
    timeout_ms: int
    ended: str = ""


class TimedSession(Struct):
    """since: the first epoch that its program has had it without an end. until_ms: when its time is
    over; None: it is attached, or its end is being written. rid: of the connection. queues: that it
    has had consumers of. restates: queues and holders of consumers from before this process that
    did not begin again; None: its program did not say which there are. begun: that did, until it
    says so."""

    key: SessionKey
    holder: str
    since: int
    epoch: int
    timeout_ms: int
    until_ms: int | None
    rid: bytes = b""
    queues: set[str] = field(default_factory=set)
    restates: set[tuple[str, str]] | None = field(default_factory=set)
    begun: set[tuple[str, str]] = field(default_factory=set)


class SessionOver(NamedTuple):
    """One whose consumers are to end. failed: its program did not end it by itself. elsewhere: it
    goes on at another instance."""

    key: SessionKey
    queues: set[str]
    why: str
    failed: bool
    elsewhere: bool = False


class TimedSessions:
    """All of them. now_ms: the monotonic clock. over: that their consumers do not know yet.
    known: those from before this process are here. doubted: the journal is to be asked of them.
    awaited: that another instance was asked to hand over to this one.
    """

    def __init__(self) -> None:
        self.now_ms: Callable[[], int] = lambda: 0  # set by the core
        self.here = 0  # this instance, as that
        self.over: list[SessionOver] = []
        self.known = False
        self.doubted: list[SessionKey] = []
        self.awaited: set[SessionKey] = set()
        self._sessions: dict[SessionKey, TimedSession] = {}
        self._next_ms: int | None = None  # none is due before

    def __len__(self) -> int:
        return len(self._sessions) + len(self.awaited)

    def get(self, key: SessionKey) -> TimedSession | None:
        """None: it has no time-out, or is over, or not of this instance."""
        return self._sessions.get(key)

    # -- what the log says --------------------------------------------------------------------

    def learn(self, begin: SessionBegin, *, begins: bool = False, before: bool = False) -> None:
        """An epoch that is not above the known one changes nothing. begins: it may be new here.
        before: it began before this process did, then."""
        one = self._sessions.get(begin.key)
        if one is not None and begin.epoch <= one.epoch:
            return
        here = begin.instance == self.here and begin.timeout_ms and not begin.ended
        if one is not None and not (here and one.holder == begin.holder != ""):
            self._end(one, begin)
            one = None
        if not here:
            return
        if one is None and begins:
            one = TimedSession(begin.key, begin.holder, begin.epoch, 0, 0, None)
            one.restates = None if before else set()
            self._sessions[begin.key] = one
        if one is not None:
            one.epoch, one.timeout_ms = begin.epoch, begin.timeout_ms
            self._wait(one)  # its connection is not known yet

    def _end(self, one: TimedSession, begin: SessionBegin) -> None:
        del self._sessions[one.key]
        elsewhere = not begin.ended and begin.instance != self.here
        why = begin.ended or ("it goes on at another instance" if elsewhere else "it began again")
        failed = begin.ended != DETACHED and not elsewhere
        self.over.append(SessionOver(one.key, one.queues, why, failed, elsewhere))

    # -- connections --------------------------------------------------------------------------

    def attached(self, key: SessionKey, epoch: int, rid: bytes) -> None:
        """Its program has heard that it began."""
        one = self._sessions.get(key)
        if one is not None and one.epoch == epoch:
            one.rid, one.until_ms = rid, None

    def lost(self, rid: bytes, principal: str, names: Iterable[str]) -> None:
        """A connection is gone that had attached sessions of these names."""
        for name in names:
            one = self._sessions.get(SessionKey(principal, name))
            if one is not None and one.rid == rid and one.until_ms is None:
                self._wait(one)

    def _wait(self, one: TimedSession) -> None:
        self._wait_for(one, one.timeout_ms)

    def _wait_for(self, one: TimedSession, wait_ms: int) -> None:
        one.rid, one.until_ms = b"", self.now_ms() + wait_ms
        self._next_ms = min(one.until_ms, self._next_ms or one.until_ms)

    # -- consumers ----------------------------------------------------------------------------

    def check(self, key: SessionKey, epoch: int) -> None:
        """Whether a consumer may be of a session in this epoch, or one of the same program before.

        Raises: ClientError session_fenced, not_ready.
        """
        one = self._sessions.get(key)
        if one is None and (key in self.awaited or not self.known):
            raise ClientError("not_ready", "the sessions are being read")
        if one is None or not one.since <= epoch <= one.epoch:
            text = f"session {key.session[:64]!r} with a time-out is not attached here"
            raise ClientError("session_fenced", f"{text} in epoch {epoch}")

    def consumes(self, key: SessionKey, queue: str) -> None:
        """It has a consumer of a queue. It may be over, by a record that no queue has read."""
        self._sessions[key].queues.add(queue)
        self.doubted.append(key)

    def said(self, key: SessionKey, consumers: Iterable[tuple[str, str]]) -> None:
        """Its program says of which queues it has consumers, and their holders."""
        one = self._sessions.get(key)
        if one is not None and one.restates is None:
            one.restates = {*consumers} - one.begun

    def restated(self, key: SessionKey, queue: str, holder: str) -> None:
        """A consumer of it has begun, and said what it holds."""
        one = self._sessions[key]
        if one.restates is None:
            one.begun.add((queue, holder))
        else:
            one.restates.discard((queue, holder))

    def restating_ms(self) -> int | None:
        """The longest time-out of those that did not say all that they hold, 0: they did; None:
        they are not known yet."""
        if not self.known:
            return None
        restating = (one.timeout_ms for one in self._sessions.values() if one.restates != set())
        return max(restating, default=0)

    # -- time ---------------------------------------------------------------------------------

    def due(self) -> list[TimedSession]:
        """Those whose time is over, each once. If its end is refused, `wait_on` is to be called."""
        now_ms = self.now_ms()
        if self._next_ms is None or now_ms < self._next_ms:
            return []
        waiting = [one for one in self._sessions.values() if one.until_ms is not None]
        found = [one for one in waiting if (one.until_ms or 0) <= now_ms][:DUE_MAX]
        for one in found:
            one.until_ms = None
        waits = (one.until_ms for one in waiting if one.until_ms is not None)
        self._next_ms = min(waits, default=None)
        return found

    def wait_on(self, key: SessionKey, epoch: int, wait_ms: int) -> None:
        """Its end could not be written; it is due again after a while, if nothing happens."""
        one = self._sessions.get(key)
        if one is not None and one.epoch == epoch and not one.rid:
            self._wait_for(one, wait_ms)

    def forgotten(self, key: SessionKey) -> None:
        """The journal does not know it any more."""
        one = self._sessions.get(key)
        if one is not None:
            self._end(one, SessionBegin(key, one.epoch, self.here, "", 0, "forgotten"))

    def next_wake_ms(self) -> int | None:
        """When one may be due."""
        return self._next_ms

    def state_of(self, key: SessionKey) -> str:
        """attached, or waiting for that; "": it has no time-out, or is not of this instance."""
        one = self._sessions.get(key)
        if one is None:
            return ""
        return "attached" if one.rid else "waiting"


def end_after(
    key: SessionKey, epoch: int, ended: str, code: str = "", text: str = ""
) -> TransactionRecord:
    """The end of this epoch alone: what began elsewhere meanwhile goes on."""
    return TransactionRecord(
        *key, min(EPOCH_MAX, epoch + 1), after=epoch, ended=ended, code=code, text=text
    )


def begun(record: TransactionRecord, instance: int) -> SessionBegin:
    """What a record says; instance: whose it is."""
    key, home = SessionKey(record.principal, record.session), record.to or instance
    return SessionBegin(key, record.epoch, home, record.holder, record.timeout_ms, record.ended)


def begin_of(key: SessionKey, row: SessionFound | SessionRow) -> SessionBegin:
    """What the journal says of a session."""
    return SessionBegin(key, row.epoch, row.instance, row.holder, row.timeout_ms, row.ended)
