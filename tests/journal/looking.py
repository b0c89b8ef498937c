"""A log of many blocks and segments to look for points in, with a list of what is in it."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.journal import build
from tests.journal.whole import LISTENER, MINE, Whole
from zbroker.bookmarks.index import Index
from zbroker.checksums import crc32c
from zbroker.ids import publisher_id
from zbroker.journal.core import JournalSettings
from zbroker.journal.effects import Where
from zbroker.journal.locate import Locator
from zbroker.log.format import KIND_PUBLISH
from zbroker.log.reader import Gap
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns

NAMES = ("a", "b", "c")
SECOND = 1_000_000_000


class Seen(NamedTuple):
    """One message."""

    position: int
    publisher: int
    sequence: int
    time_ns: int


class Looking:
    """`publish`, then `look`. Log times are whole seconds, and several messages have the same."""

    def __init__(self) -> None:
        self.whole = Whole()
        self.whole.core.settings = JournalSettings(build.INSTANCE, MINE, publisher_time=True)
        self.last: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.messages: list[Seen] = []
        self.log_start = 1
        for name in NAMES:
            self.whole.hear(LISTENER, m.Open(1, MINE, name, "alice"), [])
        self.whole.commit()

    def publish(self, name: str, times_s: list[int], *, skip: int = 0, size: int = 10) -> None:
        """A batch, `skip` sequences after the last one of this publisher."""
        known = self.whole.core.sessions.get(publisher_id(name))
        assert known is not None
        first = self.last[name] + 1 + skip
        self.last[name] = first + len(times_s) - 1
        body = msgspec.msgpack.encode([b"x" * size] * len(times_s))
        columns = Columns(time=array("q", [at * SECOND for at in times_s]).tobytes())
        entry = m.Entry(
            known.id, known.session, first, len(times_s), None, crc32c(body), None, ["t"],
            columns=columns,
        )  # fmt: skip
        self.whole.hear(LISTENER, m.Append(MINE, self.whole.ordinal, 0, [entry]), [body])
        self.whole.ordinal += 1
        self.whole.commit()

    def fill(self, rng: random.Random, batches: int, size: int = 2_000) -> None:
        """Random batches; some sequences are never issued, some times stand still."""
        at_s = 100
        for _ in range(batches):
            at_s += rng.choice([0, 0, 1, 5])
            times = sorted(at_s + rng.randint(0, 2) for _ in range(rng.randint(1, 5)))
            skip = rng.choice([0, 0, 0, 3])
            self.publish(rng.choice(NAMES), times, skip=skip, size=rng.randint(1, size))

    def look(self, path: Path, *, indexed: bool = True) -> Locator:
        """Who answers; `messages` then says what the log holds from its log start on."""
        whole = self.whole
        whole.log.refresh()
        index = Index(path / "index", build.INSTANCE)
        for item in whole.log.headers(whole.log.seek(1), whole.core.persisted) if indexed else ():
            assert not isinstance(item, Gap)
            index.add(item[0], item[1].serial)
        self.index = index
        self.messages = [
            Seen(batch.position + step, batch.publisher, batch.sequence + step, at)
            for batch in whole.batches() if batch.kind == KIND_PUBLISH and batch.columns is not None
            for step, at in enumerate(array("q", batch.columns.time or b""))
        ]  # fmt: skip
        return Locator(whole.log, index, whole.core.sessions)

    @property
    def where(self) -> Where:
        """As the journal would ask it."""
        return Where(
            build.INSTANCE, self.whole.core.generation, self.log_start, self.whole.core.persisted
        )
