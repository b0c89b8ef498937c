"""Points in a real log: by index, and the same without one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from zbroker.bookmarks.index import Index
from zbroker.clock import format_time
from zbroker.ids import Origin, format_bookmark, format_vector, publisher_id
from zbroker.journal.core import JournalCore, Settings
from zbroker.journal.disk import RealDisk
from zbroker.journal.fold import Fold
from zbroker.journal.locate import Locator, Where
from zbroker.journal.reader import Log
from zbroker.journal.recover import recover
from zbroker.journal.sessions import Sessions
from zbroker.journal.writer import Writer
from zbroker.wire import internal as m
from zbroker.wire.internal import Located
from zbroker.wire.messages import Columns

RID, MINE, INSTANCE = b"\0test", 7, 9
P = publisher_id("p")
SECOND = 1_000_000_000
#: sequences of the batches: three messages each, 10 s apart; 4 to 9 were never issued
FIRST_SEQUENCES = (1, 10, 13)


class Bench:
    """A log with publisher "p": positions 2 to 10 are its messages, 1 is its name."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        self.disk = RealDisk(path / "journal")
        (path / "journal").mkdir()
        recovered = recover(self.disk, INSTANCE, segment_bytes=1 << 20)
        self.fold = Fold(self.disk)
        settings = Settings(INSTANCE, MINE, publisher_time=True)
        self.core = JournalCore(settings, self.fold.sessions, 1, recovered.next_position, 0)
        self.writer = Writer(self.disk, recovered.tail, segment_bytes=1 << 20)
        self.index = Index(path / "index", INSTANCE)
        self.indexed = indexed
        self.core.receive(RID, m.Hello("ingest", 1), [])
        self.core.receive(RID, m.Open(1, MINE, "p", ""), [])
        self.commit()
        for n, seq in enumerate(FIRST_SEQUENCES):
            self.append(n + 1, seq, [n * 10 * SECOND + k * SECOND for k in range(3)])
        where = Where(INSTANCE, 1, 1, self.core.persisted)
        locator = Locator(Log(path / "journal"), self.index, self.fold.sessions)
        self.locate = lambda value: locator.locate(1, value, where)

    def append(self, ordinal: int, seq: int, times: list[int]) -> None:
        known = self.fold.sessions.get(P)
        assert known is not None
        columns = Columns(time=array("q", times).tobytes())
        entry = m.Entry(P, known.session, seq, 3, None, 0, None, ["t"], None, columns)
        body = msgspec.msgpack.encode([b"a", b"b", b"c"])
        self.core.receive(RID, m.Append(MINE, ordinal, 0, [entry]), [body])
        self.commit()

    def commit(self) -> None:
        group = self.core.group(5)
        if group is not None:
            self.writer.write(group.batches, group.log_time)
            self.core.written_to(group.end_position)
            self.writer.sync()
            for batch in group.batches if self.indexed else []:
                self.index.add(batch, self.writer.serial)
        self.core.synced(self.core.written)

    def close(self) -> None:
        self.index.close()
        self.disk.close()


@pytest.fixture(params=[True, False], ids=["indexed", "unindexed"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path, indexed=request.param)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("0", 1),
        ("0|1|", 11),
        ("now", 11),
        (format_bookmark(P, 1), 3),
        (format_bookmark(P, 3), 5),
        (format_bookmark(P, 11), 7),
        (format_bookmark(P, 15), 11),
        (format_vector({Origin(INSTANCE, 1): 4}), 5),
        (format_time(0), 1),
        (format_time(1 * SECOND), 3),
        (format_time(3 * SECOND), 5),
        (format_time(10 * SECOND), 5),
        (format_time(21 * SECOND), 9),
    ],
)
def test_a_point_is_found(bench: Bench, value: str, position: int) -> None:
    found = bench.locate(value)
    assert (found.code, found.position, found.time_ns) == ("", position, None)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (format_bookmark(P, 5), "bookmark_not_found"),
        (format_bookmark(P, 16), "bookmark_pending"),
        (format_bookmark(publisher_id("stranger"), 1), "bookmark_not_found"),
        (format_vector({Origin(INSTANCE + 1, 1): 4}), "bookmark_not_found"),
        (format_vector({Origin(INSTANCE, 2): 4}), "bookmark_not_found"),
        (format_vector({Origin(INSTANCE, 1): 11}), "bookmark_pending"),
        ("nonsense", "bad_bookmark"),
        ("20139999T000000Z", "bad_bookmark"),
    ],
)
def test_a_miss_has_its_answer(bench: Bench, value: str, code: str) -> None:
    assert bench.locate(value).code == code


def test_a_time_behind_the_log_waits_for_it(bench: Bench) -> None:
    found: Located = bench.locate(format_time(23 * SECOND))
    assert (found.position, found.time_ns) == (11, 23 * SECOND)


def test_a_vector_of_an_older_generation_resumes_behind_what_survived(tmp_path: Path) -> None:
    log, sessions = GenerationLog(), Sessions()
    locator = Locator(log, Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    where = Where(INSTANCE, 2, 1, 20)

    def at(*entries: tuple[int, int]) -> tuple[str, int]:
        value = format_vector({Origin(INSTANCE, g): position for g, position in entries})
        found = locator.locate(1, value, where)
        return found.code, found.position

    assert at((1, 4)) == ("", 5)
    assert at((1, 12)) == ("", 10), "positions 10 to 12 of generation 1 were given up"
    assert at((1, 9), (2, 14)) == ("", 15)
    assert at((3, 4))[0] == "bookmark_not_found"


class GenerationLog:
    """A log whose second generation begins at position 10."""

    def end_of(self, generation: int) -> int | None:
        return 10 if generation < 2 else None
