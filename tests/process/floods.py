"""Who means harm: raw connections that speak as much ZMTP as they need, and sessions with a key."""

from __future__ import annotations

import socket as tcp
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, Self

import msgpack
import zmq

from tests.process.secured import Secured, token_of
from zbroker import sockets

CONNECT_S: Final = 20.0
CHUNK: Final = 64 << 10

GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01"
#: every listener of an instance on IPv6
LISTEN_V6: Final = {
    "ingest": "tcp://[::1]:0",
    "delivery": "tcp://[::1]:0",
    "queues": "tcp://[::1]:0",
    "admin": "http://[::1]:0",
}

MORE: Final = 0x01
LONG: Final = 0x02
COMMAND: Final = 0x04


def greeting(mechanism: bytes = b"NULL") -> bytes:
    """The first 64 bytes of a ZMTP 3.1 client."""
    return GREETING + mechanism.ljust(20, b"\0") + bytes(32)


def frame(content: bytes, flags: int = 0) -> bytes:
    """One frame; its length is in front of it."""
    if len(content) < 256:
        return bytes([flags, len(content)]) + content
    return announced(len(content), flags) + content


def announced(size: int, flags: int = 0) -> bytes:
    """The beginning of a frame of so many bytes."""
    return bytes([flags | LONG]) + size.to_bytes(8, "big")


def ready() -> bytes:
    """What a DEALER without keys says of itself."""
    entries = [(b"Socket-Type", b"DEALER"), (b"Identity", b"")]
    said = b"".join(
        bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value for name, value in entries
    )
    return frame(b"\x05READY" + said, COMMAND)


class Stranger:
    """One raw connection. Whatever it says, the other side may hang up at any time."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self._socket = tcp.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        self._socket.settimeout(CONNECT_S)

    def say(self, content: bytes) -> bool:
        """False once no one listens any more."""
        try:
            self._socket.sendall(content)
        except OSError:
            return False
        return True

    def shake(self) -> bool:
        """Without keys, as a DEALER: afterwards it may send messages."""
        return self.say(greeting()) and self.hears(64) and self.say(ready())

    def hears(self, count: int) -> bool:
        """Waits for so many bytes; False when the other side has hung up before."""
        left = count
        with suppress(OSError):
            while left and (heard := self._socket.recv(left)):
                left -= len(heard)
        return not left

    def is_cut(self) -> bool:
        """True if the other side has hung up; what it said until now is dropped."""
        self._socket.setblocking(False)
        try:
            while self._socket.recv(CHUNK):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(CONNECT_S)
        return True

    def close(self) -> None:
        self._socket.close()


@contextmanager
def crowd(url: str, count: int) -> Iterator[list[Stranger]]:
    """So many strangers; the connections of those that were not cut end with the block."""
    strangers: list[Stranger] = []
    try:
        for _ in range(count):
            strangers.append(Stranger(url))  # noqa: PERF401  # those made until it fails are closed
        yield strangers
    finally:
        for each in strangers:
            each.close()


# -- with a key -----------------------------------------------------------------------------------

ANSWER_S: Final = 60.0
TOGETHER: Final = 100  # commands that are on their way at a time


class Keyed:
    """A connection with a session, not at ingest; it says what no library would."""

    def __init__(self, secured: Secured, who: str, listener: str) -> None:
        with secured.connect(who) as client:
            self.token = token_of(client)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        sockets.identify(self._socket, secured.credentials(who).curve())
        self._socket.connect(secured.endpoints()[listener])
        assert self.flood([{"cmd": "logon", "token": self.token}]) == {"": 1}

    def flood(
        self, commands: Iterable[dict[str, Any]], between: Callable[[], None] = lambda: None
    ) -> Counter[str]:
        """Says all of it; the codes of all answers, "" for what was done. between: done often."""
        codes: Counter[str] = Counter()
        rest = iter(commands)
        while part := list(islice(rest, TOGETHER)):
            for number, command in enumerate(part):
                self._socket.send(msgpack.packb({**command, "cid": str(number)}))
            answers, end = 0, time.monotonic() + ANSWER_S
            while answers < len(part):
                left_ms = int(1_000 * (end - time.monotonic()))  # heartbeats are no answers
                assert left_ms > 0, "not all of it is answered"
                if not self._socket.poll(left_ms):
                    continue
                reported = msgpack.unpackb(self._socket.recv_multipart()[0], strict_map_key=False)
                if reported.get("cid") is not None:
                    answers += 1
                    codes[reported.get("code", "")] += 1
            between()
        return codes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)
