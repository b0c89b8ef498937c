"""The thread in which a client calls functions of the user: listeners, receipts, refusals.

Not the I/O thread: what is called may take its time, publish, and wait for acks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

_log: Final = logging.getLogger("zbroker.client")

Call = tuple[Callable[..., object], tuple[object, ...]]


class Callbacks:
    """Calls one after the other, in the order in which they were asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Queues one call; the first one starts the thread. From any thread."""
        self._calls.put((function, arguments))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"zbroker {self._name} callbacks", daemon=True
                )
                self._thread.start()

    def close(self, timeout: float) -> None:
        """Waits for what was asked, unless one of the calls is what closes."""
        thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, arguments = call
            try:
                function(*arguments)
            except Exception:
                _log.exception("client.callback_failed: publishing and subscriptions go on")
