"""A publish store that is synced: what a power cut leaves of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import threading
from pathlib import Path

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.publisher.test_file_store import contents, number_of, pack, settle, stage
from tests.seed_counts import seed_count
from zbroker import aio
from zbroker.client import connect
from zbroker.client.publisher import mapped_queue, store_files
from zbroker.client.publisher.file_store import FileStore
from zbroker.errors import StorageError, ZBrokerError
from zbroker.log.disk import RealDisk


class Medium:
    """What is on the medium: contents by inode, and names. Nothing gets there but by a sync."""

    def __init__(self, directory: Path, monkeypatch) -> None:
        self.directory = directory
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        monkeypatch.setattr(mapped_queue, "flush", self.flush)
        monkeypatch.setattr(
            mapped_queue, "sync_directory", lambda path: path == directory and self.sync()
        )
        self.syncs = 0

    def flush(self, mapped) -> None:
        """A mapping has no name, so all staged files that look alike are taken: they are one."""
        self.syncs += 1
        data = mapped[:]
        for path in self.directory.glob(f"{mapped_queue.PREFIX}*"):
            if path.read_bytes() == data:
                self.contents[path.stat().st_ino] = data

    def file(self, name: str) -> None:
        path = self.directory / name
        self.contents[path.stat().st_ino] = path.read_bytes()

    def sync(self) -> None:
        self.names = {path.name: path.stat().st_ino for path in self.directory.iterdir()}

    def after_a_cut(self, to: Path) -> Path:
        """A directory with what is there when power is back."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        for name, inode in self.names.items():
            (to / name).write_bytes(self.contents.get(inode, b""))
        return to


class MediumDisk(RealDisk):
    """Its syncs bring files and names to the medium; one is informed of them."""

    def __init__(self, medium: Medium) -> None:
        super().__init__(medium.directory)
        self.medium = medium

    def sync(self, name: str) -> None:
        self.medium.file(name)

    def sync_dir(self) -> None:
        self.medium.sync()


@pytest.fixture
def medium(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_queue, "FILE_BYTES", 4_096)
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 32_768)
    directory = tmp_path / "store"
    directory.mkdir()
    return Medium(directory, monkeypatch)


def opened(medium, sync="each"):
    store = FileStore(medium.directory, "pricer", MediumDisk(medium), sync=sync)
    store.begin(1_000)
    return store


def owed(directory):
    """What the next life finds, and the number of the first of it."""
    store = FileStore(directory, "pricer")
    try:
        return [(first, list(map(number_of, many))) for first, _, many in contents(store)]
    finally:
        store.close()


def numbers(found):
    return [number for _, many in found for number in many]


@pytest.mark.seed("002-30")
@pytest.mark.parametrize("seed", range(seed_count(10, 200)))
def test_a_power_cut_at_any_point_loses_nothing_that_was_put(medium, seed, tmp_path):
    """Stages, packs, settles, and looks at the medium; sequences stay those that were sent."""
    rng = random.Random(seed)
    store, inbox, number, settled = opened(medium), [], 0, 0
    sequence_of: dict[int, int] = {}
    for _ in range(80):
        roll = rng.random()
        if roll < 0.5:
            many = range(number, number + rng.choice([1, 1, 5, 200]))
            stage(store, inbox, many)
            number = many[-1] + 1
        elif roll < 0.75 and inbox:
            if rng.random() < 0.1:
                store.begin(store.next_sequence + 50)
            batch = pack(store, inbox, rng.randint(1, len(inbox)), store.next_sequence)
            packed = number - len(inbox) - batch.count
            sequence_of |= {packed + at: batch.first + at for at in range(batch.count)}
        elif len(store.batches):
            count = rng.randint(1, len(store.batches))
            settled += sum(store.batches[index].count for index in range(count))
            settle(store, count)
        found = owed(medium.after_a_cut(tmp_path / "after"))
        left = numbers(found)
        assert left == list(range(number))[-len(left) :] if left else settled == number
        assert not left or left[0] <= settled, "what is not settled is there"
        for first, many in found:
            for at, one in enumerate(many):
                assert sequence_of.get(one, first + at) == first + at, "it was sent as another"
    store.close()


