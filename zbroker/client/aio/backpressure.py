"""Backpressure for a task, which must not sleep: there is room in the store, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from zbroker.client.aio.publisher import AsyncPublisher
from zbroker.client.publisher import backpressure as threaded
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.errors import StorageError, ZBrokerError


class AsyncBackpressure(threaded.Backpressure):
    """What `publish` looks at before it queues, and what `ready` waits for."""

    _publisher: AsyncPublisher

    def __init__(self, publisher: AsyncPublisher) -> None:
        super().__init__(publisher)
        self._refused = (0, 0)  # bytes and messages that did not fit last, beyond one small one
        self._disk_full = False  # nothing tells when it has space again

    def admit(self) -> None:
        """Makes room for one more message. Raises: ZBrokerError store_full, or what ended it."""
        self._publisher.turn()
        self.wait(0)

    def admit_large(self, size: int, timeout: float | None = None) -> None:
        """As in a client with threads, without the waiting."""
        del timeout
        if not self._fits(size):
            self._publisher.turn()
            if size <= self._publisher.settings.store_bytes:
                self._refused = (size, 1)
        super().admit_large(size, 0)
        self._refused = (0, 0)

    def admit_many(self, sizes: Sequence[int]) -> None:
        """Counts messages that are queued together: all of them or none.

        Raises: ZBrokerError too_large, store_full, or what ended it.
        """
        settings, before, total = self._publisher.settings, self._large, sum(sizes)
        if total > settings.store_bytes or len(sizes) > settings.store_messages:
            what = f"{len(sizes)} messages of {total} bytes never fit the store together"
            raise ZBrokerError("store_full", what, "publish fewer at a time")
        self.admit()
        if not self._fits(total, len(sizes)):
            self._publisher.turn()
        if not self._fits(total, len(sizes)):
            self._refused = (total, len(sizes))
            raise self._store_full(0)
        try:
            for size in sizes if max(sizes) > SMALL_BYTES else ():
                if size > SMALL_BYTES:
                    self.admit_large(size)
        except ZBrokerError:
            self._large = before
            raise

    def no_space(self, error: StorageError) -> NoReturn:
        """The disk of the store. Raises: ZBrokerError store_full, or `error` if it is another."""
        if error.code != "disk_full":
            raise error
        self._disk_full = True
        what = f"no space for the publish store: {error.reason}"
        raise ZBrokerError("store_full", what, "free space; `await client.ready()` waits a moment")

    async def ready(self, end: float | None) -> bool:
        """Waits for room, also for what was refused last."""
        publisher = self._publisher
        if self._disk_full:
            self._disk_full = False
            await asyncio.sleep(threaded.SPACE_AGAIN_S)

        def ready() -> bool:
            room = len(publisher.inbox) < publisher.room and self._fits(*self._refused)
            return room or publisher.track.error is not None

        there = await publisher.track.waiters.until(ready, end)
        self._refused = (0, 0) if there else self._refused
        return there

    def _fits(self, size: int, count: int = 0) -> bool:
        """Whether there is room for so much. What is queued is counted as if it were large."""
        publisher, settings = self._publisher, self._publisher.settings
        held = self._large - publisher.taken_large + publisher.stored_bytes
        queued = len(publisher.inbox)
        if count > 1:
            held += queued * SMALL_BYTES
        messages = publisher.unsettled + queued + count
        return not size or (
            held + size <= settings.store_bytes and messages <= settings.store_messages
        )

    def _store_full(self, timeout: float | None) -> ZBrokerError:
        error = super()._store_full(timeout)
        hint = "`await client.ready()` waits for room; or connect with larger store_bytes"
        return ZBrokerError(error.code, error.reason, hint)
