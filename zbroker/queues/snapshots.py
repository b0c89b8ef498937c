"""What the tables lack: the state of the queues that changed since it was copied last. Pure.

A queue that did not change stands in the tables as it was. How far the log was read for it by now
is said once for all (`upto`), so a save costs what changed, however many queues there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.engine.effects import Exit, Note
from zbroker.queues.effects import SaveTables, TablesSaved
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry, SavedQueue

Key = tuple[str, int]  # name and life

AGES: Final = "ages"
DEAD: Final = "dead"


class Snapshot(NamedTuple):
    """whole: nothing else is in the tables. upto: all of them were folded up to there at least.

    firsts: where the oldest message of each queue stands. gone: in the tables no more.
    """

    whole: bool
    upto: int
    many: dict[Key, SavedQueue]
    firsts: dict[Key, int]
    gone: list[Key]


class Snapshots:
    """Of one process."""

    def __init__(self) -> None:
        self._look = 0  # 0: the tables may hold anything
        self._keys: dict[str, Key] = {}  # what they hold

    def take(self, manager: QueueRegistry) -> Snapshot:
        """What is to be written, as it is now."""
        whole = not self._look
        if whole:
            self._keys.clear()
        names = list(manager.running) if whole else manager.changes.since(self._look)
        self._look = manager.changes.look()
        found = Snapshot(whole, _upto(manager), {}, {}, [])
        for name in names:
            one = manager.running.get(name)
            # what is flagged after this start would not be after the next one
            ready = one is not None and one.ready
            key = (name, one.definition.life) if one is not None and ready else None
            before = self._keys.pop(name, None)
            if before is not None and before != key:
                found.gone.append(before)
            if one is not None and key is not None:
                self._keys[name] = key
                found.many[key], found.firsts[key] = _saved(one), one.lowest
        return found

    def forget(self) -> None:
        """What was taken was not written: the next one is of everything."""
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
    return SavedQueue(one.folded, one.horizon, rows)


def _upto(manager: QueueRegistry) -> int:
    """Where the slowest walk stands that a queue of the tables reads with."""
    running = manager.running
    return min(
        (
            walk.position for walk in manager.following.walks
            if any(name in running and running[name].ready for name in walk.members)
        ),
        default=0,
    )  # fmt: skip


SAVE_MS: Final = 30_000
SAVE_POSITIONS: Final = 1_000_000  # folded since the last save: then earlier


class SaveSchedule:
    """Of the queues core."""

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
            self._manager.notes.append(Note("queues.not_saved", text))

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
