"""Journals for the tests of planning and replaying: written with the broker's own writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zstandard

from zbroker.checksums import crc32c
from zbroker.ids import publisher_id
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.log.format import FLAG_ZSTD, KIND_NOOP, KIND_PUBLISH, Batch
from zbroker.log.recovery import recover
from zbroker.log.writer import Writer
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Columns

INSTANCE = 0x1122334455667788
SECOND_NS = 1_000_000_000


@dataclass
class Written:
    """What is in the log: (topic, data, position, sequence, time)."""

    topic: str
    data: bytes
    position: int
    sequence: int
    time_ns: int


@dataclass
class JournalMaker:
    """A journal directory that grows batch by batch."""

    directory: Path
    publisher: str = "maker"
    instance: int = INSTANCE
    messages: list[Written] = field(default_factory=list)
    time_ns: int = 1_000 * SECOND_NS
    sequence: int = 1

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._disk = RealDisk(self.directory)
        tail = recover(self._disk, self.instance, segment_bytes=MIB).tail
        self._writer = Writer(self._disk, tail, segment_bytes=MIB)

    @property
    def serial(self) -> int:
        return self._writer.serial

    def batch(self, topics: list[str], size: int = 100) -> None:
        """One batch with one message for each of `topics`, each a second after the other."""
        self.given(
            topics,
            [f"{self.sequence + i}:".encode().ljust(size, b".") for i in range(len(topics))],
        )

    def given(
        self,
        topics: list[str],
        payloads: list[bytes],
        *,
        keys: list[bytes | None] | None = None,
        packed: bool = False,
    ) -> None:
        """The same with these payloads; with keys; compressed."""
        names = list(dict.fromkeys(topics))
        first = self._writer.position
        for index, topic in enumerate(topics):
            self.time_ns += SECOND_NS
            self.messages.append(
                Written(topic, payloads[index], first + index, self.sequence + index, self.time_ns)
            )
        mine = self.messages[-len(topics) :]
        columns = Columns(
            index=b"".join(names.index(topic).to_bytes(2, "little") for topic in topics),
            time=b"".join(message.time_ns.to_bytes(8, "little") for message in mine),
            keys=None if keys is None else msgspec.msgpack.encode(keys),
        )
        body = pack(payloads)
        if packed:
            body = zstandard.ZstdCompressor().compress(body)
        self._append(KIND_PUBLISH, names, len(topics), body, columns, FLAG_ZSTD if packed else 0)
        self.sequence += len(topics)

    def control(self) -> None:
        """A record that no subscriber sees; it takes a position."""
        self._append(KIND_NOOP, [], 1, b"", None)

    def _append(
        self,
        kind: int,
        topics: list[str],
        count: int,
        body: bytes,
        columns: Columns | None,
        flags: int = 0,
    ) -> None:
        batch = Batch(
            kind, self._writer.position, publisher_id(self.publisher), 1, self.sequence,
            self.sequence - 1, count, self.time_ns, topics, body, crc32c(body), len(body),
            columns=columns, flags=flags,
        )  # fmt: skip
        self._writer.write([batch], self.time_ns)
        self._writer.sync()

    def close(self) -> None:
        self._disk.close()
