"""A client without the library: one ZeroMQ message per publish, header packed for each, two send().

The limit is a bare ROUTER that receives and decodes the same frames and counts them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import zmq

from perf import limits
from perf.harness import Cpu, Result, Setup, payloads, writing

WINDOW: Final = 10_000
SHARE: Final = 5  # a fifth of the messages of the other workloads: it is that much slower
STUCK_MS: Final = 60_000

Socket = zmq.Socket[bytes]


def one_message_per_send(setup: Setup) -> list[Result]:
    """Both sides with the same client code and window."""
    bodies = payloads(setup.messages // SHARE)
    ours, limit = [], []
    notes: dict[str, Any] = {}
    with setup.broker() as broker:
        for number in setup.each_round("hand-written client"):
            with writing(broker, len(bodies)) as done:
                cpu = Cpu(broker)
                ours.append(len(bodies) / _to_broker(broker.url, f"perf-raw-{number}", bodies))
                used = cpu.per_message_us(len(bodies))
                notes = {"window": WINDOW, **done().notes(), "cpu_us_per_message": used}
            limit.append(len(bodies) / limits.bare_router(_sender(bodies), len(bodies)))
    name = "hand-written client, one message per send"
    return [
        Result(name, "messages/s", ours, limit, "bare ROUTER that decodes", ">= 60 %", notes=notes)
    ]


def _to_broker(url: str, name: str, bodies: list[bytes]) -> float:
    context = zmq.Context()
    try:
        socket: Socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVTIMEO, STUCK_MS)
        socket.connect(url)
        logon = {
            "cmd": "logon",
            "cid": "1",
            "client": name,
            "instance": secrets.token_hex(4),
            "version": 1,
        }
        socket.send_multipart([msgpack.packb(logon)])
        first = _answer(socket)["seq"] + 1
        begun = time.perf_counter()
        send_all(socket, bodies, first, lambda: _persisted(socket))
        return time.perf_counter() - begun
    finally:
        context.destroy(linger=0)


def _sender(bodies: list[bytes]) -> Callable[[Socket, Callable[[], int]], None]:
    return lambda socket, counted: send_all(socket, bodies, 1, counted)


def send_all(socket: Socket, bodies: list[bytes], first: int, acked: Callable[[], int]) -> None:
    """Sends all, never more than WINDOW ahead of what `acked` answers, until all are acked."""
    send, pack = socket.send, msgpack.packb
    done, seq = first - 1, first
    for body in bodies:
        send(
            pack({"cmd": "publish", "topic": "perf", "seq": seq, "ack": ["persisted"]}), zmq.SNDMORE
        )
        send(body)
        while seq - done >= WINDOW:
            done = acked()
        seq += 1
    while done < seq - 1:
        done = acked()


def _persisted(socket: Socket) -> int:
    while (answer := _answer(socket)).get("type") != "persisted":
        if answer["cmd"] == "error":
            raise RuntimeError(f"refused: {answer}")
    return int(answer["seq"])


def _answer(socket: Socket) -> dict[str, Any]:
    answer: dict[str, Any] = msgpack.unpackb(socket.recv_multipart()[0])
    return answer
