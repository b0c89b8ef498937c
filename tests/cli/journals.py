"""Journals for the tests of the tools, written with the broker's own writer."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from zbroker.checksums import crc32c
from zbroker.cli.admin_main import main
from zbroker.ids import publisher_id
from zbroker.journal import snapshot
from zbroker.journal.sessions import Sessions
from zbroker.limits import MIB
from zbroker.log import format as f
from zbroker.log.disk import RealDisk
from zbroker.log.recovery import recover
from zbroker.log.segments import segment_name
from zbroker.log.writer import Writer
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Columns

INSTANCE = 0x1122334455667788
PUBLISHER = publisher_id("maker")
TIME_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


class Maker:
    """A journal that grows group by group, written with the broker's own writer."""

    def __init__(self, data: Path) -> None:
        self.directory = data / "journal"
        self.directory.mkdir(parents=True)
        self.disk = RealDisk(self.directory)
        tail = recover(self.disk, INSTANCE, segment_bytes=MIB).tail
        self.writer = Writer(self.disk, tail, segment_bytes=MIB)
        self.sequence = 1
        self.batches: list[f.Batch] = []

    def batch(
        self, messages: list[bytes], *, topics: list[str] | None = None, kind: int = f.KIND_PUBLISH,
        body: bytes | None = None, flags: int = 0, skip: int = 0, columns: Columns | None = None,
        prev: int | None = None,
    ) -> f.Batch:  # fmt: skip
        """Appends and syncs one batch."""
        body = pack(messages) if body is None else body
        position, prev = self.writer.position, self.sequence - 1 if prev is None else prev
        batch = f.Batch(
            kind, position, PUBLISHER, 1, self.sequence, prev,
            len(messages), TIME_NS + position * SECOND_NS, topics or ["orders"], body, crc32c(body),
            len(body), skip, flags, INSTANCE, 1, position, columns,
        )  # fmt: skip
        self.writer.write([batch], batch.log_time)
        self.writer.sync()
        self.batches.append(batch)
        if kind == f.KIND_PUBLISH:
            self.sequence += batch.taken
        return batch

    def state(self) -> None:
        """Appends a complete state snapshot."""
        cutter = snapshot.Cutter(snapshot.folds(Sessions(INSTANCE)), self.writer.position)
        self.batch([b""], kind=f.KIND_STATE, body=cutter.cut(), topics=[])
        assert cutter.done

    def close(self) -> None:
        self.disk.close()


def run(maker: Maker, *arguments: str) -> Result:
    """Runs `zbroker-admin journal` on the journal."""
    maker.close()
    return admin(maker.directory.parent, "journal", *arguments)


def admin(data: Path, *arguments: str) -> Result:
    """Runs `zbroker-admin` on a data directory."""
    return CliRunner().invoke(
        main, ["--data-dir", str(data), *arguments], prog_name="zbroker-admin"
    )


def segments(maker: Maker, count: int, *, states: bool = True) -> None:
    """So many segments with ten positions each or so, the newest one open; each with a snapshot."""
    while maker.writer.serial < count:
        serial = maker.writer.serial
        maker.batch([b"%d" % maker.sequence + bytes(100_000)])
        if states and maker.writer.serial != serial:
            maker.state()


def ten_batches(maker: Maker) -> None:
    for number in range(10):
        maker.batch([f"{number}.{i}".encode() * 20 for i in range(3)])


def flip(maker: Maker, serial: int, offset: int) -> None:
    with (maker.directory / segment_name(serial)).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))
