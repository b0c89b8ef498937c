"""A broker for tests, notebooks and demos: real processes, real durability, nothing to set up.

    with zbroker.LocalBroker() as broker:
        broker.url, broker.data_dir, broker.pids

It runs `zbroker start` on free ports, with small segments, in a temporary directory that is removed
at the end unless `data_dir` is given. However the block ends, the processes are gone after it, also
when this program is killed: their supervisor holds the other end of a pipe.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from zbroker import memory_notes
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError
from zbroker.server.spawn import command
from zbroker.supervisor import directory

SEGMENT_SIZE: Final = "8MiB"  # so that roll-over happens in small runs too
START_S: Final = 60.0  # a second, but on a busy machine
STOP_S: Final = 40.0  # every process may take its ten seconds, in two steps, before it is killed
LOG_TAIL_LINES: Final = 20

Value = str | int | bool | Sequence[str | int]
Table = Mapping[str, Value]
Settings = Mapping[str, Table | Sequence[Table]]


class LocalBroker:
    """A running instance of one's own; closed by `close()` or at the end of a `with` block."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        settings: Settings | None = None,
        arguments: tuple[str, ...] = (),
        timeout: float = START_S,
    ) -> None:
        """Starts it, and returns when it serves.

        settings: tables of the config over the defaults: {"journal": {"time": "publisher"},
        "record": [{"topic": "orders"}], "queue": [{"name": "work", "topic": "orders"}]}.
        arguments: more options of `zbroker start`.
        Raises: ZBrokerError not_started, with the end of the log.
        """
        self._own = Path(tempfile.mkdtemp(prefix="zbroker-local-"))
        self.data_dir = Path(data_dir) if data_dir is not None else self._own / "data"
        self._log = self._own / "log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = self._spawn(settings or {}, arguments)
            # in case close() is forgotten: at the end of the program, or of this object
            self._finalizer = weakref.finalize(self, _end, self._process, self._own, self.data_dir)
            self.url = self._wait_ready(self._process, timeout)
        except BaseException:
            self.close()
            raise

    def _spawn(self, settings: Settings, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        config = self._own / "zbroker.toml"
        config.write_text(_toml(settings, self.data_dir))
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command(
                    "zbroker.cli.main",
                    "start",
                    "--until-stdin-closes",
                    "-c",
                    str(config),
                    *arguments,
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the user's program, which closes this one
            )

    def _wait_ready(self, process: subprocess.Popen[bytes], timeout: float) -> str:
        assert process.stdout is not None
        deadline = time.monotonic() + timeout
        line, output = b"", select.poll()  # `select` takes no descriptor above 1,023
        output.register(process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not output.poll(left * 1_000):
                raise self._not_started(f"not ready after {timeout:g} s")
            piece = process.stdout.read1(4096)  # type: ignore[attr-defined]
            if not piece:
                raise self._not_started(f"exit code {process.wait(STOP_S)}")
            line += piece
        return line.decode().split()[1]

    def _not_started(self, why: str) -> ZBrokerError:
        reason = f"the broker did not start: {why}\n{self.log_tail()}"
        return ZBrokerError("not_started", reason, "the lines above are the end of its log")

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines that its processes logged."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def status(self) -> dict[str, Any]:
        """What `zbroker-admin status --json` prints."""
        return self.ask("/status")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the admin's HTTP interface answers, to a POST if there is a body.

        Raises: ZBrokerError with its code. Source: docs/reference/admin.md.
        """
        running = json.loads((self.data_dir / "run" / "instance.json").read_text())
        admin = Admin(running["endpoints"]["admin"], self.data_dir)
        return admin.ask(path) if body is None else admin.tell(path, body)

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the supervisor and of its processes, by name."""
        return {one["room"]: one["pid"] for one in self.status()["processes"] if one["pid"]}

    def close(self) -> None:
        """Stops it, if it runs; removes what is temporary."""
        process, self._process = self._process, None
        if process is not None:
            _stop(process)
            self._finalizer.detach()
        if self._own.exists():
            _clean(self._own, self.data_dir)

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()  # its processes end with it
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _end(process: subprocess.Popen[bytes], own: Path, data: Path) -> None:
    """Stops a broker that was not closed."""
    _stop(process)
    _clean(own, data)


def _clean(own: Path, data: Path) -> None:
    """Removes what a broker left that is temporary: nothing knows an instance without its data."""
    directory.clean_after_kill(data)
    if data.is_relative_to(own):
        with suppress(ZBrokerError, OSError):
            if (instance := directory.read_identity(data)) is not None:
                memory_notes.remove(instance)
    shutil.rmtree(own, ignore_errors=True)  # leftovers are in a temporary place


def _toml(settings: Settings, data_dir: Path) -> str:
    """A config with free ports and small segments, and with `settings` over them."""
    tables: dict[str, dict[str, Value]] = {
        "instance": {"name": "local", "data_dir": str(data_dir.absolute())},
        "listen": {
            "ingest": "tcp://127.0.0.1:0",
            "delivery": "tcp://127.0.0.1:0",
            "queues": "tcp://127.0.0.1:0",
            "admin": "http://127.0.0.1:0",
        },
        "journal": {"segment_size": SEGMENT_SIZE, "preallocate": 1},
    }
    many: list[tuple[str, Table]] = []
    for name, given in settings.items():
        if isinstance(given, Mapping):
            tables.setdefault(name, {}).update(given)
        else:
            many += [(f"[[{name}]]", table) for table in given]
    lines = []
    for header, keys in [*((f"[{name}]", table) for name, table in tables.items()), *many]:
        lines.append(header)
        # JSON's strings, numbers, booleans and arrays are TOML's
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"
