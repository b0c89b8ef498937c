"""Bugs that can be planted in the world of sessions with a time-out: each breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from tests.sim import queues_bugs
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import TransactionRecord
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.timed_sessions import SessionOver
from zbroker.queues.work import held_back
from zbroker.queues.work.queue import Queue
from zbroker.wire.transactions import SessionKey


def _leased(core: Any) -> None:
    """What a session holds has a lease, as what others hold."""

    def changed(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            leases = one.queue.places.leases
            move = leases.move

            def keeps_its_end(positions: BitMap64, end: int | None) -> None:
                if end is not None:
                    move(positions, end)

            leases.move = keeps_its_end  # type: ignore[method-assign]

    queues_bugs._made_with(core, "_made", changed)


def _given_while_it_waits(core: Any) -> None:
    """A session whose connection is lost has lost what it holds, too."""
    sessions, lost = core.manager.sessions, core.manager.sessions.lost

    def gives(rid: bytes, principal: str, names: Any) -> None:
        lost(rid, principal, names)
        for name in names:
            one = sessions.get(SessionKey(principal, name))
            if one is not None and not one.rid:
                sessions.over.append(SessionOver(one.key, set(one.queues), "waits", failed=True))

    sessions.lost = gives


def _lost_for_a_lease(core: Any) -> None:
    """A consumer of a session whose connection is lost is waited for as any other."""

    def changed(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            queue = one.queue
            lose = queue.lose

            def lose_it(key: int, now: Any) -> None:
                queue.consumers.by_key[key].session = None
                queue.consumers.in_sessions.discard(key)
                lose(key, now)

            queue.lose = lose_it  # type: ignore[method-assign]

    queues_bugs._made_with(core, "_made", changed)


def _ends_whatever_began(core: Any) -> None:
    """A time-out does not say which epoch it ends."""
    timeouts = core._timeouts

    def end(one: Any) -> None:
        record = TransactionRecord(*one.key, core.shared.now.wall_ns + 10**9, ended="timed out")
        timeouts._shared.manager.commits.add_record(KIND_TRANSACTION, record, lambda *given: None)

    timeouts._end = end


def _too_early(core: Any) -> None:
    """A session is over as soon as its connection is lost."""
    sessions, wait = core.manager.sessions, core.manager.sessions._wait_for
    sessions._wait_for = lambda one, _wait_ms: wait(one, 1)


def _not_given_back(core: Any) -> None:
    """What the consumers of a session hold that is over stays with them."""
    core.consumers.end_with_sessions = core.manager.sessions.over.clear


def _not_known_after_a_start(core: Any) -> None:
    """Sessions of the process before are not asked for."""
    core._timeouts._ask_ms = None
    core.manager.sessions.known = True


def _nothing_held_back(core: Any) -> None:
    """After a start messages go to whoever comes first."""

    def began(many: list[QueueState]) -> None:
        for one in many:
            if isinstance(one.queue, Queue):
                held_back.release(one.queue)

    core._holdings.began = began


def _given_up_at_once(core: Any) -> None:
    """It is held back until the sessions are known, not until they said what they hold."""
    core.manager.sessions.restating_ms = lambda: 0


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "messages of a session come back by lease": _leased,
    "held messages are given while the session waits": _given_while_it_waits,
    "a lost consumer of a session is waited for one lease": _lost_for_a_lease,
    "a time-out does not say which epoch it ends": _ends_whatever_began,
    "a session times out at once": _too_early,
    "a session that is over keeps what it holds": _not_given_back,
    "a start knows no sessions": _not_known_after_a_start,
    "a start holds nothing back": _nothing_held_back,
    "what is held back is given up at once": _given_up_at_once,
}
BUGS: Final = (*QUEUES,)
