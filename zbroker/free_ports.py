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
_given: Final[set[int]] = set()  # by this process: what it is for may not listen yet


def free_ports(count: int) -> list[int]:
    """So many on which nothing listens, and which this process did not give lately."""
    outgoing, found = int(RANGE.read_text().split()[0]), list[int]()
    ports = range(LOWEST, outgoing) if outgoing > 2 * LOWEST else range(outgoing, 65_536)
    if len(_given) > len(ports) // 2:
        _given.clear()
    with ExitStack() as held:
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), random.choice(ports)
            if port in _given:
                continue
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            _given.add(port)
    return found
