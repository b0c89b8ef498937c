"""Room in the publish store: the waits of `publish` while the broker does not acknowledge.

Small messages are bounded by how long the inbox may get; the bytes of larger ones are counted one
by one before they are queued.
"""

from __future__ import annotations

import threading
from typing import Final

from zbroker.client.publishing.publisher import Publisher
from zbroker.errors import ZBrokerError

HANDOVER_S: Final = 1.0  # for the I/O thread to take what is queued, even with timeout=0


class Room:
    """What the application threads of one client wait for before they queue a message."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._large_lock = threading.Lock()
        self._large = 0  # bytes of larger messages queued so far

    def wait(self, timeout: float | None) -> None:
        """Until one more message may be queued.

        Raises: ZBrokerError store_full, or what ended the session.
        """
        publisher, inbox, track = self._publisher, self._publisher.inbox, self._publisher.track

        def room() -> bool:
            return len(inbox) < publisher.room or track.error is not None

        if publisher.room > 0:  # the store is not full: the I/O thread only has to come round
            track.wait(lambda: room() or publisher.room == 0, HANDOVER_S)
        if not track.wait(room, timeout):
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

        with self._large_lock:  # held while waiting: one after the other
            if not track.wait(fits, timeout):
                raise self._store_full(timeout)
            if track.error is not None:
                raise track.error
            self._large += size

    def _store_full(self, timeout: float | None) -> ZBrokerError:
        said = self._publisher.track.last_refusal()
        return ZBrokerError(
            "store_full",
            f"no room in the publish store after {timeout} s"
            + (f"; the broker said {said}" if said else "; the broker does not acknowledge"),
            "wait, or connect with larger store_bytes",
        )
