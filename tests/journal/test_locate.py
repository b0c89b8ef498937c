"""Points in a real log: by index, and the same without one."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.journal import build
from tests.journal.looking import Looking
from tests.journal.whole import Whole
from tests.sim.journal_process import JournalProcess, Start
from zbroker.bookmarks.index import Index
from zbroker.checksums import crc32c
from zbroker.clock import SystemClock, format_time
from zbroker.engine.contract import Now
from zbroker.ids import Cut, Origin, format_bookmark, format_vector, publisher_id
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.core import JournalSettings
from zbroker.journal.effects import IndexGroup, Where
from zbroker.journal.locate import Locator
from zbroker.journal.locate_vector import Cover
from zbroker.journal.lookup import NEAR_BATCHES
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import Sessions
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.log.records import PointRecord, encode
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire.internal import Located, Record
from zbroker.wire.messages import Columns
from zbroker.wire.units import NamedRow

RID, MINE, INSTANCE = b"\0test", 7, 9
P = publisher_id("p")
SECOND = 1_000_000_000
#: sequences of the batches: three messages each, 10 s apart; 4 to 9 were never issued
FIRST_SEQUENCES = (1, 10, 13)


class Indexed(JournalProcess):
    """index: what becomes durable goes into it."""

    index: Index | None = None

    def now(self) -> Now:
        return Now(0, 5)

    def performers(self) -> dict[type, Any]:
        return {**super().performers(), IndexGroup: self._add}

    def _add(self, effect: IndexGroup) -> None:
        if self.index is not None:
            self.index.add_all(effect.batches, effect.serial)


class Bench:
    """A log with publisher "p": positions 2 to 10 are its messages, 1 is its name."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        self.directory = path
        self.disk = RealDisk(path / "journal")
        (path / "journal").mkdir()
        settings = JournalSettings(INSTANCE, MINE, publisher_time=True)
        self.process = Indexed(self.disk, settings, Start(SystemClock(), 1 << 20))
        self.fold, self.core = self.process.fold, self.process.core
        self.index = Index(path / "index", INSTANCE)
        self.process.index = self.index if indexed else None
        self.process.hear(RID, m.Hello("ingest", 1))
        self.process.hear(RID, m.Open(1, MINE, "p", ""))
        self.process.commit()
        for n, seq in enumerate(FIRST_SEQUENCES):
            self.append(n + 1, seq, [n * 10 * SECOND + k * SECOND for k in range(3)])
        where = Where(INSTANCE, 1, 1, self.core.persisted)
        locator = Locator(Log(path / "journal"), self.index, self.fold.sessions)
        self.locate = lambda value, cut="": locator.locate(1, value, where, cut=cut)

    def append(self, ordinal: int, seq: int, times: list[int]) -> None:
        known = self.fold.sessions.get(P)
        assert known is not None
        columns = Columns(time=array("q", times).tobytes())
        entry = m.Entry(P, known.session, seq, 3, None, 0, None, ["t"], None, columns)
        body = msgspec.msgpack.encode([b"a", b"b", b"c"])
        self.process.hear(RID, m.Append(MINE, ordinal, 0, [entry]), [body])
        self.process.commit()

    def close(self) -> None:
        self.index.close()
        self.disk.close()


@pytest.fixture(params=[True, False], ids=["indexed", "unindexed"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path, indexed=request.param)
    yield made
    made.close()


@pytest.mark.seed("004-33")
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
    ("value", "at", "behind"),
    [
        ("0", 1, 1),
        ("0|1|", 11, 11),
        (format_bookmark(P, 11), 6, 7),
        (format_bookmark(P, 15), 10, 11),
        (format_vector({Origin(INSTANCE, 1): 4}), 4, 5),
        (format_vector({Origin(INSTANCE, 1): 0}), 1, 1),
        (format_time(1 * SECOND), 3, 4),
        (format_time(3 * SECOND), 5, 5),
        (format_time(12 * SECOND), 7, 8),
    ],
)
def test_a_cut_is_before_or_after_what_is_named(
    bench: Bench, value: str, at: int, behind: int
) -> None:
    assert bench.locate(value, "at").position == at
    assert bench.locate(value, "behind").position == behind


@pytest.mark.parametrize("cut", ["at", "behind"])
def test_a_time_that_no_log_time_can_reach_crosses_the_wire(tmp_path: Path, cut: Cut) -> None:
    locator = Looking().look(tmp_path)
    for value in ("99991231T235959.999999999", "00010101T000000"):
        found = locator.locate(1, value, Where(build.INSTANCE, 1, 1, 1), cut=cut)
        assert codec.decode(codec.FROM_JOURNAL, codec.encode(found)) == found


