"""Space in the publish store: the waits of `publish` while the broker does not acknowledge.

Small messages are bounded by how long the inbox may get; the bytes of larger ones are counted one
by one before they are queued.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable
from typing import Final

from zbroker.client.publisher.publisher import PublisherPort
from zbroker.errors import StorageError, ZBrokerError

SPACE_AGAIN_S: Final = 0.1  # how often it is looked whether the store has space again
HANDOVER_S: Final = 1.0  # for the I/O thread to take what is queued, even with timeout=0


class Backpressure:
    """What the application threads of one client wait for before they queue a message."""

    def __init__(self, publisher: PublisherPort) -> None:
        self._publisher = publisher
        self._large_lock = threading.Lock()
        self._large = 0  # bytes of larger messages queued so far

    def wait(self, timeout: float | None) -> None:
        """Until one more message may be queued.

        Raises: ZBrokerError store_full, or what ended the session.
        """
        publisher, inbox, track = self._publisher, self._publisher.inbox, self._publisher.track

        def has_space() -> bool:
            return len(inbox) < publisher.inbox_limit or track.error is not None

        # if the store is not full, the I/O thread only has to come round
        if publisher.inbox_limit > 0:
            track.wait(lambda: has_space() or publisher.inbox_limit == 0, HANDOVER_S)
        if not track.wait(has_space, timeout):
            raise self._store_full(timeout)
        if track.error is not None:
            raise track.error

    def admit_large(self, size: int, timeout: float | None) -> None:
        """Counts a message whose size matters for the store's bound.

        Raises: ZBrokerError too_large, store_full, or what ended the session.
        """
        publisher, track = self._publisher, self._publisher.track
        if size > publisher.message_max:
            raise ZBrokerError(
                "too_large", f"a message has at most {publisher.message_max} bytes, this one {size}"
            )
        if size > publisher.settings.store_bytes:
            raise ZBrokerError(
                "store_full", f"{size} bytes never fit a store of {publisher.settings.store_bytes}"
            )

        def fits() -> bool:
            held = self._large - publisher.taken_large + publisher.stored_bytes
            return held + size <= publisher.settings.store_bytes or track.error is not None

        publisher.largest = max(publisher.largest, size)
        with self._large_lock:  # held while waiting: one after the other
            if not track.wait(fits, timeout):
                raise self._store_full(timeout)
            if track.error is not None:
                raise track.error
            self._large += size

    def stage(self, put: Callable[[], None], timeout: float | None) -> None:
        """Has the store keep messages. Raises: as `again`."""
        try:
            put()
        except StorageError as error:
            self.again(put, timeout, error)

    def again(self, put: Callable[[], None], timeout: float | None, refused: StorageError) -> None:
        """Tries `put` again until the disk of the store has space for it.

        Raises: ZBrokerError store_full, what ended the session, or `refused` if it is not about
        space.
        """
        track, end = self._publisher.track, clock.monotonic() + (timeout or 0.0)
        while refused.code == "disk_full":
            left = SPACE_AGAIN_S if timeout is None else end - clock.monotonic()
            if left <= 0:
                what = f"no space for the publish store after {timeout} s: {refused.reason}"
                raise ZBrokerError("store_full", what, "free space")
            track.wait(lambda: track.error is not None, min(SPACE_AGAIN_S, left))
            if track.error is not None:
                raise track.error
            try:
                put()
            except StorageError as error:
                refused = error
            else:
                return
        raise refused

    def _store_full(self, timeout: float | None) -> ZBrokerError:
        said = self._publisher.track.last_refusal()
        return ZBrokerError(
            "store_full",
            f"no space in the publish store after {timeout} s"
            + f"; {said or 'the broker does not acknowledge'}",
            "wait, or connect with larger store_bytes",
        )
