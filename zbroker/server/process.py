"""What every process shares: settings, paths, a context, the link to the supervisor.

A process beats with its state and statistics (zbroker.server.ports.SupervisorPort says when); the
supervisor answers with Stop when it is time. When the supervisor dies the kernel ends its processes
(PDEATHSIG): none outlives it.

    starting --ready()--> ready --Stop or SIGTERM--> stopping --> exit 0
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import setproctitle
import zmq

from zbroker import sockets
from zbroker.clock import Clock, SystemClock
from zbroker.config import Config, LogConfig
from zbroker.errors import ConfigError
from zbroker.limits import BEAT_MS
from zbroker.paths import Paths
from zbroker.server.heap import Heap, keep_freed_memory
from zbroker.wire import codec
from zbroker.wire.supervision import Beat, Stop

EX_OK: Final = 0
EX_CONFIG: Final = 78  # sysexits: a wrong config is not retried
EX_STORAGE: Final = 74  # sysexits: I/O error; recovery decides at the next start
_PR_SET_PDEATHSIG: Final = 1

Stats = dict[str, int | float | str]


class Process:
    """A process as its loop sees it.

    `listen` is the public endpoint to bind, with a concrete port after the first start. supervised:
    not started by hand.
    """

    supervised = False

    def __init__(
        self, name: str, config: Config, paths: Paths, listen: str = "", clock: Clock | None = None
    ) -> None:
        self.name = name
        self.config = config
        self.paths = paths
        self.listen = listen
        self.clock: Clock = clock or SystemClock()
        self.incarnation = secrets.randbits(62) + 1
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.log = logging.getLogger(name)
        self.stats: Stats = {}
        self.heap = Heap()
        self.endpoint = ""
        self.stopping = False
        self.before_end: list[Callable[[], None]] = []  # called while the context is still there
        self._state = "starting"
        self._progress = ""
        self.next_beat_ms = 0
        self.link = sockets.dealer(self.context, paths.ipc("supervisor"))

    def ready(self, endpoint: str = "") -> None:
        """Announces that this process serves (at `endpoint`, if clients connect to it)."""
        if self.supervised and self._state == "starting":
            keep_freed_memory()  # not before: 2 MiB that LMDB never uses would be cleared by it
        self._state, self.endpoint, self.next_beat_ms = "ready", endpoint, 0
        self.turn()

    def progress(self, text: str) -> None:
        """Reports to the supervisor that starting goes on; its deadline counts from here."""
        self._progress, self.next_beat_ms = text, 0
        self.turn()

    def turn(self) -> None:
        """Beats if it is time, and reads what the supervisor says."""
        now_ms = self.clock.mono_ms()
        if now_ms >= self.next_beat_ms:
            self.next_beat_ms = now_ms + BEAT_MS
            beat = Beat(
                self.name,
                os.getpid(),
                self.incarnation,
                self._state,
                self._progress,
                self.endpoint,
                self.stats,
            )
            with suppress(zmq.Again):  # the supervisor is busy or gone; the next beat says the same
                self.link.send(codec.encode(beat), zmq.NOBLOCK)
        while (frames := sockets.receive(self.link)) is not None:
            if isinstance(codec.FROM_SUPERVISOR.decode(frames[0].buffer), Stop):
                self.stop()

    def stop(self) -> None:
        """Asks the loop to finish what was accepted and return."""
        self.stopping, self._state = True, "stopping"

    def wait_ms(self) -> int:
        """How long a loop may sleep before the next beat is due."""
        return max(0, min(BEAT_MS, self.next_beat_ms - self.clock.mono_ms()))

    def close(self) -> None:
        """Sends a last beat and closes every socket of this process."""
        self.next_beat_ms = 0
        self.turn()
        for each in self.before_end:
            each()
        self.context.destroy(linger=sockets.LINGER_MS)


def _raise_limit_of_files() -> None:
    """Each connection is a file; the usual limit of 1,024 is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the one with the pid `parent`, its parent, ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EX_OK)  # it died before the kernel knew what to do then


def become_process(name: str, parent: int, log_level: str = "INFO") -> None:
    """Sets up a child of the supervisor: name, signals, end with its parent, logging to stderr."""
    setproctitle.setproctitle(f"zbroker {name}")
    end_with_parent(parent)
    _raise_limit_of_files()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal sends it to all; the supervisor decides
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level,
        format=f"%(asctime)s %(levelname).1s {name}: %(message)s",
    )


_CODE: Final = re.compile(r"([a-z_]+\.[a-z0-9_]+): ")


class JsonLines(logging.Formatter):
    """One JSON object per record: `time` (UTC, RFC 3339), `level`, `room`, `code`, `message`, and
    what the message names, with its type. `code` is "" for a line that has none."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        found = _CODE.match(message)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": record.name,
            "code": getattr(record, "code", found[1] if found else ""),
            "message": message,
        }
        line["time"] = line["time"].replace("+00:00", "Z")
        values = record.args if isinstance(record.args, Mapping) else None
        line = {**(values or getattr(record, "values", {})), **line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logs(settings: LogConfig, name: str) -> None:
    """Sends what this process logs where the settings say. Raises: ConfigError."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.file:
        from logging.handlers import WatchedFileHandler  # brings pickle and queues

        try:
            handler = WatchedFileHandler(settings.file, encoding="utf-8")
        except OSError as error:
            reason = f"`log.file`: {settings.file}: {error.strerror}"
            raise ConfigError("bad_config", reason, "name a file in a folder that exists") from None
    text = f"%(asctime)s %(levelname).1s {name}: %(message)s"
    handler.setFormatter(JsonLines() if settings.format == "json" else logging.Formatter(text))
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
