"""The access file of an instance, read again when it changes.

What cannot be read, or is not whole, changes nothing: the rules before it hold on.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

from zbroker.access.core import Access
from zbroker.access.format import FILE_MAX_BYTES, parse
from zbroker.clock import Clock
from zbroker.errors import ConfigError

LOOK_MS: Final = 200
YOUNG_NS: Final = 2_000_000_000  # a file may change again within one tick of its times

Stamp = tuple[int, ...]  # what differs if a file was changed or replaced


class AccessFile:
    """The rules as they are now.

    version: counts the changes, from 1; 0 without a file. problem: why the file as it is now is
    not used, "" if it is.
    """

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        """Raises: ConfigError. path: None if security is off."""
        self.access = Access.off()
        self.version = 0
        self.problem = ""
        self._path = path
        self._clock = clock
        self._log = log
        self._look_ms = 0
        self._stamp: Stamp | None = None  # of what was read last; None: read again
        self._text = ""  # the content that was judged last
        self._fault = ""  # why it is not used
        self._waiting: str | None = None  # read once; half of it may be missing
        if path is not None:
            self._text, self._stamp = read(path)
            self.access = parse(self._text, str(path))
            self.version = 1

    def look(self, now_ms: int) -> bool:
        """Reads the file again if it changed; True if `access` is another one now.

        A change counts once two looks, LOOK_MS apart, have read the same.
        """
        path = self._path
        if path is None or now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_MS
        try:
            if not self._is_changed(path):
                return False
            text, self._stamp = read(path)
        except ConfigError as error:
            self._stamp = self._waiting = None
            self._tell(error.reason)
            return False
        return self._take(path, text)

    def _is_changed(self, path: Path) -> bool:
        """True if it has to be read."""
        if self._stamp is None:
            return True
        try:
            stamp = _stamp(path.stat())
        except OSError:
            return True
        return stamp != self._stamp or self._is_young(stamp)

    def _is_young(self, stamp: Stamp) -> bool:
        return 0 <= self._clock.wall_ns() - max(stamp[:2]) < YOUNG_NS

    def _take(self, path: Path, text: str) -> bool:
        if text != self._text and text != self._waiting:
            self._waiting, self._stamp = text, None
            return False
        self._waiting = None
        if text == self._text:
            self._tell(self._fault)
            return False
        self._text = text
        return self._judge(path, text)

    def _judge(self, path: Path, text: str) -> bool:
        try:
            self.access, self._fault = parse(text, str(path)), ""
        except ConfigError as error:
            self._fault = error.reason
        self._tell(self._fault)
        if self._fault:
            return False
        self.version += 1
        self._log.info("%s was changed and read again: %r", path, self.access)
        return True

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            self._log.warning("%s; the rules before it hold on until it is mended", problem)
        self.problem = problem


def read(path: Path) -> tuple[str, Stamp]:
    """The text of an access file. Raises: ConfigError, also if others may write it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a fifo must not block a process
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor
            found = os.fstat(file.fileno())
            data = file.read(FILE_MAX_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise _bad(f"{path}: {error.strerror}", "security.access names the file") from None
    if not stat.S_ISREG(found.st_mode):
        raise _bad(f"{path} is not a file", "security.access names a file")
    if found.st_mode & 0o022:
        raise _bad(f"others than its owner may write {path}", f"chmod go-w {path}")
    if len(data) > FILE_MAX_BYTES:
        raise _bad(f"{path} has more than {FILE_MAX_BYTES} bytes", "use roles and patterns")
    try:
        return data.decode("utf-8"), _stamp(found)
    except UnicodeDecodeError:
        raise _bad(f"{path} is not UTF-8", "the file must be TOML") from None


def _bad(reason: str, hint: str) -> ConfigError:
    return ConfigError("bad_config", reason, hint)


def _stamp(found: os.stat_result) -> Stamp:
    return (
        found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev,
        found.st_mode,
    )  # fmt: skip
