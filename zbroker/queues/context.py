"""What the parts of the queues core share: connections, consumers, effects, open questions. Pure.

Look-ups in the journal and readings of messages are effects with completions: the part that starts
one gives a function that goes on with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.engine.effects import JOURNAL, Say, Send
from zbroker.errors import ClientError
from zbroker.filters import Filter, chars_to_compile, compile_at_once
from zbroker.heartbeats import QuietMs
from zbroker.ids import Cut, check_point
from zbroker.limits import CREDIT_MAX_BYTES, KIB
from zbroker.queues.effects import Effect, Examine, Examined, LogAnswer, LogReading
from zbroker.queues.own_writes import OwnWrites
from zbroker.queues.promises import Promises
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.work.queue import Queue
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Peer, Peers
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.branches import AskBranches, BranchesFound, BranchPlace
from zbroker.wire.internal import Locate, Located
from zbroker.wire.transactions import (
    AskSession,
    AskSessions,
    SessionFound,
    SessionKey,
    SessionList,
)
from zbroker.xids import Xid

if TYPE_CHECKING:
    from zbroker.queues.consumer_credit import CreditEnd

LOOKUPS_MAX: Final = 10_000  # open at a time
EXAMINED_MAX: Final = 1_000  # messages of one turn, of which a filter is asked
PATIENCE_MS: Final = 10_000  # with a journal that does not answer
_Question = Locate | AskSession | AskSessions | AskBranches
_Answer = Located | SessionFound | SessionList | BranchesFound
_NO_ANSWER: Final = "the journal does not answer"
#: what a consumer gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB


class RemoteConsumer(Struct):
    """A consumer of a connection. holder: its name over reconnects, for its leases.

    giving: offers to it of which nothing became yet. ending: a stop or a flush that is under way.
    """

    key: int
    rid: bytes
    sid: str
    client: str
    queue: str
    credit: int
    holder: str = ""
    zstd: bool = False
    filter: Filter | None = None
    opened: bool = True
    examining: bool = False
    delivered: int = 0
    acked: int = 0
    sid_packed: bytes = b""
    giving: int = 0
    ending: CreditEnd | None = None
    session: SessionKey | None = None


@dataclass(slots=True)
class QueuesConnection(Peer):
    """One logged-on client."""

    consumers: dict[str, RemoteConsumer] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)  # of the sessions that are attached
    windows: dict[str, int] = field(default_factory=dict)

    def grant(self, sid: str, asked: int, credit: int = 0) -> int:
        """How much of the credit asked for a consumer, or more of it, may be given."""
        window = self.windows.get(sid, 0)
        left = min(CREDIT_MAX_BYTES - self.use.credit, self.use.account.credit_left)
        most = max(CREDIT_MIN_BYTES, window + left)
        given = min(asked, max(0, most - max(credit, 0)))
        if credit + given > window:
            self.windows[sid] = credit + given
            self.use.promise(credit + given - window)
        return given

    def end(self, sid: str) -> None:
        """Remembers that a consumer is over."""
        del self.consumers[sid]
        self.over(sid, self.windows.pop(sid, 0))


class JournalQuestion(NamedTuple):
    """A question to the journal. ask: made again for another journal. then: called with the answer,
    or with `late` if there is none by `end_ms`."""

    ask: Callable[[], _Question]
    then: Callable[[Any], None]
    late: _Answer
    end_ms: int


class QueuesContext:
    """`out`: effects of this turn. `now`: of this turn."""

    def __init__(
        self, manager: QueueRegistry, quiet_ms: QuietMs | None, budget: Budget = DEFAULT, *,
        sync: bool = False,
    ) -> None:  # fmt: skip
        """sync: there are synchronous destinations."""
        self.manager = manager
        self.promises = Promises(on=sync)
        self.own_writes = OwnWrites(manager)
        self.connections: Peers[QueuesConnection] = Peers(QueuesConnection, quiet_ms, budget)
        self.consumers: dict[int, RemoteConsumer] = {}
        self.of: dict[str, dict[int, RemoteConsumer]] = {}  # by queue
        self.holders: dict[tuple[str, str], RemoteConsumer] = {}  # by queue and holder, the newest
        self.out: list[Effect] = []
        self.now = Now(0, 0)
        self.dirty: dict[str, QueueState] = {}
        self.held_back: dict[str, QueueState] = {}  # until fewer units wait
        self.holding: dict[str, QueueState] = {}  # those with messages; an idle queue costs nothing
        self.used: dict[str, QueueState] = {}  # those that had messages since the start
        self.paused: dict[str, QueueState] = {}  # until the log can be read for them again
        self.leaving = False  # the instance is to stop: see hand_over.py
        self.journal = 0  # the incarnation of the journal that welcomed last
        self.lookups: dict[int, JournalQuestion] = {}
        self._last_job = 0
        self._jobs: dict[int, Callable[[Any], None]] = {}

    def add(self, connection: QueuesConnection, consumer: RemoteConsumer) -> None:
        """A new consumer."""
        connection.use.subscribe()
        self.consumers[consumer.key] = connection.consumers[consumer.sid] = consumer
        self.of.setdefault(consumer.queue, {})[consumer.key] = consumer
        self.holders[consumer.queue, consumer.holder] = consumer
        self.manager.changes.note(consumer.queue)

    def remove(self, consumer: RemoteConsumer) -> None:
        """A consumer is over."""
        if self.consumers.pop(consumer.key, None) is None:
            return
        del self.of[consumer.queue][consumer.key]
        name = consumer.queue, consumer.holder
        if self.holders.get(name) is consumer:
            del self.holders[name]
        self.manager.changes.note(consumer.queue)
        connection = self.connections.get(consumer.rid)
        if connection is not None:
            connection.end(consumer.sid)

    def touch(self, one: QueueState) -> None:
        """Something changed that may let messages go to consumers; not of a queue that is over."""
        if self.manager.running.get(one.name) is one:
            self.dirty[one.name] = one

    def leaves(self, one: QueueState) -> bool:
        """Its messages go to no consumer here, since the instance is to stop: it is a work queue
        that others have, too."""
        return self.leaving and one.replicated is not None and isinstance(one.queue, Queue)

    def note_use(self, one: QueueState) -> None:
        """The messages of a queue, or its use, may have changed."""
        self.manager.changes.note(one.name)
        runs = self.manager.running.get(one.name) is one
        for found, those in (
            (runs and self._holds(one), self.holding),
            (runs and (one.counts.entered > 0 or one.taken_ms is not None), self.used),
        ):
            if found:
                those[one.name] = one
            else:
                those.pop(one.name, None)

    @staticmethod
    def _holds(one: QueueState) -> bool:
        """It needs the log from before where it was read to."""
        return one.queue.lowest is not None or bool(one.returning) or one.held is not None

    def go_on(self) -> None:
        """Those whose messages could not be read are tried again when it is time."""
        for name, one in list(self.paused.items()):
            if one.paused_until_ms <= self.now.mono_ms:
                one.paused_until_ms = 0
                del self.paused[name]
                self.touch(one)

    def go_on_committing(self) -> None:
        """Those that decided nothing while too many units waited go on."""
        if self.held_back and not self.manager.commits.full:
            held_back, self.held_back = self.held_back, {}
            for one in held_back.values():
                self.touch(one)

    def running(self, name: str) -> QueueState:
        """Raises: ClientError unknown_queue, not_ready."""
        if not self.manager.known:
            raise ClientError("not_ready", "the queues are being read")
        one = self.manager.running.get(name)
        if one is None:
            raise ClientError("unknown_queue", f"there is no queue {name[:64]!r}")
        return one

    def promise(self, one: QueueState, then: Callable[[], None], *, known: bool = False) -> None:
        """Calls `then` once what has landed of this queue is safe. known: and what was read of it,
        which a process before this one may have written, or a peer."""
        landed = self.manager.commits.last_position
        self.promises.say(one, max(landed, one.folded - 1) if known else landed, then)

    def check_runs(self, one: QueueState) -> None:
        """Raises: ClientError unknown_queue, if a queue was deleted meanwhile."""
        if self.manager.running.get(one.name) is not one:
            raise ClientError("unknown_queue", f"queue {one.name!r} was deleted")

    def compile(self, connection: QueuesConnection, text: str | None) -> Filter | None:
        """A filter of a client. Raises: ClientError bad_filter, too_many."""
        if not text:
            return None
        account = connection.use.account
        return account.compile(chars_to_compile(text), lambda: compile_at_once(text))

    def may(self, connection: QueuesConnection, action: str, name: str) -> bool:
        """Whether the principal of a connection may do this to all that is of this name."""
        permit = self.connections.access.permit(connection.token.principal, action)
        return permit.verdict(name) == "all"

    # -- answers ------------------------------------------------------------------------------

    def send(self, rid: bytes, message: m.ServerAnswer, body: bytes | None = None) -> None:
        """Sends a message to a client."""
        self.out.append(Send(rid, codec.encode(message), body))

    def refuse(
        self, rid: bytes, error: ClientError, cid: str | None = None, sid: str | None = None
    ) -> None:
        """Sends an error to a client. sid: of the consumer that it ends."""
        self.out.append(self.connections.refusal(rid, error, cid, sid))

    def is_here(self, connection: QueuesConnection) -> bool:
        """Whether this connection lasts; another one may have its address by now."""
        return self.connections.get(connection.rid) is connection

    def answer_late(self, connection: QueuesConnection, answer: m.ServerAnswer) -> None:
        """Sends it, unless the connection is over meanwhile."""
        if self.is_here(connection):
            self.send(connection.rid, answer)

    def refuse_late(
        self, connection: QueuesConnection, error: ClientError, cid: str | None
    ) -> None:
        """The same with an error."""
        if self.is_here(connection):
            self.refuse(connection.rid, error, cid)

    # -- the journal's look-ups ---------------------------------------------------------------

    def locate(
        self, value: str, then: Callable[[Located], None], cut: Cut = "", *, closed: bool = False
    ) -> None:
        """Where is this bookmark, time or vector? closed: as in Locate.

        Raises: ClientError bad_bookmark, too_many.
        """
        check_point(value)
        self._ask(lambda cid: Locate(cid, value, cut=cut, closed=closed), Located, then)

    def find_session(
        self, principal: str, session: str, then: Callable[[SessionFound], None]
    ) -> None:
        """What does the log say of this session, with all that was sent to it? Raises: ClientError
        too_many."""
        self._ask(lambda cid: AskSession(cid, self.journal, principal, session), SessionFound, then)

    def list_sessions(
        self, principal: str, session: str, limit: int, then: Callable[[SessionList], None]
    ) -> None:
        """Which sessions are there? Raises: as `find_session`."""
        self._ask(
            lambda cid: AskSessions(cid, self.journal, principal, session, limit), SessionList, then
        )

    def find_branches(
        self, principal: str | None, xid: Xid | None, limit: int,
        then: Callable[[BranchesFound], None], token: str | None = None,
        after: BranchPlace | None = None,
    ) -> None:  # fmt: skip
        """Which branches are there? Raises: as `find_session`."""
        self._ask(
            lambda cid: AskBranches(cid, self.journal, principal, xid, limit, token, after),
            BranchesFound, then,
        )  # fmt: skip

    def list_kept_sessions(
        self, instance: int, after: SessionKey, limit: int, then: Callable[[SessionList], None]
    ) -> None:
        """Which sessions with a time-out does an instance keep? Raises: as `find_session`."""
        self._ask(
            lambda cid: AskSessions(cid, self.journal, "", "", limit, instance, after),
            SessionList, then,
        )  # fmt: skip

    def _ask(
        self, ask: Callable[[int], _Question], kind: type[_Answer], then: Callable[[Any], None]
    ) -> None:
        if len(self.lookups) >= LOOKUPS_MAX:
            raise ClientError("too_many", "too many look-ups are open; try again")
        self._last_job += 1
        cid = self._last_job
        late = kind(cid, code="not_ready", reason=_NO_ANSWER)
        found = JournalQuestion(lambda: ask(cid), then, late, self.now.mono_ms + PATIENCE_MS)
        self.lookups[cid] = found
        self.out.append(Say(JOURNAL, found.ask()))

    def locate_all(
        self, bookmarks: Sequence[str], then: Callable[[BitMap64, ClientError | None], None]
    ) -> None:
        """The positions of bookmarks, without those that are not in the log; or why that is not
        known. Raises: as `locate`."""
        positions, left = BitMap64(), len(bookmarks)

        def found(located: Located) -> None:
            nonlocal left
            if left and located.code == "not_ready":
                left = 0
                then(positions, ClientError(located.code, located.reason))
            elif left:
                left -= 1
                if not located.code and located.position:
                    positions.add(located.position)
                if not left:
                    then(positions, None)

        for bookmark in bookmarks:
            self.locate(bookmark, found, "at")

    def located(self, answer: _Answer) -> None:
        """The journal's answer."""
        found = self.lookups.pop(answer.cid, None)
        if found is not None:
            found.then(answer)

    def ask_again(self) -> None:
        """The journal is another one: it is asked what the last one did not answer."""
        self.out += [Say(JOURNAL, one.ask()) for one in self.lookups.values()]

    def give_up(self) -> None:
        """Look-ups that took too long get an answer that says so."""
        now_ms = self.now.mono_ms
        for late in [one.late for one in self.lookups.values() if one.end_ms <= now_ms]:
            self.located(late)

    # -- readings -----------------------------------------------------------------------------

    def job(self, then: Callable[[Any], None]) -> int:
        """The number of a LogReading; `then` is called with its answer."""
        self._last_job += 1
        self._jobs[self._last_job] = then
        return self._last_job

    def read(
        self, kind: type[LogReading], then: Callable[[Any], None], *fields: Any,  # noqa: ANN401
    ) -> None:  # fmt: skip
        """Has messages read; `then` is called with the answer. fields: of `kind`, without job."""
        self.out.append(kind(self.job(then), *fields))

    def answered(self, answer: LogAnswer) -> None:
        """A LogReading was done."""
        self._jobs.pop(answer.job)(answer)

    def examine(
        self, positions: BitMap64, content: Filter, then: Callable[[BitMap64], None],
        hits: BitMap64 | None = None,
    ) -> None:  # fmt: skip
        """Which of these messages is the filter true for? It takes a turn for each slice.

        hits: of the slices before.
        """

        def examined(done: Examined) -> None:
            left = positions[positions.rank(done.end - 1) :]
            found = done.matching if hits is None else hits | done.matching
            if left:
                self.examine(left, content, then, found)
            else:
                then(found)

        self.read(Examine, examined, positions[:EXAMINED_MAX], content)
