"""The process that rooms are forked from: it has imported everything, made no ZeroMQ context.

    supervisor                                 zygote (one thread, SOCK_SEQPACKET pair, JSON)
        Setup{config, instance}          ->
        Launch{room, listen, ...}        ->    fork; the child becomes the room
                                         <-    Forked{room, pid}
        Signal{pid, signal}              ->    only the parent knows that a pid is still its child's
                                         <-    Reaped{room, pid, status}

It is executed, not forked, so that glibc reads its malloc settings, and in a session of its own, so
that a terminal's signals reach the supervisor alone. It ends when its socket does, and its children
with it: by the kernel (PDEATHSIG), and by SIGKILL from here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from importlib import import_module
from typing import Final

import msgspec
import setproctitle

from zbroker.config import Config
from zbroker.limits import CONFIG_MAX_BYTES, KIB
from zbroker.process import become_room
from zbroker.spawn import command
from zbroker.supervisor import child
from zbroker.supervisor.core import EX_BUG

MESSAGE_MAX_BYTES: Final = CONFIG_MAX_BYTES + 8 * KIB  # a Setup carries the whole config
GC_THRESHOLD: Final = (50_000, 20, 50)  # what lives long is frozen; a turn leaves no cycles behind

#: Memory of large messages is kept and used again: giving it back costs page faults on every batch
#: (68 instead of 21 ns for encoding a message of 100 bytes). glibc reads these when it starts.
MALLOC: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


class Setup(msgspec.Struct, tag=True):
    """supervisor -> zygote, first."""

    config: Config
    instance: int


class Launch(msgspec.Struct, tag=True):
    """supervisor -> zygote: fork this room. Answered by Forked, or Reaped with pid 0."""

    room: str
    listen: str
    accept_tail_loss: bool = False
    accept_missing: bool = False


class Signal(msgspec.Struct, tag=True):
    """supervisor -> zygote: send `signal` to `pid` if it is still a child."""

    pid: int
    signal: int


class Forked(msgspec.Struct, tag=True):
    """zygote -> supervisor."""

    room: str
    pid: int


class Reaped(msgspec.Struct, tag=True):
    """zygote -> supervisor. status: the exit code, or minus the signal."""

    room: str
    pid: int
    status: int


_TO_ZYGOTE: Final = msgspec.json.Decoder(Setup | Launch | Signal)
FROM_ZYGOTE: Final = msgspec.json.Decoder(Forked | Reaped)


def spawn(modules: dict[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a zygote that can become any room of `modules`; ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = str(theirs.fileno())
    process = subprocess.Popen(
        command("zbroker.supervisor.zygote", number, json.dumps(modules)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**MALLOC, **os.environ},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return process, ours


class Zygote:
    """Forks and reaps until the supervisor's end of the socket is closed."""

    def __init__(self, link: socket.socket, modules: dict[str, str]) -> None:
        self._link = link
        self._modules = modules
        self._children: dict[int, str] = {}
        self._setup: Setup | None = None
        self._pid = os.getpid()

    def serve(self) -> None:
        """Until end of file."""
        woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poller = select.poll()
        poller.register(self._link, select.POLLIN)
        poller.register(woken, select.POLLIN)
        while True:
            ready = {number for number, _ in poller.poll()}
            if woken.fileno() in ready:
                woken.recv(4096)
                self._reap()
            if self._link.fileno() in ready:
                message = self._link.recv(MESSAGE_MAX_BYTES)
                if not message:
                    return
                self._obey(_TO_ZYGOTE.decode(message))

    def _obey(self, message: Setup | Launch | Signal) -> None:
        if isinstance(message, Setup):
            self._setup = message
        elif isinstance(message, Launch):
            self._launch(message)
        elif message.pid in self._children:
            os.kill(message.pid, message.signal)

    def _launch(self, launch: Launch) -> None:
        # a SIGTERM to a child that has no handler yet must end it, not be ignored as it is here
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError:
            self._tell(Reaped(launch.room, 0, EX_BUG))
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if pid == 0:
            self._become(launch)
        self._children[pid] = launch.room
        self._tell(Forked(launch.room, pid))

    def _become(self, launch: Launch) -> None:
        """The child's whole life; never returns."""
        status = EX_BUG
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            self._link.close()
            become_room(launch.room, self._pid)
            status = self._run(launch)
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(status)

    def _run(self, launch: Launch) -> int:
        assert self._setup is not None, "a Setup comes before the first Launch"
        config = self._setup.config.accepting(
            tail_loss=launch.accept_tail_loss, missing=launch.accept_missing
        )
        paths = config.paths(self._setup.instance)
        return child.run(launch.room, self._modules[launch.room], config, paths, launch.listen)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(Reaped(self._children.pop(pid), pid, os.waitstatus_to_exitcode(status)))

    def _tell(self, message: Forked | Reaped) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(msgspec.json.encode(message))  # a dead supervisor shows as end of file

    def end(self) -> None:
        """Kills what is left; the kernel does it too, when this process is gone."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """What `spawn` executes; arguments: the socket's descriptor, JSON of room -> module."""
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
    zygote = Zygote(socket.socket(fileno=int(sys.argv[1])), modules)
    try:
        zygote.serve()
    finally:
        zygote.end()
