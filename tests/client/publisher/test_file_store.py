"""The publish store in a directory: what a kill leaves is what was in it, and nothing else."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress

import pytest

from tests.client.fakes import WAIT_S as T
from tests.seed_counts import seed_count
from zbroker.client import connect
from zbroker.client.bookmark_stores.file import FileBookmarkStore
from zbroker.client.publisher import file_store, mapped_queue, packer, publisher, store_files
from zbroker.client.publisher.file_store import FileStore
from zbroker.client.publisher.packer import Extra
from zbroker.client.publisher.receipt import AckTracker, Receipt
from zbroker.errors import StorageError, ZBrokerError
from zbroker.log.segments import segment_name
from zbroker.wire import bodies


def receipt(number, topic="t", **more):
    return Receipt(AckTracker(1), topic, b"%d" % number, **more)


def stage(store, inbox, numbers, **more):
    for number in numbers:
        store.staging.put(inbox, receipt(number, **more))


def pack(store, inbox, count, first, prev=None):
    """What the I/O thread does with the oldest `count` messages."""
    batch = packer.pack(packer.rows(inbox[:count]))
    del inbox[:count]
    batch.first, batch.last = first, first + count - 1
    batch.prev = first - 1 if prev is None else prev
    store.append(batch)
    return batch


def settle(store, batches):
    for _ in range(batches):
        store.recorded = store.popleft().last
    store.settled()


def contents(store):
    """(first, prev, payloads) of each batch, as it would be sent."""
    loaded = [store.load(index) for index in range(len(store.batches))]
    return [(b.first, b.prev, bodies.unpack(b.body, None, b.count, 1 << 24)) for b in loaded]


def texts(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def opened(directory):
    """Opens the store again and again, as its processes come and go; each one is killed."""
    stores = []

    def again(client="pricer"):
        for store in stores:
            store._disk.close()  # the lock ends with its process
        stores.append(FileStore(directory, client))
        stores[-1].begin(1)
        return stores[-1]

    yield again
    for store in stores:
        store.close()


def test_a_new_store_begins_where_it_is_asked(opened):
    store = opened()
    assert (len(store.batches), store.next_sequence, store.recorded) == (0, 1, 0)


@pytest.mark.seed("002-30")
def test_staged_messages_are_batches_in_the_next_life(opened):
    store = opened()
    stage(store, [], range(10))
    kept = opened()
    assert kept.messages == 10
    assert [data for _, _, many in contents(kept) for data in many] == texts(0, 9)


def test_batches_come_back_as_they_were_and_what_was_staged_after_them(opened):
    store, inbox = opened(), []
    stage(store, inbox, range(10))
    sent = pack(store, inbox, 4, 100, prev=7)
    pack(store, inbox, 3, 104)
    kept = opened()
    assert contents(kept) == [
        (100, 7, texts(0, 3)),
        (104, 103, texts(4, 6)),
        (107, 106, texts(7, 9)),
    ]
    again = kept.load(0)
    assert (again.body, again.crc, again.topic, again.columns) == (
        sent.body, sent.crc, "t", None,
    )  # fmt: skip
    assert kept.next_sequence == 110


@pytest.mark.seed("002-32")
def test_what_is_settled_does_not_come_back(opened):
    store, inbox = opened(), []
    stage(store, inbox, range(10))
    for first in (100, 104):
        pack(store, inbox, 4, first)
    settle(store, 1)
    kept = opened()
    assert contents(kept) == [(104, 103, texts(4, 7)), (108, 107, texts(8, 9))]
    assert kept.recorded == 103


@pytest.mark.seed("002-11")
def test_numbers_go_on_when_all_is_settled(opened):
    store, inbox = opened(), []
    stage(store, inbox, range(4))
    pack(store, inbox, 4, 100)
    settle(store, 1)
    kept = opened()
    assert (len(kept.batches), kept.next_sequence, kept.recorded) == (0, 104, 103)


def test_a_message_keeps_all_that_it_has(opened):
    store, inbox = opened(), []
    extra = Extra(b"k", {"a": 1, "b": None}, 99)
    stage(store, inbox, [1], topic="u", time=5, extra=extra)
    stage(store, inbox, [2], topic="v")
    kept = opened()
    batches = [kept.load(index) for index in range(len(kept.batches))]
    assert [batch.topic for batch in batches] == ["u", "v"]
    first = batches[0].columns
    assert bodies.times(first.time)[0] == 5
    assert first.keys is not None
    assert first.headers is not None
    assert first.expiry is not None
    assert [data for _, _, many in contents(kept) for data in many] == [b"1", b"2"]


def test_many_are_staged_at_once_with_their_times(opened):
    store, inbox = opened(), []
    store.staging.put_many(inbox, [receipt(number, time=number) for number in range(5)])
    store.staging.put_many(inbox, [receipt(number) for number in range(5, 8)])
    kept = opened()
    assert [data for _, _, many in contents(kept) for data in many] == texts(0, 7)
    assert list(bodies.times(kept.load(0).columns.time)) == list(range(5))


def test_staged_files_are_used_again_and_never_read_twice(opened, directory, monkeypatch):
    monkeypatch.setattr(mapped_queue, "FILE_BYTES", 4_096)
    store, inbox = opened(), []
    number = 0
    for round_ in range(60):
        stage(store, inbox, range(number, number + 50))
        number += 50
        pack(store, inbox, 40 if round_ % 2 else 60 if len(inbox) >= 60 else 30, 0 or number)
    assert len(list(directory.glob("staged-*"))) < 8
    staged = list(inbox)
    kept = opened()
    (tail,) = contents(kept)[-1:]
    assert tail[2] == [item.value for item in staged]


def test_a_message_larger_than_a_staged_file_has_one_of_its_own(opened, monkeypatch):
    monkeypatch.setattr(mapped_queue, "FILE_BYTES", 4_096)
    store, inbox = opened(), []
    store.staging.put(inbox, Receipt(AckTracker(1), "t", b"x" * 10_000))
    stage(store, inbox, range(3))
    kept = opened()
    assert [len(data) for _, _, many in contents(kept) for data in many] == [10_000, 1, 1, 1]


def test_a_torn_record_ends_what_was_staged(opened, directory):
    store = opened()
    stage(store, [], range(10))
    (path,) = directory.glob("staged-*")
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    rng = random.Random(1)
    for _ in range(200):
        cut = rng.randrange(end)
        torn = bytearray(whole)
        torn[cut : cut + rng.randrange(1, 40)] = b"\0" * min(40, end - cut)
        messages = [item.value for item in mapped_queue._read(bytes(torn), 1)]
        assert messages == texts(0, len(messages) - 1), "never another message than was given"


def test_a_missing_staged_file_is_a_loud_error(opened, directory, monkeypatch):
    monkeypatch.setattr(mapped_queue, "FILE_BYTES", 4_096)
    stage(opened(), [], range(1_000))
    sorted(directory.glob("staged-*"))[1].unlink()
    with pytest.raises(StorageError, match="store_damaged"):
        opened()


def test_a_torn_group_at_the_end_is_not_a_batch(opened, directory):
    store, inbox = opened(), []
    stage(store, inbox, range(8))
    pack(store, inbox, 4, 100)
    torn = pack(store, inbox, 4, 104)
    serial, offset, length = torn.place
    with (directory / segment_name(serial)).open("r+b") as file:
        file.seek(offset + length - 8)
        file.write(b"\0" * 8)
    kept = opened()
    assert contents(kept)[0] == (100, 99, texts(0, 3))
    assert [data for _, _, many in contents(kept) for data in many] == texts(0, 7)


def test_a_damaged_batch_before_the_end_is_a_loud_error(opened, directory):
    store, inbox = opened(), []
    stage(store, inbox, range(12))
    bad = pack(store, inbox, 4, 100)
    pack(store, inbox, 4, 104)
    serial, offset, length = bad.place
    with (directory / segment_name(serial)).open("r+b") as file:
        file.seek(offset + length - 8)
        file.write(b"\xff")
    with pytest.raises(StorageError, match="store_damaged"):
        opened()


def test_segments_go_when_all_in_them_is_settled(opened, directory, monkeypatch):
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 32_768)
    store, inbox = opened(), []
    body = b"x" * 1_000
    for first in range(1, 401, 4):
        store.staging.put_many(inbox, [Receipt(AckTracker(1), "t", body) for _ in range(4)])
        pack(store, inbox, 4, first)
    files = len(list(directory.glob("*.journal")))
    assert files > 5
    settle(store, 60)
    kept = opened()
    assert len(list(directory.glob("*.journal"))) < files
    assert kept.messages == 160
    settle(kept, len(kept.batches))
    assert len(list(directory.glob("*.journal"))) == 1
    assert opened().next_sequence == 401


def test_bodies_beyond_the_bound_are_read_from_the_file(opened, monkeypatch):
    monkeypatch.setattr(file_store, "RESIDENT_BYTES", 100)
    store, inbox = opened(), []
    stage(store, inbox, range(300))
    for first in range(1, 301, 30):
        pack(store, inbox, 30, first)
    assert sum(bool(store.batches[index].body) for index in range(len(store.batches))) < 5
    assert [data for _, _, many in contents(store) for data in many] == texts(0, 299)


def test_it_knows_that_the_machine_was_started_since(opened, directory, monkeypatch, tmp_path):
    assert opened().may_lag, "who wrote before is not known"
    assert not opened().may_lag
    other = tmp_path / "boot"
    other.write_text("another run\n")
    monkeypatch.setattr(store_files, "BOOT_ID", other)
    assert opened().may_lag
    assert not opened().may_lag


def test_one_client_at_a_time_has_it_open(opened, directory):
    opened()
    with pytest.raises(ZBrokerError, match=rf"store_in_use.*{os.getpid()}"):
        FileStore(directory, "pricer")


def test_it_belongs_to_one_client(opened):
    opened("pricer")
    with pytest.raises(ZBrokerError, match=r"belongs to the client 'pricer'"):
        opened("other")
    opened("pricer")


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(StorageError):
        FileStore(path, "pricer")


def fill(client):
    for number in range(1_000_000):
        client.publish("t", b"%d" % number + b"x" * 1_000, timeout=0)


@pytest.mark.parametrize("seed", range(seed_count(10, 100)))
def test_any_history_keeps_what_is_owed(opened, seed, monkeypatch):
    """Stages, packs, settles and dies at random; compared with a list."""
    monkeypatch.setattr(mapped_queue, "FILE_BYTES", 4_096)
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 32_768)
    rng = random.Random(seed)
    store, inbox, owed, number = opened(), [], [], 0
    for _ in range(150):
        roll = rng.random()
        if roll < 0.5:
            many = range(number, number + rng.choice([1, 1, 5, 300]))
            stage(store, inbox, many)
            owed += texts(many[0], many[-1])
            number = many[-1] + 1
        elif roll < 0.75 and inbox:
            pack(store, inbox, rng.randint(1, len(inbox)), max(store.next_sequence, 1))
        elif roll < 0.9 and len(store.batches):
            count = rng.randint(1, len(store.batches))
            del owed[: sum(store.batches[index].count for index in range(count))]
            settle(store, count)
        elif roll > 0.95:
            store, inbox = opened(), []
    found = contents(opened())
    assert [data for _, _, many in found for data in many] == owed
    follows = [first for first, _, _ in found][1:]
    assert follows == [first + len(many) for first, _, many in found][:-1]


class Budget:
    """A disk on which only so many bytes can be reserved at a time."""

    def __init__(self, directory, most):
        self.directory, self.most = directory, most
        self.reserve = os.posix_fallocate

    def __call__(self, fd, offset, size):
        used = 0
        for path in self.directory.iterdir():
            with suppress(FileNotFoundError):  # the I/O thread removes and renames meanwhile
                used += path.stat().st_size
        if used + size > self.most:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.reserve(fd, offset, size)


def stage_until_full(store, inbox, number):
    """What an application does that is faster than the I/O thread. The next number to stage."""
    with suppress(StorageError):
        while True:
            store.staging.put(inbox, Receipt(AckTracker(1), "t", b"%d" % number + b"x" * 1_000))
            number += 1
    return number


@pytest.mark.long
def test_what_is_staged_never_takes_the_space_that_packing_needs(directory, monkeypatch, opened):
    """However much of the disk it gets: what the broker has acknowledged makes room."""
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 2 << 20)
    directory.mkdir()
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, 16 << 20))
    store, inbox, number, sent = opened(), [], 0, []
    for _ in range(40):
        number = stage_until_full(store, inbox, number)
        while inbox and store.secure(1 << 19):
            batch = pack(store, inbox, min(500, len(inbox)), store.next_sequence)
            sent += bodies.unpack(batch.body, None, batch.count, 1 << 24)
        settle(store, len(store.batches))
    assert len(sent) > 20_000
    assert [int(data.rstrip(b"x")) for data in sent] == list(range(len(sent)))


def test_a_store_that_cannot_have_its_space_says_so(directory, monkeypatch):
    directory.mkdir()
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, 6 << 20))
    with pytest.raises(StorageError, match="disk_full"):
        FileStore(directory, "pricer")


def test_a_full_disk_holds_up_publishing_which_goes_on_by_itself(
    broker, directory, tmp_path, monkeypatch
):
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 2 << 20)
    monkeypatch.setattr(publisher, "SPACE_AGAIN_MS", 10)
    directory.mkdir()
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, 12 << 20))
    broker.hold = True
    with connect(broker.url, "pricer", timeout=T, publish_store=directory) as client:
        with pytest.raises(ZBrokerError, match=r"store_full.*(is full|No space)"):
            fill(client)
        count = client.unpersisted
        broker.release()
        client.publish("t", b"last", timeout=T)
        client.flush(T)
    numbers = [int(row[3].rstrip(b"x")) for row in broker.log[:-1]]
    assert numbers == list(range(count))
    assert broker.log[-1][3] == b"last"


# -- a store that is opened on a full disk ----------------------------------------------------


def number_of(data):
    return int(data.rstrip(b"x"))


def everything(store):
    """All that is owed, in order: what is in batches, then what is still staged."""
    batches = [data for _, _, many in contents(store) for data in many]
    return [number_of(data) for data in [*batches, *(one.value for one in store.leftover)]]


@pytest.fixture
def full(directory, monkeypatch):
    """A directory that a killed publisher filled, on a disk that stays full; how many it has."""
    monkeypatch.setattr(store_files, "SEGMENT_BYTES", 1 << 20)
    directory.mkdir()
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, 7 << 20))
    store, inbox, count = FileStore(directory, "pricer"), [], 0
    for _ in range(20):
        count = stage_until_full(store, inbox, count)
        while inbox and store.secure(1 << 18):
            pack(store, inbox, min(200, len(inbox)), max(store.next_sequence, 1))
    store.close()
    used = sum(path.stat().st_size for path in directory.iterdir())
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, used))
    return count


def test_a_store_on_a_full_disk_opens_with_all_that_it_owes(full, opened):
    store = opened()
    assert store.leftover, "not all of it found space"
    assert everything(store) == list(range(full))
    assert everything(opened()) == list(range(full)), "and again"


def test_a_store_on_a_full_disk_drains_as_the_broker_makes_process(full, opened):
    store, sent = opened(), []
    inbox = [Receipt(AckTracker(1), "t", one.value) for one in store.leftover]
    while inbox or len(store.batches):
        sent += [data for _, _, many in contents(store) for data in many]
        settle(store, len(store.batches))
        while inbox and store.secure(1 << 18):
            pack(store, inbox, min(200, len(inbox)), store.next_sequence)
        assert len(store.batches) or not inbox, "there is always room for one more"
    assert list(map(number_of, sent)) == list(range(full))


def test_what_is_published_after_that_comes_after_it(full, opened, monkeypatch):
    store = opened()
    inbox = [Receipt(AckTracker(1), "t", one.value) for one in store.leftover]
    monkeypatch.undo()
    stage(store, inbox, [full, full + 1])
    assert everything(opened()) == list(range(full + 2))


def test_files_of_staged_messages_go_when_those_are_packed(full, opened, directory, monkeypatch):
    store = opened()
    monkeypatch.undo()
    inbox = [Receipt(AckTracker(1), "t", one.value) for one in store.leftover]
    while inbox:
        pack(store, inbox, min(200, len(inbox)), store.next_sequence)
    kept = sorted(directory.glob(f"{mapped_queue.PREFIX}*"))
    assert len(kept) <= 1 + mapped_queue.SPARES_MAX
    assert everything(opened()) == list(range(full))


def test_the_next_client_on_a_full_disk_publishes_it(full, broker, directory, monkeypatch):
    monkeypatch.setattr(publisher, "SPACE_AGAIN_MS", 10)
    with connect(broker.url, "pricer", timeout=T, publish_store=directory) as client:
        client.flush(T)
        client.publish("t", b"%d" % full, timeout=T)
        client.flush(T)
    assert [number_of(row[3]) for row in broker.log] == list(range(full + 1))


def test_an_empty_store_says_that_it_has_no_space(opened, directory, monkeypatch):
    opened().close()
    monkeypatch.setattr(os, "posix_fallocate", Budget(directory, 1))
    for path in directory.glob("next*"):
        path.unlink()
    with pytest.raises(StorageError, match="disk_full"):
        opened()


def test_a_boot_of_the_machine_is_noted_without_new_space(opened, monkeypatch, tmp_path):
    opened().close()
    boot = tmp_path / "boot"
    boot.write_text("other-boot")
    monkeypatch.setattr(store_files, "BOOT_ID", boot)
    monkeypatch.setattr(store_files.CacheDisk, "create", None)
    assert opened().may_lag


@pytest.mark.parametrize("make", [FileStore, lambda path, _name: FileBookmarkStore(path)])
def test_a_directory_that_is_made_belongs_to_its_user_alone(make, tmp_path):
    store = make(tmp_path / "new" / "store", "pricer")
    store.close()
    assert (tmp_path / "new" / "store").stat().st_mode & 0o777 == 0o700
    files = [path for path in (tmp_path / "new" / "store").iterdir() if path.is_file()]
    assert not [path for path in files if path.stat().st_mode & 0o077]
