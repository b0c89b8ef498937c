"""A zygote as its supervisor has it: the process, and the socket to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterable
from typing import Final

from zbroker.server.spawn import command
from zbroker.supervisor import zygote
from zbroker.supervisor.core import EX_OK

_PACKETS: Final = socket.AF_UNIX, socket.SOCK_SEQPACKET


class ZygoteProcess:
    """A zygote, of which this process is the parent, and the socket to it."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid, self.link = pid, link
        link.setblocking(False)

    @classmethod
    def fork(cls, modules: Iterable[str]) -> ZygoteProcess:
        """One that shares its memory with this process, which has one thread and no context yet."""
        zygote.load(modules)
        supervisor, (link, theirs) = os.getpid(), socket.socketpair(*_PACKETS)
        pid = os.fork()
        if pid == 0:
            try:
                link.close()
                zygote.detach(supervisor)
                zygote.Zygote(theirs).serve()
            finally:
                os._exit(EX_OK)  # the callers belong to the supervisor
        theirs.close()
        return cls(pid, link)

    @classmethod
    def spawn(cls, modules: Iterable[str]) -> ZygoteProcess:
        """One that begins as a new Python: nothing forks a process that has a ZeroMQ context."""
        link, theirs = socket.socketpair(*_PACKETS)
        theirs.set_inheritable(True)
        given = str(theirs.fileno()), json.dumps(list(modules)), str(os.getpid())
        arguments = command("zbroker.supervisor.zygote", *given)
        pid = os.posix_spawn(arguments[0], arguments, os.environ)
        theirs.close()
        return cls(pid, link)

    def kill(self) -> None:
        """Kills it; what it has sent can still be read."""
        with contextlib.suppress(ChildProcessError):  # it was reaped: its number may be another's
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills it, waits until it is gone, and closes the socket."""
        self.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.link.close()
