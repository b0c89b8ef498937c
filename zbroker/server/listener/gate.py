"""Lets connections in a few at a time where descriptors are scarce: a process keeps some free.

libzmq accepts whatever comes until there is no descriptor left. Then its ipc listeners end the
process, and files cannot be opened. Nothing in libzmq bounds that, so the kernel has to: it holds
at most `step` connections that are not accepted yet. Two listeners share the port:

    filling:   new connections wait in its queue; libzmq finds an empty one under its number
    draining:  nothing gets into its queue, and libzmq takes what is in it

libzmq waits for a listener itself (epoll notes the open file), but accepts by number: `dup2` puts
the listener, or an empty one, under that number. With one listener whoever comes while it is
drained would have to be dropped, and would come again a second later.

An empty one costs processor time: libzmq finds it readable and accepts in vain, until the loop has
time. So while enough descriptors are free the gate is open: the first listener is libzmq's own.
"""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401 - getaddrinfo imports it: once, before processes are forked
import os
import select
import socket as tcp
import struct
import sys
from collections.abc import Sequence
from typing import Any, Final

import zmq

from zbroker import endpoints

_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_SO_ATTACH_REUSEPORT: Final = 51
_RETURN: Final = 0x06  # BPF: of a filter, how many bytes pass; of a choice, which listener it is
_LOAD_HALF: Final = 0x28  # two bytes of the packet, from where its TCP header begins
_SOURCE_PORT_AT: Final = 0
_JUMP_UNLESS: Final = 0x15
_WHOLE: Final = 0xFFFF_FFFF
_PROBE_MS: Final = 10_000
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_ANY: Final = {"*": "0.0.0.0"}


