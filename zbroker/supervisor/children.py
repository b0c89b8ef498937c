"""The processes of a supervisor: forked by a zygote, signalled and reaped here.

See zygote.py for what is said between the two.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import zmq

from zbroker.config import Config
from zbroker.engine.contract import Limit, Ready
from zbroker.paths import Paths
from zbroker.supervisor.core import (
    AskStop,
    ChildEnded,
    ChildForked,
    EndZygote,
    Kill,
    NotForked,
    Start,
    StartZygote,
    ZygoteLost,
    ZygoteStarted,
)
from zbroker.supervisor.processes import ProcessPlan
from zbroker.supervisor.zygote import MESSAGE_MAX_BYTES, Launch, Setup
from zbroker.supervisor.zygote_process import ZygoteProcess

CHILDREN_END_S: Final = 2.0
_PR_SET_CHILD_SUBREAPER: Final = 36
_FROM_ZYGOTE: Final = msgspec.json.Decoder(ChildForked | NotForked)


class Children:
    """The processes of a supervisor, a source of its turn; it forks a zygote at once.

    What a zygote forks becomes a child of this process when the one between has ended.
    """

    drained = True
    next_wake_ms = None

    def __init__(self, config: Config, plans: Iterable[ProcessPlan]) -> None:
        self._config = config
        plans = tuple(plans)
        self._modules = {plan.name: plan.module for plan in plans}
        self._preloaded = [plan.module for plan in plans if plan.preloaded]
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._zygote = ZygoteProcess.fork(self._preloaded)

    def serve(self, poller: zmq.Poller, paths: Paths) -> ZygoteStarted:
        """Watches the zygote from now on, which may fork processes of this instance."""
        self._poller, self._paths = poller, paths
        poller.register(self._zygote.link, zmq.POLLIN)
        # what a Launch does not carry is for every start: losses are accepted at the first only
        config, sockets = self._config.accepting(), str(paths.sockets)
        self._send(Setup(config, paths.instance, sockets, os.getpid(), self._modules))
        return ZygoteStarted(self._zygote.pid)

    def start_zygote(self, _effect: StartZygote) -> ZygoteStarted:
        """Starts another one; the one before was ended."""
        self._zygote = ZygoteProcess.spawn(self._preloaded)
        return self.serve(self._poller, self._paths)

    def launch(self, effect: Start) -> None:
        """Has a process forked."""
        journal, first = self._config.journal, effect.first
        tail_loss = journal.accept_tail_loss and first
        missing = journal.accept_missing and first
        self._send(Launch(effect.name, effect.listen, tail_loss, missing))

    def _send(self, message: Setup | Launch) -> None:
        """What the zygote will never read shows as the end of its socket."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._zygote.link.send(msgspec.json.encode(message))

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        """What the zygote reports, then the children that have ended.

        These are collected first, so that no process ends unknown: what it reported is there.
        """
        ended = list(self._reaped())
        yield from self._reported()
        yield from ended

    def _reaped(self) -> Iterator[ChildEnded]:
        with contextlib.suppress(ChildProcessError):  # there is none at all
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                yield ChildEnded(found[0], os.waitstatus_to_exitcode(found[1]))

    def _reported(self) -> Iterator[ChildForked | NotForked | ZygoteLost]:
        if self._zygote.link.fileno() < 0:
            return  # between two zygotes
        try:
            while data := self._zygote.link.recv(MESSAGE_MAX_BYTES):
                yield _FROM_ZYGOTE.decode(data)
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass  # it ended before it read what it was sent
        self._poller.unregister(self._zygote.link)
        self._zygote.end()
        yield ZygoteLost()

    def refuse(self, _effect: EndZygote) -> None:
        """Kills the zygote. Messages sent before can still be read; a late process ends itself."""
        with contextlib.suppress(OSError):  # it was closed at the other end
            self._zygote.link.shutdown(socket.SHUT_RDWR)
        self._zygote.kill()

    def kill(self, effect: Kill) -> None:
        """Ends a process at once."""
        self._signal(effect.pid, signal.SIGKILL)

    def stop(self, effect: AskStop) -> None:
        """Asks a process that was not heard yet, and cannot be asked by a message."""
        self._signal(effect.pid, signal.SIGTERM)

    def _signal(self, pid: int, number: int) -> None:
        """To a child that was not reaped, so that the number is still its own."""
        with contextlib.suppress(ProcessLookupError):  # one that was never ours, and ended
            os.kill(pid, number)

    def close(self) -> None:
        """Ends the zygote, and waits until all children are gone; each was asked or killed."""
        self._zygote.end()
        deadline = time.monotonic() + CHILDREN_END_S
        with contextlib.suppress(ChildProcessError):  # none left: the awaited state
            while time.monotonic() < deadline:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