def test_without_syncs_a_power_cut_loses_what_was_put(medium, tmp_path):
    """So the test above can fail."""
    store = opened(medium, sync=60.0)
    stage(store, [], range(100))
    assert numbers(owed(medium.after_a_cut(tmp_path / "after"))) == []
    store.close()
    assert numbers(owed(medium.after_a_cut(tmp_path / "after"))) == list(range(100))


def test_an_interval_syncs_by_itself(medium, tmp_path, monkeypatch):
    synced = threading.Event()
    flush = medium.flush
    monkeypatch.setattr(mapped_queue, "flush", lambda mapped: (flush(mapped), synced.set()))
    store = opened(medium, sync=0.01)
    stage(store, [], range(100))
    assert synced.wait(T)
    store.close()
    assert numbers(owed(medium.after_a_cut(tmp_path / "after"))) == list(range(100))


def test_a_store_that_is_not_synced_syncs_nothing(medium, monkeypatch):
    monkeypatch.setattr(os, "fdatasync", None)
    monkeypatch.setattr(os, "fsync", None)
    store, inbox = FileStore(medium.directory, "pricer"), []
    store.begin(7)
    stage(store, inbox, range(2_000))
    while inbox:
        pack(store, inbox, min(100, len(inbox)), store.next_sequence)
        settle(store, len(store.batches))
    store.close()
    assert not medium.syncs


def test_many_that_are_put_at_once_are_synced_once(medium):
    store = opened(medium)
    before, inbox = medium.syncs, []
    stage(store, inbox, range(1))
    assert medium.syncs == before + 1
    store.staging.put_many(inbox, [inbox[0]] * 50)
    assert medium.syncs == before + 2
    store.staging.sync()
    assert medium.syncs == before + 2, "nothing is new"
    store.close()


def broken(*_arguments):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_sync_that_fails_is_reported_to_whoever_puts(medium, monkeypatch):
    store = opened(medium)
    with monkeypatch.context() as patched:
        patched.setattr(mapped_queue, "flush", broken)
        with pytest.raises(StorageError, match="disk_error"):
            stage(store, [], [1])
    with pytest.raises(StorageError, match="cannot be synced"):
        stage(store, [], [2])
    store.close()


def test_a_sync_of_an_interval_that_fails_is_logged(medium, monkeypatch, caplog):
    store = opened(medium, sync=60.0)
    monkeypatch.setattr(mapped_queue, "flush", broken)
    stage(store, [], [1])
    with caplog.at_level(logging.ERROR, "zbroker.client"):
        store.close()
    assert "client.store_not_synced" in caplog.text


@pytest.mark.seed("002-30")
@pytest.mark.parametrize("wish", ["each", "10ms", 0.01])
def test_a_client_publishes_with_a_synced_store(broker, tmp_path, wish):
    with connect(
        broker.url, "pricer", timeout=T, publish_store=tmp_path / "s", publish_sync=wish
    ) as client:
        client.publish("t", b"1", timeout=T)
        client.publish_many("t", [b"2", b"3"], timeout=T)
        client.flush(T)
    assert [row[3] for row in broker.log] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("wish", ["always", 0, -1, "5"])
def test_another_wish_is_refused(tmp_path, wish):
    with pytest.raises(ZBrokerError, match="publish_sync"):
        connect("tcp://127.0.0.1:1", "a", publish_store=tmp_path / "s", publish_sync=wish)


def test_a_store_in_memory_cannot_be_synced():
    with pytest.raises(ZBrokerError, match="publish_store in a directory"):
        connect("tcp://127.0.0.1:1", "a", publish_sync="each")


async def connected() -> None:
    await aio.connect("tcp://127.0.0.1:1", "a", publish_sync="each")


def test_the_asynchronous_client_has_the_same_option():
    with pytest.raises(ZBrokerError, match="publish_store in a directory"):
        asyncio.run(connected())
