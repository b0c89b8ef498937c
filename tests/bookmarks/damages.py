"""What can happen to an index: a log with a history, and every kind of damage to the index of it.

The log gave up its end once (generation 2), and went on with other messages. Of its index there are
older copies, also of before the loss, and one that is ahead of the log.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lmdb

from tests.bookmarks.logs import INSTANCE
from zbroker.bookmarks import keys
from zbroker.bookmarks.index import Index, Stamp
from zbroker.checksums import crc32c
from zbroker.journal.fold import LogFold
from zbroker.journal.startup import beginning
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.writer import Writer

SEGMENT_BYTES: Final = 1 << 20
PUBLISHERS: Final = 6


class History:
    """One life of the journal after the other, as the journal process leads them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)
        (path / "journal").mkdir(parents=True)

    def start(self, *, accept_loss: bool = False) -> None:
        self.disk = RealDisk(self.path / "journal")
        self.index, recovered, fold = open_index(self.path, self.disk, accept_loss=accept_loss)
        self.writer = Writer(self.disk, recovered.tail, segment_bytes=SEGMENT_BYTES)
        self.time = recovered.last_log_time or 1_700_000_000_000_000_000
        known = ((number, fold.sessions.get(number)) for number in range(1, PUBLISHERS + 1))
        self.high = {number: one.high if one else 0 for number, one in known}

    def write(self, batches: int) -> None:
        for _ in range(batches):
            publisher = self.rng.randint(1, PUBLISHERS)
            count, size = self.rng.randint(1, 5), self.rng.randint(200, 20_000)
            hole = self.rng.choice([0, 0, 0, 3])
            first = self.high[publisher] + 1 + hole
            self.time += self.rng.choice([0, 1_000, 1_000_000])
            body = self.rng.randbytes(8) * (size // 8)
            batch = Batch(
                KIND_PUBLISH, self.writer.position, publisher, 1, first, self.high[publisher],
                count, self.time, ["t"], body, crc32c(body), len(body),
            )  # fmt: skip
            self.writer.write([batch], self.time)
            self.writer.sync()
            self.index.add(batch, self.writer.serial)
            self.high[publisher] = first + count - 1
        self.index.commit(self.index.take())

    def stop(self) -> None:
        self.index.close()
        self.disk.close()

    def keep(self, what: str, name: str) -> None:
        """A copy of the journal or the index, as it is now."""
        shutil.copytree(self.path / what, self.path / name)


def open_index(
    path: Path, disk: RealDisk, *, accept_loss: bool = False
) -> tuple[Index, Recovered, LogFold]:
    """Index and recovery as a start of the journal has them."""
    index = Index(path / "index", INSTANCE)
    log = Log(path / "journal")
    index.forget_later_generations(log.end_of)
    log.close()
    fold = LogFold(INSTANCE)
    try:
        recovered = recover(
            disk, INSTANCE, evidence=[index.stamp], accept_loss=accept_loss, on_batch=fold,
            begin=beginning(index, fold, lambda _: None), segment_bytes=SEGMENT_BYTES,
        )  # fmt: skip
    except BaseException:
        index.close()
        raise
    assert index.end == recovered.next_position
    return index, recovered, fold


def make(path: Path, seed: int = 1) -> Path:
    """The directory `journal`, its `index`, and other states of the index beside it."""
    history = History(path, seed)
    history.start()
    history.write(150)
    history.stop()
    history.keep("index", "older")
    history.keep("journal", "journal.backup")
    history.start()
    history.write(60)
    history.stop()
    history.keep("index", "earlier-generation")
    shutil.rmtree(path / "journal")
    (path / "journal.backup").rename(path / "journal")
    history.start(accept_loss=True)
    history.write(120)
    history.stop()
    history.keep("journal", "journal.now")
    history.keep("index", "index.now")
    history.start()
    history.write(30)
    history.stop()
    (path / "index").rename(path / "ahead")
    (path / "index.now").rename(path / "index")
    shutil.rmtree(path / "journal")
    (path / "journal.now").rename(path / "journal")
    return path


# -- damages: given the directory and a source of chance ------------------------------------------


def _data(path: Path) -> Path:
    return path / "index" / "data.mdb"


def _change(path: Path, change: Callable[[lmdb.Transaction], None]) -> None:
    with lmdb.open(str(path / "index")) as env, env.begin(write=True) as txn:
        change(txn)


def deleted(path: Path, _: random.Random) -> None:
    shutil.rmtree(path / "index")


def file_deleted(path: Path, _: random.Random) -> None:
    _data(path).unlink()


def _restored(name: str) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, _: random.Random) -> None:
        shutil.rmtree(path / "index")
        (path / name).rename(path / "index")

    damage.__name__ = name.replace("-", "_")
    return damage


