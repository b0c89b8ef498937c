"""What application threads want the I/O thread of their client to do between two turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from zbroker.client.publisher.receipt import AckTracker
from zbroker.errors import ZBrokerError


class _Request(Struct, eq=False):
    """`done` is set once `work` is done, or never will be."""

    work: Callable[[], int]
    done: threading.Event
    result: int = 0


class ThreadRequests:
    """Those of one client, the oldest first. It is true while there are some.

    track: has the error that ended the client: from then on no thread does what is asked.
    wake: ends the sleep of the I/O thread.
    """

    def __init__(self, track: AckTracker, wake: Callable[[], None]) -> None:
        self._track, self._wake = track, wake
        self._waiting: deque[_Request] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    # -- called by application threads --------------------------------------------------------

    def add(self, work: Callable[[], int]) -> _Request:
        """Has `work` done soon."""
        request = _Request(work, threading.Event())
        self._waiting.append(request)
        self._wake()
        return request

    def ask(self, work: Callable[[], int], timeout: float | None) -> int:
        """What `work` returns. Raises: ZBrokerError timeout, or what ended the client."""
        request = self.add(work)
        # with an error the thread may be gone, and requests are not looked at any more
        if self._track.error is None and not request.done.wait(timeout):
            raise ZBrokerError("timeout", f"the I/O thread did not answer in {timeout} s")
        if self._track.error is not None:
            raise self._track.error
        return request.result

    # -- called by the I/O thread -------------------------------------------------------------

    def serve(self) -> None:
        """Does what is asked."""
        while self._waiting:
            request = self._waiting.popleft()
            request.result = request.work()
            request.done.set()

    def give_up(self) -> None:
        """Ends every wait, now that the client has ended."""
        while self._waiting:
            self._waiting.popleft().done.set()