class AdmissionGate:
    """The listening sockets of one listener: `bind` binds them, `release` comes before the end.

    is_open: libzmq takes all who come, as without a gate.
    """

    is_open = False

    def __init__(self, listen: str, step: int) -> None:
        """Raises: zmq.ZMQError, as binding a socket of libzmq does."""
        self._both: list[_Listener] = []
        self._empty = _listening("tcp://127.0.0.1:0", 1)
        try:
            self._both.append(_Listener(listen, step, self._empty))
            host, port = self._both[0].address
            self._both.append(_Listener(f"tcp://{host}:{port}", step, self._empty))
            self._both[0].choose(0)
        except OSError as error:
            self.release()
            raise zmq.ZMQError(error.errno) from None
        self._draining: int | None = None

    def bind(self, router: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        """Has libzmq listen, and waits until it does: it has to accept our own connections."""
        for number, each in enumerate(self._both):
            each.choose(number)
            each.bind(router, monitor)

    @property
    def is_letting(self) -> bool:
        """Whether libzmq takes what waited."""
        return self._draining is not None

    @property
    def fds(self) -> list[int]:
        """What to poll: those may wait here that libzmq does not take."""
        return [each.fd for each in (self._both[1:] if self.is_open else self._both)]

    def has_some(self) -> bool:
        """Whether connections wait in the kernel; while some are let in, whether of these."""
        fds = self.fds if self._draining is None else [self._both[self._draining].fd]
        return bool(_waiting(fds))

    def open(self) -> None:
        """libzmq takes what waits and who comes. Some may be on their way to the other listener."""
        self._both[0].choose(0)
        self._both[0].open()
        self.is_open = True

    def shut(self) -> None:
        """It does not any more."""
        self._both[0].shut()
        self.is_open = False

    def let(self) -> None:
        """libzmq accepts the waiting connections; new ones wait for the next time."""
        fds = [each.fd for each in self._both]
        self._draining = fds.index(_waiting(self.fds)[0])
        self._both[0].choose(1 - self._draining)
        self._both[self._draining].drain()

    def hold(self) -> None:
        """libzmq takes nothing more."""
        assert self._draining is not None
        self._both[self._draining].fill()
        self._draining = None

    def release(self) -> None:
        """Before the ROUTER is closed: libzmq ends the process if it does not find its listener."""
        for each in self._both:
            each.release()
        self._empty.close()


class _Listener:
    """One of the two, and the number under which libzmq knows it."""

    def __init__(self, listen: str, step: int, empty: tcp.socket) -> None:
        self._real, self._empty = _listening(listen, step), empty
        self._filter(drop=True)  # no client, until libzmq waits for it
        self.fd = self._real.fileno()
        self._number = os.dup(self.fd)  # libzmq closes it

    @property
    def address(self) -> tuple[str, int]:
        """Host, as in an endpoint, and port."""
        host, port = self._real.getsockname()[:2]
        return f"[{host}]" if ":" in host else host, port

    def bind(self, router: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        """libzmq waits for this one, and accepts nothing more than the probe."""
        host, port = self.address
        router.setsockopt(zmq.USE_FD, self._number)
        router.bind(f"tcp://{host}:{port}")
        router.setsockopt(zmq.USE_FD, -1)
        host = host.strip("[]")
        host = _LOOPBACK.get(host, host)
        with tcp.socket(self._real.family) as probe:
            probe.settimeout(_PROBE_MS / 1_000)
            probe.bind((host, 0))
            self._let_in_from(probe.getsockname()[1])
            probe.connect((host, port))
            self._filter(drop=True)
            _wait_for(zmq.EVENT_ACCEPTED, monitor)
        _wait_for(zmq.EVENT_DISCONNECTED, monitor)
        self.fill()

    def choose(self, number: int) -> None:
        """New connections go to that listener, of those that share the port."""
        self._program(_SO_ATTACH_REUSEPORT, (_RETURN, 0, 0, number))

    def open(self) -> None:
        os.dup2(self.fd, self._number, inheritable=False)

    def shut(self) -> None:
        os.dup2(self._empty.fileno(), self._number, inheritable=False)

    def drain(self) -> None:
        self._filter(drop=True)  # also what is in the middle of its handshake
        self.open()

    def fill(self) -> None:
        self.shut()
        self._filter(drop=False)

    def release(self) -> None:
        self.open()
        self._real.close()

    def _filter(self, *, drop: bool) -> None:
        if drop:
            self._program(_SO_ATTACH_FILTER, (_RETURN, 0, 0, 0))
        else:
            self._real.setsockopt(tcp.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def _let_in_from(self, port: int) -> None:
        """Only packets from this port. Another client that came now would stay unknown: its events
        would be read, and dropped, with those of the probe."""
        self._program(
            _SO_ATTACH_FILTER, (_LOAD_HALF, 0, 0, _SOURCE_PORT_AT), (_JUMP_UNLESS, 0, 1, port),
            (_RETURN, 0, 0, _WHOLE), (_RETURN, 0, 0, 0),
        )  # fmt: skip

    def _program(self, option: int, *steps: tuple[int, int, int, int]) -> None:
        packed = b"".join(struct.pack("=HBBI", *step) for step in steps)
        code = ctypes.create_string_buffer(packed, len(packed))
        program = struct.pack("@HP", len(steps), ctypes.addressof(code))
        self._real.setsockopt(tcp.SOL_SOCKET, option, program)


def _wait_for(wanted: int, monitor: zmq.Socket[bytes]) -> None:
    """Reads what the monitor tells until then: it is about the probe, and of no interest."""
    while monitor.poll(_PROBE_MS):
        if int.from_bytes(monitor.recv_multipart()[0][:2], sys.byteorder) == wanted:
            return
    raise zmq.ZMQError(zmq.ETERM, "libzmq does not accept")


def can_gate(listen: str) -> bool:
    """Not an interface's name, which only libzmq resolves."""
    try:
        _resolved(listen)
    except OSError:
        return False
    return True


def _resolved(listen: str) -> tuple[int, tuple[Any, ...]]:
    """Family and address; a name is one of IPv4, as libzmq has it. Raises: OSError."""
    at = endpoints.split(listen.replace(":*", ":0"))
    host = _ANY.get(at.host, at.host.strip("[]"))
    family = tcp.AF_INET6 if endpoints.is_ipv6(listen) else tcp.AF_INET
    return family, tcp.getaddrinfo(host, at.port, family, tcp.SOCK_STREAM)[0][4]


def _listening(listen: str, backlog: int) -> tcp.socket:
    family, address = _resolved(listen)
    made = tcp.socket(family, tcp.SOCK_STREAM)
    try:
        made.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEADDR, 1)
        if family == tcp.AF_INET6:
            made.setsockopt(tcp.IPPROTO_IPV6, tcp.IPV6_V6ONLY, 0)  # as libzmq does
        made.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEPORT, 1)
        made.bind(address)
        made.listen(backlog)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _waiting(fds: Sequence[int]) -> list[int]:
    """Those on which connections wait."""
    look = select.poll()  # `select` takes no descriptor above 1,023
    for fd in fds:
        look.register(fd, select.POLLIN)
    return [fd for fd, _ in look.poll(0)]
