"""The table that a start comes to: from the log's beginning, from a snapshot, from anywhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.journal import build
from tests.journal.whole import LISTENER, MINE, Whole, fact, letters, point, table, wiring
from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.ids import publisher_id
from zbroker.journal.fold import LogFold
from zbroker.log import records
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, KIND_PUBLISHER, STEP_OVER, Batch
from zbroker.wire import internal as m
from zbroker.wire.internal import Record

THERE = 8


def folded(batches: list[Batch]) -> LogFold:
    fold = LogFold(build.INSTANCE)
    for batch in batches:
        fold(batch, 1)
    return fold


def test_publishers_whose_segments_are_gone_are_still_known() -> None:
    whole = Whole()
    whole.publish("old", 1, 3)
    known = whole.core.sessions.get(publisher_id("old"))
    assert known is not None
    session = known.session
    whole.roll_over()
    whole.state()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    assert whole.recovered.log_start > 4
    found = whole.core.sessions.get(publisher_id("old"))
    assert found is not None
    assert (found.name, found.principal, found.high, found.named) == ("old", "alice", 3, True)
    whole.hear(LISTENER, m.Open(2, MINE, "old", ""), [])
    whole.commit()
    assert found.session > session, "a session number is never given twice"
    assert not any(finding.code == "journal.state_missing" for finding in whole.recovered.findings)


def test_the_names_after_a_removal_are_not_written_again() -> None:
    whole = Whole()
    whole.publish("old", 1)
    whole.roll_over()
    whole.state()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    end = whole.core.next_position
    whole.publish("old", 2)
    assert [b.kind for b in whole.batches() if b.position >= end] == [KIND_PUBLISH]


def test_without_a_snapshot_it_is_reported_what_is_missing() -> None:
    whole = Whole()
    whole.publish("old", 1)
    whole.roll_over()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    [finding] = [f for f in whole.recovered.findings if f.code == "journal.state_missing"]
    assert "are unknown" in finding.means
    assert whole.core.sessions.get(publisher_id("old")) is None
    assert whole.fold.state_serial == 0


def test_the_walk_begins_at_the_snapshot() -> None:
    whole = Whole()
    whole.publish("p", 1, 3)
    whole.roll_over()
    whole.log.refresh()
    start = whole.core.next_position
    whole.state()
    cursor, missing = LogFold(build.INSTANCE).begin(whole.log, whole.core.persisted)
    assert (cursor.position, missing) == (start, "")


def test_the_newest_complete_snapshot_is_known_by_its_segment() -> None:
    whole = Whole()
    whole.publish("p", 1)
    whole.roll_over()
    whole.state()
    assert whole.core.state_serial == 2
    whole.restart()
    assert whole.fold.state_serial == whole.core.state_serial == 2


def test_a_damaged_name_is_left_out_and_its_messages_count() -> None:
    whole = Whole()
    whole.publish("p", 1, 3)
    [name] = [batch for batch in whole.batches() if batch.kind == KIND_PUBLISHER]
    whole.roll_over()
    whole.damage(name)
    whole.restart()
    known = whole.core.sessions.get(publisher_id("p"))
    assert known is not None
    assert (known.name, known.high) == ("", 3)


@pytest.mark.parametrize(("kind", "stops"), [(99, True), (STEP_OVER | 99, False)])
def test_an_unknown_kind_stops_the_start_unless_it_may_be_stepped_over(
    kind: int, stops: bool
) -> None:
    batch = build.publish(1, b"x")
    batch.kind = kind
    if not stops:
        LogFold()(batch, 1)
        return
    with pytest.raises(StorageError) as caught:
        LogFold()(batch, 1)
    assert caught.value.code == "unknown_version"


# -- any starting point -----------------------------------------------------------------------

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "record", "late", "unit", "state", "restart"]),
        st.integers(0, 2),
        st.integers(1, 5),
    ),
    min_size=4,
    max_size=25,
)


def play(whole: Whole, steps: list[Step]) -> None:
    """A history with sessions, holes, late arrivals, ties, units and snapshots."""
    at = 1
    for what, who, count in steps:
        name = f"p{who}"
        known = whole.core.sessions.get(publisher_id(name))
        high = known.high if known is not None else 0
        if what == "publish":
            whole.publish(name, high + count, count)
        elif what in ("record", "late"):
            first = max(1, high + count * 3 if what == "record" else high - 2 * count)
            body = msgspec.msgpack.encode([b"x"] * count)
            teach = records.encode(records.PublisherRecord(name, "alice"))
            whole.give(Record(KIND_PUBLISHER, THERE, 1, 0, 0, 0, publisher_id(name)), teach)
            whole.give(
                Record(
                    KIND_PUBLISH, THERE, 1, at, 0, at, publisher_id(name), 50 + at % 3, first,
                    max(0, first - count), count, crc=crc32c(body), topics=["t"],
                ),
                body,
            )  # fmt: skip
            at += count
        elif what == "unit":
            made = wiring(name) if count % 2 else point(name)
            whole.units([letters(*[b"x"] * count), made, fact()])
        elif what == "state":
            whole.state()
        else:
            whole.restart()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_every_beginning_before_a_complete_snapshot_comes_to_the_same_table(
    steps: list[Step],
) -> None:
    whole = Whole()
    whole.publish("p0", 1)
    whole.state()
    play(whole, steps)
    whole.state()
    batches, last = whole.batches(), whole.states()[-1].position
    complete = table(folded(batches).sessions)
    for start in range(1, last + 1):
        later = [batch for batch in batches if batch.position >= start]
        assert table(folded(later).sessions) == complete, f"from position {start}"
    assert complete == table(whole.core.sessions), "the last snapshot tells all that was given"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_a_start_comes_to_the_table_that_the_core_had(steps: list[Step]) -> None:
    whole = Whole()
    play(whole, steps)
    whole.state()
    before = table(whole.core.sessions)
    whole.restart()
    assert table(whole.core.sessions) == before


def test_a_noop_says_only_how_far_its_origin_is_here() -> None:
    whole = Whole()
    whole.give(Record(KIND_NOOP, THERE, 1, 40, 0, 0), b"")
    before = table(whole.core.sessions)
    whole.restart()
    assert table(whole.core.sessions) == before
    assert [o.position for o in whole.core.sessions.origins.rows() if o.instance == THERE] == [40]


def test_a_snapshot_with_a_damaged_part_does_not_count() -> None:
    whole = Whole()
    whole.publish("p", 1, 3)
    whole.state()
    [state] = whole.states()
    whole.roll_over()
    whole.damage(state)
    whole.restart()
    known = whole.core.sessions.get(publisher_id("p"))
    assert known is not None
    assert (known.high, whole.fold.state_serial) == (3, 0)
