"""The raw limits: what disk and sockets give when no broker is between."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from zbroker.wire.messages import IngestCommand

GROUP_ALIGN: Final = 512  # as the journal aligns its groups
FILL_BYTES: Final = 4 << 20
READY_S: Final = 20.0
STUCK_MS: Final = 60_000

_SPAWN: Final = multiprocessing.get_context("spawn")


def synced_writes(directory: Path, group_bytes: int, groups: int) -> list[float]:
    """Seconds of each of `groups` writes of `group_bytes`, synced, to a zero-filled file."""
    step = -(-group_bytes // GROUP_ALIGN) * GROUP_ALIGN
    path = directory / "raw.limit"
    buffers = [os.urandom(64), os.urandom(max(group_bytes - 64, 1))]
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _fill(handle, step * groups)
        taken = []
        for number in range(groups):
            begun = time.perf_counter()
            _write_all(handle, buffers, number * step)
            os.fdatasync(handle)
            taken.append(time.perf_counter() - begun)
        return taken
    finally:
        os.close(handle)
        path.unlink()


def _write_all(handle: int, buffers: list[bytes], offset: int) -> None:
    wanted = sum(map(len, buffers))
    if os.pwritev(handle, buffers, offset) != wanted:
        raise OSError(f"short write of {wanted} bytes")  # a full disk would make the limit too fast


def _fill(handle: int, size: int) -> None:
    zeros = bytes(FILL_BYTES)
    for offset in range(0, size, FILL_BYTES):
        os.pwrite(handle, zeros[: size - offset], offset)
    os.fsync(handle)


# -- ZeroMQ -----------------------------------------------------------------------------------


def raw_frames(header_bytes: int, body_bytes: int, count: int) -> float:
    """Seconds to receive `count` messages of these two frames from another process over tcp."""
    with _child(_send_frames, header_bytes, body_bytes, count) as (socket, begin):
        begun = begin()
        received = 0
        while received < count:
            socket.recv(copy=False)
            received += len(socket.recv(copy=False).buffer) == body_bytes
        return time.perf_counter() - begun


def _send_frames(pipe: Any, header_bytes: int, body_bytes: int, count: int) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(
        zmq.ROUTER_MANDATORY, 1
    )  # so that it waits when the queue is full; else it drops
    socket.setsockopt(zmq.SNDTIMEO, STUCK_MS)
    pipe.send(_bound(socket))
    peer = socket.recv_multipart()[0]
    header, bodies = os.urandom(header_bytes), [os.urandom(body_bytes) for _ in range(8)]
    for number in range(count):
        socket.send(peer, zmq.SNDMORE)
        socket.send(header, zmq.SNDMORE)
        socket.send(bodies[number % 8], copy=False)
    pipe.recv()
    context.destroy(linger=0)


def bare_router(send: Callable[[zmq.Socket[bytes], Callable[[], int]], None], count: int) -> float:
    """Seconds for `send` to send `count` publishes to a ROUTER that only decodes and counts them.

    `send` gets the socket and what receives the next answer: how many have been counted.
    """
    with _child(_decode_frames, count) as (socket, begin):
        begun = begin()
        send(socket, lambda: int.from_bytes(socket.recv(), "little"))
        return time.perf_counter() - begun


def _decode_frames(pipe: Any, count: int) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, 0)
    pipe.send(_bound(socket))
    peer = socket.recv_multipart()[0]
    decode = msgspec.msgpack.Decoder(IngestCommand).decode
    done = 0
    while done < count:
        done += _turn(socket, decode)
        socket.send(peer, zmq.SNDMORE)
        socket.send(done.to_bytes(8, "little"))
    pipe.recv()
    context.destroy(linger=0)


def _turn(socket: zmq.Socket[bytes], decode: Callable[[Any], object]) -> int:
    """One turn as ingest has it: at most 256 messages, borders found by `.more`."""
    socket.poll(STUCK_MS)
    for number in range(256):
        try:
            socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return number
        header = socket.recv(copy=False)
        decode(header.buffer)
        more = header.more
        while more:
            more = socket.recv(copy=False).more
    return 256


def _bound(socket: zmq.Socket[bytes]) -> str:
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@contextmanager
def _child(
    work: Callable[..., None], *args: int
) -> Iterator[tuple[zmq.Socket[bytes], Callable[[], float]]]:
    """A DEALER connected to `work` in another process; calling the second says hello to it."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(theirs, *args), daemon=True)
    process.start()
    context = zmq.Context()
    try:
        if not ours.poll(READY_S):
            raise TimeoutError("the other process of a raw limit did not start")
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVTIMEO, STUCK_MS)
        socket.setsockopt(zmq.SNDTIMEO, STUCK_MS)
        socket.connect(ours.recv())

        def begin() -> float:
            begun = time.perf_counter()
            socket.send_multipart([b"", b""])
            return begun

        yield socket, begin
        ours.send("done")
    finally:
        context.destroy(linger=0)
        process.join(READY_S)
        if process.is_alive():
            process.kill()