@pytest.mark.seed("003-26")
def test_a_point_with_a_name_is_where_it_was_set_last(bench: Bench) -> None:
    points = bench.fold.sessions.named.points
    for set_at, before in ((11, 6), (12, 4)):
        record = PointRecord("eod", format_vector({Origin(INSTANCE, 1): before}))
        points.learn(NamedRow("eod", set_at, encode(record)))
        for cut in ("", "at", "behind"):
            assert bench.locate("point:eod", cut).position == before + 1


def test_a_vector_of_another_instance_that_covers_nothing_is_the_begin(bench: Bench) -> None:
    """That of a subscriber who began there with an empty log."""
    found = bench.locate(format_vector({Origin(INSTANCE + 1, 1): 0}), "")
    assert (found.code, found.position) == ("", 2), "the first message"
    both = {Origin(INSTANCE + 1, 1): 0, Origin(INSTANCE, 1): 4}
    assert bench.locate(format_vector(both), "").position == 5


@pytest.mark.seed("002-29")
def test_what_peers_may_bring_yet_is_waited_for(bench: Bench) -> None:
    """As at a new instance, which has heard nothing of the one where a subscriber was."""
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    vector = format_vector({Origin(INSTANCE + 1, 1): 3})
    for replicates, code in ((True, "bookmark_pending"), (False, "bookmark_not_found")):
        where = Where(INSTANCE, 1, 1, bench.core.persisted, replicates=replicates)
        assert locator.locate(1, vector, where).code == code


def test_a_lost_generation_covers_nothing_of_an_instance_with_peers(bench: Bench) -> None:
    """A vector names it beside one that is here, or alone; a later one has begun since."""
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    lost = {Origin(INSTANCE, 7): 3}
    for vector, position in ((lost, 2), ({**lost, Origin(INSTANCE, 1): 4}, 5)):
        where = Where(INSTANCE, 9, 1, bench.core.persisted, replicates=True)
        found = locator.locate(1, format_vector(vector), where)
        assert (found.code, found.position) == ("", position)
        alone = Where(INSTANCE, 9, 1, bench.core.persisted)
        assert locator.locate(1, format_vector(vector), alone).code == "bookmark_not_found"


@pytest.mark.parametrize(
    ("generation", "replicates", "code"),
    [
        (7, True, "bookmark_pending"),
        (9, True, "bookmark_not_found"),
        (7, False, "bookmark_not_found"),
    ],
)
def test_a_later_generation_of_this_instance_waits_for_one_above_it(
    bench: Bench, generation: int, *, replicates: bool, code: str
) -> None:
    """Up to the number that is believed of a reader."""
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    vector = format_vector({Origin(INSTANCE, 1): 4, Origin(INSTANCE, generation): 3})
    where = Where(INSTANCE, 1, 1, bench.core.persisted, replicates=replicates, believed=8)
    assert locator.locate(1, vector, where).code == code


def test_a_point_below_the_log_start_is_expired(bench: Bench) -> None:
    record = PointRecord("old", format_vector({Origin(INSTANCE, 1): 2}))
    bench.fold.sessions.named.points.learn(NamedRow("old", 3, encode(record)))
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    where = Where(INSTANCE, 1, 5, bench.core.persisted)
    assert locator.locate(1, "point:old", where).code == "bookmark_expired"


def test_after_the_newest_time_is_a_time_to_come(bench: Bench) -> None:
    found = bench.locate(format_time(22 * SECOND), "behind")
    assert (found.position, found.time_ns) == (11, 22 * SECOND + 1)


def test_what_is_exactly_below_the_log_start_can_be_begun_after_only(bench: Bench) -> None:
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    where = Where(INSTANCE, 1, 5, bench.core.persisted)
    vector = format_vector({Origin(INSTANCE, 1): 4})
    assert locator.locate(1, vector, where, cut="behind").position == 5
    for value in (format_bookmark(P, 3), vector):
        assert locator.locate(1, value, where, cut="at").code == "bookmark_expired"


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
        ("point:midnight", "unknown_point"),
        ("point:", "bad_bookmark"),
        ("20139999T000000Z", "bad_bookmark"),
    ],
)
def test_a_miss_has_its_answer(bench: Bench, value: str, code: str) -> None:
    assert bench.locate(value).code == code


