"""The hook: Python imports it at the start of every process that has this folder in PYTHONPATH.

ZB_TRACE names a directory. Its file `window` has one byte: 0, or the number of the window that is
open. Each call of a function of zbroker is then one line in the file of its process, written at
once: processes of a broker end without notice. ZB_TRACE_TREE is the checkout that is traced.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

PACKAGE: Final = f"{os.sep}zbroker{os.sep}"


class Recorder:
    """Writes the calls of this process; a forked one gets a file of its own."""

    def __init__(self, folder: Path) -> None:
        with (folder / "window").open("r+b") as file:
            self._window = mmap.mmap(file.fileno(), 1)
        self._folder = folder
        self._file: int | None = None
        self._names: dict[Any, str | None] = {}
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function, see sys.setprofile."""
        window = self._window[0]
        if window and event == "call":
            code = frame.f_code
            name = self._names.get(code, "")
            if name == "":
                name = self._names[code] = _name(frame)
            if name is not None:
                self._write(f"{window} {threading.get_ident()} {name}\n".encode())

    def _write(self, line: bytes) -> None:
        if self._file is None:
            path = self._folder / f"{os.getpid()}.calls"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, line)

    def _forget(self) -> None:
        self._file = None


def _name(frame: FrameType) -> str | None:
    """File and function; None if it is not one of zbroker."""
    _, package, file = frame.f_code.co_filename.rpartition(PACKAGE)
    return f"{file} {frame.f_code.co_qualname}" if package else None


if folder := os.environ.get("ZB_TRACE"):
    sys.path.insert(0, os.environ["ZB_TRACE_TREE"])  # before the checkout of the environment
    recorder = Recorder(Path(folder))
    threading.setprofile(recorder)
    sys.setprofile(recorder)
