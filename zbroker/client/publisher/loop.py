"""The I/O thread of one client: everything between `publish()` and the ingest listener.

Before it sleeps it sets `wake_at` and looks at the inbox once more, so a message is either seen by
it or followed by a wake-up. A thread that waits for each of its messages, or flushes after each
few, has the turns itself: see zbroker.client.publisher.turn_loan.

Sockets: a DEALER to ingest with its monitor. Known weakness: the thread shares the interpreter
lock; when the application computes in pure Python a message may wait for some milliseconds
(`sys.setswitchinterval` shortens that).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from zbroker.client.ports import PART_MS, LinkPort, PolledLink, WakingPoller, wait_limit_ms
from zbroker.client.publisher.publisher import NEVER, PublisherPort
from zbroker.client.publisher.receipt import Callbacks
from zbroker.client.publisher.thread_requests import ThreadRequests
from zbroker.client.publisher.turn_loan import TurnLoan
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError


class IOThread(PublisherPort):
    """The publisher in a thread of its own."""

    def _prepare(self) -> LinkPort:
        self._requests = ThreadRequests(self.track, self.wake)
        self._callbacks = Callbacks(self._name)
        self._poller = WakingPoller()
        self._loan = TurnLoan(self._turn_once, self._poller)
        self._stopping = False
        self._whole_s = 0.0  # when a whole turn is due
        self.track.have_turns = self._loan.wait
        self._thread = threading.Thread(target=self._run, name=f"zbroker {self._name}", daemon=True)
        return PolledLink(self._connect, self._calls, self._poller)

    # -- called by application threads --------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ends the thread's sleep. NEVER comes first: then the thread sets `wake_at` again."""
        self.wake_at = NEVER
        self._loan.recall()

    def push(self) -> None:
        """Sends what was queued: here, if all before it was waited for here, or as `wake`."""
        if self.store.batches or not self._loan.turn():
            self.wake()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """By the thread for callbacks."""
        self._callbacks.call(function, *arguments)

    def _ask_session(self) -> None:
        self._requests.add(self._log_on_again)

    def _ask(self, work: Callable[[], int], timeout: float | None = 10.0) -> int:
        done = self._loan.work(work)
        return self._requests.ask(work, timeout) if done is None else done

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
            with self._loan.lock:
                while not self._stopping:
                    ready = self._turn_and_sleep(ready)
            self._log_off()
        except Exception as error:  # no thread may wait for one that is gone
            self._fail(self._failure(error, "thread", "the I/O thread of this client"))
        finally:
            self._end()

    def _turn_and_sleep(self, ready: Ready) -> Ready:
        """Polls until something happens, unless enough was queued meanwhile."""
        self._requests.serve()
        wait_ms = self._turn_once(ready)
        if self._requests or self._stopping:
            wait_ms = 0
        track = self.track
        alone = track.waiting == 1 and not self.store.batches and not track.callbacks
        if wait_ms != 0 and alone and self._loan.lend(wait_ms):
            wait_ms = 0
        ready = self._poller.poll(wait_limit_ms(wait_ms))
        self.wake_at = NEVER
        return ready

    def _turn_once(self, ready: Ready) -> int | None:
        """A part of a turn, if that is all that is to be done, and there was a whole one lately."""
        now_s = time.monotonic()
        if now_s < self._whole_s and self._have_part(ready):
            wait_ms = self._rest(PART_MS)
        else:
            self._whole_s = now_s + PART_MS / 1_000
            wait_ms = self._rest(self._have_turn(ready))
        if self._loan.borrower:
            self.wake_at = 1  # a message that is not waited for ends the loan
        return wait_ms

    def _fail(self, error: ZBrokerError) -> None:
        super()._fail(error)
        self._requests.give_up()
