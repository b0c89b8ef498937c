"""The process that all others are forked from: it has imported everything, made no ZeroMQ context.

    supervisor                                 zygote (one thread, SOCK_SEQPACKET pair, JSON)
        Setup{config, instance, ...}     ->
        Launch{name, listen, ...}        ->    fork twice: the process between ends at once, so the
                                               new one becomes a child of the supervisor
                                         <-    ChildForked{name, pid}, from the new one itself
                                         <-    NotForked{name}

Only the forking is done in the zygote. The supervisor is the parent of every process: it signals
and reaps them (Children), and the end of the zygote costs none of them anything. A process whose
ChildForked message is not read ends: so the supervisor knows every process that runs.

The first one is forked from the supervisor before that has a context, so all processes share one
import of everything; another one is executed. It is in a session of its own, so that a terminal's
signals reach the supervisor alone. It ends when its socket or the supervisor does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec
import setproctitle
from msgspec.structs import replace

from zbroker.config import Config
from zbroker.limits import CONFIG_MAX_BYTES, KIB
from zbroker.server.process import become_process, end_with_parent
from zbroker.supervisor import child
from zbroker.supervisor.core import EX_BUG, EX_OK, ChildForked, NotForked

MESSAGE_MAX_BYTES: Final = CONFIG_MAX_BYTES + 8 * KIB  # a Setup carries the whole config
HANDED_OVER_S: Final = 0.000_2  # between two looks whether the supervisor is the parent
GC_THRESHOLD: Final = (50_000, 20, 50)  # long-lived objects are frozen; a turn leaves no cycles


class Setup(msgspec.Struct, tag=True):
    """supervisor -> zygote, first. parent: the supervisor's pid. sockets: their directory.

    modules: that of each process.
    """

    config: Config
    instance: int
    sockets: str
    parent: int
    modules: dict[str, str]


class Launch(msgspec.Struct, tag=True):
    """supervisor -> zygote: fork this process. Answered by ChildForked or NotForked."""

    name: str = msgspec.field(name="room")
    listen: str
    accept_tail_loss: bool = False
    accept_missing: bool = False


_TO_ZYGOTE: Final = msgspec.json.Decoder(Setup | Launch)


class Zygote:
    """Forks until the supervisor's end of the socket is closed."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._setup: Setup | None = None
        self._pid = os.getpid()

    def serve(self) -> None:
        """Until end of file."""
        while message := self._link.recv(MESSAGE_MAX_BYTES):
            request = _TO_ZYGOTE.decode(message)
            if isinstance(request, Setup):
                self._setup = request
            else:
                self._launch(request)

    def _launch(self, launch: Launch) -> None:
        # a SIGTERM to a child that has no handler yet must end it, not be ignored as it is here
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            between = os.fork()
            if between == 0:
                self._fork_again(launch)
        except OSError:
            self._tell(NotForked(launch.name))
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _, status = os.waitpid(between, 0)
        if status:  # of the second fork, or whoever killed it in these microseconds
            self._tell(NotForked(launch.name))

    def _fork_again(self, launch: Launch) -> None:
        """Runs the process between until it ends; never returns."""
        status = EX_BUG
        between = os.getpid()
        try:
            if os.fork() == 0:
                self._become(launch, between)
            status = EX_OK
        finally:
            os._exit(status)

    def _become(self, launch: Launch, between: int) -> None:
        """Runs the process until it ends; never returns."""
        assert self._setup is not None, "a Setup comes before the first Launch"
        status = EX_BUG
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            while os.getppid() == between:  # it is about to end
                time.sleep(HANDED_OVER_S)
            become_process(launch.name, self._setup.parent)
            self._link.send(msgspec.json.encode(ChildForked(launch.name, os.getpid())))
            self._link.close()
            status = self._run(launch, self._setup)
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(status)

    def _run(self, launch: Launch, setup: Setup) -> int:
        config = setup.config.accepting(
            tail_loss=launch.accept_tail_loss, missing=launch.accept_missing
        )
        # not from the note in run/, which may be gone when a process is started again
        paths = replace(config.paths(setup.instance), known_sockets=Path(setup.sockets))
        return child.run(
            launch.name, setup.modules[launch.name], config, paths, launch.listen, supervised=True
        )

    def _tell(self, message: NotForked) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(msgspec.json.encode(message))  # a dead supervisor shows as end of file


def load(modules: Iterable[str]) -> None:
    """Imports what is shared by all that is forked, which no garbage collection touches.

    There is none meanwhile: imports leave a few hundred dead objects, finding them takes 20 ms.
    """
    gc.disable()
    for module in dict.fromkeys(modules):
        with contextlib.suppress(Exception):  # the process itself will say it, in its own log
            import_module(module)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()


def detach(supervisor: int) -> None:
    """This process ends with its parent, the supervisor, and not with the terminal of that."""
    end_with_parent(supervisor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    setproctitle.setproctitle("zbroker zygote")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)


def main() -> None:
    """Another one, which is executed; arguments: the socket's number, JSON of modules, parent."""
    link, modules, supervisor = sys.argv[1:]
    detach(int(supervisor))
    load(json.loads(modules))
    Zygote(socket.socket(fileno=int(link))).serve()
