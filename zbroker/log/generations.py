"""When a log begins a new generation, and which number it gets.

A generation is one history of an instance. Positions, vectors and acknowledgements name it, so that
those of a history that was lost are not taken for those of the one that is there: after a loss that
a person accepted, and where the files were put back from a copy.

    new-generation    {"version": 1, "instance": "<16 hex digits>", "generation": 1}

That file, in the journal directory, says that the log is a copy which ended in this generation. The
next start seals the open segment and begins a new one, in a new generation; then the file goes. An
export has it from the beginning; `zbroker-admin journal new-generation` writes it where a copy was
made by other means.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from zbroker.errors import StorageError
from zbroker.limits import U63_MAX
from zbroker.log.disk import Disk
from zbroker.log.segments import discard, replace_file

NEW_GENERATION: Final = "new-generation"
VERSION: Final = 1
EPOCH_S: Final = 1_577_836_800  # 2020-01-01
SPREAD: Final = 1 << 16  # of numbers by chance: two are the same once in so many times
NUMBER_MAX: Final = (1 << 32) - 1  # what a segment's header can hold
_MAX_BYTES: Final = 1024


class Generations:
    """Where each generation of a log begins in it, as its segments say; `begins`: (number, first
    position), rising.

    A local position of an older generation means the same message as ever below the place where
    the next one begins here. What the older one had after that is lost, or comes back from a peer
    and has another place.
    """

    def __init__(self, begins: Iterable[tuple[int, int]] = ()) -> None:
        self.begins: list[tuple[int, int]] = []
        for generation, first in begins:
            self.begin(generation, first)

    def begin(self, generation: int, first: int) -> None:
        """A segment that begins there is of this generation."""
        if not self.begins or generation > self.begins[-1][0]:
            self.begins.append((generation, first))

    def end(self, generation: int) -> int:
        """Positions of this generation are good below it; 0: it was never of this log."""
        at = bisect_right(self.begins, (generation, U63_MAX))
        if not self.begins or (at and self.begins[at - 1][0] != generation):
            return 0  # it began on another copy
        return self.begins[at][1] if at < len(self.begins) else U63_MAX

    def of(self, position: int) -> int:
        """The generation that gave this position here; 0 if its segment is gone."""
        at = bisect_right(self.begins, position, key=lambda begin: begin[1])
        return self.begins[at - 1][0] if at else 0


class CopyMark(NamedTuple):
    """The log of `instance` is a copy whose newest segment is of this generation."""

    instance: int
    generation: int


def drawn(wall_ns: int, *known: int, chance: Callable[[], int]) -> int:
    """The number of a new generation: higher than every one that is known here.

    It is the time where it can be: two copies of one log that begin a new generation each then have
    two numbers, although neither knows of the other, unless both begin in one second. Where the
    clock was set back, and the time is not higher, it is one of the next SPREAD, by chance.
    """
    highest = max(known, default=0)
    seconds = wall_ns // 1_000_000_000 - EPOCH_S
    if highest < seconds <= NUMBER_MAX:
        return seconds
    choices = max(1, min(SPREAD, NUMBER_MAX - highest))
    return highest + 1 + chance() % choices


def write_mark(disk: Disk, copied: CopyMark) -> None:
    """Durable when it returns; one that is there is replaced. Raises: StorageError."""
    fields = {
        "version": VERSION, "instance": f"{copied.instance:016x}", "generation": copied.generation,
    }  # fmt: skip
    replace_file(disk, NEW_GENERATION, json.dumps(fields).encode() + b"\n")


def read_mark(disk: Disk, generation: int) -> CopyMark | None:
    """The mark of a log whose newest segment is of `generation`; None if there is none.

    Also None if that segment is the one that the mark asked for. A damaged mark counts: a new
    generation costs little. Raises: StorageError unknown_version.
    """
    if not disk.exists(NEW_GENERATION):
        return None
    try:
        found = json.loads(disk.read(NEW_GENERATION, 0, _MAX_BYTES))
        version = int(found["version"])
        copied = CopyMark(int(found["instance"], 16), int(found["generation"]))
    except (ValueError, KeyError, TypeError):
        return CopyMark(0, generation)
    if version > VERSION:
        reason = f"{NEW_GENERATION} is of version {version}, this release knows {VERSION}"
        raise StorageError("unknown_version", reason, "start the release that wrote it")
    return copied if copied.generation >= generation else None


def forget_mark(disk: Disk) -> None:
    """The new generation has begun, durably."""
    if disk.exists(NEW_GENERATION):
        discard(disk, NEW_GENERATION)
        disk.sync_dir()