def test_a_time_after_the_log_waits_for_it(bench: Bench) -> None:
    found: Located = bench.locate(format_time(23 * SECOND))
    assert (found.position, found.time_ns) == (11, 23 * SECOND)


def test_a_vector_of_an_older_generation_resumes_after_what_survived(tmp_path: Path) -> None:
    log, sessions = GenerationLog(), Sessions()
    sessions.origins.instance = INSTANCE
    locator = Locator(log, Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    where = Where(INSTANCE, 4, 1, 20)

    def at(*entries: tuple[int, int]) -> tuple[str, int]:
        value = format_vector({Origin(INSTANCE, g): position for g, position in entries})
        found = locator.locate(1, value, where)
        return found.code, found.position

    assert at((1, 4)) == ("", 5)
    assert at((1, 12)) == ("", 10), "positions 10 to 12 of generation 1 were given up"
    assert at((1, 9), (4, 14)) == ("", 15)
    for unknown in (2, 3, 5):
        assert at((unknown, 4))[0] == "bookmark_not_found", "of another copy of this log"
    sessions.origins.fold_row(OriginRow(INSTANCE, 3, 4, 4))
    assert at((3, 4)) == ("", 5), "its segments were removed, the snapshot still names it"
    where = Where(INSTANCE, 4, 15, 20)
    assert at((2, 4))[0] == "bookmark_expired", "whatever history it is of, it is removed here"
    assert at((2, 16))[0] == "bookmark_not_found"


def test_a_vector_of_what_was_lost_does_not_skip_what_was_removed_since(tmp_path: Path) -> None:
    """Generation 1 ended at 9; of generation 4, which began at 10, it is removed below 15."""
    log, sessions = GenerationLog(), Sessions(INSTANCE)
    log.generations, log.ends = frozenset({4}), 15
    locator = Locator(log, Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    vector, where = format_vector({Origin(INSTANCE, 1): 17}), Where(INSTANCE, 4, 15, 20)
    sessions.origins.fold_row(OriginRow(INSTANCE, 1, 9, 9))
    sessions.origins.fold_row(OriginRow(INSTANCE, 4, 19, 19))
    assert locator.locate(1, vector, where).code == "bookmark_expired"
    sessions.origins.fold_row(OriginRow(INSTANCE, 1, 14, 14))
    assert locator.locate(1, vector, where).position == 15, "it ended where the log starts"


def test_a_generation_without_a_record_is_known_when_its_segment_is_removed(
    tmp_path: Path,
) -> None:
    """The copy that was put back had been made of an empty log."""
    whole = Whole()
    write_mark(whole.disk, CopyMark(build.INSTANCE, 1))
    whole.restart()
    whole.publish("p", 1, 3)
    whole.state()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    where = Where(build.INSTANCE, whole.core.generation, whole.recovered.log_start, 4)
    locator = Locator(whole.log, Index(tmp_path / "index", build.INSTANCE), whole.core.sessions)
    found = locator.locate(1, format_vector({Origin(build.INSTANCE, 1): 36}), where)
    assert (found.code, found.position) == ("", 1), "where the next generation begins"


@pytest.mark.parametrize("foreign", [False, True])
def test_what_peers_may_still_bring_back_is_pending(tmp_path: Path, *, foreign: bool) -> None:
    """It may come as the other origin of messages that are here already."""
    log, sessions = GenerationLog(), Sessions(INSTANCE)
    locator = Locator(log, Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    sessions.origins.fold_row(OriginRow(INSTANCE, 1, 9, 9))
    if foreign:
        sessions.origins.fold_row(OriginRow(THERE, 1, 5, 5))
    lost, kept = (format_vector({Origin(INSTANCE, 1): last}) for last in (12, 9))
    fenced = Where(INSTANCE, 4, 1, 20, fenced=True)
    pending = locator.locate(1, lost, fenced)
    assert pending.code == "bookmark_pending"
    assert f"{Origin(INSTANCE, 1)} is here up to 9" in pending.reason
    assert locator.locate(1, kept, fenced).code == ""
    assert locator.locate(1, lost, Where(INSTANCE, 4, 1, 20)).code == ""


@pytest.mark.parametrize(
    ("takes", "beyond", "code"),
    [(0, 0, ""), (12, 0, "bookmark_pending"), (12, 11, "bookmark_pending"), (0, 12, "")],
)
def test_what_is_beyond_a_closed_end_is_pending_while_it_is_taken_again(
    tmp_path: Path, takes: int, beyond: int, code: str
) -> None:
    """It does not come by itself, so without a person no reader waits for it."""
    sessions = Sessions(INSTANCE)
    locator = Locator(GenerationLog(), Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    row = ClosedRow(INSTANCE, 1, 9, 4, 12, 9, 9, -1, 9, -1, beyond=beyond, takes=takes, host=THERE)
    sessions.origins.fold_closed_row(row)
    lost = format_vector({Origin(INSTANCE, 1): 12})
    assert locator.locate(1, lost, Where(INSTANCE, 4, 1, 20, fenced=True)).code == code


class GenerationLog:
    """A log whose second generation, number 4, begins at position 10."""

    generation = 4
    generations = frozenset({1, 4})
    ends = 10

    def end_of(self, generation: int) -> int | None:
        return self.ends if generation < 4 else None

    def refresh(self) -> None:
        pass

    @property
    def starts(self) -> list[Cursor]:
        return []

    def seek(self, position: int, *_: int) -> Cursor:
        return Cursor(1, 0, position)

    def headers(self, _cursor: Cursor, _limit: int) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        (1, "bookmark_expired"),  # its file may still be there, or not
        (2, "bookmark_expired"),
        (5, "bookmark_not_found"),  # never issued, as the batch after it proves
        (10, 6),
        (15, 11),
        (16, "bookmark_pending"),
    ],
)
def test_a_bookmark_below_the_log_start_is_expired(
    bench: Bench, sequence: int, expected: str | int
) -> None:
    locator = Locator(Log(bench.directory / "journal"), bench.index, bench.fold.sessions)
    where = Where(INSTANCE, 1, 5, bench.core.persisted)
    found = locator.locate(1, format_bookmark(P, sequence), where)
    assert (found.code or found.position) == expected


# -- logs with messages of several origins ----------------------------------------------------

THERE = 8
BODY = msgspec.msgpack.encode([b"x"])


class NoIndex:
    """A bookmark index that knows nothing."""

    def at_or_before(self, position: int) -> None: ...

    def before_bookmark(self, publisher: int, sequence: int) -> None: ...

    def before_time(self, ns: int) -> None: ...


class Two:
    """Messages of this instance and of another one; `p` is theirs, `q` is ours."""

    def __init__(self) -> None:
        self.whole = Whole()
        self.whole.core.sessions.fold_name(P, "p", "")
        self.at = 10  # the next origin position there
        self.coming: dict[Origin, int] = {}  # that a peer holds

    def theirs(self, first: int, count: int, prev: int) -> None:
        body = msgspec.msgpack.encode([b"x"] * count)
        record = Record(
            KIND_PUBLISH, THERE, 1, self.at, 0, 5, P, 3, first, prev, count, crc=crc32c(body),
            topics=["t"],
        )  # fmt: skip
        self.whole.give(record, body)
        self.at += count + 2  # not all that is there comes here

    def locate(self, value: str, log_start: int = 0, *, end: bool = False) -> tuple[str, int]:
        core, log = self.whole.core, self.whole.log
        log.refresh()
        where = Where(
            build.INSTANCE, core.generation, log_start or log.first_position, core.persisted,
            coming=self.coming,
        )  # fmt: skip
        locator = Locator(log, NoIndex(), core.sessions)  # type: ignore[arg-type]
        found = self.found = locator.locate(1, value, where, end=end)
        return found.code, found.position

    def vector(self, ours: int, theirs: int, generation: int = 1) -> str:
        entries = {Origin(build.INSTANCE, generation): ours, Origin(THERE, 1): theirs}
        return format_vector({origin: at for origin, at in entries.items() if at})


@pytest.fixture
def two() -> Two:
    """Positions: 1 name of q, 2-3 q, 4-6 p (10-12 there), 7 q, 8-9 p (15-16), 10 q."""
    made = Two()
    made.whole.publish("q", 1, 2)
    made.theirs(1, 3, 0)
    made.whole.publish("q", 3)
    made.theirs(4, 2, 3)
    made.whole.publish("q", 4)
    return made


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (0, 12, 2),
        (3, 0, 4),
        (3, 11, 6),
        (2, 16, 3),
        (7, 12, 8),
        (3, 16, 7),
        (7, 16, 10),
        (10, 15, 9),
        (10, 16, 11),
    ],
)
def test_a_vector_leads_to_the_first_message_that_it_does_not_cover(
    two: Two, ours: int, theirs: int, expected: int
) -> None:
    assert two.locate(two.vector(ours, theirs)) == ("", expected)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (3, 0, 4),
        (0, 10, 5),
        (0, 12, 7),
        (0, 13, 7),
        (3, 12, 7),
        (7, 10, 8),
        (2, 16, 10),
        (10, 12, 11),
    ],
)
def test_a_range_ends_after_the_last_message_that_a_vector_covers(
    two: Two, ours: int, theirs: int, expected: int
) -> None:
    assert two.locate(two.vector(ours, theirs), end=True) == ("", expected)


