"""Bugs that can be planted in the branches world: each breaks a promise of prepared branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from tests.sim import queues_bugs
from tests.sim.transactions_bugs import _holds_all
from zbroker.journal.core import JournalCore
from zbroker.log.format import KIND_BRANCH
from zbroker.log.records import BRANCH, BranchRecord
from zbroker.queues.commits import PendingUnit
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.message_locks import MessageLocks
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import remove
from zbroker.queues.work.values import Lock

# -- the queues process ---------------------------------------------------------------------------


def _queues(change: Callable[[Any], None]) -> Callable[[QueuesCore], None]:
    """Work queues are changed."""

    def made(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            change(one)

    return lambda core: queues_bugs._made_with(core, "_made", made)


def _not_in_the_tables(one: Any) -> None:
    dump = one.queue.dump
    one.queue.dump = lambda: {name: row for name, row in dump().items() if name != "locked"}


def _not_kept(one: Any) -> None:
    """Messages are going since their branch was prepared here, and nothing says for how long."""
    one.queue.places.locks.put = lambda *given: None


def _tables_say_no_rejects(one: Any) -> None:
    """What is to be rejected is in the tables as what is to be acknowledged."""
    locks = one.queue.places.locks

    def dump() -> bytes:
        plain = MessageLocks()
        for lock, many in locks._of.items():
            plain.put(many, Lock(lock.branch))
        return plain.dump()

    locks.dump = dump


def _locked_to_be_acknowledged(one: Any) -> None:
    """The log is read, and how a branch takes a message is not."""
    locks, put = one.queue.places.locks, one.queue.places.locks.put
    locks.put = lambda positions, lock: put(positions, lock._replace(reject=""))


def _acknowledged(one: Any) -> None:
    """Whoever acknowledges a locked message has it."""
    places = one.queue.places
    open_to = places.open_to

    def opened(positions: Any, *, failing: bool) -> Any:
        return open_to(positions, failing=failing) | (positions & places.locks.all)

    places.open_to = opened


def _purged(one: Any) -> None:
    queue, purgeable = one.queue, one.queue.purgeable
    queue.purgeable = lambda *given, **more: purgeable(*given, **more) | queue.places.locks.all


def _unlocked_by_a_refusal(one: Any) -> None:
    """A refused decision gives back what is locked."""
    places = one.queue.places
    undone = places.undone

    def opened(positions: Any, fate: str) -> Any:
        kept, places.locks.all = places.locks.all, BitMap64()
        places.locks.drop(positions)
        found = undone(positions, fate)
        places.locks.all = kept - positions
        for many in places.locks._of.values():
            remove(many, positions)
        places.locks._of = {one: many for one, many in places.locks._of.items() if many}
        return found

    places.undone = opened


def _any_is_locked(core: Any) -> None:
    """Messages that a consumer does not hold any more are locked, as far as they can be."""
    queues_bugs._made_with(core, "_made", _holds_all)


def _units(change: Callable[[Any, PendingUnit, Any], None]) -> Callable[[QueuesCore], None]:
    """Units of branches are changed."""

    def planted(core: Any) -> None:
        commits, add = core.manager.commits, core.manager.commits.add

        def changed(unit: PendingUnit) -> None:
            if unit.parts[0].kind == KIND_BRANCH:
                change(commits, unit, BRANCH.decode(unit.bodies[0]))
            add(unit)

        commits.add = changed

    return planted


def _answered_at_once(_commits: Any, unit: PendingUnit, _record: Any) -> None:
    unit.done("", "", len(unit.parts))
    unit.done = lambda *given: None


def _facts_left_out(state: str) -> Callable[[Any, PendingUnit, Any], None]:
    def changed(_commits: Any, unit: PendingUnit, record: Any) -> None:
        if record.state == state and len(unit.parts) > 1:
            unit.parts, unit.bodies = unit.parts[:-1], unit.bodies[:-1]

    return changed


def _letters_of_the_prepared(core: Any) -> None:
    """What is to be rejected has its letters when it is prepared; and then again."""
    queues_bugs._made_with(core, "_made", lambda one: None)
    letters = core._branches._takes._letters
    go_on = letters._go_on

    def kept(reading: Any) -> None:
        reading.left = type(reading.left)(one._replace(keep=True) for one in reading.left)
        go_on(reading)

    letters._go_on = kept


def _decided_in_its_unit(core: Any) -> None:
    """A queue that has read the record of a branch is asked for its locks, which come after it."""
    following, read = core.manager.following, core.manager.following.read

    def anywhere(*given: Any) -> Any:
        moved = read(*given)
        for walk in moved or ():
            walk.in_unit = False
        return moved

    following.read = anywhere


# -- the journal ----------------------------------------------------------------------------------


def _ends_with_its_session(core: Any) -> None:
    """What is prepared ends as what is staged does."""

    class Nothing(set[Any]):
        def add(self, _one: Any) -> None:
            pass

    core.commit.sessions.stages.prepared = Nothing()


def _ends_by_age(core: Any) -> None:
    stages = core.commit.sessions.stages
    stages._own_open = lambda: [one for one in stages._all() if stages._is_own(one.key.origin)]

    def ended(record: Any, by: Any) -> None:
        for number, (principal, token) in enumerate(record.stages):
            stages._end_of(principal, token, record.origins[number], by)

    stages.ended = ended


def _not_in_snapshots(core: Any) -> None:
    core.commit.sessions.transactions.branches.rows = lambda: iter(())


def _in_any_epoch(core: Any) -> None:
    placer = core.commit._units._transactions
    judge, table = placer.judge_branch, core.commit.sessions.transactions

    def lax(body: Any) -> Any:
        check, table.check = table.check, lambda *given: None
        try:
            return judge(body)
        finally:
            table.check = check

    placer.judge_branch = lax


def _not_counted(core: Any) -> None:
    """A branch is prepared, however much of it is here."""
    placer = core.commit._units._transactions
    staged = placer._staged
    placer._staged = lambda record: [] if isinstance(record, BranchRecord) else staged(record)


def _kept_for_ever(core: Any) -> None:
    """A decided branch is not forgotten."""
    core.commit.sessions.transactions.branches._drop = lambda row: None


def _without_its_record(core: Any) -> None:
    """A decision is not compared with what was decided before."""
    table = core.commit.sessions.transactions.branches
    check = table.check
    known: dict[Any, Any] = {}

    def lax(record: Any, instance: int) -> Any:
        row = table.get(record, instance)
        if row is not None:
            known[record.xid] = row
        if record.state == "rolled_back" and row is None and record.xid in known:
            return known[record.xid]
        return check(record, instance)

    table.check = lax


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "locks are not in the tables": _queues(_not_in_the_tables),
    "locks are not kept": _queues(_not_kept),
    "locked messages are acknowledged": _queues(_acknowledged),
    "tables do not say what is rejected": _queues(_tables_say_no_rejects),
    "what is to be rejected is acknowledged": _queues(_locked_to_be_acknowledged),
    "letters are written when it is prepared": _letters_of_the_prepared,
    "locked messages are purged": _queues(_purged),
    "a refused decision unlocks": _queues(_unlocked_by_a_refusal),
    "messages that are not held are locked": _any_is_locked,
    "a branch is answered at once": _units(_answered_at_once),
    "some locks are left out": _units(_facts_left_out("prepared")),
    "a commit leaves some in their queue": _units(_facts_left_out("committed")),
    "a rollback leaves some locked": _units(_facts_left_out("rolled_back")),
    "a branch is decided before its locks were read": _decided_in_its_unit,
}
JOURNAL: Final[dict[str, Callable[[JournalCore], None]]] = {
    "a session that begins ends what is prepared": _ends_with_its_session,
    "what is prepared ends by age": _ends_by_age,
    "branches are not in snapshots": _not_in_snapshots,
    "branches are prepared in any epoch": _in_any_epoch,
    "prepared messages are not counted": _not_counted,
    "decided branches are kept": _kept_for_ever,
    "a branch is decided twice": _without_its_record,
}

#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final = (*QUEUES, *JOURNAL)
