"""The index's directory before LMDB touches it: is it whole, was it closed, put it aside.

LMDB maps its file: one that is shorter than its header says, or whose pages were overwritten, ends
the process with SIGBUS, SIGSEGV or SIGABRT. So:

- the size is compared with both headers before LMDB opens the file;
- a file `opened` is in the directory while it is open. When the last process ended without
  closing it, every entry is read in a process of its own first (zbroker.bookmarks.check), whose
  death is the finding; so damage ends the journal's process once at most;
- a third such end without a commit in between needs no more proof: what reading does not show
  (damaged free lists) must not stop the journal for ever.

    closed --open--> opened 1 --crash, open--> opened 2 --crash, open--> opened 3 --crash--> aside
       ^--------------- close ----------------'   '-- a commit: opened 1
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

CRASHES_MAX: Final = 3
ASIDE_MAX: Final = 2  # set-aside indexes that are kept, to find out what happened
EX_DAMAGED: Final = 3  # of the check: the index was read and is wrong
_CHECK_BASE_S: Final = 30
_CHECK_BYTES_PER_S: Final = 10_000_000  # far slower than any disk we know

_DATA: Final = "data.mdb"
_OPENED: Final = "opened"

# mdb.c of LMDB 0.9, 64 bits: a page header of 16 bytes; then magic, version, address, map size;
# two tables of 48 bytes, of which the first begins with the page size; last page, transaction
_META: Final = struct.Struct("<16xIIQQI92xQQ")
_LMDB_MAGIC: Final = 0xBEEFC0DE
assert _META.size == 152, "so it is in mdb.c"


def reason_not_to_open(path: Path, progress: Callable[[str], None]) -> str:
    """Why LMDB must not open the index in this directory; "" when it may."""
    data = path / _DATA
    try:
        if not path.exists() or (path.is_dir() and not data.exists()):
            return ""
        if not path.is_dir():
            return "it is not a directory"
        if short := _short(data):
            return short
        crashes = crashes_of(path)
    except OSError as error:
        return f"it cannot be read: {error}"
    if crashes >= CRASHES_MAX:
        return f"the journal ended {crashes} times with it open, without a commit"
    return _check(path, data.stat().st_size, progress) if crashes else ""


def _short(data: Path) -> str:
    size = data.stat().st_size
    if size == 0:
        return ""  # made, nothing written: LMDB starts from the beginning
    with data.open("rb") as file:
        first = file.read(_META.size)
        if len(first) < _META.size:
            return f"its file has {size} bytes, less than a header"
        magic, _, _, _, page_size, last_page, transaction = _META.unpack(first)
        file.seek(page_size if 512 <= page_size <= 65_536 else 0)
        second = file.read(_META.size)
    if magic != _LMDB_MAGIC or len(second) < _META.size:
        return "its file has no LMDB header"
    other_magic, _, _, _, other_size, other_page, other_transaction = _META.unpack(second)
    if other_magic != _LMDB_MAGIC or other_size != page_size:
        return "its file has only one LMDB header"
    last = last_page if transaction >= other_transaction else other_page
    wanted = (last + 1) * page_size
    return f"its file has {size} bytes, its header says {wanted}" if size < wanted else ""


def _check(path: Path, size: int, progress: Callable[[str], None]) -> str:
    """Reads every entry in a process of its own; a check that cannot start finds nothing."""
    import subprocess  # only after a crash

    limit_s = _CHECK_BASE_S + size // _CHECK_BYTES_PER_S
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    with subprocess.Popen(
        [sys.executable, "-m", "zbroker.bookmarks.check", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        for waited_s in range(limit_s):
            try:
                said, _ = child.communicate(timeout=1)
            except subprocess.TimeoutExpired:
                progress(f"checking the bookmark index ({waited_s + 1} s)")
                continue
            return _verdict(child.returncode, said)
        child.kill()
    return f"checking it took more than {limit_s} s"


def _verdict(status: int, said: bytes) -> str:
    if status == EX_DAMAGED:
        return said.decode(errors="replace").strip() or "it is damaged"
    return f"reading it ended a process with signal {-status}" if status < 0 else ""


def crashes_of(path: Path) -> int:
    """How often the index was opened since it was last closed or committed to."""
    try:
        text = (path / _OPENED).read_text()
    except FileNotFoundError:
        return 0
    except (OSError, UnicodeDecodeError):
        return 1
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 1


def note_opened(path: Path, times: int) -> None:
    """Writes that the index is open, `times` in a row. Best effort: it only saves a crash."""
    with contextlib.suppress(OSError):
        (path / _OPENED).write_text(str(times))


def note_closed(path: Path) -> None:
    """The index was closed in good order. Best effort: a note too many costs a check."""
    with contextlib.suppress(OSError):
        (path / _OPENED).unlink(missing_ok=True)


def set_aside(path: Path) -> Path | None:
    """Renames the index to `<name>.bad-<n>` and removes older ones; None if there was none."""
    if not path.exists() and not path.is_symlink():
        return None
    aside = {int(suffix): old for old in path.parent.glob(f"{path.name}.bad-*")
             if (suffix := old.name.rpartition("-")[2]).isdigit()}  # fmt: skip
    target = path.with_name(f"{path.name}.bad-{max(aside, default=0) + 1}")
    path.rename(target)
    for number in sorted(aside)[: max(0, len(aside) + 1 - ASIDE_MAX)]:
        remove(aside[number])
    return target


def new_path(path: Path) -> Path:
    """Where an index that shall take the place of the one at `path` is made."""
    return path.with_name(f"{path.name}.new")


def old_path(path: Path) -> Path:
    """The place of the replaced index until it is removed."""
    return path.with_name(f"{path.name}.old")


def swap(path: Path) -> None:
    """Puts the new index in the place of the one at `path`; both are closed.

    There is no moment at which neither of the two can be found: see `settle`. Raises: OSError.
    """
    remove(old_path(path))
    if path.exists():
        path.rename(old_path(path))
    new_path(path).rename(path)


def settle(path: Path) -> None:
    """What an interrupted rebuild left is thrown away. Best effort: it costs space, nothing else.

    An index that was being replaced goes back to its place: it is older, not wrong.
    """
    with contextlib.suppress(OSError):
        if not path.exists() and old_path(path).exists():
            old_path(path).rename(path)
    remove(new_path(path))
    remove(old_path(path))


def remove(path: Path) -> None:
    """Best effort: an old index that stays costs space, nothing else."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
