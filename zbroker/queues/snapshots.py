"""Saving: when the tables are written, and the state that they lack. Pure.

    folded --what changed is copied--> SaveTables --written by a helper--> TablesSaved

A start reads the log from where the tables end, so they are written often enough to make that
short: every SAVE_MS, and before the process ends. A save begins only after the one before ended. It
has the queues that changed since then; how far the log was read for all of them is in it once
(`upto`), so it costs what changed, however many queues there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.engine.effects import Exit, Note
from zbroker.queues.effects import SaveTables, TablesSaved
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.saved_queue import SavedQueue

Key = tuple[str, int]  # name and declaration

SAVE_MS: Final = 30_000
SAVE_POSITIONS: Final = 1_000_000  # folded since the last save: then earlier
AGES: Final = "ages"
DEAD: Final = "dead"
STAND_INS: Final = "stand_ins"


class Snapshot(NamedTuple):
    """whole: nothing else is in the tables. upto: all of them were folded up to there at least.

    firsts: the position of the oldest message of each queue. gone: in the tables no more.
    """

    whole: bool
    upto: int
    many: dict[Key, SavedQueue]
    firsts: dict[Key, int]
    gone: list[Key]


class Snapshots:
    """Copies the state of queues that the tables lack."""

    def __init__(self) -> None:
        self._look = 0  # 0: the tables may hold anything
        self._keys: dict[str, Key] = {}  # what they hold

    def take(self, manager: QueueRegistry) -> Snapshot:
        """The state that is to be written, as it is now."""
        whole = not self._look
        if whole:
            self._keys.clear()
        # a replicated queue knows how far each origin was read, so each block changes it
        changed = {*manager.changes.since(self._look), *manager.folding.replicated}
        names = list(manager.running) if whole else sorted(changed)
        self._look = manager.changes.look()
        found = Snapshot(whole, _upto(manager), {}, {}, [])
        for name in names:
            one, before = manager.running.get(name), self._keys.pop(name, None)
            # before it is ready, messages would lose the flag that they have since this start
            if one is not None and one.ready:
                key = self._keys[name] = name, one.definition.declaration
                found.many[key], found.firsts[key] = _saved(one), one.lowest
            if before is not None and before != self._keys.get(name):
                found.gone.append(before)
        return found

    def forget(self) -> None:
        """The last one was not written: the next one has everything."""
        self._look = 0


def position_of(saved: int, upto: int, persisted: int) -> int | None:
    """How far a queue was folded that was saved at `saved`, in a log that is known up to
    `persisted`; None: that is not known."""
    if saved > persisted:
        return None
    return max(saved, upto) if upto <= persisted else saved


def _saved(one: QueueState) -> SavedQueue:
    rows = one.queue.dump()
    rows[AGES], rows[DEAD] = one.ages.dump(), bytes(one.dead.serialize())
    if one.replicated is not None:
        rows |= one.replicated.dump() | {STAND_INS: one.stand_ins.dump()}
    return SavedQueue(one.folded, one.horizon, rows)


def _upto(manager: QueueRegistry) -> int:
    """The position of the slowest walk that a queue of the tables reads with."""
    running = manager.running
    return min(
        (
            walk.position for walk in manager.following.walks.values()
            if any(name in running and running[name].ready for name in walk.members)
        ),
        default=0,
    )  # fmt: skip


class SaveSchedule:
    """Decides when the tables are written."""

    def __init__(self, manager: QueueRegistry) -> None:
        self._manager = manager
        self._snapshots = Snapshots()
        self._next_ms: int | None = None
        self._saved_at = 0  # how far the log was folded then
        self._saving = self._stopping = self._last = False

    def stop(self) -> None:
        """The process is to end: it does after one more save."""
        self._stopping = True

    def saved(self, done: TablesSaved) -> None:
        """A save ended."""
        self._saving = False
        if done.error:
            self._snapshots.forget()
            text = f"{done.error}; nothing is lost: the next start reads more of the log"
            self._manager.notes.append(
                Note("queues.not_saved", text, values={"reason": done.error})
            )

    def tick(self, now_ms: int) -> list[SaveTables | Exit]:
        """At the end of a turn: a save, if it is time; or the end."""
        if self._saving:
            return []
        if self._stopping:
            if self._last or not self._manager.known:
                return [Exit()]
            self._last = True
            return [self._save()]
        if self._next_ms is None:
            self._next_ms = now_ms + SAVE_MS
        folded = self._manager.following.lowest or 0
        if folded - self._saved_at < SAVE_POSITIONS and (
            now_ms < self._next_ms or folded == self._saved_at
        ):
            return []
        self._next_ms, self._saved_at = now_ms + SAVE_MS, folded
        return [self._save()]

    def _save(self) -> SaveTables:
        assert self._manager.here is not None, "a Welcome came before"
        self._saving = True
        return SaveTables(self._manager.here, self._snapshots.take(self._manager))
