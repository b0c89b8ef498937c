"""The I/O thread of one client: everything between `publish()` and the ingest listener.

Before it sleeps it sets `wake_at` and looks at the inbox once more, so a message is either seen by
it or followed by a wake-up.

Sockets: a DEALER to ingest with its monitor. Known weakness: the thread shares the interpreter
lock; when the application computes in pure Python a message may wait for some milliseconds
(`sys.setswitchinterval` shortens that).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from zbroker.client.ports import LinkPort, PolledLink, WakingPoller, wait_limit_ms
from zbroker.client.publisher.publisher import NEVER, PublisherPort
from zbroker.client.publisher.receipt import Callbacks
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError


class ThreadRequest(Struct, eq=False):
    """Something an application thread wants done; `done` is set once it is."""

    work: Callable[[], int]
    done: threading.Event
    result: int = 0


class IOThread(PublisherPort):
    """The publisher in a thread of its own."""

    def _prepare(self) -> LinkPort:
        self._requests: deque[ThreadRequest] = deque()
        self._callbacks = Callbacks(self._name)
        self._poller = WakingPoller()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"zbroker {self._name}", daemon=True)
        return PolledLink(self._connect, self._calls, self._poller)

    # -- called by application threads --------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ends the thread's sleep. NEVER comes first: then the thread sets `wake_at` again."""
        self.wake_at = NEVER
        self._poller.interrupt()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """By the thread for callbacks."""
        self._callbacks.call(function, *arguments)

    def _request(self, work: Callable[[], int]) -> ThreadRequest:
        request = ThreadRequest(work, threading.Event())
        self._requests.append(request)
        self.wake()
        return request

    def _ask_session(self) -> None:
        self._request(self._log_on_again)

    def _ask(self, work: Callable[[], int], timeout: float | None = 10.0) -> int:
        """Raises: ZBrokerError timeout, or what ended the client."""
        request = self._request(work)
        # with an error the thread may be gone, and requests are not looked at any more
        if self.track.error is None and not request.done.wait(timeout):
            raise ZBrokerError("timeout", f"the I/O thread did not answer in {timeout} s")
        if self.track.error is not None:
            raise self.track.error
        return request.result

    def stop(self, timeout: float = 2.0) -> None:
        """Logs off and ends the thread; the store, if it lasts, keeps messages not persisted."""
        if self._thread.is_alive():
            self._stopping = True
            self.wake()
            self._thread.join(timeout)
        self._callbacks.close(timeout)

    def abandon(self) -> None:
        """As `stop`."""
        self.stop()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            ready: Ready = {}
            while not self._stopping:
                ready = self._turn_and_sleep(ready)
            self._log_off()
        except Exception as error:  # no thread may wait for one that is gone
            self._fail(self._failure(error, "thread", "the I/O thread of this client"))
        finally:
            self._end()

    def _turn_and_sleep(self, ready: Ready) -> Ready:
        """Polls until something happens, unless enough was queued meanwhile."""
        while self._requests:
            request = self._requests.popleft()
            request.result = request.work()
            request.done.set()
        wait_ms = self._rest(self._have_turn(ready))
        if self._requests or self._stopping:
            wait_ms = 0
        ready = self._poller.poll(wait_limit_ms(wait_ms))
        self.wake_at = NEVER
        return ready

    def _fail(self, error: ZBrokerError) -> None:
        super()._fail(error)
        while self._requests:
            self._requests.popleft().done.set()