def test_the_end_of_a_range_that_was_removed_is_expired(two: Two) -> None:
    assert two.locate(two.vector(2, 10), log_start=5, end=True) == ("", 5)
    assert two.locate(two.vector(2, 10), log_start=6, end=True)[0] == "bookmark_expired"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (format_vector({Origin(THERE, 1): 17}), "bookmark_pending"),
        (format_vector({Origin(THERE, 2): 3}), "bookmark_pending"),
        (format_vector({Origin(7, 1): 3}), "bookmark_not_found"),
        (format_vector({Origin(build.INSTANCE, 1): 11}), "bookmark_pending"),
        (format_vector({Origin(build.INSTANCE, 2): 3}), "bookmark_not_found"),
    ],
)
def test_a_vector_of_what_is_not_here_has_its_answer(two: Two, value: str, code: str) -> None:
    assert two.locate(value)[0] == code


def test_what_an_origin_gave_up_is_not_waited_for(two: Two) -> None:
    two.whole.give(Record(KIND_NOOP, THERE, 2, 14, 0, 0), b"")
    assert two.locate(two.vector(3, 99)) == ("", 7)


def test_a_nearly_full_disk_does_not_make_an_origin_give_up_what_it_refuses(two: Two) -> None:
    """A reader saw 6 of p there up to 17, which is 6 of p here, too: the disk refuses the record
    that would tie the two, and has space for the one that begins the next generation."""
    two.whole.publish("p", 6)  # at 11
    refused = Record(
        KIND_PUBLISH, THERE, 1, 17, 0, 5, P, 3, 6, 5, 1, crc=crc32c(BODY), topics=["t"]
    )  # fmt: skip
    begins = Record(KIND_NOOP, THERE, 2, 18, 0, 0)
    two.whole.space(accepting=False)
    assert two.whole.offer(refused, BODY).code == "disk_full"
    two.whole.offer(begins, b"")
    assert two.locate(two.vector(10, 17))[0] == "bookmark_pending"
    two.whole.space(accepting=True)
    two.whole.give(refused, BODY)
    two.whole.give(begins, b"")
    assert two.locate(two.vector(10, 17)) == ("", 14), "only the tie and that record are after it"


