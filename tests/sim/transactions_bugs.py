"""Bugs that can be planted in the transactions world: each breaks a promise of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tests.sim import queues_bugs
from zbroker.journal.core import JournalCore
from zbroker.log.format import FLAG_SHOWS, FLAG_UNIT, KIND_PUBLISH, KIND_TRANSACTION
from zbroker.log.records import EPOCH_MAX, TRANSACTION, TransactionRecord, encode
from zbroker.queues.commits import PendingUnit
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue
from zbroker.transaction_tokens import stages_in
from zbroker.wire.transactions import SessionAttached

# -- the queues process ---------------------------------------------------------------------------


def _taken_unheld(core: Any) -> None:
    """What is not held any more is taken as far as it can be."""
    commands = core._transactions

    def settled(take: Any) -> Any:
        result = take.queue.settle(take.consumer.key, take.positions, "ack", core.shared.now)
        return [(outcome, None) for outcome in result.outcomes]

    commands._takes.settled = settled
    queues_bugs._made_with(core, "_made", _holds_all)


def _holds_all(one: QueueState) -> None:
    if isinstance(one.queue, Queue):
        one.queue.holds = lambda *given: True  # type: ignore[method-assign]


def _attached_at_once(core: Any) -> None:
    """The answer to an attach does not wait for its record."""
    commands, shared = core._transactions, core.shared

    def begin(one: Any, row: Any) -> None:
        connection, command = one.connection, one.command
        epoch = min(EPOCH_MAX, max(row.epoch + 1, shared.now.wall_ns))
        record = TransactionRecord(connection.token.principal, command.session, epoch)
        core.manager.commits.add_record(KIND_TRANSACTION, record, lambda *given: None)
        connection.epochs[command.session] = epoch
        last = row.committed, row.number, row.position, row.messages
        stage = stages_in(command.session, epoch)
        answer = SessionAttached(command.session, epoch, stage, *last, command.cid)
        shared.send(connection.rid, answer)

    commands._begin = begin


def _units(change: Callable[[Any, PendingUnit], list[PendingUnit]]) -> Callable[[QueuesCore], None]:
    """Units of commits are changed; change: is given Commits, and says what is added instead."""

    def planted(core: Any) -> None:
        commits, add = core.manager.commits, core.manager.commits.add

        def changed(unit: PendingUnit) -> None:
            commit = unit.parts[0].kind == KIND_TRANSACTION
            if commit and TRANSACTION.decode(unit.bodies[0]).number:
                for one in change(commits, unit):
                    add(one)
            else:
                add(unit)

        commits.add = changed

    return planted


def _facts_left_out(_commits: Any, unit: PendingUnit) -> list[PendingUnit]:
    if len(unit.parts) < 3:
        return [unit]
    return [PendingUnit(unit.parts[:-1], unit.bodies[:-1], unit.done, unit.number)]


def _facts_apart(commits: Any, unit: PendingUnit) -> list[PendingUnit]:
    if len(unit.parts) == 1:
        return [unit]
    first = PendingUnit(unit.parts[:1], unit.bodies[:1], lambda *given: None, unit.number)
    return [first, PendingUnit(unit.parts[1:], unit.bodies[1:], unit.done, commits.number())]


def _letters_left_out(_commits: Any, unit: PendingUnit) -> list[PendingUnit]:
    kept = [at for at, part in enumerate(unit.parts) if part.kind != KIND_PUBLISH]
    parts, bodies = [unit.parts[at] for at in kept], [unit.bodies[at] for at in kept]
    return [PendingUnit(parts, bodies, unit.done, unit.number)]


def _letters_apart(commits: Any, unit: PendingUnit) -> list[PendingUnit]:
    letters = [at for at, part in enumerate(unit.parts) if part.kind == KIND_PUBLISH]
    if not letters:
        return [unit]
    [at] = letters
    first = PendingUnit([unit.parts[at]], [unit.bodies[at]], lambda *given: None, commits.number())
    return [first, *_letters_left_out(commits, unit)]


def _answered_at_once(_commits: Any, unit: PendingUnit) -> list[PendingUnit]:
    unit.done("", "", len(unit.parts))
    unit.done = lambda *given: None
    return [unit]


def _sent_again(core: Any) -> None:
    """What is read of the log does not say that a commit landed."""
    commits, numbers = core.manager.commits, set[int]()
    add, found = commits.add, commits.found

    def noted(unit: PendingUnit) -> None:
        if unit.parts[0].kind == KIND_TRANSACTION:
            numbers.add(unit.number)
        add(unit)

    def unseen(incarnation: int, number: int, position: int) -> None:
        if number not in numbers:
            found(incarnation, number, position)

    commits.add, commits.found = noted, unseen


def _not_undone(core: Any) -> None:
    """What a commit that was refused took stays as it was decided."""

    def forget(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            one.queue.undo = lambda outcome: None  # type: ignore[method-assign]

    queues_bugs._made_with(core, "_made", forget)


def _doubtful_are_aborted(core: Any) -> None:
    """Another journal is there: what was under way to the last one is answered as aborted."""
    commits, welcomed = core.manager.commits, core.manager.commits.welcomed

    def gives_up(*given: Any) -> None:
        welcomed(*given)
        for unit in commits._doubtful:
            if unit.parts[0].kind == KIND_TRANSACTION:
                unit.done("transaction_aborted", "the journal is gone", 0)
                unit.done = lambda *given: None

    commits.welcomed = gives_up


def _rejects_acknowledged(core: Any) -> None:
    takes = core._transactions._takes
    settled = takes.settled
    takes.settled = lambda take: settled(take._replace(reject=""))


def _rejects_at_once(core: Any) -> None:
    """A reject counts at once, whatever becomes of its transaction."""
    takes = core._transactions._takes
    settled = takes.settled

    def at_once(take: Any) -> Any:
        entries = settled(take)
        if not take.reject:
            return entries
        take.one.entries += entries
        return []

    takes.settled = at_once


def _unread_as_dead(core: Any) -> None:
    """What was not read for its letter yet is rejected without."""
    letters = core._transactions._takes._letters
    letters._go_on = letters._end


# -- the journal ----------------------------------------------------------------------------------


def _checks_no(what: str) -> Callable[[JournalCore], None]:
    """The table of sessions does not look at this."""

    def planted(core: Any) -> None:
        table = core.commit.sessions.transactions
        check = table.check

        def lax(record: TransactionRecord, instance: int) -> None:
            row = table.get(record.principal, record.session)
            if row is not None and record.number:
                committed = (row.committed, row.number) >= (record.epoch, record.number)
                over = row.epoch != record.epoch
                if (committed and what == "number") or (over and what == "epoch"):
                    return
            check(record, instance)

        table.check = lax

    return planted


def _stages_left(core: Any) -> None:
    core.commit.sessions.stages.end_of_session = lambda *given: None


def _outcome_not_saved(core: Any) -> None:
    table = core.commit.sessions.transactions
    rows = table.rows
    table.rows = lambda: (replace(r, committed=0, number=0, position=0) for r in rows())


def _sessions_not_saved(core: Any) -> None:
    core.commit.sessions.transactions.rows = lambda: iter(())


def _without_flag(core: Any) -> None:
    """Nothing says that the record belongs to the messages that it shows."""
    units, place = core.commit._units, core.commit._units.place

    def loose(*given: Any, **more: Any) -> Any:
        before = len(core.commit.batches)
        item = place(*given, **more)
        for batch in core.commit.batches[before:]:
            if batch.flags & FLAG_SHOWS:
                batch.flags &= ~FLAG_UNIT
        return item

    units.place = loose


def _count_not_compared(core: Any) -> None:
    """A commit shows what is staged, however much that is."""
    placer = core.commit._units._transactions
    judge = placer.judge

    def lax(body: Any) -> Any:
        record = TRANSACTION.decode(body)
        if record.number:
            token = f"{stages_in(record.session, record.epoch)}{record.number}"
            staged = core.commit.sessions.stages.own(record.principal, token)
            record.messages = sum(stage.messages for stage in staged)
        return judge(encode(record))

    placer.judge = lax


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "messages that are not held are taken": _taken_unheld,
    "an attach is answered at once": _attached_at_once,
    "the facts of one queue are left out": _units(_facts_left_out),
    "facts are a unit of their own": _units(_facts_apart),
    "letters are left out of the unit": _units(_letters_left_out),
    "letters are a unit of their own": _units(_letters_apart),
    "rejects are acknowledged": _rejects_acknowledged,
    "a reject counts at once": _rejects_at_once,
    "letters are not waited for": _unread_as_dead,
    "a commit is answered at once": _units(_answered_at_once),
    "a refused commit is not undone": _not_undone,
    "a commit in doubt is answered as aborted": _doubtful_are_aborted,
    "a commit that landed is sent again": _sent_again,
    "a refused commit lands after later ones": queues_bugs.BUGS[
        "what was refused lands after later units"
    ],
}
JOURNAL: Final[dict[str, Callable[[JournalCore], None]]] = {
    "epochs of commits are not compared": _checks_no("epoch"),
    "numbers of commits are not compared": _checks_no("number"),
    "what an older epoch staged is left": _stages_left,
    "commits are not in snapshots": _outcome_not_saved,
    "sessions are not in snapshots": _sessions_not_saved,
    "the record is not of the unit": _without_flag,
    "staged messages are not counted": _count_not_compared,
}

#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final = (*QUEUES, *JOURNAL)
