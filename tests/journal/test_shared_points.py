"""Points of all instances: in whatever order records are read, all have the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies
from msgspec import msgpack

from tests.journal.build import publish
from tests.journal.whole import Whole, control, point
from zbroker.ids import Origin
from zbroker.journal import shared_points, snapshot
from zbroker.journal.sessions import Sessions
from zbroker.journal.shared_points import SharedPoints
from zbroker.log.format import KIND_POINT, KIND_SHARED_POINT, Batch
from zbroker.log.point_records import (
    COVERS_MAX_BYTES,
    ENDED_AT_ONCE_MAX,
    PointId,
    SharedPointRecord,
    SharedPointRow,
    decoded_point,
    decoded_row,
    wrong_point,
)
from zbroker.log.records import encode

COVERS = "00000000000000a1.1.5"


def record(
    instance: int, position: int, said: SharedPointRecord | bytes, at: int = 0, generation: int = 1
) -> Batch:
    """As it is in a log, at position `at`."""
    made = publish(at or position, said if isinstance(said, bytes) else encode(said))
    made.kind, made.topics = KIND_SHARED_POINT, []
    made.origin_instance, made.origin_generation = instance, generation
    made.origin_position = position
    return made


def fold(sessions: Sessions, *batches: Batch) -> None:
    """As the journal reads its log."""
    for batch in batches:
        sessions.named.fold(batch)
        sessions.origins.fold(batch)


def meant(sessions: Sessions) -> dict[str, PointId]:
    """The point that each name means."""
    shared = sessions.named.shared
    return {row.name: found.id for row in shared.rows() if (found := shared.meant(row.name))}


def again(sessions: Sessions) -> Sessions:
    """After a start that reads a snapshot."""
    begun, cutter = Sessions(), snapshot.Cutter(snapshot.folds(sessions), 9)
    while not cutter.done:
        body = snapshot.decode(cutter.cut())
        assert body is not None
        snapshot.learn(body, snapshot.folds(begun))
    return begun


def ended(sessions: Sessions) -> list[PointId]:
    """What the snapshots after the next one say of points that are over."""
    list(sessions.named.shared.lasting())
    return [row.id for row in sessions.named.shared.lasting() if not row.covers]


SET = record(0xA, 3, SharedPointRecord("eod", 7, COVERS))
MADE = PointId(0xA, 1, 3)


def test_a_record_sets_a_point() -> None:
    sessions = Sessions()
    fold(sessions, SET)
    assert sessions.named.shared.meant("eod") == SharedPointRow(*MADE, "eod", 7, COVERS, 3)
    assert sessions.named.changes == 1
    fold(sessions, SET)
    assert sessions.named.changes == 1


@pytest.mark.parametrize("remover", [0xA, 0xB])
def test_a_removal_counts_whichever_is_read_first(remover: int) -> None:
    removal = record(remover, 5, SharedPointRecord("eod", ends=[MADE]))
    for order in ([SET, removal], [removal, SET]):
        sessions = Sessions()
        fold(sessions, *order)
        assert meant(sessions) == meant(again(sessions)) == {}


def test_an_end_is_remembered_until_the_point_was_read() -> None:
    sessions = Sessions()
    fold(sessions, record(0xB, 5, SharedPointRecord("eod", ends=[MADE])))
    assert ended(sessions) == ended(again(sessions)) == [MADE]
    sessions = again(sessions)
    fold(sessions, SET)
    assert (ended(sessions), meant(sessions)) == ([], {})


def test_a_point_that_is_read_while_a_snapshot_is_written_stays_removed() -> None:
    """A start reads its record after the first part, before the part that has the ends."""
    sessions = Sessions()
    fold(sessions, record(0xB, 5, SharedPointRecord("eod", ends=[MADE])))
    begun = again(Sessions())
    fold(sessions, SET)
    fold(begun, SET)
    for row in list(sessions.named.shared.lasting()):
        begun.named.learn_shared(row)
    assert meant(begun) == {}


def test_an_end_is_forgotten_where_the_point_never_comes() -> None:
    """Its origin is here up to there, as where the log began with the state of another instance."""
    sessions = Sessions()
    fold(sessions, record(0xB, 5, SharedPointRecord("eod", ends=[MADE])))
    fold(sessions, record(0xA, 4, b""))
    assert ended(sessions) == []
    late = Sessions()
    fold(late, record(0xA, 4, b""), record(0xB, 5, SharedPointRecord("eod", ends=[MADE])))
    assert ended(late) == []


def test_a_removal_ends_nothing_that_its_writer_did_not_know() -> None:
    other = record(0xB, 4, SharedPointRecord("eod", 9, COVERS))
    removal = record(0xA, 5, SharedPointRecord("eod", ends=[MADE]))
    for order in ([SET, removal, other], [other, SET, removal], [removal, other, SET]):
        sessions = Sessions()
        fold(sessions, *order)
        assert meant(sessions) == {"eod": PointId(0xB, 1, 4)}


def test_of_two_that_were_set_apart_the_higher_number_is_meant() -> None:
    higher = record(0xB, 4, SharedPointRecord("eod", 9, COVERS))
    for order in ([SET, higher], [higher, SET]):
        sessions = Sessions()
        fold(sessions, *order)
        assert meant(sessions) == {"eod": PointId(0xB, 1, 4)}
        fold(sessions, record(0xB, 6, SharedPointRecord("eod", ends=[PointId(0xB, 1, 4)])))
        assert meant(sessions) == {"eod": MADE}


def test_of_equal_numbers_the_later_record_of_an_instance_is_meant() -> None:
    later = record(0xA, 4, SharedPointRecord("eod", 7, COVERS))
    sessions = Sessions()
    fold(sessions, SET, later)
    assert meant(sessions) == {"eod": PointId(0xA, 1, 4)}


def test_an_end_under_another_name_ends_nothing() -> None:
    wrong = record(0xB, 5, SharedPointRecord("other", ends=[MADE]))
    for order in ([SET, wrong], [wrong, SET]):
        sessions = Sessions()
        fold(sessions, *order)
        assert meant(sessions) == {"eod": MADE}


# -- any order ------------------------------------------------------------------------------------

Histories = list[list[Batch]]


def histories(rng: Random) -> Histories:
    """What three instances wrote, each by what it had read of the others then."""
    many = [Sessions() for _ in range(3)]
    wrote: Histories = [[], [], []]
    read = [[0, 0, 0] for _ in range(3)]
    for step in range(rng.randint(1, 25)):
        here = rng.randrange(3)
        for there in range(3):
            while here != there and read[here][there] < len(wrote[there]) and rng.random() < 0.5:
                fold(many[here], wrote[there][read[here][there]])
                read[here][there] += 1
        name = rng.choice("xy")
        known = [row.id for row in many[here].named.shared.rows() if row.name == name]
        covers = COVERS if rng.random() < 0.6 else ""
        said = SharedPointRecord(name, rng.randrange(5), covers, known)
        wrote[here].append(record(here + 1, step + 1, said))
        fold(many[here], wrote[here][-1])
    return wrote


def merged(wrote: Histories, rng: Random) -> Sessions:
    """What an instance has that reads these records, with starts in between."""
    sessions, left = Sessions(), [list(one) for one in wrote]
    while any(left):
        fold(sessions, rng.choice([one for one in left if one]).pop(0))
        if rng.random() < 0.2:
            sessions = again(sessions)
    return sessions


@given(strategies.integers(0, 1 << 32))
def test_all_have_the_same_points_in_the_end(seed: int) -> None:
    rng = Random(seed)
    wrote = histories(rng)
    one, two = (merged(wrote, rng) for _ in range(2))
    assert meant(one) == meant(two)
    assert (ended(one), ended(two)) == ([], [])
    over = {end for many in wrote for batch in many for end in _record(batch).ends}
    made = {
        PointId(*batch.origin, batch.origin_position)
        for many in wrote for batch in many if _record(batch).covers
    }  # fmt: skip
    assert {row.id for row in one.named.shared.rows()} == made - over


def _record(batch: Batch) -> SharedPointRecord:
    found = decoded_point(batch.body)
    assert found is not None
    return found


# -- names ----------------------------------------------------------------------------------------


def local(position: int, name: str, *, removed: bool = False) -> Batch:
    made = publish(position, point(name, COVERS, removed=removed)[1])
    made.kind = KIND_POINT
    return made


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_shared_point_takes_the_place_of_a_local_one(order: Sequence[int]) -> None:
    sessions, both = Sessions(), [local(2, "eod"), SET]
    fold(sessions, *(both[at] for at in order))
    for one in (sessions, again(sessions)):
        assert (list(one.named.points), meant(one)) == ([], {"eod": MADE})


def test_after_its_removal_the_name_is_free_for_a_local_point() -> None:
    sessions = Sessions()
    fold(sessions, SET, record(0xA, 5, SharedPointRecord("eod", ends=[MADE])), local(6, "eod"))
    for one in (sessions, again(sessions)):
        assert (list(one.named.points), meant(one)) == (["eod"], {})


def test_a_removal_leaves_a_local_point_of_that_name() -> None:
    sessions = Sessions()
    fold(sessions, local(2, "eod"), record(0xB, 5, SharedPointRecord("eod", ends=[MADE])))
    assert list(again(sessions).named.points) == ["eod"]


# -- what an instance may not say -----------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"", b"\xc1", b"\x80",
        SharedPointRecord("", 1, COVERS),
        SharedPointRecord("n" * 256, 1, COVERS),
        SharedPointRecord("a\nb", 1, COVERS),
        SharedPointRecord("eod", -1, COVERS),
        SharedPointRecord("eod", 1 << 63, COVERS),
        SharedPointRecord("eod", 1, "no vector"),
        SharedPointRecord("eod", 1, "00000000000000a1.4294967296.5"),
        SharedPointRecord("eod", 1, f"00000000000000a1.1.{1 << 63}"),
        SharedPointRecord("eod", 1, ",".join([COVERS] * (COVERS_MAX_BYTES // 20))),
        SharedPointRecord("eod", 1, COVERS, [MADE] * (ENDED_AT_ONCE_MAX + 1)),
        SharedPointRecord("eod", 1, COVERS, [PointId(1, 1 << 32, 1)]),
        SharedPointRecord("eod", 1, COVERS, [PointId(1, 1, -1)]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_stepped_over(said: SharedPointRecord | bytes) -> None:
    sessions = Sessions()
    fold(sessions, record(0xA, 3, said))
    assert (meant(sessions), ended(sessions), sessions.named.changes) == ({}, [], 0)
    part, body = control(KIND_SHARED_POINT, bytes(record(0xA, 3, said).body))
    [item] = Whole().units([(part, body)])
    assert item.code == "bad_field"


def test_a_key_of_a_newer_release_is_stepped_over() -> None:
    sessions = Sessions()
    body = msgpack.encode({"name": "eod", "number": 7, "covers": COVERS, "later": [1]})
    fold(sessions, record(0xA, 3, body))
    assert meant(sessions) == {"eod": MADE}


def flood(count: int, **said: Any) -> list[Batch]:
    return [
        record(0xA, at, SharedPointRecord(f"n{at}", at, **said)) for at in range(1, count + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "most"), [("KEPT_MAX", 2), ("KEPT_MAX_BYTES", 2 * len(COVERS))])
def test_a_peer_cannot_push_out_what_is_there(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_points, limit, most)
    sessions = Sessions()
    fold(sessions, *flood(5, covers=COVERS))
    assert list(meant(sessions)) == ["n1", "n2"]
    fold(sessions, record(0xA, 9, SharedPointRecord("n1", ends=[PointId(0xA, 1, 1)])))
    fold(sessions, record(0xA, 10, SharedPointRecord("new", 1, COVERS)))
    assert list(meant(sessions)) == ["n2", "new"]


def test_the_newest_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_points, "ENDS_MAX", 2)
    sessions, far = Sessions(), [PointId(0xF, 1, at) for at in (1, 2, 3)]
    fold(sessions, *(
        record(0xA, at, SharedPointRecord("eod", ends=[one])) for at, one in enumerate(far, 1)
    ))  # fmt: skip
    assert ended(sessions) == ended(again(sessions)) == far[1:]


def test_one_that_comes_while_rows_are_reported_does_no_harm() -> None:
    sessions = Sessions()
    fold(sessions, *flood(3, covers=COVERS))
    rows = sessions.named.shared.rows()
    first = next(rows)
    fold(sessions, record(0xA, 9, SharedPointRecord("n2", ends=[PointId(0xA, 1, 2)])))
    assert [row.name for row in [first, *rows]] == ["n1", "n3"]


# -- the journal ----------------------------------------------------------------------------------


def test_a_log_without_one_has_the_snapshots_of_before() -> None:
    body = snapshot.decode(snapshot.Cutter(snapshot.folds(Sessions()), 9).cut())
    assert body is not None
    assert "shared_points" not in body.folds


def test_who_asks_for_names_gets_them_and_watermarks_say_when() -> None:
    whole = Whole()
    before = whole.core.watermarks().message.definitions
    [item] = whole.units([control(KIND_SHARED_POINT, encode(SharedPointRecord("e", 7, COVERS)))])
    assert whole.core.watermarks().message.definitions == before + 1
    [row] = whole.named().shared
    here = Origin(whole.instance, whole.core.generation)
    found = decoded_row(row.body)
    assert found == SharedPointRow(*here, item.position, "e", 7, COVERS, item.position)
    whole.restart()
    assert whole.named().shared == [row]


def test_a_good_row_has_nothing_wrong() -> None:
    assert wrong_point(SharedPointRow(*MADE, "eod", 7, COVERS)) == ""
    assert wrong_point(SharedPointRow(*MADE, "eod")) == "", "the end of one"
    assert SharedPoints(lambda _origin: 0).meant("eod") is None
