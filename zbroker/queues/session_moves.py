"""Sessions go from one instance to another, both of which are there: they are handed over. Pure.

    B, where a client attaches                       A, where the session began last
        elsewhere --AskHandOver, over a link-->          it is in this epoch, and of this holder
           ^            every AGAIN_MS once more             |
           |                                             its record: the next epoch, `to` B
        asks its journal <------the log of A-------------- lands: fenced, what it held comes back
           |
           +--B may begin it--> B attaches it: a higher epoch, after that one
           +--WAIT_MS are over--> session_elsewhere

The answer is the record, in A's log after all that A committed of the session. So B, which has read
it, has read all of that, and each instance that has it, too. The journals decide: A's orders the
record and commits, B's begins in no epoch that is not above it.

What may go wrong, and what becomes of it then:

    the request is lost           it is said again; at the end nothing has changed
    it comes twice, or late       it names an epoch, which is over after the first one
    two instances ask             the record names one; the other one reads that, and asks there
    the links are cut towards B   A hands over to none to which its log does not go. If they break
                                  then, the session is at neither until the log goes on, or force
    A dies before its record      nothing has changed; force is what there is
    A dies after it, unread at B  as above; its record has a lower epoch than a begin by force
    B dies before it begins       the session waits at B, and times out there; others may ask B
    A returns later               its record was durable or is not there at all
    its client comes back to A    A asks B, as B asked A

A program says its epoch, too. Where that was not heard of the log is not here yet, whatever it says
of the session: B waits for it without asking anybody, also with force. Else the program could hear
of a commit that it had not landed, and it could land later.

A program that is fenced says the `holder` that it was, and takes nothing from another one.
Source: the design of sessions, "Another instance"; seed 001, "Connection and session controls".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct

from zbroker.engine.contract import Now
from zbroker.errors import ClientError
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import EPOCH_MAX, TransactionRecord
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import SayReplication
from zbroker.queues.timed_sessions import begin_of, begun
from zbroker.wire.owner_requests import AskHandOver, HandOverRequest
from zbroker.wire.transactions import AttachSession, SessionFound, SessionKey

AGAIN_MS: Final = 100  # between two requests, and two looks at the log
WAIT_MS: Final = 3_000  # for the other instance: a few turns of each, a sync, the way of its log
WAITING_MAX: Final = 1_000  # attaches

#: called with what the journal says, and whether the session may not begin here, still
Then = Callable[[SessionFound, bool], None]


class WaitingAttach(Struct):
    """One that waits for another instance. holder: see AskHandOver. epoch: that its program has
    had. force: that is all that it waits for. wanted: its client waits, too: else the session may
    have gone on at that very instance."""

    key: SessionKey
    holder: str
    epoch: int
    force: bool
    then: Then
    wanted: Callable[[], bool]
    end_ms: int
    look_ms: int = 0


class SessionMoves:
    """Both sides of it. on: false: the instance has no links."""

    def __init__(self, shared: QueuesContext, *, on: bool) -> None:
        self._shared, self._on = shared, on
        self._sessions = shared.manager.sessions
        self._waiting: list[WaitingAttach] = []

    @property
    def _here(self) -> int:
        return self._shared.manager.origin.instance

    # -- a client attaches one here that is elsewhere ----------------------------------------------

    def is_elsewhere(self, command: AttachSession, row: SessionFound) -> bool:
        """Whether it may not begin here, by what the journal says."""
        return self._elsewhere(row, command.epoch, force=command.force)

    def _elsewhere(self, row: SessionFound, epoch: int, *, force: bool) -> bool:
        if self._on and row.epoch < epoch:
            return True
        return row.epoch > 0 and row.instance != self._here and not force

    def wait(
        self, key: SessionKey, command: AttachSession, row: SessionFound, then: Then,
        wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Asks the instance where it is. Raises: ClientError session_elsewhere, too_many."""
        if not self._on:
            raise elsewhere(key, row)
        if len(self._waiting) >= WAITING_MAX:
            raise ClientError("too_many", "too many sessions are waited for; try again")
        holder = command.holder if command.again else ""
        end_ms = self._shared.now.mono_ms + WAIT_MS
        one = WaitingAttach(key, holder, command.epoch, command.force, then, wanted, end_ms)
        self._waiting.append(one)
        self._sessions.awaited.add(key)
        self._ask(one, row)

    def _ask(self, one: WaitingAttach, row: SessionFound) -> None:
        one.look_ms = self._shared.now.mono_ms + AGAIN_MS
        if row.epoch and row.instance != self._here:
            ask = AskHandOver(row.instance, *one.key, row.epoch, one.holder)
            self._shared.out.append(SayReplication(ask))

    def tick(self, now: Now) -> None:
        """Looks whether they were handed over."""
        for one in [one for one in self._waiting if one.look_ms <= now.mono_ms]:
            one.look_ms = now.mono_ms + WAIT_MS  # unless the journal answers before
            try:
                self._shared.find_session(*one.key, partial(self._found, one))
            except ClientError:
                one.look_ms = now.mono_ms + AGAIN_MS

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((one.look_ms for one in self._waiting), default=None)

    def _found(self, one: WaitingAttach, row: SessionFound) -> None:
        is_elsewhere = not row.code and self._elsewhere(row, one.epoch, force=one.force)
        if is_elsewhere and self._shared.now.mono_ms < one.end_ms:
            if one.wanted():
                self._ask(one, row)
            else:  # what it asked for before may be on its way
                one.look_ms = self._shared.now.mono_ms + AGAIN_MS
            return
        if row.epoch and row.instance == self._here and not is_elsewhere:
            # it waits here from now on, also if its client does not
            self._sessions.learn(begin_of(one.key, row), begins=True)
        self._waiting.remove(one)
        self._sessions.awaited = {each.key for each in self._waiting}
        if one.wanted():
            one.then(row, is_elsewhere)

    # -- another instance asks for one -------------------------------------------------------------

    def request(self, event: HandOverRequest) -> None:
        """It may be asked for again, or by another one meanwhile."""
        if not self._shared.manager.known or event.instance == self._here:
            return
        try:
            self._shared.find_session(
                event.principal, event.session, lambda row: self._requested(event, row)
            )
        except ClientError:
            return  # it comes again

    def _requested(self, event: HandOverRequest, row: SessionFound) -> None:
        if row.code or row.instance != self._here or row.epoch != event.epoch:
            return
        if event.holder and event.holder != row.holder:
            return
        record = TransactionRecord(
            event.principal, event.session, min(EPOCH_MAX, row.epoch + 1), holder=row.holder,
            after=row.epoch, timeout_ms=row.timeout_ms, ended=row.ended, code=row.end_code,
            text=row.end_text, to=event.instance,
        )  # fmt: skip

        def landed(code: str, _reason: str, _position: int) -> None:
            if not code:
                self._sessions.learn(begun(record, self._here))

        self._shared.manager.commits.add_record(KIND_TRANSACTION, record, landed)


def elsewhere(key: SessionKey, row: SessionFound, epoch: int = 0) -> ClientError:
    """The refusal of what is to be done where a session is. epoch: that its program has had."""
    text = f"session {key.session[:64]!r} began last on "
    unheard = row.epoch < epoch
    text += "an instance whose log is not here" if unheard else f"instance {row.instance:016x}"
    return ClientError("session_elsewhere", text)
