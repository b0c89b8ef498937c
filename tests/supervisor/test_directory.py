"""zbroker/supervisor/directory.py: the data directory, its lock, identity and keys."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from zbroker import config
from zbroker.config import Config
from zbroker.errors import ConfigError, StorageError, ZBrokerError
from zbroker.supervisor import directory


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Config]:
    settings = config.load(None, {"instance.data_dir": str(tmp_path / "data")})
    yield settings
    with contextlib.suppress(StorageError):
        if instance := directory.read_identity(tmp_path / "data"):
            directory.clean(settings.paths(instance))


@pytest.fixture
def locked(settings: Config) -> Iterator[Config]:
    descriptor = directory.lock(settings.paths(0).data)
    yield settings
    os.close(descriptor)


def test_a_second_lock_says_pid_and_path(locked: Config) -> None:
    data = locked.paths(0).data
    with pytest.raises(
        ZBrokerError, match=f"{data} is used by the instance with pid {os.getpid()}"
    ):
        directory.lock(data)


def test_processes_by_hand_do_not_run_beside_a_supervisor(locked: Config) -> None:
    with pytest.raises(ZBrokerError, match="already_running"):
        directory.lock(locked.paths(0).data, shared=True)


def test_processes_by_hand_run_side_by_side(settings: Config) -> None:
    data = settings.paths(0).data
    for descriptor in [directory.lock(data, shared=True), directory.lock(data, shared=True)]:
        os.close(descriptor)


def test_a_place_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        directory.lock(tmp_path / "file" / "data")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("shared", [True, False])
def test_a_file_system_that_cannot_lock_is_not_taken_for_a_running_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    def flock(_: int, __: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    before = descriptors()
    with pytest.raises(StorageError, match=f"lock {tmp_path}/lock: No locks") as caught:
        directory.lock(tmp_path, shared=shared)
    assert caught.value.code == "io"
    assert "data_dir" in caught.value.hint
    assert descriptors() == before


def test_a_lock_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("/dev/full")
    before = descriptors()
    with pytest.raises(StorageError, match=f"write {tmp_path}/lock: ") as caught:
        directory.lock(tmp_path)
    assert caught.value.code == "io"
    assert descriptors() == before


def test_an_identity_is_made_once(locked: Config) -> None:
    first = directory.prepare(locked)
    second = directory.prepare(locked)
    assert first.instance == second.instance == directory.read_identity(first.data) != 0


def test_a_damaged_identity_is_never_replaced(locked: Config) -> None:
    identity = locked.paths(0).identity
    identity.write_text('{"instance": "not hex"}')
    with pytest.raises(StorageError, match="is damaged"):
        directory.prepare(locked)
    assert identity.read_text() == '{"instance": "not hex"}'


def test_tokens_of_an_earlier_start_count_no_more(locked: Config) -> None:
    paths = directory.prepare(locked)
    key = paths.token_key.read_bytes()
    paths.disconnects.touch()
    directory.prepare(locked)
    assert not paths.disconnects.exists(), "it says which tokens of that start count"
    assert paths.token_key.read_bytes() != key
    assert len(key) == directory.TOKEN_KEY_BYTES


def test_only_the_owner_may_enter_or_read(locked: Config) -> None:
    paths = directory.prepare(locked)
    for place in (paths.data, paths.run, paths.journal, paths.sockets):
        assert place.stat().st_mode & 0o777 == 0o700
    for file in (paths.token_key, paths.identity, paths.lock):
        assert file.stat().st_mode & 0o777 == 0o600


def test_each_start_has_a_socket_directory_that_no_one_could_guess(locked: Config) -> None:
    first = directory.prepare(locked).sockets
    second = directory.prepare(locked).sockets
    assert first != second
    assert not first.exists()
    assert second.is_dir()


def test_a_foreign_directory_neither_prevents_a_start_nor_is_removed(
    locked: Config, tmp_path: Path
) -> None:
    """Whatever the note names: another user may have made it after the last stop."""
    paths = directory.prepare(locked)
    directory.clean(paths)
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o755)
    paths.sockets_note.write_text(f"{foreign}\n")
    again = directory.prepare(locked)
    assert again.sockets != foreign
    again.sockets_note.write_text(f"{foreign}\n")
    directory.clean(again)
    assert foreign.is_dir()


def test_a_copy_of_a_running_instance_has_sockets_of_its_own(
    locked: Config, tmp_path: Path
) -> None:
    original = directory.prepare(locked)
    shutil.copytree(original.data, tmp_path / "copy")
    copy = config.load(None, {"instance.data_dir": str(tmp_path / "copy")})
    for shared in (True, False):
        found = directory.prepare(copy, shared=shared)
        assert found.sockets != original.sockets
        assert original.sockets.is_dir()
    directory.clean(found)


def test_processes_that_are_started_by_hand_share_their_sockets(locked: Config) -> None:
    first = directory.prepare(locked, shared=True).sockets
    assert directory.prepare(locked, shared=True).sockets == first
    first.chmod(0o755)
    assert directory.prepare(locked, shared=True).sockets != first
    shutil.rmtree(first)


def test_processes_that_are_started_by_hand_share_the_key_of_tokens(locked: Config) -> None:
    """Each reads it when it begins: a token that ingest makes counts in those started later."""
    paths = directory.prepare(locked, shared=True)
    key = paths.token_key.read_bytes()
    paths.disconnects.touch()
    assert directory.prepare(locked, shared=True).token_key.read_bytes() == key
    assert paths.disconnects.exists(), "tokens that it ended would count again"
    paths.token_key.unlink()
    directory.prepare(locked, shared=True)
    assert len(paths.token_key.read_bytes()) == directory.TOKEN_KEY_BYTES
    assert not paths.disconnects.exists()
    directory.remove_sockets(paths)


def test_sockets_that_cannot_be_made_are_reported(
    locked: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(directory, "sockets_parent", lambda: tmp_path / "missing")
    with pytest.raises(StorageError, match="no directory for sockets can be made") as caught:
        directory.prepare(locked)
    assert caught.value.code == "sockets"


def test_a_running_instance_says_where_it_is_reached(locked: Config) -> None:
    paths = directory.prepare(locked)
    bound = {"ingest": "tcp://0.0.0.0:9101", "admin": "http://127.0.0.1:9105"}
    assert directory.write_running(paths, locked, "then", bound) == "tcp://127.0.0.1:9101"
    found = json.loads(paths.running.read_text())
    assert found["endpoints"] == {"ingest": "tcp://*:9101", "admin": "http://127.0.0.1:9105"}
    assert (found["url"], found["started"]) == ("tcp://127.0.0.1:9101", "then")


def test_an_instance_may_advertise_another_host(locked: Config) -> None:
    settings = replace(locked, listen=replace(locked.listen, advertise="broker.example"))
    paths = directory.prepare(settings)
    bound = {"ingest": "tcp://0.0.0.0:9101", "admin": "http://127.0.0.1:9105"}
    assert directory.write_running(paths, settings, "", bound) == "tcp://broker.example:9101"
    found = json.loads(paths.running.read_text())["endpoints"]
    assert found["admin"] == "http://127.0.0.1:9105", "loopback: no other host reaches it"


def test_an_instance_without_endpoints_has_no_url(locked: Config) -> None:
    assert directory.write_running(directory.prepare(locked), locked, "", {}) == ""


def test_cleaning_leaves_nothing_of_a_running_instance(locked: Config) -> None:
    paths = directory.prepare(locked)
    directory.write_running(paths, locked, "", {})
    directory.clean(paths)
    assert not paths.running.exists()
    assert not paths.sockets.exists()
    assert paths.identity.exists()


def test_sockets_of_a_killed_instance_are_removed(settings: Config) -> None:
    descriptor = directory.lock(settings.paths(0).data)
    paths = directory.prepare(settings)
    os.close(descriptor)
    directory.clean_after_kill(paths.data)
    assert not paths.sockets_note.exists()
    os.close(directory.lock(paths.data))  # it is free for the next one


def test_sockets_of_a_running_instance_stay(locked: Config) -> None:
    paths = directory.prepare(locked)
    directory.clean_after_kill(paths.data)
    assert paths.sockets.is_dir()
    assert paths.lock.read_text() == f"{os.getpid()}\n"


def test_cleaning_does_not_make_a_directory(tmp_path: Path) -> None:
    directory.clean_after_kill(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_cleaning_a_damaged_directory_changes_nothing(locked: Config) -> None:
    paths = directory.prepare(locked)
    identity = paths.identity.read_text()
    paths.identity.write_text("{")
    directory.clean_after_kill(paths.data)
    assert paths.sockets.is_dir()
    paths.identity.write_text(identity)


def test_an_unused_place_has_no_identity(tmp_path: Path) -> None:
    assert directory.read_identity(tmp_path) is None


def test_an_identity_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text('{"version": 2, "instance": "0000000000000007"}')
    with pytest.raises(StorageError, match="unknown_version"):
        directory.read_identity(tmp_path)


def test_an_identity_without_a_version_is_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text('{"instance": "0000000000000007"}')
    assert directory.read_identity(tmp_path) == 7
