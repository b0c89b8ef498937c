"""Starts with a damaged index and asks for everything; a program because LMDB may end it.

Prints `refused` (recovery says that messages are missing) or how it came through; exits 0 if every
answer was that of a scan of the log.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_left
from pathlib import Path

from tests.bookmarks.damages import open_index
from tests.bookmarks.logs import INSTANCE
from zbroker.bookmarks.index import Index
from zbroker.clock import format_time
from zbroker.errors import StorageError
from zbroker.ids import format_bookmark
from zbroker.journal.effects import Where
from zbroker.journal.locate import Locator
from zbroker.journal.sessions import Sessions
from zbroker.log.disk import RealDisk
from zbroker.log.format import Batch
from zbroker.log.reader import Log

ASKED = 60


class Oracle:
    """What a scan of the log says."""

    def __init__(self, log: Log, end: int) -> None:
        self.end = end
        self.behind: dict[tuple[int, int], int] = {}
        self.times: list[int] = []
        self.at: list[int] = []
        cursor = log.seek(1)
        while cursor.position < end:
            items, cursor = log.read(cursor, end, 1 << 20)
            for batch in items:
                assert isinstance(batch, Batch)
                for step in range(batch.taken):
                    key = (batch.publisher, batch.sequence + step)
                    self.behind[key] = batch.position + step + 1
                self.times.append(batch.log_time)
                self.at.append(batch.position)

    def of_time(self, ns: int) -> int:
        index = bisect_left(self.times, ns)
        return self.at[index] if index < len(self.at) else self.end


def ask(log: Log, index: Index, sessions: Sessions, end: int, generation: int, seed: int) -> None:
    """Everything by index is the same as by scan."""
    oracle, rng = Oracle(log, end), random.Random(seed)
    locator = Locator(log, index, sessions)
    where = Where(INSTANCE, generation, 1, end)
    known = sorted(oracle.behind)
    for publisher, sequence in rng.sample(known, ASKED):
        found = locator.locate(1, format_bookmark(publisher, sequence), where)
        assert (found.code, found.position) == ("", oracle.behind[publisher, sequence])
    for publisher, sequence in rng.sample(known, ASKED):
        missing = (publisher, sequence + 1)
        if missing not in oracle.behind:
            found = locator.locate(1, format_bookmark(*missing), where)
            assert found.code in ("bookmark_not_found", "bookmark_pending"), found
    for ns in rng.sample(oracle.times, ASKED):
        ns += rng.choice([0, 0, 1_000, -1_000])
        found = locator.locate(1, format_time(ns), where)
        assert found.position == oracle.of_time(ns), (ns, found)
    for position in rng.sample(range(1, end), ASKED):
        hint = index.at_or_before(position)
        serial, offset = (hint.serial, hint.offset) if hint else (0, 0)
        read = [log.read(cursor, end, 1)[0][0] for cursor in
                (log.seek(position, serial, offset), log.seek(position))]  # fmt: skip
        assert read[0] == read[1], (position, hint)


def main() -> int:
    path, seed, accept_loss = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "accept"
    disk = RealDisk(path / "journal")
    try:
        index, recovered, fold = open_index(path, disk, accept_loss=accept_loss)
    except StorageError as error:
        if error.code != "tail_damaged":
            raise
        sys.stdout.write("refused")
        return 0
    log = Log(path / "journal")
    end, generation = recovered.next_position, recovered.generation
    ask(log, index, fold.sessions, end, generation, seed)
    index.commit(index.take())
    ask(log, index, fold.sessions, end, generation, seed + 1)
    sys.stdout.write(f"lost {recovered.lost}" if recovered.lost else "whole")
    index.close()
    log.close()
    disk.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
