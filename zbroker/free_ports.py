"""Ports of loopback for listeners that have to keep theirs.

Not those that the system gives to outgoing connections: one of these may take the port between the
look at it and the start of the process that is to listen there. So may another process that looks
for ports, so each claims what it gives: an abstract socket with the port in its name, which goes
with the process, and which no other one can bind.
"""

from __future__ import annotations

import atexit
import random
import socket
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST: Final = 10_000
CLAIMS_MAX: Final = 250  # of this process: what they are for listens long before they are given up
_claims: Final[deque[socket.socket]] = deque()


def free_ports(count: int) -> list[int]:
    """So many on which nothing listens, and which no process of this host gave lately."""
    outgoing, found = int(RANGE.read_text().split()[0]), list[int]()
    ports = range(LOWEST, outgoing) if outgoing > 2 * LOWEST else range(outgoing, 65_536)
    with ExitStack() as held:
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), random.choice(ports)
            try:
                one.bind(("127.0.0.1", port))
                _claims.append(_claim(port))
            except OSError:
                continue
            found.append(port)
    _give_up_all_but(max(CLAIMS_MAX, count))
    return found


def _give_up_all_but(newest: int) -> None:
    while len(_claims) > newest:
        _claims.popleft().close()


def _claim(port: int) -> socket.socket:
    """Raises: OSError if the port is claimed."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0zbroker-port-{port}")
    except OSError:
        claim.close()
        raise
    return claim


atexit.register(_give_up_all_but, 0)  # else Python warns of each
