"""Opens a damaged index as the journal would; a program of its own because LMDB may end it.

Prints `set aside` or `kept`; exits 0 if the index did what it must with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks.index import Index


def standard_log() -> FakeLog:
    """The log whose index is damaged."""
    log = FakeLog()
    for number in range(1_500):
        log.publish(publisher=1 + number % 11, count=3, size=50_000)
    return log


def main() -> int:
    log = standard_log()
    index = Index(Path(sys.argv[1]), INSTANCE)
    places = {
        (serial, batch.offset, batch.position): at for at, (batch, serial) in enumerate(log.entries)
    }
    for batch, serial in log.entries:
        index.add(batch, serial)
    for at, (batch, _) in enumerate(log.entries):
        for hint in (
            index.at_or_before(batch.position),
            index.before_bookmark(batch.publisher, batch.sequence),
            index.before_time(batch.log_time),
        ):
            assert hint is None or places[hint] <= at  # None: the log is read from its beginning
    log.publish(size=100_000)
    index.add(*log.entries[-1])
    index.commit(index.take())
    sys.stdout.write("set aside" if index.found else "damaged" if index.damaged else "kept")
    index.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
