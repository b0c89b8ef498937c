"""<data>/audit: changes and refusals, as lines of audit_format, the newest last.

Every line is on stable storage before its request is answered. The file is bounded: at
FILE_MAX_BYTES it becomes audit.1, in the place of an older one, and the chain goes on in a new one.
Refusals beyond REFUSED_MAX a minute are counted, in one line at the end of it, so that a
flood of requests does not fill the disk. A line that cannot be written is an error of the log and
costs the line only: an operator who has to make room on a full disk is not kept from it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from zbroker import durable_files
from zbroker.admin import audit_format as fmt
from zbroker.admin.process_link import PeriodicThread, ProcessLink
from zbroker.clock import Clock, format_time
from zbroker.errors import ClientError
from zbroker.limits import MIB
from zbroker.wire.surveys import AskRefusals, RefusalRows

FILE_MAX_BYTES: Final = 64 * MIB  # a quarter of a million lines
REFUSED_MAX: Final = 100  # lines of a minute
REFUSED_MS: Final = 60_000
VERIFY_MS: Final = 5_000  # a chain is read whole, so not more often than this
WHAT_MAX: Final = 500  # characters of a line; with NAME_MAX it fits fmt.LINE_MAX_BYTES
NAME_MAX: Final = 200
DONE: Final = "done"


class AuditedRequest(NamedTuple):
    """A request: the caller, its address, and what it asked for."""

    who: str
    origin: str
    what: str


class _Verified(NamedTuple):
    """Files as they were when they were read, and what was found."""

    state: tuple[tuple[int, int, int], ...]
    at_ms: int
    broken: str


class Audit:
    """Thread-safe."""

    def __init__(self, path: Path, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._refused_ms = self._refused = self._left_out = 0
        self._verified: _Verified | None = None
        self.refused: Counter[str] = Counter()  # by code, since the start
        self._prev, self._bytes = self._begin()

    @property
    def older(self) -> Path:
        """What the file was before it was full."""
        return self._path.with_name(self._path.name + ".1")

    def _begin(self) -> tuple[str, int]:
        """Continues after the last line; a torn one, left by a power cut, is cut off."""
        try:
            size = _cut_torn(self._path)
        except OSError as error:
            self._tell(error)
            return fmt.FIRST, 0
        last = _last(self._path) or _last(self.older)
        return (last.hash if last else fmt.FIRST), size

    # -- writing --------------------------------------------------------------------------------

    def write(self, asked: AuditedRequest, outcome: str) -> None:
        """A request that changed something or tried to. outcome: `done` or the code it ended in."""
        with self._lock:
            self._write(asked, outcome)

    def refuse(self, asked: AuditedRequest, code: str) -> None:
        """A request that was refused for want of rights."""
        with self._lock:
            self.refused[code] += 1
            self._end_minute()
            if self._refused == 0:
                self._refused_ms = self._clock.mono_ms()
            self._refused += 1
            if self._refused > REFUSED_MAX:
                self._left_out += 1
                return
            self._write(asked, code)

    def tick(self) -> None:
        """To be called now and then: writes how many lines were left out."""
        with self._lock:
            self._end_minute()

    def _end_minute(self) -> None:
        if self._refused and self._clock.mono_ms() - self._refused_ms >= REFUSED_MS:
            left_out, self._refused, self._left_out = self._left_out, 0, 0
            if left_out:
                self._write(AuditedRequest("", "", f"{left_out} more requests"), "refused")

    def _write(self, asked: AuditedRequest, outcome: str) -> None:
        time = format_time(self._clock.wall_ns())
        who, what = asked.who[:NAME_MAX], asked.what[:WHAT_MAX]
        line = fmt.AuditLine(time, who, asked.origin, what, outcome, self._prev)
        data, found = fmt.encode(line)
        try:
            if self._bytes and self._bytes + len(data) > FILE_MAX_BYTES:
                self._path.replace(self.older)
                self._bytes = 0
            durable_files.append(self._path, data)
        except OSError as error:
            self._tell(error)
            return
        self._prev = found
        self._bytes += len(data)

    def _tell(self, error: OSError) -> None:
        self._log.error("the audit log cannot be kept: %s; requests are served all the same", error)

    # -- reading --------------------------------------------------------------------------------

    def document(self, limit: int) -> dict[str, Any]:
        """The newest entries, and whether the chain is whole. `broken`: where it is not."""
        with self._lock:
            newest = self._newest(limit)
            broken = self._verify()
        entries = [msgspec.to_builtins(entry) for entry in newest]
        for entry in entries:
            del entry["prev"]  # the hash of the line before, which is shown there
        return {"entries": entries, "intact": not broken, "broken": broken or None}

    def _newest(self, limit: int) -> list[fmt.AuditEntry]:
        lines = deque(_tail(self._path, limit), maxlen=limit)
        if len(lines) < limit:
            lines.extendleft(reversed(_tail(self.older, limit - len(lines))))
        return [entry for line in reversed(lines) if (entry := fmt.decode(line)) is not None]

    def _verify(self) -> str:
        now_ms, state = self._clock.mono_ms(), tuple(map(_state, (self.older, self._path)))
        known = self._verified
        if known and (known.state == state or now_ms - known.at_ms < VERIFY_MS):
            return known.broken
        try:
            broken = verify(self._path)
        except OSError as error:
            broken = f"it cannot be read: {error.strerror}"
        last = _last(self._path)
        if not broken and self._bytes and (last is None or last.hash != self._prev):
            broken = f"{self._path.name}: its end was cut off or changed"
        self._verified = _Verified(state, now_ms, broken)
        return broken


def verify(path: Path) -> str:
    """The first line of audit.1 and audit that is not what was written; "" if all are.

    Raises: OSError.
    """
    older = path.with_name(path.name + ".1")
    prev = None if older.exists() else fmt.FIRST
    for each in (older, path):
        if not each.exists():
            continue
        with each.open("rb") as file:
            prev, broken = fmt.verify((line.rstrip(b"\n") for line in file), prev)
        if broken is not None:
            return f"{each.name}, line {broken.line}: {broken.why}"
    return ""


def _cut_torn(path: Path) -> int:
    """Cuts off what a power cut left of a line; the size of the file."""
    if not path.exists():
        return 0
    size = path.stat().st_size
    with path.open("r+b") as file:
        begin = file.seek(max(0, size - fmt.LINE_MAX_BYTES))
        whole = begin + file.read().rfind(b"\n") + 1
        if whole < size:
            file.truncate(whole)
    return whole


def _tail(path: Path, count: int) -> list[bytes]:
    """The last lines of a file, as many as it has."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - count * fmt.LINE_MAX_BYTES))
            return [line for line in file.read().split(b"\n") if line][-count:]
    except OSError:
        return []  # it does not exist yet, or the log says why


