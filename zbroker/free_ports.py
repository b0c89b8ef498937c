"""Ports of loopback for listeners that have to keep theirs.

Not those that the system gives to outgoing connections: one of these may take the port between the
look at it and the start of the process that is to listen there.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST: Final = 10_000


def free_ports(count: int) -> list[int]:
    """So many on which nothing listens."""
    given, found = int(RANGE.read_text().split()[0]), list[int]()
    ports = range(LOWEST, given) if given > 2 * LOWEST else range(given, 65_536)
    with ExitStack() as held:
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), random.choice(ports)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
