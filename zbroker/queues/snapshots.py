"""What the tables lack: the state of the queues that changed since it was copied last. Pure.

A queue that did not change stands in the tables as it was. How far the log was read for it by now
is said once for all (`upto`), so a save costs what changed, however many queues there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
