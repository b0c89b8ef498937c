"""The data directory of an instance: made, locked, and given its identity and keys.

lock flock; has the pid of its holder
instance.json   {"version": 1, "instance": "<16 hex digits>"}, made once, durable before use
run/            0700: token.key (32 bytes, 0600), instance.json of the running instance, sockets:
                the directory of its ipc sockets, which has a file `data` that names this one;
                disconnects.json: clients whose older tokens count no more
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

import zbroker
from zbroker import durable_files, endpoints
from zbroker.config import Config
from zbroker.errors import ConfigError, StorageError, ZBrokerError
from zbroker.paths import Paths, sockets_parent

VERSION: Final = 1  # of instance.json
TOKEN_KEY_BYTES: Final = 32
_OF: Final = "data"  # in the directory of sockets: whose it is


def lock(data: Path, *, shared: bool = False) -> int:
    """Makes and locks the data directory; the lock lasts as long as the returned descriptor.

    shared: for processes that are started by hand, side by side but not beside a supervisor.
    Raises: ZBrokerError already_running (with pid and path), ConfigError, StorageError io.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = f"the data directory {data} cannot be used: {error.strerror}"
        raise ConfigError("bad_config", reason, "see instance.data_dir and --data-dir") from None
    try:
        _take(descriptor, data, shared)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _take(descriptor: int, data: Path, shared: bool) -> None:
    doing = "lock"
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if not shared:
            doing = "write"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
        reason = f"{data} is used by the instance with pid {pid}"
        hint = f"stop it (kill {pid}), or use another --data-dir"
        raise ZBrokerError("already_running", reason, hint) from None
    except OSError as error:
        reason = f"{doing} {data / 'lock'}: {error.strerror}; nothing was started or changed"
        hint = "look at the disk, or set instance.data_dir to one that has space and can lock files"
        raise StorageError("io", reason, hint) from None


def prepare(config: Config, *, shared: bool = False) -> Paths:
    """The paths of the instance in a locked data directory, with all that processes expect there.

    shared: processes that are started by hand have their sockets in one place, and one key of
    tokens, which each of them reads when it begins.
    Raises: StorageError.
    """
    try:
        paths = config.paths(_identity(config.paths(0).identity))
        paths.run.mkdir(mode=0o700, exist_ok=True)
        paths.journal.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not shared:
            paths.running.unlink(missing_ok=True)  # of a killed one: its endpoints are not ours
        joins = shared and _are_ours(paths)
        if not (joins and paths.token_key.exists()):
            # a new one at each start: what an earlier one has let in, logs on again
            durable_files.write(paths.token_key, secrets.token_bytes(TOKEN_KEY_BYTES))
            paths.disconnects.unlink(missing_ok=True)  # about tokens of keys that are gone
        if not joins:
            _make_sockets(paths)  # after the key: a process that finds the sockets finds the key
    except OSError as error:
        raise StorageError("io", f"{error.filename or ''}: {error.strerror}") from None
    return replace(paths, known_sockets=paths.sockets)


def read_identity(data: Path) -> int | None:
    """The id of the instance in `data`, or None when there is none yet. Raises: StorageError."""
    path = data / "instance.json"
    try:
        found = json.loads(path.read_text())
        version, instance = int(found.get("version", VERSION)), int(found["instance"], 16)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "restore the file; the header of every segment also has the id"
        raise StorageError("damaged", f"{path} is damaged", hint) from None
    if version > VERSION:
        reason = f"{path} is of version {version}, this release knows {VERSION}"
        raise StorageError("unknown_version", reason, "start the release that made it")
    return instance


def identity(instance: int) -> str:
    """The content of instance.json."""
    return json.dumps({"version": VERSION, "instance": f"{instance:016x}"}) + "\n"


def _identity(path: Path) -> int:
    known = read_identity(path.parent)
    if known is not None:
        return known
    instance = secrets.randbits(63) | 1
    durable_files.write(path, identity(instance).encode())
    return instance


def _make_sockets(paths: Paths) -> None:
    """A new directory with a random name: other users may write to its parent, too.

    Also with a note of an earlier start: that may be a copy, of an instance that runs.
    """
    remove_sockets(paths)
    parent = sockets_parent()
    try:
        place = Path(tempfile.mkdtemp(prefix=f"zbroker-{os.getuid()}-", dir=parent))
    except OSError as error:
        reason = f"no directory for sockets can be made in {parent}: {error.strerror}"
        raise StorageError("sockets", reason, "set TMPDIR") from None
    (place / _OF).write_text(str(paths.data.resolve()))
    durable_files.replace(paths.sockets_note, f"{place}\n".encode())


def _are_ours(paths: Paths) -> bool:
    """Whether the note names a directory that only this user may enter, made for this one."""
    place = paths.sockets
    try:
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return False
        return (place / _OF).read_text() == str(paths.data.resolve())
    except OSError:
        return False


def remove_sockets(paths: Paths) -> None:
    """Removes the directory of the ipc sockets; one that is not of this instance stays."""
    if _are_ours(paths):
        shutil.rmtree(paths.sockets, ignore_errors=True)  # a leftover socket does no harm
    paths.sockets_note.unlink(missing_ok=True)


def write_running(paths: Paths, config: Config, started: str, bound: Mapping[str, str]) -> str:
    """Writes what the running instance says of itself; readers see the old text or the new one.

    bound: where its processes listen. Returns: its URL, "" while it has none.
    """
    host = config.listen.advertise
    advertised = {name: endpoints.advertised(at, host) for name, at in bound.items()}
    if "admin" in bound:
        advertised["admin"] = bound["admin"]  # loopback: an advertised host would not reach it
    ingest = advertised.get("ingest", "")
    url = endpoints.reached_from(ingest, "127.0.0.1") if ingest else ""
    running = {
        "instance": f"{paths.instance:016x}",
        "name": config.instance.name,
        "group": config.instance.group,
        "version": zbroker.__version__,
        "pid": os.getpid(),
        "url": url,
        "endpoints": advertised,
        "started": started,
    }
    durable_files.replace(paths.running, (json.dumps(running, indent=1) + "\n").encode())
    return url


def clean(paths: Paths) -> None:
    """Removes what only a running instance has."""
    paths.running.unlink(missing_ok=True)
    remove_sockets(paths)


def clean_after_kill(data: Path) -> None:
    """Removes the sockets that a killed instance left in `data`; those of a running one stay.

    It holds the lock meanwhile. Where it cannot, because the directory is in use, damaged or
    read-only, nothing is removed: leftover sockets do no harm.
    """
    with contextlib.suppress(ZBrokerError, OSError):
        instance = read_identity(data)
        if instance is None:
            return  # it was never used, and taking its lock would make it
        descriptor = lock(data)
        try:
            remove_sockets(Paths(data, data / "journal", data / "archive", instance))
        finally:
            os.close(descriptor)
