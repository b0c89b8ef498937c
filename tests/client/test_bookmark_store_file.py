"""The bookmark store in a file: its bytes, when it commits, and what is wrong with it."""

from __future__ import annotations

import subprocess
import sys
import threading

import lmdb
import pytest

from tests.client.fakes import wait_until
from tests.client.test_bookmark_store_progress import HERE, THERE, batch
from zbroker.client.bookmark_stores import file
from zbroker.client.bookmark_stores import format as records
from zbroker.client.bookmark_stores.file import FileBookmarkStore
from zbroker.client.bookmark_stores.format import BadRecord, Key
from zbroker.client.bookmark_stores.memory import Manner
from zbroker.client.bookmark_stores.progress import Reached
from zbroker.errors import StorageError, ZBrokerError

KEY = Key("pricer", "prices")
GO_ON = Manner(ignores_stored=False, auto=False, by_mark=False)
STATE = {HERE: Reached(300, (5, 7)), THERE: Reached(0)}

GOLDEN_KEY = "0163b554fd90f23c45fe932370ccf85d34"
GOLDEN_VALUE = "0f8183aa93a6707269636572a67072696365739294ccab01cd012c92050794cccd020090"


def discard_some(store, *positions):
    """A subscription that discards some of ten messages, and stays open."""
    tracking = store._track(KEY, GO_ON)
    tracking.begin({HERE: 0})
    messages = tracking.receive(batch(*range(1, 11)))
    for position in positions:
        tracking.discard(messages[position - 1])
    return tracking


