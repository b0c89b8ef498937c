"""Questions and changes of operators: browse, purge, requeue. Pure.

Each change is a record in the log; it is answered once it is durable, and holds once it was read
there. Source: queues.md; interface.md, `zbroker-admin queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.errors import ClientError
from zbroker.filters import compile_at_once
from zbroker.log.records import Returned, pack_positions
from zbroker.queues import reports
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.browser import Browser
from zbroker.queues.consumer_registry import ConsumerRegistry
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.dead_letters import QUEUE
from zbroker.queues.effects import Reenter, Reentered
from zbroker.queues.purges import Purges, ReplayPurge
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.branches import BranchesFound
from zbroker.wire.internal import Located

REQUEUED_MAX: Final = 10_000  # dead letters of one request


class AdminCommands:
    """`ask`: questions and changes of operators; `browse`: of clients. handlers: of questions, by
    type; others may be added."""

    def __init__(
        self, shared: QueuesContext, consumers: ConsumerRegistry, answers: OperatorAnswers,
        purges: Purges, scopes: ScopeChanges,
    ) -> None:  # fmt: skip
        self._shared = shared
        self._consumers = consumers
        self._answers = answers
        self._purges = purges
        self._scopes = scopes
        self._browsing = Browser(shared)
        self.handlers: dict[type, Callable[[bytes, Any], s.QueuesAnswer | None]] = {
            s.AskQueues: lambda _rid, ask: reports.queues(shared, ask),
            s.AskConsumers: lambda _rid, ask: reports.consumers(shared, ask),
            s.Explain: self._explain,
            s.BrowseQueue: self._browse,
            s.Purge: self._purge,
            s.Requeue: self._requeue,
        }

    def ask(self, rid: bytes, question: s.QueuesQuestion) -> None:
        """Answers the admin process at `rid`, at once or as soon as the answer is known."""
        self._answers.reply(rid, question, lambda: self.handlers[type(question)](rid, question))

    # -- looking ------------------------------------------------------------------------------

    def browse(self, connection: QueuesConnection, command: q.Browse) -> None:
        """Shows messages to a client. Raises: ClientError."""
        self._consumers.check_right(connection, command.queue)
        one = self._shared.running(command.queue)
        rid = connection.rid

        def done(rows: list[q.BrowsedRow], payloads: list[bytes], next_after: int | None) -> None:
            body = bodies.pack(payloads) if command.data else None
            self._shared.send(rid, q.Rows(rows, command.cid, next_after), body)

        wanted = self._shared.compile(connection, command.filter), command.state
        self._browsing.rows(one, command.after, command.limit, wanted, done)

    def _browse(self, rid: bytes, ask: s.BrowseQueue) -> None:
        one = self._shared.running(ask.queue)

        def done(rows: list[q.BrowsedRow], payloads: list[bytes], next_after: int | None) -> None:
            shown = payloads if ask.data else []
            self._answers.tell(rid, s.Browsed(ask.cid, rows, next_after, shown))

        limit = min(ask.limit, q.BROWSED_MAX)
        content = compile_at_once(ask.filter) if ask.filter else None
        self._browsing.rows(one, ask.after, limit, (content, ask.state or None), done)

    def _explain(self, rid: bytes, ask: s.Explain) -> s.QueuesAnswer | None:
        one = self._shared.running(ask.queue)
        if not ask.bookmark:
            return self._explained(rid, ask, one)

        def explain(located: Located) -> s.Explained | None:
            ask.position = located.position
            return self._explained(rid, ask, one)

        self._answers.reply_at(rid, ask, (ask.bookmark, "at"), explain)
        return None

    def _explained(self, rid: bytes, ask: s.Explain, one: QueueState) -> s.Explained | None:
        answer = reports.explain(self._shared, one, ask)
        branch = reports.locked_by(one, ask.position)
        if branch is None:
            return answer

        def found(said: BranchesFound) -> None:
            answer.lines.insert(1, reports.locking(branch, said))
            self._answers.tell(rid, answer)

        principal, token = branch
        self._shared.find_branches(principal, None, 1, found, token)
        return None

    # -- purge and requeue --------------------------------------------------------------------

    def _purge(self, rid: bytes, ask: s.Purge) -> s.Changed | None:
        one = self._shared.running(ask.queue)
        self._scopes.check_stays(one)
        point = self._shared.manager.points.named(ask.point) if ask.point else None
        if ask.dead_letters and not one.definition.config.dead_letter:
            raise ClientError("bad_queue", f"queue {ask.queue!r} has no dead letter topic")
        if point is not None and point.shared:
            self._purge_to_shared(rid, ask, one, point)
            return None
        before = (ask.before if point is None else point.position) or one.folded
        return self._purge_before(rid, ask, one, before, point)

    def _purge_to_shared(
        self, rid: bytes, ask: s.Purge, one: QueueState, point: s.PointRow
    ) -> None:
        """The place of a point of all instances is looked up. A replayable queue of several ones
        goes by the vector, so it needs no place: none is answered then."""
        if not isinstance(one.replicated, ReplicatedReplayable):
            self._answers.reply_at(
                rid, ask, (point.covers, ""),
                lambda found: self._purge_found(rid, ask, one, found.position, point),
            )  # fmt: skip
            return

        def found(located: Located) -> None:
            log_start = self._shared.manager.log_start
            place = log_start if located.code else located.position
            self._answers.reply(rid, ask, lambda: self._purge_found(rid, ask, one, place, point))

        self._shared.locate(point.covers, found)

    def _purge_found(
        self, rid: bytes, ask: s.Purge, one: QueueState, before: int, point: s.PointRow
    ) -> s.Changed | None:
        self._shared.check_runs(one)
        return self._purge_before(rid, ask, one, before, point)

    def _purge_before(
        self, rid: bytes, ask: s.Purge, one: QueueState, before: int, point: s.PointRow | None
    ) -> s.Changed | None:
        if isinstance(one.queue, Replayable):
            purge = self._purges.of(one, min(before, one.folded), point)
            return self._purge_replayable(rid, ask, one, purge, before)
        if ask.dry_run:
            found = one.queue.purgeable(before, ask.leased, owned=ask.dead_letters)
            return s.Changed(ask.cid, len(found), before)
        self._purges.work(
            one, one.queue, before,
            lambda code, count: self._answers.tell(
                rid, s.Changed(ask.cid, count, before, code=code)
            ),
            leased=ask.leased, letters=ask.dead_letters,
        )  # fmt: skip
        return None

    def _purge_replayable(
        self, rid: bytes, ask: s.Purge, one: QueueState, purge: ReplayPurge, before: int
    ) -> s.Changed | None:
        answer = s.Changed(ask.cid, purge.taken, min(before, one.folded), purge.vector)
        if ask.dry_run or not purge.changes:
            return answer
        self._purges.replayable(one, purge, self._answers.tell_when_durable(rid, answer))
        return None

    def _requeue(self, rid: bytes, ask: s.Requeue) -> s.Changed | None:
        one = self._shared.running(ask.queue)
        self._scopes.check_stays(one)
        if not isinstance(one.queue, Queue):
            raise ClientError("bad_queue", "a replayable queue gives nothing up")
        if one.replicated is not None:
            raise _final(one.definition.config)
        if not ask.bookmarks:
            count = min(max(0, ask.limit), REQUEUED_MAX, len(one.dead))
            return self._bring_back(rid, ask, one, one.dead[len(one.dead) - count :])
        if len(ask.bookmarks) > REQUEUED_MAX:
            raise ClientError("too_many", f"{REQUEUED_MAX} bookmarks at most")

        def found(positions: BitMap64, error: ClientError | None) -> None:
            if error is not None:
                self._answers.tell(rid, refusal_of(ask, error))
            else:
                self._answers.reply(
                    rid, ask, lambda: self._bring_back(rid, ask, one, positions & one.dead)
                )

        self._shared.locate_all(ask.bookmarks, found)
        return None

    def _bring_back(
        self, rid: bytes, ask: s.Requeue, one: QueueState, positions: BitMap64
    ) -> s.Changed | None:
        positions = positions - one.returning  # twice would bring back what is acknowledged by then
        if ask.dry_run or not positions:
            return s.Changed(ask.cid, len(positions))

        def entered(done: Reentered) -> None:
            try:
                self._shared.check_runs(one)
            except ClientError as error:
                self._answers.tell(rid, refusal_of(ask, error))
                return
            fact, found = _returned(done.entered)
            one.returning -= positions - found
            lost = len(positions) - len(found)
            text = f"{lost} are not in the log any more" if lost else ""

            def landed(code: str) -> None:
                if code:
                    one.returning -= found
                self._answers.tell(rid, s.Changed(ask.cid, len(found), text=text, code=code))

            one.facts.append(fact)
            one.endings.append(landed)
            self._shared.touch(one)

        one.returning |= positions  # held in the log from now on
        self._shared.note_use(one)
        self._shared.read(Reenter, entered, positions, one)
        return None


def _final(config: QueueConfig) -> ClientError:
    """The refusal to bring back messages of a replicated queue, and what does it all the same."""
    text = "what left a replicated queue is gone on every instance, and cannot come back"
    if not config.dead_letter:
        hint = "give it a `dead_letter` topic: what it gives up later can be published again"
        return ClientError("bad_queue", text, hint)
    to = "TOPIC, that of their header zb-topic" if config.regex else config.topic or config.name
    letters = f"""--since epoch --until now --filter "HEADER('{QUEUE}') = '{config.name}'" """
    hint = (
        f"publish its letters again, once; subscribers of the topic get them, too: "
        f"zbroker sub {config.dead_letter} {letters}| zbroker pub {to}"
    )
    return ClientError("bad_queue", text, hint)


def _returned(parts: list[Arrivals]) -> tuple[Returned, BitMap64]:
    """The fact that these messages come back, and their positions."""
    positions = BitMap64.union(BitMap64(), *(part.positions for part in parts))
    priorities = [number for part in parts for number in part.priorities or ()]
    groups = [number for part in parts for number in part.groups or ()]
    return Returned(pack_positions(positions), priorities, groups), positions
