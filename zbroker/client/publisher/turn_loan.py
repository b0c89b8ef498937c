"""Which thread has the turns of a publisher: its I/O thread, or one that it lends them to.

A thread that publishes and waits for each receipt, or flushes after each few, has the turns itself
meanwhile: twice a hand-over between threads is most of what a publish costs the client.

    I/O thread has the turns --an ack was waited for, nothing else is kept--> lent
       ^---- a second publish without a wait, another thread, any request, LOAN_MS without a wait

While they are lent the borrower sends in `publish` and reads in `wait`, under the lock that owns
the sockets. Handlers of signals run in the middle of what the main thread does, and may use the
client: so it borrows only if there are none, and a KeyboardInterrupt waits for the end of the turn.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Final

from zbroker.client.ports import WakingPoller, wait_limit_ms
from zbroker.client.waits import left_until
from zbroker.engine.contract import Ready

LOAN_MS: Final = 20  # so late what came without a wait for it is read, once
#: what a signal may have for the main thread to borrow: no code of the program
_HARMLESS: Final = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
_SIGNALS: Final = signal.valid_signals()
#: `signal.signal` without its enums: they cost 7 us a call, which is two for each turn
_set_handler: Final = import_module("_signal").signal
_SIGINT: Final = int(signal.SIGINT)


class TurnLoan:
    """The turns of one publisher, which its I/O thread has while it holds `lock`.

    turn: has one; returns for how many ms nothing is due then, None: until something arrives.
    borrower: the thread that they are lent to, 0 while they are not.
    """

    def __init__(self, turn: Callable[[Ready], int | None], poller: WakingPoller) -> None:
        self.lock = threading.Lock()  # held by the thread that has the turns
        self.borrower = 0
        self._in_main = False  # the borrower is the main thread
        self._waiter = 0  # the thread that waited for an ack last
        self._waited = False  # since the last look
        self._wait_ms: int | None = None
        self._failed: Exception | None = None  # in a turn of the borrower
        self._turn, self._poller = turn, poller

    # -- called by application threads --------------------------------------------------------

    def turn(self) -> bool:
        """Has one turn here; False if this thread may not, or if another one is due at once."""
        if self.borrower != threading.get_ident() or self.lock.locked():
            return False
        with self.lock:
            return self.borrower != 0 and self._have_turn({})

    def work(self, do: Callable[[], int]) -> int | None:
        """What `do` returns; it is followed by a turn. None: this thread has not the turns."""
        if self.borrower != threading.get_ident() or self.lock.locked():
            return None
        with self.lock:
            if not self.borrower:
                return None
            result = do()
            self._have_turn({})
            return result

    def wait(self, done: Callable[[], bool], end: float | None) -> bool:
        """Has the turns until it is done or the time `end`, or until another thread wants them."""
        self._waiter = here = threading.get_ident()
        if self.borrower == here and not self.lock.locked():
            with self.lock:
                self._waited = True
                while self.borrower and not done() and (left := left_until(end)) != 0:
                    ready = self._poller.look(wait_limit_ms(self._wait_ms, left))
                    if self.borrower:
                        self._have_turn(ready)
        return done()

    def recall(self) -> None:
        """Ends the loan, and the sleep of the I/O thread."""
        self.borrower = 0
        self._poller.interrupt()

    def _have_turn(self, ready: Ready) -> bool:
        in_main, cut = self._in_main, list[int]()
        before = _set_handler(_SIGINT, lambda *_: cut.append(1)) if in_main else None
        try:
            self._wait_ms = self._turn(ready)
        except Exception as error:
            self._failed = error
            self.recall()
        finally:
            if in_main:
                _set_handler(_SIGINT, before)
        if cut:
            signal.raise_signal(signal.SIGINT)
        return self._wait_ms != 0

    # -- called by the I/O thread -------------------------------------------------------------

    def lend(self, wait_ms: int | None) -> bool:
        """Leaves the turns to the thread that waited last, for as long as it goes on like that.

        wait_ms: what the turn before returned.
        Returns: False if that thread may not have them. Raises: what a turn of it failed with.
        """
        borrower = self._waiter
        if not may_borrow(borrower):
            return False
        self._in_main = borrower == threading.main_thread().ident
        self._wait_ms, self._waited, self.borrower = wait_ms, True, borrower
        self.lock.release()
        while self.borrower and self._waited and may_borrow(borrower):
            self._waited = False
            self._poller.rest(LOAN_MS)
        self._waiter = self.borrower = 0
        self._poller.interrupt()  # the thread that has the turns
        self.lock.acquire()
        if self._failed is not None:
            raise self._failed
        return True


def may_borrow(thread: int) -> bool:
    """No code of the program comes in the middle of a turn of this thread."""
    if thread != threading.main_thread().ident:
        return thread != 0
    return all(signal.getsignal(each) in _HARMLESS for each in _SIGNALS)