def stored(path):
    """What the file holds, as another process would find it."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        value = txn.get(records.encode_key(KEY))
    return None if value is None else records.decode_state(records.encode_key(KEY), value)[1]


# -- bytes ----------------------------------------------------------------------------------------


def test_golden_bytes_never_change():
    assert records.encode_key(KEY).hex() == GOLDEN_KEY
    assert records.encode_state(KEY, STATE).hex() == GOLDEN_VALUE
    key, value = bytes.fromhex(GOLDEN_KEY), bytes.fromhex(GOLDEN_VALUE)
    assert records.decode_state(key, value) == (KEY, STATE)


@pytest.mark.parametrize("at", range(len(GOLDEN_VALUE) // 2))
def test_a_changed_byte_is_noticed(at):
    key, value = bytes.fromhex(GOLDEN_KEY), bytearray.fromhex(GOLDEN_VALUE)
    value[at] ^= 1
    assert isinstance(records.decode_state(key, bytes(value)), BadRecord)
    assert isinstance(records.decode_state(key, bytes(value[:at])), BadRecord)


def test_a_record_under_another_key_is_noticed():
    other = records.encode_key(Key("pricer", "others"))
    assert isinstance(records.decode_state(other, bytes.fromhex(GOLDEN_VALUE)), BadRecord)


def test_a_client_and_a_name_are_parted():
    assert records.encode_key(Key("a", "bc")) != records.encode_key(Key("ab", "c"))


# -- commits --------------------------------------------------------------------------------------


@pytest.mark.seed("002-28")
def test_what_was_discarded_is_there_when_it_is_opened_again(tmp_path):
    with FileBookmarkStore(tmp_path / "b") as store:
        discard_some(store, 1, 2, 4)
    with FileBookmarkStore(tmp_path / "b") as store:
        assert store.recent(*KEY) == "00000000000000ab.1.2"
        assert store._track(KEY, GO_ON).stored == {HERE: Reached(4, (3,))}
        assert store.recent("pricer", "other") is None


def test_a_thread_commits_what_changed(tmp_path):
    with FileBookmarkStore(tmp_path, commit="10ms") as store:
        tracking = discard_some(store, 1)
        wait_until(lambda: store._load(KEY) == {HERE: Reached(1)})
        tracking.advance({HERE: 10})
        tracking.discard(batch(*range(1, 11))[1])
        wait_until(lambda: store._load(KEY) == {HERE: Reached(2)})


def test_with_sync_each_discard_is_in_the_file_when_it_returns(tmp_path):
    with FileBookmarkStore(tmp_path, commit=3_600, sync=True) as store:
        discard_some(store, 1)
        assert store._load(KEY) == {HERE: Reached(1)}


def test_without_sync_it_waits_for_the_commit(tmp_path):
    with FileBookmarkStore(tmp_path, commit=3_600) as store:
        discard_some(store, 1)
        assert store._load(KEY) == {}
    assert stored(tmp_path) == {HERE: Reached(1)}


def test_discards_of_many_threads_are_all_stored(tmp_path):
    with FileBookmarkStore(tmp_path, commit="1ms") as store:
        tracking = store._track(KEY, GO_ON)
        messages = tracking.receive(batch(*range(1, 2_001)))
        threads = [
            threading.Thread(target=lambda n=n: [tracking.discard(m) for m in messages[n::4]])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert stored(tmp_path) == {HERE: Reached(2_000)}


def test_a_late_discard_of_a_closed_subscription_counts(tmp_path):
    with FileBookmarkStore(tmp_path) as store:
        tracking = discard_some(store, 1)
        tracking.ended = True
        tracking.check_current()
        tracking.discard(batch(1, 2)[1])
    assert stored(tmp_path) == {HERE: Reached(2)}


def test_who_lost_its_name_changes_nothing(tmp_path):
    with FileBookmarkStore(tmp_path) as store:
        old = discard_some(store, 1, 2)
        old.ended = True
        new = store._track(KEY, GO_ON)
        assert new.stored == {HERE: Reached(2)}
        new.begin({})
        old.discard(batch(*range(1, 11))[2])
        with pytest.raises(ZBrokerError, match="closed"):
            old.check_current()
    assert stored(tmp_path) == {HERE: Reached(2)}


def test_a_name_is_open_once(tmp_path):
    with FileBookmarkStore(tmp_path) as store:
        discard_some(store, 1)
        with pytest.raises(ZBrokerError, match="name_in_use"):
            store._track(KEY, GO_ON)
        with pytest.raises(ZBrokerError, match="name_in_use"):
            store.forget(*KEY)


def test_what_is_forgotten_is_gone_from_the_file(tmp_path):
    with FileBookmarkStore(tmp_path, sync=True) as store:
        discard_some(store, 1).ended = True
        store.forget(*KEY)
        assert store.recent(*KEY) is None
    assert stored(tmp_path) is None


def test_a_closed_store_takes_nothing(tmp_path):
    store = FileBookmarkStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(ZBrokerError, match="closed"):
        store._track(KEY, GO_ON)


# -- what is wrong --------------------------------------------------------------------------------


def test_a_second_writer_is_refused(tmp_path):
    with FileBookmarkStore(tmp_path), pytest.raises(StorageError, match="store_in_use"):
        FileBookmarkStore(tmp_path)
    FileBookmarkStore(tmp_path).close()


def test_a_second_process_is_refused(tmp_path):
    program = "import sys, zbroker; zbroker.FileBookmarkStore(sys.argv[1])"
    with FileBookmarkStore(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "store_in_use" in done.stderr


def put(path, key, value):
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        txn.put(key, value)


def cut(path):
    data = path / "data.mdb"
    data.write_bytes(data.read_bytes()[:-4_096])


def overwrite(path):
    data = path / "data.mdb"
    data.write_bytes(b"?" * data.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, "its header says"),
        (overwrite, "no two headers"),
        (lambda path: (path / "data.mdb").write_bytes(bytes(20_480)), "no two headers"),
        (lambda path: (path / "data.mdb").write_bytes(b"?"), "no two headers"),
        (lambda path: put(path, records.encode_key(KEY), b"12345678"), "checksum"),
        (lambda path: put(path, records.encode_key(KEY), b"1"), "has 1 bytes"),
        (lambda path: put(path, records.HEADER_KEY, b"other"), "no header"),
    ],
)
def test_damage_is_an_error_that_says_what_to_do(tmp_path, damage, why):
    with FileBookmarkStore(tmp_path) as store:
        discard_some(store, 1)
    damage(tmp_path)
    with pytest.raises(StorageError, match=why) as raised:
        FileBookmarkStore(tmp_path)
    assert raised.value.code == "store_damaged"
    assert "move the directory away" in raised.value.hint


def test_a_page_of_zeros_is_noticed_or_does_no_harm(tmp_path):
    with FileBookmarkStore(tmp_path) as store:
        discard_some(store, 1)
    data = tmp_path / "data.mdb"
    whole, found = data.read_bytes(), []
    for begin in range(0, len(whole), 4_096):
        data.write_bytes(whole[:begin] + bytes(4_096) + whole[begin + 4_096 :])
        found.append(recent_or_code(tmp_path))
    assert set(found) == {"00000000000000ab.1.1", "store_damaged"}


def recent_or_code(path):
    try:
        with FileBookmarkStore(path) as store:
            return store.recent(*KEY)
    except StorageError as error:
        return error.code


def test_a_version_that_does_not_exist_is_refused(tmp_path):
    FileBookmarkStore(tmp_path).close()
    put(tmp_path, records.HEADER_KEY, b"zbroker bookmark store" + b"\x63\x00\x00\x00")
    with pytest.raises(StorageError, match="it has version 99, this is 1"):
        FileBookmarkStore(tmp_path)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="store_failed"):
        FileBookmarkStore(tmp_path / "file")


def begin_all(store, trackings):
    """More than fits; returns when the thread has tried to write it."""
    for number, tracking in enumerate(trackings):
        tracking.begin({HERE: number})
    wait_until(lambda: store._failed)
    trackings[0].begin({HERE: 1_000})


def test_a_full_file_is_reported_at_the_next_discard(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "MAP_BYTES", 16_384)
    store = FileBookmarkStore(tmp_path, commit="1ms")
    trackings = [store._track(Key("pricer", f"s{n}"), GO_ON) for n in range(1_000)]
    trackings[0].begin({HERE: 1})
    with pytest.raises(StorageError, match="store_failed"):
        begin_all(store, trackings)
    with pytest.raises(StorageError, match="store_failed"):
        store.close()


@pytest.mark.parametrize("commit", [0, -1, "soon"])
def test_a_commit_interval_is_checked(tmp_path, commit):
    with pytest.raises(ZBrokerError, match="commit="):
        FileBookmarkStore(tmp_path, commit=commit)
    FileBookmarkStore(tmp_path).close()
