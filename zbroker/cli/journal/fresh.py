"""A new data directory with a copy of a log in it: DIR.part until everything in it is durable.

    DIR/instance.json     whose log it is, so that an instance can be started on it
    DIR/journal/          segments, acked-through note, and of an export: that it is a copy

A leftover DIR.part has the file `unfinished` in it and is deleted by the next try.
The file goes last: a DIR that has it is whole, too, only its maker was ended before it said so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zbroker.errors import StorageError, ZBrokerError
from zbroker.supervisor.directory import identity

UNFINISHED: Final = "unfinished"
_SLACK_BYTES: Final = 16 << 20


@contextmanager
def fresh(output: Path, instance: int, needed_bytes: int) -> Iterator[Path]:
    """The journal directory to fill; `output` appears when the block ends without an error.

    Raises: ZBrokerError exists, StorageError disk_full.
    """
    output = output.absolute()
    part = output.with_name(output.name + ".part")
    try:
        _begin(output, part, needed_bytes)
        journal = part / "journal"
        journal.mkdir(mode=0o700)
        (part / "instance.json").write_text(identity(instance))
        yield journal
        _finish(output, part)
    except OSError as error:
        reason = f"{error.filename or output}: {error.strerror}"
        raise StorageError("disk_error", reason, "choose another --output") from None
    finally:
        if (part / UNFINISHED).exists():
            _throw_away(part, ignore_errors=True)  # what stays is thrown away next time


def _begin(output: Path, part: Path, needed_bytes: int) -> None:
    if output.exists():
        raise ZBrokerError("exists", f"{output} is there already", "choose another --output")
    if not output.parent.is_dir():
        raise ZBrokerError("not_found", f"there is no directory {output.parent}", "make it first")
    if part.exists():
        if any(part.iterdir()) and not (part / UNFINISHED).exists():
            reason = f"{part} is there and was not made by this command"
            raise ZBrokerError("exists", reason, "choose another --output, or move it away")
        _throw_away(part)
    free = shutil.disk_usage(output.parent).free
    if free < needed_bytes + _SLACK_BYTES:
        reason = f"{output.parent} has {free} bytes free, {needed_bytes + _SLACK_BYTES} are needed"
        raise StorageError("disk_full", reason, "choose an --output on a larger disk")
    part.mkdir(mode=0o700)
    (part / UNFINISHED).touch()


def _finish(output: Path, part: Path) -> None:
    """Files are synced by their writers; this syncs their names, then the name of the directory."""
    sync(part / "instance.json")
    sync(part / "journal")
    sync(part)
    part.rename(output)
    sync(output.parent)
    (output / UNFINISHED).unlink()


def _throw_away(part: Path, *, ignore_errors: bool = False) -> None:
    """The mark goes last, so that an interrupted one goes on next time."""
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=ignore_errors)
        elif path.name != UNFINISHED:
            path.unlink(missing_ok=True)
    shutil.rmtree(part, ignore_errors=ignore_errors)


def sync(path: Path) -> None:
    """A file or directory survives a power cut from now on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
