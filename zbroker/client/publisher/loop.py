"""The I/O thread of one client: everything between `publish()` and the ingest door.

Before it sleeps it sets `wake_at` and looks at the inbox once more, so a message is either seen by
it or followed by a wake-up.

Sockets: a DEALER to ingest with its monitor. Known weakness: the thread shares the interpreter
lock; when the application computes in pure Python a message may wait for some milliseconds
(`sys.setswitchinterval` shortens that).
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq
from msgspec import Struct

from zbroker.client.connect_types import ServerChooser
from zbroker.client.link import ClientLink
from zbroker.client.publisher.publisher import NEVER, PublisherPort, PublisherSettings
from zbroker.client.publisher.receipt import Callbacks
from zbroker.client.publisher.store import MemoryStore
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Logon

POLL_MAX_MS: Final = 1_000  # so that even a wake-up that was lost to an interrupt is made up for

_log: Final = logging.getLogger("zbroker.client")


class ThreadRequest(Struct, eq=False):
    """Something an application thread wants done; `done` is set once it is."""

    kind: str
    done: threading.Event
    result: int = 0


class IOThread(PublisherPort):
    """The publisher in a thread of its own."""

    def __init__(
        self,
        servers: ServerChooser,
        logon: Logon,
        publisher: int,
        settings: PublisherSettings,
        store: MemoryStore | None = None,
    ) -> None:
        super().__init__(servers, logon, publisher, settings, store)
        self._requests: deque[ThreadRequest] = deque()
        self._callbacks = Callbacks(logon.client)
        self._poller = zmq.Poller()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self.track.ask_numbers = self._ask_numbers
        self.track.call, self.track.wake = self.call, self.wake
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker {logon.client}", daemon=True
        )

    # -- called by application threads --------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ends the thread's sleep. NEVER comes first: then the thread sets `wake_at` again."""
        self.wake_at = NEVER
        os.eventfd_write(self._wake_fd, 1)

    def ask(self, kind: str, timeout: float | None = 10.0) -> int:
        """Has the thread do something: `numbers` packs what is queued and tells the last number.

        Raises: ZBrokerError timeout, or what ended the client.
        """
        request = ThreadRequest(kind, threading.Event())
        self._requests.append(request)
        self.wake()
        # with an error the thread may be gone, and requests are not looked at any more
        if self.track.error is None and not request.done.wait(timeout):
            raise ZBrokerError("timeout", f"the I/O thread did not answer in {timeout} s")
        if self.track.error is not None:
            raise self.track.error
        return request.result

    def _ask_numbers(self) -> None:
        self.ask("numbers")

    def _ask_session(self) -> None:
        self._requests.append(ThreadRequest("token", threading.Event()))
        self.wake()

    def _ask_beats(self) -> None:
        self.ask("beats")

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

    def forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: it has no thread, and its sockets are not its own."""
        self.track.error, self.room = error, -1

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: another thread may still write to it

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._poller.register(self._wake_fd, zmq.POLLIN)
            while not self._stopping:
                self._turn()
            self._perform(self._core.log_off())
        except ZBrokerError as error:  # the store's
            _log.error("client.store_failed: nothing more is published: %s", error)
            self._fail(error)
        except Exception as error:  # a bug of ours: no thread may wait for one that is gone
            _log.exception("client.thread_failed: messages not persisted stay unsent")
            self._fail(ZBrokerError("internal", f"the I/O thread of this client failed: {error!r}"))
        finally:
            self._end()

    def _turn(self) -> None:
        """One round: what time demands, what was asked, what is queued; then sleep and read."""
        self._tick()
        while self._requests:
            self._serve(self._requests.popleft())
        self._pack()
        self._publish_state()
        ready = self._sleep()
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        link = self._link
        if link is not None and link.socket in ready:
            self._read(link)
        if link is not None and link.monitor in ready:
            self._read_events(link)

    def _sleep(self) -> set[object]:
        """Polls until something happens, unless enough was queued meanwhile."""
        timeout = self._wait_ms(POLL_MAX_MS)
        self.wake_at = 1 if self._core.can_send else self._full_batch
        waiting = len(self.inbox) >= self.wake_at and self._space_again_ms is None
        if waiting or self._requests or self._stopping:
            timeout = 0
        events = self._poller.poll(timeout)
        self.wake_at = NEVER
        return {source for source, _ in events}

    def _serve(self, request: ThreadRequest) -> None:
        if request.kind == "token":
            self._perform(self._core.log_on_again(self.clock.mono_ms()))
        elif request.kind == "beats":
            self._beat_each()
        else:
            request.result = self._number_all()
        request.done.set()

    # -- what the publisher needs -------------------------------------------------------------

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """By the thread for callbacks."""
        self._callbacks.call(function, *arguments)

    def _linked(self, link: ClientLink) -> None:
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(link.monitor, zmq.POLLIN)

    def _unlinked(self, link: ClientLink) -> None:
        self._poller.unregister(link.socket)
        self._poller.unregister(link.monitor)

    def _fail(self, error: ZBrokerError) -> None:
        super()._fail(error)
        while self._requests:
            self._requests.popleft().done.set()
