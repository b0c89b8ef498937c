"""The process that rooms are forked from: it has imported everything, made no ZeroMQ context.

    supervisor                                 zygote (one thread, SOCK_SEQPACKET pair, JSON)
        Setup{config, instance, parent}  ->
        Launch{room, listen, ...}        ->    fork twice: the process between ends at once, so the
                                               room becomes a child of the supervisor
                                         <-    Forked{room, pid}, from the room itself
                                         <-    NotForked{room}

Only the forking is done here. The supervisor is the parent of every room: it signals and reaps
them, and the end of the zygote costs none of them anything. A process whose Forked message is not
read
ends: so the supervisor knows every process that runs.

The zygote is executed, not forked, so that glibc reads its malloc settings, and in a session of its
own, so that a terminal's signals reach the supervisor alone. It ends when its socket or the
supervisor does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from typing import Final

import msgspec
import setproctitle

from zbroker.config import Config
from zbroker.limits import CONFIG_MAX_BYTES, KIB
from zbroker.server.process import become_room, end_with_parent
from zbroker.server.spawn import command
from zbroker.supervisor import child
from zbroker.supervisor.core import EX_BUG, EX_OK

MESSAGE_MAX_BYTES: Final = CONFIG_MAX_BYTES + 8 * KIB  # a Setup carries the whole config
HANDED_OVER_S: Final = 0.000_2  # between two looks whether the supervisor is the parent
GC_THRESHOLD: Final = (50_000, 20, 50)  # long-lived objects are frozen; a turn leaves no cycles

#: Memory of large messages is kept and used again: giving it back costs page faults on every batch
#: (68 instead of 21 ns for encoding a message of 100 bytes). glibc reads these when it starts.
MALLOC: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


class Setup(msgspec.Struct, tag=True):
    """supervisor -> zygote, first. parent: the supervisor's pid."""

    config: Config
    instance: int
    parent: int


class Launch(msgspec.Struct, tag=True):
    """supervisor -> zygote: fork this room. Answered by Forked or NotForked."""

    room: str
    listen: str
    accept_tail_loss: bool = False
    accept_missing: bool = False


class ChildForked(msgspec.Struct, tag=True):
    """room -> supervisor, before it does anything else."""

    room: str
    pid: int


class NotForked(msgspec.Struct, tag=True):
    """zygote -> supervisor: the system has no memory, or no number, for another process."""

    room: str


_TO_ZYGOTE: Final = msgspec.json.Decoder(Setup | Launch)
FROM_ZYGOTE: Final = msgspec.json.Decoder(ChildForked | NotForked)


def spawn(modules: dict[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a zygote that can become any room of `modules`; ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = str(theirs.fileno())
    process = subprocess.Popen(
        command("zbroker.supervisor.zygote", number, json.dumps(modules), str(os.getpid())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**MALLOC, **os.environ},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return process, ours


class Zygote:
    """Forks until the supervisor's end of the socket is closed."""

    def __init__(self, link: socket.socket, modules: dict[str, str]) -> None:
        self._link = link
        self._modules = modules
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
            self._tell(NotForked(launch.room))
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _, status = os.waitpid(between, 0)
        if status:  # of the second fork, or whoever killed it in these microseconds
            self._tell(NotForked(launch.room))

    def _fork_again(self, launch: Launch) -> None:
        """The life of the process between; never returns."""
        status = EX_BUG
        between = os.getpid()
        try:
            if os.fork() == 0:
                self._become(launch, between)
            status = EX_OK
        finally:
            os._exit(status)

    def _become(self, launch: Launch, between: int) -> None:
        """The room's whole life; never returns."""
        assert self._setup is not None, "a Setup comes before the first Launch"
        status = EX_BUG
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            while os.getppid() == between:  # it is about to end
                time.sleep(HANDED_OVER_S)
            become_room(launch.room, self._setup.parent)
            self._link.send(msgspec.json.encode(ChildForked(launch.room, os.getpid())))
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
        paths = config.paths(setup.instance)
        module = self._modules[launch.room]
        return child.run(launch.room, module, config, paths, launch.listen, supervised=True)

    def _tell(self, message: NotForked) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(msgspec.json.encode(message))  # a dead supervisor shows as end of file


def main() -> None:
    """What `spawn` executes; arguments: the socket's number, JSON of room -> module, parent."""
    end_with_parent(int(sys.argv[3]))
    modules: dict[str, str] = json.loads(sys.argv[2])
    setproctitle.setproctitle("zbroker zygote")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for module in modules.values():
        with contextlib.suppress(Exception):  # the room itself will say it, in its own log
            import_module(module)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    Zygote(socket.socket(fileno=int(sys.argv[1])), modules).serve()
