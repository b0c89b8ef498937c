"""Where the demo keeps its log, and what becomes of an earlier one.

    missing or empty             made
    a finished demo, untouched   removed and made afresh: it can be made again
    any other demo               set aside as `<directory>.<n>`: it was not finished, or used since
    running instance             refused
    anything else                refused

`demo.json` in the directory says that a demo made it, and how far its log went when it finished.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from zbroker.errors import ZBrokerError
from zbroker.log.reader import Log

MARKER: Final = "demo.json"


class Marker(msgspec.Struct):
    """The content of `demo.json`. end: the end position of the log; 0 while the demo runs.

    ends: the same of each instance, if there are several.
    """

    what: str = (
        "made by `zbroker demo`; a finished one that was not used since is replaced by the next"
    )
    end: int = 0
    ends: dict[str, int] = {}


def prepare(directory: Path) -> str:
    """Makes `directory` ready for a new log and says what became of an earlier one.

    Raises: ZBrokerError not_a_demo, running.
    """
    is_used = directory.exists() and any(directory.iterdir())
    report = _clear(directory) if is_used else ""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(directory, Marker())
    return report


def finish(directory: Path, instances: Sequence[str] = ()) -> None:
    """Remembers how far the log of the finished demo goes, or those of its instances."""
    ends = {name: _end(directory / name) for name in instances}
    _write(directory, Marker(ends=ends) if ends else Marker(end=_end(directory)))


def _end(directory: Path) -> int:
    return Log(directory / "journal").end()


def _clear(directory: Path) -> str:
    marker = directory / MARKER
    if not marker.exists():
        text = f"{directory} is not empty and was not made by a demo"
        raise ZBrokerError("not_a_demo", text, "name another one with --data-dir")
    if _is_running(directory):
        text = f"an instance is running on {directory}"
        raise ZBrokerError("running", text, "stop it, or name another --data-dir")
    if _is_untouched(directory, msgspec.json.decode(marker.read_bytes(), type=Marker)):
        shutil.rmtree(directory)
        return f"The earlier demo in {directory} was complete and unused since: it is replaced."
    aside = next(
        place for n in range(1, 10_000) if not (place := Path(f"{directory}.{n}")).exists()
    )
    directory.rename(aside)
    return f"The earlier demo was unfinished, or its log was used since: it is kept as {aside}."


def _is_running(directory: Path) -> bool:
    return any(_is_locked(lock) for lock in (directory / "lock", *directory.glob("*/lock")))


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _is_untouched(directory: Path, marker: Marker) -> bool:
    try:
        if marker.ends:
            return all(_end(directory / name) == end for name, end in marker.ends.items())
        return marker.end > 0 and _end(directory) == marker.end
    except ZBrokerError:
        return False  # whatever is wrong with it, it is not ours to remove


def _write(directory: Path, marker: Marker) -> None:
    (directory / MARKER).write_bytes(msgspec.json.format(msgspec.json.encode(marker)) + b"\n")
