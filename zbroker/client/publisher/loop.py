"""The I/O thread of one client: everything between `publish()` and the ingest listener.

Before it sleeps it sets `wake_at` and looks at the inbox once more, so a message is either seen by
it or followed by a wake-up.

A thread that publishes and waits for each receipt has the turns itself meanwhile: twice a hand-over
between threads is most of what a publish costs the client.

    I/O thread has the turns --a receipt was waited for, nothing else is kept--> parked
       ^---- a second publish without a wait, another thread, any request, PARK_MS without a wait

While it is parked the caller sends in `publish` and reads in `wait`, under the lock that owns the
sockets. Handlers of signals run in the middle of what the main thread does, and may use the
client: so there only if there are none, and a KeyboardInterrupt waits for the end of the turn.

Sockets: a DEALER to ingest with its monitor. Known weakness: the thread shares the interpreter
lock; when the application computes in pure Python a message may wait for some milliseconds
(`sys.setswitchinterval` shortens that).
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from zbroker.client.ports import LinkPort, PolledLink, WakingPoller, wait_limit_ms
from zbroker.client.publisher.publisher import NEVER, PublisherPort
from zbroker.client.publisher.receipt import Callbacks, Receipt
from zbroker.client.waits import left_until
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError

PARK_MS: Final = 20  # so late what came without a wait for it is read, once
#: what a signal may have for the main thread to have turns: no code of the program
_HARMLESS: Final = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
_SIGNALS: Final = signal.valid_signals()


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
        self._turning = threading.Lock()  # held by the thread that has the turns
        # threads: the last one that waited for a receipt, the one that may have the turns
        self._caller = self._parked = 0
        self._waited = False  # since the last look
        self._wait_ms: int | None = None
        self._failed: Exception | None = None  # in a turn of the caller
        self.track.have_turns = self.have_turns
        self._thread = threading.Thread(target=self._run, name=f"zbroker {self._name}", daemon=True)
        return PolledLink(self._connect, self._calls, self._poller)

    # -- called by application threads --------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ends the thread's sleep. NEVER comes first: then the thread sets `wake_at` again."""
        self.wake_at, self._parked = NEVER, 0
        self._poller.interrupt()

    def push(self) -> None:
        """Sends what was queued: here, if all before it was waited for here, or as `wake`."""
        if self._may_turn() and not self.store.batches:
            with self._turning:
                if self._parked and self._turn_here({}):
                    return
        self.wake()

    def have_turns(self, receipt: Receipt, end: float | None) -> bool:
        """Has the turns until it is done or the time `end`, or until another thread wants them."""
        self._caller = threading.get_ident()
        if self._may_turn():
            with self._turning:
                self._waited = True
                while self._parked and not receipt.done and (left := left_until(end)) != 0:
                    ready = self._poller.look(wait_limit_ms(self._wait_ms, left))
                    if self._parked:
                        self._turn_here(ready)
        return receipt.done

    def _may_turn(self) -> bool:
        return self._parked == threading.get_ident() and not self._turning.locked()

    def _turn_here(self, ready: Ready) -> bool:
        """One turn in the thread of the caller; False if another one is due at once."""
        in_main, cut = threading.current_thread() is threading.main_thread(), list[int]()
        before = signal.signal(signal.SIGINT, lambda *_: cut.append(1)) if in_main else None
        try:
            self._wait_ms = self._rest(self._have_turn(ready))
        except Exception as error:
            self._failed = error
            self.wake()
        finally:
            if in_main:
                signal.signal(signal.SIGINT, before)
        if cut:
            signal.raise_signal(signal.SIGINT)
        return self._wait_ms != 0

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
            with self._turning:
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
        track = self.track
        alone = track.waiting == 1 and not self.store.batches and not track.callbacks
        if wait_ms != 0 and alone and self._safe(self._caller):
            self._wait_ms = wait_ms
            self._park()
            wait_ms = 0
        ready = self._poller.poll(wait_limit_ms(wait_ms))
        self.wake_at = NEVER
        return ready

    def _safe(self, caller: int) -> bool:
        """No code of the program comes in the middle of a turn of this thread."""
        if caller != threading.main_thread().ident:
            return caller != 0
        return all(signal.getsignal(each) in _HARMLESS for each in _SIGNALS)

    def _park(self) -> None:
        """Leaves the turns to the caller for as long as it waits for what it publishes."""
        self._parked, self._waited = self._caller, True
        self._turning.release()
        while self._parked and self._waited and self._safe(self._parked):
            self._waited = False
            self._poller.rest(PARK_MS)
        self._caller = self._parked = 0
        self._poller.interrupt()  # the thread that has the turns
        self._turning.acquire()
        if self._failed is not None:
            raise self._failed

    def _fail(self, error: ZBrokerError) -> None:
        super()._fail(error)
        while self._requests:
            self._requests.popleft().done.set()