def _last(path: Path) -> fmt.AuditEntry | None:
    found = _tail(path, 1)
    return fmt.decode(found[0]) if found else None


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


class RefusalReports(PeriodicThread):
    """Writes what other processes refused for want of rights as lines of the audit log."""

    def __init__(self, links: Iterable[ProcessLink], audit: Audit) -> None:
        super().__init__("refusals")
        self._links = {process: link for link in links for process in link.processes}
        self._audit = audit
        self._seen = dict.fromkeys(self._links, 0)  # the newest number of each process

    def look(self) -> None:
        """Asks each process, and writes down what is new."""
        for process in self._seen:
            self.look_at(process)

    def look_at(self, process: str) -> None:
        """Asks one process."""
        try:
            ask = AskRefusals(0, self._seen[process])
            answer = self._links[process].ask(RefusalRows, ask, [process])[process]
        except ClientError:
            return  # too many questions, or the admin stops: asked again in a second
        if answer is None:
            return
        for row in answer.rows:
            line = AuditedRequest(row.who, row.origin, f"{process}: {row.what}")
            self._audit.refuse(line, row.code)
        if answer.left_out:
            line = AuditedRequest("", "", f"{process}: {answer.left_out} more requests")
            self._audit.refuse(line, "refused")
        self._seen[process] = answer.last