def test_an_origin_did_not_give_up_what_another_peer_holds(two: Two) -> None:
    """A reader saw 6 of p at a third instance, up to 17 of their first generation. They were set
    back, and have it again from its publisher; what the third one holds comes after that."""
    again = Record(
        KIND_PUBLISH, THERE, 2, 18, 0, 5, P, 3, 6, 5, 1, crc=crc32c(BODY), topics=["t"]
    )  # fmt: skip
    two.whole.give(again, BODY)  # at 11
    assert two.locate(two.vector(10, 17)) == ("", 11), "no peer holds it under its first name"
    two.coming = {Origin(THERE, 1): 17}
    assert two.locate(two.vector(10, 17))[0] == "bookmark_pending"
    assert two.locate(two.vector(10, 16)) == ("", 11), "this reader has not seen it"
    two.at = 17
    two.theirs(6, 1, 5)
    assert two.locate(two.vector(10, 17)) == ("", 13), "only the tie is after it"


def test_a_tied_message_is_covered_by_either_origin(two: Two) -> None:
    two.whole.publish("p", 6)  # at 11
    two.at = 20
    two.theirs(6, 1, 5)  # a tie, at 12
    assert two.locate(two.vector(10, 16)) == ("", 11)
    assert two.locate(two.vector(10, 20)) == ("", 13), "only the tie itself is after it"


