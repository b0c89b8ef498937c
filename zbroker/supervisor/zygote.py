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

The zygote is executed, not forked, so that glibc reads its malloc settings, and in a session of its
own, so that a terminal's signals reach the supervisor alone. It ends when its socket or the
supervisor does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import setproctitle
import zmq

from zbroker.config import Config
from zbroker.engine.contract import Limit, Ready
from zbroker.limits import CONFIG_MAX_BYTES, KIB
from zbroker.paths import Paths
from zbroker.server.process import become_process, end_with_parent
from zbroker.server.spawn import command
from zbroker.supervisor import child
from zbroker.supervisor.core import (
    EX_BUG,
    EX_OK,
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

MESSAGE_MAX_BYTES: Final = CONFIG_MAX_BYTES + 8 * KIB  # a Setup carries the whole config
CHILDREN_END_S: Final = 2.0
HANDED_OVER_S: Final = 0.000_2  # between two looks whether the supervisor is the parent
_PR_SET_CHILD_SUBREAPER: Final = 36
GC_THRESHOLD: Final = (50_000, 20, 50)  # long-lived objects are frozen; a turn leaves no cycles

#: Memory of large messages is kept and used again: giving it back costs page faults on every batch
#: (68 instead of 21 ns for encoding a message of 100 bytes). glibc reads these when it starts.
MALLOC: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


class Setup(msgspec.Struct, tag=True):
    """supervisor -> zygote, first. parent: the supervisor's pid. sockets: their directory."""

    config: Config
    instance: int
    sockets: str
    parent: int


class Launch(msgspec.Struct, tag=True):
    """supervisor -> zygote: fork this process. Answered by ChildForked or NotForked."""

    name: str = msgspec.field(name="room")
    listen: str
    accept_tail_loss: bool = False
    accept_missing: bool = False


_TO_ZYGOTE: Final = msgspec.json.Decoder(Setup | Launch)
_FROM_ZYGOTE: Final = msgspec.json.Decoder(ChildForked | NotForked)


class Children:
    """The processes of a supervisor, a source of its turn; it starts a zygote at once.

    What a zygote forks becomes a child of this process when the one between has ended.
    """

    drained = True
    next_wake_ms = None

    def __init__(self, config: Config, plans: Iterable[ProcessPlan]) -> None:
        self._config = config
        self._modules = {plan.name: plan.module for plan in plans}
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._spawn()

    def _spawn(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setblocking(False)
        arguments = str(theirs.fileno()), json.dumps(self._modules), str(os.getpid())
        self._zygote = subprocess.Popen(
            command("zbroker.supervisor.zygote", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**MALLOC, **os.environ},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def serve(self, poller: zmq.Poller, paths: Paths) -> ZygoteStarted:
        """Watches the zygote from now on, which may fork processes of this instance."""
        self._poller, self._paths = poller, paths
        poller.register(self._link, zmq.POLLIN)
        # what a Launch does not carry is for every start: losses are accepted at the first only
        config, sockets = self._config.accepting(), str(paths.sockets)
        self._send(Setup(config, paths.instance, sockets, os.getpid()))
        return ZygoteStarted(self._zygote.pid)

    def start_zygote(self, _effect: StartZygote) -> ZygoteStarted:
        """Starts another one; the one before was ended."""
        self._spawn()
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
            self._link.send(msgspec.json.encode(message))

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
        if self._link.fileno() < 0:
            return  # between two zygotes
        try:
            while data := self._link.recv(MESSAGE_MAX_BYTES):
                yield _FROM_ZYGOTE.decode(data)
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass  # it ended before it read what it was sent
        self._poller.unregister(self._link)
        self.end_zygote()
        yield ZygoteLost()

    def refuse(self, _effect: EndZygote) -> None:
        """Kills the zygote. Messages sent before can still be read; a late process ends itself."""
        with contextlib.suppress(OSError):  # it was closed at the other end
            self._link.shutdown(socket.SHUT_RDWR)
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

    def end_zygote(self) -> None:
        """Kills it, waits until it is gone, and closes the socket."""
        self._zygote.kill()
        self._zygote.wait()
        self._link.close()

    def close(self) -> None:
        """Ends the zygote, and waits until all children are gone; each was asked or killed."""
        self.end_zygote()
        deadline = time.monotonic() + CHILDREN_END_S
        with contextlib.suppress(ChildProcessError):  # none left: the awaited state
            while time.monotonic() < deadline:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)


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
        module = self._modules[launch.name]
        return child.run(launch.name, module, config, paths, launch.listen, supervised=True)

    def _tell(self, message: NotForked) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(msgspec.json.encode(message))  # a dead supervisor shows as end of file


def main() -> None:
    """What `spawn` executes; arguments: the socket's number, JSON of process -> module, parent."""
    end_with_parent(int(sys.argv[3]))
    modules: dict[str, str] = json.loads(sys.argv[2])
    setproctitle.setproctitle("zbroker zygote")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for module in modules.values():
        with contextlib.suppress(Exception):  # the process itself will say it, in its own log
            import_module(module)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    Zygote(socket.socket(fileno=int(sys.argv[1])), modules).serve()
