"""What asks the supervisor to stop, or only wakes it: signals, and the end of its parent."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final

import zmq

from zbroker.engine.contract import Limit, Ready
from zbroker.engine.events import StopAsked

SIGNALS_MAX: Final = 4_096  # bytes of one turn, one for each signal

log: Final = logging.getLogger("supervisor")


class SignalsPort:
    """Signals that ask this process to stop. Those that tell of a child only wake it.

    stdin: it stops, too, when standard input is closed, as by the end of the program that has the
    other side.
    """

    drained = True
    next_wake_ms = None

    def __init__(self, poller: zmq.Poller, *, stdin: bool = False) -> None:
        self._poller = poller
        self._stdin = sys.stdin.fileno() if stdin else -1
        if stdin:
            poller.register(self._stdin, zmq.POLLIN)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # its number can be read from the socket
        poller.register(self._woken, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterator[StopAsked]:
        """One for each signal."""
        if self._stdin in ready and not os.read(self._stdin, SIGNALS_MAX):
            self._poller.unregister(self._stdin)
            self._stdin = -1
            log.info("standard input was closed: stopping")
            yield StopAsked()
        if self._woken.fileno() not in ready:
            return
        for number in self._woken.recv(SIGNALS_MAX):
            if number != signal.SIGCHLD:
                log.info("%s: stopping", signal.Signals(number).name)
                yield StopAsked()

    def close(self) -> None:
        """Signals are not listened for any more."""
        signal.set_wakeup_fd(-1)
        self._woken.close()
        self._waker.close()
