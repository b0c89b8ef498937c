"""Queues that end by themselves: unused for too long, left by their last consumer, or by the owner
of an exclusive one. Pure.

    in use --its last consumer ends--> unused --`expires` later, or `auto_delete`--> due
       ^                                 |                                            |
       +------------a consumer-----------+                a record, as of a deletion, lands: gone
                                         +--declared: the time begins again   refused: due again

Only local queues do, so this instance decides alone. Its clock is that of this process: after a
start each has its whole time again, and waits for a first consumer. A consumer whose connection is
lost is one as long as what it holds, or its session, waits for it.
"""

from __future__ import annotations

from typing import Final

from zbroker.config import QueueConfig
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note
from zbroker.errors import ClientError
from zbroker.queues.context import QueuesContext
from zbroker.queues.definition_changes import DefinitionChanges
from zbroker.queues.exclusive_queues import ExclusiveQueues
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue

AGAIN_MS: Final = 1_000  # until a deletion that was refused is tried again


class QueueEnds:
    """Deletes them."""

    def __init__(
        self, shared: QueuesContext, changes: DefinitionChanges, exclusive: ExclusiveQueues
    ) -> None:
        self._shared, self._changes, self._exclusive = shared, changes, exclusive
        self._in_use: set[str] = set()
        self._due_ms: dict[str, int] = {}  # of those that are not in use
        self._ending: set[str] = set()  # a record is on its way
        self._next_ms: int | None = None  # none is due before

    def look(self, one: QueueState) -> None:
        """Something of a queue has changed, at the end of a turn."""
        name, config = one.name, one.definition.config
        if not _ends(config) or self._shared.manager.running.get(name) is not one:
            self._forget(name)
            return
        now_ms = self._shared.now.mono_ms
        if self._has_lost_its_owner(one):
            self._in_use.discard(name)
            self._put(name, now_ms)
            return
        if self._is_used(one):
            self._forget(name)
            self._in_use.add(name)
            return
        if one.used_ms is None or name in self._in_use:
            one.used_ms = now_ms
        self._in_use.discard(name)
        if config.auto_delete and one.consumed:
            self._put(name, now_ms)
        elif config.expires:
            self._put(name, one.used_ms + config.expires)
        else:
            self._forget(name)

    def _has_lost_its_owner(self, one: QueueState) -> bool:
        return one.definition.config.exclusive and self._exclusive.is_over(one)

    def _is_used(self, one: QueueState) -> bool:
        """It has a consumer, or one that may come back."""
        lost = isinstance(one.queue, Queue) and one.queue.consumers.lost()
        return bool(lost or self._shared.of.get(one.name))

    def _forget(self, name: str) -> None:
        self._in_use.discard(name)
        self._due_ms.pop(name, None)

    def _put(self, name: str, due_ms: int) -> None:
        if name in self._ending or name in self._in_use:
            return  # one in use has a new time when its last consumer ends
        self._due_ms[name] = due_ms
        if self._next_ms is None or due_ms < self._next_ms:
            self._next_ms = due_ms

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Ends what is due."""
        if self._next_ms is None or now.mono_ms < self._next_ms:
            return
        due = [name for name, due_ms in self._due_ms.items() if due_ms <= now.mono_ms]
        for name in due:
            del self._due_ms[name]
        self._next_ms = min(self._due_ms.values(), default=None)
        for name in due:
            one = self._shared.manager.running.get(name)
            if one is not None:
                self._end(one)

    def next_wake_ms(self) -> int | None:
        """When one may be due."""
        return self._next_ms

    def _end(self, one: QueueState) -> None:
        """One that is due is deleted; it may have been used in this turn."""
        config, now_ms = one.definition.config, self._shared.now.mono_ms
        if self._has_lost_its_owner(one):
            self._delete(one, "the session or connection that it belonged to is over")
            return
        if self._is_used(one) or one.used_ms is None:  # or it was made again in this turn
            return
        if config.auto_delete and one.consumed:
            self._delete(one, "its last consumer has ended")
        elif config.expires and one.used_ms + config.expires > now_ms:
            self._put(one.name, one.used_ms + config.expires)
        elif config.expires:
            self._delete(one, f"it was unused for {config.expires} ms")

    def _delete(self, one: QueueState, why: str) -> None:
        self._ending.add(one.name)

        def done(code: str, _reason: str, _position: int) -> None:
            self._ending.discard(one.name)
            if code:
                self._put(one.name, self._shared.now.mono_ms + AGAIN_MS)
                return
            text = f"queue {one.name!r} was deleted: {why}"
            values: dict[str, object] = {"queue": one.name, "messages": len(one.queue.here)}
            self._shared.out.append(Note("queues.queue_ended", text, values=values))

        try:
            records = self._changes.deleted(one, one.definition.source)
            self._changes.commit(one.name, records, done)
        except ClientError:  # it is being changed, or a prepared branch has messages of it
            done("not_ready", "", 0)


def _ends(config: QueueConfig) -> bool:
    return bool(config.expires or config.auto_delete or config.exclusive)
