"""A zygote as its supervisor has it: the process, and the socket to it.

It is spawned before the supervisor imports what it needs itself: both take a while, and there is
more than one core. So this module imports little.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterable
from typing import Final

from zbroker.server.spawn import command

#: Memory of large messages is kept and used again: giving it back costs page faults on every batch
#: (68 instead of 21 ns for encoding a message of 100 bytes). glibc reads these when it starts.
MALLOC: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


class SpawnedZygote:
    """It imports `modules`, and waits for a Setup."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.setblocking(False)
        wanted = json.dumps(list(dict.fromkeys(modules)))
        self._process = subprocess.Popen(
            command("zbroker.supervisor.zygote", str(theirs.fileno()), wanted, str(os.getpid())),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**MALLOC, **os.environ},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid

    def kill(self) -> None:
        """Kills it; what it has sent can still be read."""
        self._process.kill()

    def end(self) -> None:
        """Kills it, waits until it is gone, and closes the socket."""
        self._process.kill()
        self._process.wait()
        self.link.close()
