"""A PostgreSQL server of one's own, in a temporary directory on a unix socket, that can be killed.

Its programs are Debian's; where they are missing and this is root, they are installed. The server
does not run as root, so then it runs as `postgres` or `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import pytest

from tests import waiting

START_S: Final = 60.0
INSTALL_S: Final = 300.0
USERS: Final = ("postgres", "nobody")
DATABASE: Final = "shop"
#: Debian would make and start a server for the whole machine
NO_CLUSTER: Final = "create_main_cluster = false\n"
SETTINGS: Final = {
    "listen_addresses": "", "shared_buffers": "16MB", "max_connections": "20",
    "fsync": "off",  # it is killed, but the machine keeps running
    "dynamic_shared_memory_type": "mmap",  # else each kill leaves a megabyte in /dev/shm
}  # fmt: skip


def programs() -> Path | None:
    """The directory of `initdb` and `postgres`; None: there is none."""
    on_path = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return Path(on_path).resolve().parent if on_path else found[-1].parent if found else None


def programs_or_skip() -> Path:
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs package psycopg")
    found = programs()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = programs()
    if found is None:
        pytest.skip("needs package postgresql")
    return found


def _install() -> None:
    cluster = Path("/etc/postgresql-common/createcluster.conf")
    cluster.parent.mkdir(exist_ok=True)
    if not cluster.exists():
        cluster.write_text(NO_CLUSTER)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    keep = ("-o", "Dpkg::Options::=--force-confold")
    for arguments in (("update", "-qq"), ("install", "-y", "-qq", *keep, "postgresql")):
        subprocess.run(["apt-get", *arguments], env=environment, timeout=INSTALL_S, check=False)


class PostgresServer:
    """Started by the constructor; stopped by `close`, or at the end of a `with` block."""

    def __init__(self, bin_dir: Path) -> None:
        self._bin = bin_dir
        self._user = next((each for each in USERS if _is_user(each)), None)
        # not below a directory of pytest, which other users may not enter
        self._place = Path(tempfile.mkdtemp(prefix="zbroker-postgres-"))
        self._data, self._process = self._place / "data", None  # type: subprocess.Popen[bytes] | None
        self.url = f"host={self._place} dbname={DATABASE} user=shop"
        try:
            if self._user is not None:
                shutil.chown(self._place, self._user)
            self._run(
                "initdb",
                "-D",
                str(self._data),
                "-U",
                "shop",
                "-A",
                "trust",
                "-N",
                "-E",
                "UTF8",
                "--locale=C",
            )
            self.start()
            self._run("createdb", "-h", str(self._place), "-U", "shop", DATABASE)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Returns when it takes connections."""
        settings = [f"-c{key}={value}" for key, value in SETTINGS.items()]
        where = [f"-cunix_socket_directories={self._place}", *settings]
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *where], user=self._user,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        waiting.until(self._is_ready, "PostgreSQL to start", START_S, 0.05)

    def kill(self) -> None:
        """SIGKILL to all of its processes, with whatever they are at. Each is in a session of its
        own, and one that is left keeps the next server from starting."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)  # it starts no more of them
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in map(int, children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait(START_S)
        waiting.until(lambda: not any(map(_runs, children)), "PostgreSQL to be gone", START_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # a killed one leaves its segment of memory
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(START_S)
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._place / "log").read_text()
        asked = ["-q", "-h", str(self._place), "-U", "shop", "-d", "postgres"]
        return subprocess.run([self._bin / "pg_isready", *asked], timeout=START_S).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], user=self._user, cwd="/", capture_output=True,
            timeout=START_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()


def _runs(pid: str) -> bool:
    """False if it is gone, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def _is_user(name: str) -> bool:
    """True if the server has to run as that, and can."""
    if os.geteuid() != 0:
        return False
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
