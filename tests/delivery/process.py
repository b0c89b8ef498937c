"""A real delivery process in a thread: real log, real sockets, and a stand-in for the journal.

The stand-in writes with the broker's own writer and answers Hello and Locate like the journal.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import zmq

from tests.waiting import Limit
from zbroker import sockets
from zbroker.checksums import crc32c
from zbroker.config import Config
from zbroker.delivery.core import DeliveryCore
from zbroker.delivery.loop import DeliveryLoop
from zbroker.ids import EPOCH, is_vector, parse_vector
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.recovery import recover
from zbroker.log.writer import Writer
from zbroker.paths import Paths
from zbroker.server.process import Process
from zbroker.wire import bodies, codec, token
from zbroker.wire import messages as m
from zbroker.wire.internal import Hello, Holds, Locate, Located, Watermarks, Welcome

INSTANCE = 0xD
KEY = b"k" * 32
DEADLINE_S = 20.0


class Journal:
    """Writes the log; `serve` answers what delivery asks, as long as the test calls it."""

    def __init__(self, paths: Paths, context: zmq.Context[Any], incarnation: int = 1) -> None:
        self.incarnation = incarnation
        self.log_start = 1
        self.holds: list[Holds] = []  # what delivery said
        self.disk = RealDisk(paths.journal)
        self.disk.lock()
        self.writer = self._recovered()
        self.sequence = self.writer.position - 1
        self.router = sockets.inner_router(context)
        self.router.bind(paths.ipc("journal"))
        self.xpub = sockets.watermarks_publisher(context)
        self.xpub.bind(paths.ipc("marks"))

    def _recovered(self) -> Writer:
        found = recover(self.disk, INSTANCE, on_batch=lambda *_: None, segment_bytes=1 << 20)
        return Writer(self.disk, found.tail, segment_bytes=1 << 20)

    def write(self, topic: str, data: list[bytes]) -> None:
        """One durable batch."""
        body = bodies.pack(data)
        first = self.sequence + 1
        self.sequence += len(data)
        batch = Batch(
            KIND_PUBLISH, self.writer.position, 5, 1, first, first - 1, len(data), first, [topic],
            body, crc32c(body), len(body),
        )  # fmt: skip
        self.writer.write([batch], first)
        self.writer.sync()

    def say_watermarks(self) -> None:
        end = self.writer.synced
        watermarks = Watermarks(
            self.incarnation, INSTANCE, 1, self.log_start, end, end, self.writer.serial, 0
        )
        self.xpub.send(sockets.EVERY_BEAT + codec.encode(watermarks))

    def serve(self) -> None:
        """Answers what waits."""
        while self.xpub.poll(0):
            self.xpub.recv()
            self.say_watermarks()
        while (found := sockets.receive_from(self.router)) is not None:
            rid, frames, _ = found
            message = codec.decode(codec.TO_JOURNAL, frames[0].buffer)
            if isinstance(message, Holds):
                self.holds.append(message)
            else:
                sockets.send_to(self.router, rid, codec.encode(self.answer(message)))

    def answer(self, message: Hello | Locate) -> Welcome | Located:
        end = self.writer.synced
        if isinstance(message, Hello):
            return Welcome(
                self.incarnation, message.incarnation, INSTANCE, 1, 0, "disk", 1, end, end
            )
        position = end
        if message.value == EPOCH:
            position = 1
        elif is_vector(message.value):
            position = next(iter(parse_vector(message.value).values())) + 1
        return Located(message.cid, position, log_start=1, persisted=end)

    def close(self) -> None:
        self.router.close(linger=0)
        self.xpub.close(linger=0)
        self.disk.close()


class DeliveryProcess:
    """Its loop in a thread, its journal, and clients."""

    def __init__(self, directory: Path) -> None:
        self.paths = Paths(directory, directory / "journal", directory / "archive", INSTANCE)
        for place in (self.paths.journal, self.paths.run, self.paths.sockets):
            place.mkdir(parents=True, exist_ok=True)
        self.paths.token_key.write_bytes(KEY)
        self.context: zmq.Context[Any] = zmq.Context()
        self.journal = Journal(self.paths, self.context)
        self.clients: list[Client] = []
        self.process = Process("delivery", Config(), self.paths, "tcp://127.0.0.1:0")
        self.loop = DeliveryLoop(self.process)
        self.core: DeliveryCore = self.loop.core
        self.loop.open()
        self.endpoint = self.loop.endpoint
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.loop.done:
                self.loop.turn()
        except BaseException as error:  # the test shall see it
            self.failure = error

    def restart_journal(self) -> None:
        self.journal.close()
        self.journal = Journal(self.paths, self.context, self.journal.incarnation + 1)

    def client(self) -> Client:
        client = Client(self)
        self.clients.append(client)
        return client

    def close(self) -> None:
        self.process.stop()
        self.thread.join(DEADLINE_S)
        self.process.close()
        for client in self.clients:
            client.socket.close(linger=0)
        self.journal.close()
        self.context.destroy(linger=0)
        if self.failure is not None:
            raise self.failure


class Client:
    """A DEALER as a hand-written client has it."""

    def __init__(self, delivery: DeliveryProcess) -> None:
        self.delivery = delivery
        self.socket = sockets.dealer(delivery.context, delivery.endpoint)
        self.data: list[bytes] = []
        self.vectors: list[str] = []

    def send(self, command: m.ClientCommand) -> None:
        self.socket.send(codec.encode(command))

    def logon(self) -> None:
        """Again while the process has not heard from the journal."""
        expires_s = time.time_ns() // 10**9 + 60
        said = token.make(KEY, token.Token("ann", "ann", "i", 1, expires_s))
        while True:
            self.send(m.ListenerLogon(said, "logon"))
            answer = self.until((m.Ack, m.Error), cid="logon")
            if isinstance(answer, m.Ack):
                assert answer.type == "processed"
                return
            assert answer.code == "not_ready"

    def until(self, kind: type | tuple[type, ...], **fields: Any) -> Any:
        """The next answer of `kind` with these fields; messages on the way are kept in `data`."""
        limit = Limit(DEADLINE_S)
        while not limit.is_over:
            self.delivery.journal.serve()
            if not self.socket.poll(5):
                continue
            frames = sockets.receive(self.socket)
            assert frames is not None
            answer = codec.decode(codec.ANSWERS, frames[0].buffer)
            if isinstance(answer, m.Msg):
                data = bodies.unpack(frames[1].buffer, answer.codec, answer.count, 1 << 30)
                last = answer.count if answer.take is None else answer.skip + answer.take
                self.data += data[answer.skip : last]
            same = all(getattr(answer, key, None) == value for key, value in fields.items())
            if isinstance(answer, kind) and same:
                return answer
        raise TimeoutError(f"no {kind} with {fields}; delivery: {self.delivery.failure!r}")

    def collect(self, count: int) -> list[bytes]:
        """Waits until there are `count` messages in all."""
        while len(self.data) < count:
            self.until(m.Msg)
        return self.data
