"""What the kernel tells of a connection that belongs to libzmq, and how one is ended.

Every number may belong to something else by now: libzmq closes descriptors at any time.
"""

from __future__ import annotations

import ctypes
import resource
import socket as tcp
import struct
import time
from typing import Final, NamedTuple

from zbroker.server.listener.guard import TcpCounters
from zbroker.sockets import copy_of

_FLOW: Final = struct.Struct("=QQ")  # tcpi_bytes_acked, tcpi_bytes_received; linux/tcp.h
_FLOW_AT: Final = 120
_INFO_BYTES: Final = _FLOW_AT + _FLOW.size
_RESET: Final = struct.pack("=ii", 1, 0)  # struct linger: unsent and unread bytes are dropped
_OWN_PERCENT: Final = 20  # of the descriptors are for everything but clients' connections
_OWN_MIN: Final = 128
INTERNAL: Final = 32  # of a process with a listener that serves and has no clients: 22 to 25
BURST: Final = 8_192  # that come within one long turn, 0.4 s: libzmq takes some 20,000 a second
_STEPS: Final = 4  # of what is spare, by those that come at once: the rest is not theirs

_getsockopt: Final = ctypes.CDLL(None).getsockopt


class Flows:
    """Reads what was received; one buffer for all, 3 us each. A socket object costs three times."""

    def __init__(self) -> None:
        self._info = ctypes.create_string_buffer(_INFO_BYTES)
        self._size = ctypes.c_uint32()
        self._size_at = ctypes.byref(self._size)

    def of(self, fd: int) -> TcpCounters | None:
        """The counters of a TCP connection; None if the number is anything else."""
        self._size.value = _INFO_BYTES
        if _getsockopt(fd, tcp.IPPROTO_TCP, tcp.TCP_INFO, self._info, self._size_at):
            return None
        acked, received = _FLOW.unpack_from(self._info, _FLOW_AT)
        return TcpCounters(received, acked)


def cut(fd: int, port: int) -> str | None:
    """Ends a connection to our `port`: libzmq finds it closed, and lets go of it.

    Returns: the peer; None if the number is not such a connection (any more). One
    that came to the same number just now is cut in its place, and connects again.
    """
    copy = copy_of(fd)
    if copy is None:
        return None
    with copy:
        return _shut(copy, port)


def _shut(connection: tcp.socket, port: int) -> str | None:
    if connection.family not in (tcp.AF_INET, tcp.AF_INET6):
        return None
    try:
        if connection.type != tcp.SOCK_STREAM or connection.getsockname()[1] != port:
            return None
        host = str(connection.getpeername()[0])
        # or the kernel would keep it for a minute if the peer has more to say
        connection.setsockopt(tcp.SOL_SOCKET, tcp.SO_LINGER, _RESET)
        connection.shutdown(tcp.SHUT_RDWR)
    except OSError:
        return None  # the peer was faster
    return host


def address(fd: int, port: int) -> str:
    """The peer of a connection to our `port`; "" if the number is not one now."""
    copy = copy_of(fd)
    if copy is None:
        return ""
    with copy:
        try:
            mine, (host, its) = copy.getsockname()[1], copy.getpeername()[:2]
        except (OSError, IndexError, ValueError):
            return ""
    return endpoint_of(host, its) if mine == port else ""


def endpoint_of(host: str, port: int) -> str:
    """As text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def worked_us() -> int:
    """CPU time of the other threads of this process: those of libzmq, which receive."""
    return (time.process_time_ns() - time.thread_time_ns()) // 1_000


class Descriptors(NamedTuple):
    """How many connections a listener may have. step: how many may come at once; 0: any number.

    freely: until there are so many, any number may come at once all the same.
    """

    connections: int
    step: int
    freely: int = 0


def descriptors(wanted: int) -> Descriptors:
    """`wanted` connections, or as many as leave descriptors for files and internal sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Descriptors(wanted, 0, wanted)
    own = min(max(_OWN_MIN, soft * _OWN_PERCENT // 100), soft * 3 // 4)
    connections = min(wanted, soft - own)
    spare = soft - connections
    step = 0 if spare >= BURST else max(1, spare // _STEPS)
    return Descriptors(connections, step, max(0, soft - own - BURST) if step else connections)
