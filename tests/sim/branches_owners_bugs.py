"""Bugs of prepared branches that several instances show: each must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from tests.sim import branches_bugs as one
from zbroker.journal.core import JournalCore
from zbroker.log.queue_records import OriginsFailed, OriginsLocked
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue


def _locks_do_not_travel(core: Any) -> None:
    """What is locked is known to the process that locked it, and by no fold."""

    def deaf(state: QueueState) -> None:
        replicated: Any = state.replicated
        if isinstance(replicated, ReplicatedQueue):
            counts = replicated._counts
            replicated._counts = lambda fact, batch: (  # type: ignore[method-assign]
                not isinstance(fact, OriginsLocked) and counts(fact, batch)
            )

    one.queues_bugs._made_with(core, "_made", deaf)


def _locked_after_the_end(one: Any) -> None:
    """What is locked is locked, though the branch was rolled back by force before that was read."""
    one.queue.places.locks.is_over = lambda branch: False


def _unlocked_by_failures(one: Any) -> None:
    """A failure at any instance unlocks, as if no other one had locked the message since."""
    if not isinstance(one.replicated, ReplicatedQueue):
        return
    apply = one.replicated._apply

    def unlocking(fact: Any, local: Any, claim: Any, **more: Any) -> None:
        if isinstance(fact, OriginsFailed):
            one.queue.places.locks.drop(local)
            more = {"own": True}
        apply(fact, local, claim, **more)

    one.replicated._apply = unlocking


def _never_unlocked(one: Any) -> None:
    """What a branch has stays locked after its decision."""
    one.queue.places.locks.take = lambda branch: BitMap64()


def _one_lock_each(one: Any) -> None:
    """What is locked cannot be locked for another branch, too."""
    locks = one.queue.places.locks
    put = locks.put
    locks.put = lambda positions, lock: put(positions - locks.all, lock)


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "locks are not folded": _locks_do_not_travel,
    "a branch that is over locks": one._queues(_locked_after_the_end),
    "a failure unlocks": one._queues(_unlocked_by_failures),
    "the first lock wins": one._queues(_one_lock_each),
    "a decision leaves some locked": one._queues(_never_unlocked),
    "a branch is answered at once": one.QUEUES["a branch is answered at once"],
}
JOURNAL: Final[dict[str, Callable[[JournalCore], None]]] = {
    bug: one.JOURNAL[bug] for bug in ("a session that begins ends what is prepared",)
}
BUGS: Final = (*QUEUES, *JOURNAL)