def some_entries_lost(path: Path, rng: random.Random) -> None:
    def change(txn: lmdb.Transaction) -> None:
        found = [bytes(key) for key, _ in txn.cursor() if key != keys.STAMP]
        for key in rng.sample(found, len(found) // 3):
            txn.delete(key)

    _change(path, change)


def flipped_bits(path: Path, rng: random.Random) -> None:
    data = bytearray(_data(path).read_bytes())
    for _ in range(rng.choice([1, 1, 5, 100])):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
    _data(path).write_bytes(data)


def flipped_entry(path: Path, rng: random.Random) -> None:
    def change(txn: lmdb.Transaction) -> None:
        found = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
        for key, value in rng.sample(found, 5):
            at = rng.randrange(len(value))
            txn.put(key, value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :])

    _change(path, change)


def scribbled_page(path: Path, rng: random.Random) -> None:
    data = bytearray(_data(path).read_bytes())
    at = rng.randrange(len(data) // 4_096) * 4_096 + rng.choice([0, 8, 16, 200])
    junk = rng.randbytes(rng.choice([2, 16, 400, 4_096]))[: len(data) - at]
    data[at : at + len(junk)] = junk
    _data(path).write_bytes(data)


def stale_page(path: Path, rng: random.Random) -> None:
    """A write that the disk lost: a page of the older copy is there."""
    data, old = bytearray(_data(path).read_bytes()), (path / "older" / "data.mdb").read_bytes()
    at = rng.randrange(2, min(len(data), len(old)) // 4_096) * 4_096
    data[at : at + 4_096] = old[at : at + 4_096]
    _data(path).write_bytes(data)


def truncated(path: Path, rng: random.Random) -> None:
    os.truncate(_data(path), rng.randrange(_data(path).stat().st_size))


def garbage(path: Path, rng: random.Random) -> None:
    _data(path).write_bytes(rng.randbytes(rng.choice([0, 1, 100, 8_192, 50_000])))


def wrong_instance(path: Path, rng: random.Random) -> None:
    stamp = Stamp(rng.randint(0, 5), rng.randint(1, 10_000))
    _change(path, lambda txn: txn.put(keys.STAMP, keys.encode_stamp(stamp, INSTANCE + 1)))


def missing_stamp(path: Path, _: random.Random) -> None:
    _change(path, lambda txn: txn.delete(keys.STAMP))


def future_version(path: Path, rng: random.Random) -> None:
    def change(txn: lmdb.Transaction) -> None:
        value = bytearray(txn.get(keys.STAMP))
        value[7] = rng.randint(2, 255)
        txn.put(keys.STAMP, bytes(value))

    _change(path, change)


def not_writable(path: Path, rng: random.Random) -> None:
    """As root nothing is forbidden; what is in the way there does the same."""
    shutil.rmtree(path / "index")
    if rng.random() < 0.5:
        (path / "index").symlink_to(path / "journal" / "nowhere" / "index")
        path.chmod(0o500)
    else:
        (path / "index").mkdir()
        (path / "index" / "data.mdb").mkdir()


def half_rebuilt(path: Path, rng: random.Random) -> None:
    (path / "older").rename(path / "index.new")
    if rng.random() < 0.5:
        (path / "index").rename(path / "index.old")


def marked_open(path: Path, rng: random.Random) -> None:
    (path / "index" / "opened").write_bytes(rng.choice([b"1", b"2", b"3", b"", b"\xff", b"99999"]))


DAMAGES: Final = (
    deleted, file_deleted, _restored("older"), _restored("earlier-generation"), some_entries_lost,
    flipped_bits, flipped_bits, flipped_entry, scribbled_page, scribbled_page, stale_page,
    truncated, garbage, wrong_instance, missing_stamp, future_version, not_writable, half_rebuilt,
    marked_open, _restored("ahead"),
)  # fmt: skip