@pytest.mark.seed("004-32")
def test_only_one_segment_is_read_through(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.whole.roll_over()
    two.whole.state()
    begun = two.whole.core.next_position
    two.theirs(6, 2, 5)
    read: list[int] = []
    real = Log.seek
    monkeypatch.setattr(
        Log, "seek", lambda log, position, *at: (read.append(position), real(log, position, *at))[1]
    )
    code, position = two.locate(two.vector(begun - 1, 16))
    assert (code, position) == ("", begun)
    assert min(read) > 10


def test_a_vector_that_misses_what_was_removed_is_expired(two: Two) -> None:
    two.whole.roll_over()
    two.whole.state()
    two.whole.log.refresh()
    two.whole.remove_oldest()
    log_start = two.whole.log.first_position
    messages = two.whole.core.sessions.origins.messages
    ours, theirs = messages[Origin(build.INSTANCE, 1)], 16
    assert log_start > 10
    last = two.whole.core.persisted
    assert two.locate(two.vector(ours, theirs)) == ("", last)
    assert two.locate(two.vector(ours, theirs - 1))[0] == "bookmark_expired"
    assert two.locate(two.vector(log_start - 1, theirs)) == ("", log_start), "exactly there"
    before = [b for b in two.whole.gone if b.kind == KIND_PUBLISH and b.origin_instance != THERE]
    newest = before[-1].end_position - 1
    assert two.locate(two.vector(newest, theirs)) == ("", log_start)
    assert two.locate(two.vector(newest - 1, theirs))[0] == "bookmark_expired"


def test_a_tie_that_was_removed_is_not_missed(two: Two) -> None:
    """A reader had 6 of p here before its other origin came, went on there, and comes back."""
    two.whole.publish("p", 6)  # at 11
    two.at = 20
    two.theirs(6, 1, 5)  # a tie, at 12
    two.whole.roll_over()
    two.whole.state()
    two.whole.log.refresh()
    two.whole.remove_oldest()
    for _ in range(2):
        ours = two.whole.core.sessions.origins.messages[Origin(build.INSTANCE, 1)]
        assert two.locate(two.vector(ours, 16)) == ("", two.whole.core.persisted)
        assert two.locate(two.vector(ours, 15))[0] == "bookmark_expired"
        two.whole.restart()


def test_a_late_message_is_found_after_what_proves_that_it_was_missing(two: Two) -> None:
    two.theirs(9, 1, 8)
    hole = two.locate(format_bookmark(P, 7))
    two.theirs(6, 3, 5)
    assert hole[0] == "bookmark_pending"
    assert two.locate(format_bookmark(P, 7)) == ("", 14)
    assert two.locate(format_bookmark(P, 9)) == ("", 12)


def test_a_sequence_that_was_never_issued_is_not_waited_for(two: Two) -> None:
    two.theirs(9, 1, 5)
    assert two.locate(format_bookmark(P, 7))[0] == "bookmark_not_found"
    two.whole.publish("q", 20)
    assert two.locate(format_bookmark(publisher_id("q"), 7))[0] == "bookmark_not_found"


def test_a_vector_below_the_log_start_is_expired_on_a_lone_instance() -> None:
    alone = Two()
    alone.whole.publish("q", 1, 9)
    value = format_vector({Origin(build.INSTANCE, 1): 4})
    assert alone.locate(value, log_start=5) == ("", 5)
    assert alone.locate(value, log_start=6)[0] == "bookmark_expired"


def test_a_vector_that_covers_all_that_was_removed_leads_to_the_log_start() -> None:
    """What was removed after its last message was none: a fact, a snapshot, the noop here."""
    alone = Two()
    alone.whole.publish("q", 1, 9)
    alone.whole.core.append_control(KIND_NOOP, b"")
    alone.whole.commit()
    assert alone.locate(alone.vector(10, 0), log_start=12) == ("", 12)
    assert alone.locate(alone.vector(9, 0), log_start=12)[0] == "bookmark_expired"


def test_a_vector_of_a_generation_covers_older_ones_that_were_removed() -> None:
    alone = Two()
    alone.whole.publish("q", 1, 9)
    alone.whole.process.core.raise_generation()
    alone.whole.process.turn()
    alone.whole.publish("q", 10)
    alone.whole.core.append_control(KIND_NOOP, b"")
    alone.whole.commit()
    generation, log_start = alone.whole.core.generation, alone.whole.core.persisted
    newest = log_start - 2
    assert generation > 1
    assert alone.locate(alone.vector(newest, 0, generation), log_start) == ("", log_start)
    assert alone.locate(alone.vector(10, 0), log_start)[0] == "bookmark_expired"


@pytest.mark.parametrize("seen", [0, 2, 4])
def test_a_vector_that_leads_before_the_end_of_older_generations_has_not_passed_them(
    seen: int,
) -> None:
    """The newest generation that it names is there at 0, as in an answer on a new log."""
    alone = Two()
    alone.whole.publish("q", 1, 9)
    alone.whole.process.core.raise_generation()
    alone.whole.process.turn()
    alone.whole.publish("q", 10)
    older, newer = (Origin(build.INSTANCE, one) for one in (1, alone.whole.core.generation))
    value = format_vector({older: seen, newer: 0})
    assert alone.locate(value) == ("", 1)
    assert alone.found.passed == [(*older, seen), (*newer, 0)]
    assert alone.locate(value, log_start=6)[0] == "bookmark_expired"
    newest = alone.whole.core.persisted - 1
    assert alone.locate(format_vector({newer: newest})) == ("", newest + 1)
    assert alone.found.passed == [(*newer, newest), (*older, 10)]


def test_a_log_whose_snapshots_do_not_say_how_it_began_expires_rather_too_much(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.whole.roll_over()
    two.whole.state()
    two.whole.log.refresh()
    two.whole.remove_oldest()
    log_start = two.whole.log.first_position
    monkeypatch.setattr("zbroker.journal.snapshot.begun", lambda _body, _first: None)
    ours = two.whole.core.sessions.origins.messages[Origin(build.INSTANCE, 1)]
    assert two.locate(two.vector(ours, 16)) == ("", two.whole.core.persisted)
    assert two.locate(two.vector(log_start - 1, 16)) == ("", log_start)
    assert two.locate(two.vector(log_start - 2, 16))[0] == "bookmark_expired"


# -- how much is read -------------------------------------------------------------------------


class Steps:
    """Counts the batch headers that are looked at in a log of many blocks."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, looking: Looking) -> None:
        self.looking = looking
        self.locator = looking.look(path)
        self.read = 0
        real = Log.headers
        monkeypatch.setattr(
            Log, "headers", lambda log, *at: (self._counted(item) for item in real(log, *at))
        )

    def _counted(self, item: object) -> object:
        self.read += 1
        return item

    def of(self, value: str, **how: Any) -> tuple[str | int, int]:
        """The answer, and how many were looked at."""
        self.read = 0
        found = self.locator.locate(1, value, self.looking.where, **how)
        return found.code or found.position, self.read


BLOCK = 200  # more batches of 400 bytes than a block of the index has


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Publisher "a" is silent for most of it, and time stands still for a part of it."""
    looking = Looking()
    looking.publish("a", [100])
    for number in range(300):
        looking.publish("b", [200 + number], size=300)
    for _ in range(NEAR_BATCHES + BLOCK):
        looking.publish("b", [2_000], size=300)
    for number in range(300):
        looking.publish("b", [3_000 + number], size=300)
    looking.publish("a", [5_000], skip=50)
    return Steps(tmp_path, monkeypatch, looking)


def test_a_sequence_that_was_never_issued_costs_few_looks(steps: Steps) -> None:
    code, read = steps.of(format_bookmark(publisher_id("a"), 20))
    assert code == "bookmark_not_found"
    assert read <= NEAR_BATCHES + 1


def test_a_bookmark_that_was_removed_costs_one_look(steps: Steps) -> None:
    steps.looking.log_start = steps.looking.messages[500].position
    steps.looking.index.forget_before(steps.looking.log_start)
    assert steps.of(format_bookmark(publisher_id("a"), 1)) == ("bookmark_expired", 1)
    assert steps.of(format_bookmark(publisher_id("b"), 3)) == ("bookmark_expired", 1)
    assert steps.of(format_bookmark(publisher_id("a"), 20)) == ("bookmark_not_found", 1)


def test_every_bookmark_that_is_there_is_found_within_its_block(steps: Steps) -> None:
    for seen in steps.looking.messages[::37]:
        position, read = steps.of(format_bookmark(seen.publisher, seen.sequence))
        assert position == seen.position + 1
        assert read <= BLOCK


def test_a_time_is_found_within_a_block_also_where_it_stood_still(steps: Steps) -> None:
    messages = steps.looking.messages
    for seen in messages[::37]:
        position, read = steps.of(format_time(seen.time_ns))
        assert position == next(one.position for one in messages if one.time_ns >= seen.time_ns)
        assert read <= BLOCK
    behind = next(one.position for one in messages if one.time_ns > 2_000 * SECOND)
    position, read = steps.of(format_time(2_000 * SECOND), cut="behind")
    assert position == behind
    assert read <= NEAR_BATCHES + 2 * BLOCK


def test_without_an_index_a_time_is_looked_for_in_one_segment(tmp_path: Path) -> None:
    looking = Looking()
    looking.fill(random.Random(3), 200)
    locator = looking.look(tmp_path, indexed=False)
    for seen in looking.messages[::7]:
        found = locator.locate(1, format_time(seen.time_ns), looking.where)
        first = next(one.position for one in looking.messages if one.time_ns >= seen.time_ns)
        assert found.position == first


class Many:
    """A long log of two origins, with an index; theirs are silent for the first part of it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.two = Two()
        rng, sequence, mine = random.Random(seed), 0, 0
        for number in range(160):
            if number > 40 and rng.random() < 0.4:
                count = rng.randint(1, 3)
                self.two.theirs(sequence + 1, count, sequence)
                sequence += count
            else:
                mine += 1
                self.two.whole.publish("q", mine, size=rng.choice([10, 2_000]))
            if number % 50 == 49:
                self.two.whole.state()
        whole = self.two.whole
        whole.log.refresh()
        self.index = Index(path / "index", build.INSTANCE)
        for item in whole.log.headers(whole.log.seek(1), whole.core.persisted):
            assert not isinstance(item, Gap)
            self.index.add(item[0], item[1].serial)
        self.locator = Locator(whole.log, self.index, whole.core.sessions)
        self.where = Where(build.INSTANCE, whole.core.generation, 1, whole.core.persisted)
        self.published = [one for one in whole.batches() if one.kind == KIND_PUBLISH]

    def model(self, vector: dict[Origin, int], *, end: bool) -> int:
        """By looking at every message."""
        cover = Cover(dict(vector))
        if not end:
            left = [(b, runs) for b in self.published if (runs := cover.left(b))]
            return left[0][0].position + left[0][1][0][0] - left[0][0].sequence if left else (
                self.where.persisted)  # fmt: skip
        own = vector.get(Origin(build.INSTANCE, 1), -1) + 1
        covered = [
            b.position + step + 1 for b in self.published for step in range(b.taken)
            if vector.get(Origin(b.origin_instance, b.origin_generation), 0)
            >= b.origin_position + step
        ]  # fmt: skip
        return max([own, *covered, 1])


@pytest.mark.parametrize("near", [1_000, 6])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_vector_leads_where_a_look_at_everything_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, near: int
) -> None:
    """With few batches to a look the answer may be before it, never after."""
    many = Many(tmp_path, seed)
    monkeypatch.setattr("zbroker.journal.locate_vector.NEAR_BATCHES", near)
    rng = random.Random(seed)
    ours, theirs = ([b for b in many.published if (b.origin_instance == THERE) == there]
                    for there in (False, True))  # fmt: skip
    for _ in range(80):
        vector = {
            Origin(build.INSTANCE, 1): rng.choice(ours).position,
            Origin(THERE, 1): rng.choice(theirs).origin_position,
        }
        for end in (False, True):
            found = many.locator.locate(1, format_vector(vector), many.where, end=end)
            wanted = many.model(vector, end=end)
            assert found.code == ""
            if near == 1_000:
                assert found.position == wanted, (vector, end)
            else:
                assert (found.position >= wanted) if end else (found.position <= wanted)


def test_a_miss_after_what_came_late_costs_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two()
    two.whole.publish("q", 1)
    for place in ((1, 3, 0), (9, 1, 8), (20, 1, 9), (4, 5, 3)):  # 10 to 19 never; 4 to 8 late
        two.theirs(*place)
    for number in range(2, 2 + 3 * NEAR_BATCHES):
        two.whole.publish("q", number)
    whole = two.whole
    whole.log.refresh()
    index = Index(tmp_path / "index", build.INSTANCE)
    for item in whole.log.headers(whole.log.seek(1), whole.core.persisted):
        assert not isinstance(item, Gap)
        index.add(item[0], item[1].serial)
    looks = []
    headers = Log.headers

    def counted(log: Log, *at: Any) -> Iterator[Any]:
        for item in headers(log, *at):
            looks.append(item)
            yield item

    monkeypatch.setattr(Log, "headers", counted)
    core = whole.core
    where = Where(build.INSTANCE, core.generation, whole.log.first_position, core.persisted)
    locator = Locator(whole.log, index, core.sessions)
    assert locator.locate(1, format_bookmark(P, 15), where).code == "bookmark_not_found"
    assert len(looks) <= 2 * NEAR_BATCHES + 1
    index.close()
