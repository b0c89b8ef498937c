"""zbroker/journal/units.py, stages.py: staged messages become visible at once, or never."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.whole import DOOR, MINE, Whole, table
from zbroker.ids import publisher_id
from zbroker.journal import group_builder, stages
from zbroker.journal.stages import AppRow, StageRow, Stages
from zbroker.log.format import KIND_PUBLISH, KIND_STAGED, Batch
from zbroker.log.headers import Gap, Skipped
from zbroker.log.references import Reference
from zbroker.wire import internal as m
from zbroker.wire.stages import CommitStages, StagedBy, StagesDone

DAY_MS = stages.STAGED_MS


def shown(at: Whole, max_bytes: int = 1 << 20) -> list[tuple[int, int, str, bytes]]:
    """Position, sequence, topic and payload of every message that readers see."""
    cursor, end, found = at.log.seek(1), at.core.persisted, []
    at.log.refresh()
    while cursor.position < end:
        items, cursor = at.log.read(cursor, end, max_bytes)
        for item in items:
            assert isinstance(item, Batch)
            if item.kind == KIND_PUBLISH:
                payloads = msgspec.msgpack.decode(bytes(item.body))
                found += [
                    (item.position + n, item.sequence + n, item.topics[0], payload)
                    for n, payload in enumerate(payloads)
                ]
    return found


def test_what_is_staged_is_shown_to_nobody() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    assert shown(at) == []
    assert [batch.kind for batch in at.batches()].count(KIND_STAGED) == 1


def test_a_commit_shows_it_in_the_order_of_its_tokens() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.stage("two", b"c", topic="u")
    at.stage("one", b"d")
    done = at.commit_stages("app", 7, two=1, one=3)
    assert (done.count, done.already, done.code) == (4, False, "")
    assert shown(at) == [
        (done.position, 1, "u", b"c"),
        (done.position + 1, 2, "t", b"a"),
        (done.position + 2, 3, "t", b"b"),
        (done.position + 3, 4, "t", b"d"),
    ]


def test_it_is_published_under_a_name_of_its_own() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.commit_stages("app", 1, one=1)
    at.stage("two", b"b")
    at.commit_stages("app", 2, two=1)
    assert [sequence for _, sequence, _, _ in shown(at)] == [1, 2]
    known = at.core.sessions.get(publisher_id("$staged.app"))
    assert known is not None
    assert (known.name, known.high, known.acked) == ("$staged.app", 2, 2)


@pytest.mark.parametrize("again", ["the same journal", "the next one"])
def test_a_commit_is_idempotent(again: str) -> None:
    at = Whole()
    at.stage("one", b"a")
    first = at.commit_stages("app", 7, one=1)
    if again == "the next one":
        at.restart()
    assert at.commit_stages("app", 7, one=1) == StagesDone(1, first.position, 1, already=True)
    assert at.commit_stages("app", 6, one=1) == StagesDone(1, already=True), "older than the newest"
    assert len(shown(at)) == 1


@pytest.mark.parametrize("messages", [1, 3])
def test_a_commit_of_other_messages_than_are_here_is_refused(messages: int) -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    assert at.commit_stages("app", 1, one=messages).code == "stage_unknown"
    assert at.commit_stages("app", 1, other=1).code == "stage_unknown"
    assert shown(at) == []
    assert at.commit_stages("app", 1, one=2).count == 2, "nothing is lost by it"


def test_a_commit_of_nothing_is_done() -> None:
    at = Whole()
    assert at.commit_stages("app", 1) == StagesDone(1)


def test_what_is_aborted_cannot_be_committed() -> None:
    at = Whole()
    at.stage("one", b"a")
    assert at.abort_stages("one", "never") == StagesDone(5)
    assert at.core.sessions.stages.bytes == 0
    assert at.commit_stages("app", 1, one=1).code == "stage_unknown"


def test_a_nearly_full_disk_takes_no_commit() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.space(accepting=False)
    assert at.commit_stages("app", 1, one=1).code == "disk_full"
    at.space(accepting=True)
    assert at.commit_stages("app", 1, one=1).count == 1


def test_more_than_the_quota_is_refused_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_builder, "STAGED_MAX_BYTES", 100)
    at = Whole()
    at.stage("one", b"x" * 60)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.get("alice", "two") is None
    assert at.core.refused == 1
    at.commit_stages("app", 1, one=1)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.get("alice", "two") is not None


def test_a_staged_batch_that_comes_again_is_there_once() -> None:
    at = Whole()
    at.stage("one", b"a")
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    body = msgspec.msgpack.encode([b"a"])
    entry = m.Entry(
        known.id, known.session, 1, 1, 0, group_builder.crc32c(body), None, ["t"], stage="one"
    )
    at.hear(DOOR, m.Append(MINE, at.ordinal, 0, [entry]), [body])
    at.commit()
    assert at.commit_stages("app", 1, one=1).count == 1


def test_after_a_restart_everything_is_as_it_was() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.stage("two", b"c")
    at.commit_stages("app", 3, two=1)
    at.roll_over()
    at.stage("one", b"d")
    before = table(at.core.sessions)
    at.restart()
    assert table(at.core.sessions) == before
    assert at.commit_stages("app", 4, one=3).count == 3
    assert [payload for *_, topic, payload in shown(at) if topic != "filler"][-3:] == [
        b"a",
        b"b",
        b"d",
    ]


def test_a_snapshot_tells_what_is_staged_and_committed() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("two", b"c")
    at.roll_over()
    at.commit_stages("app", 3, two=1)
    at.state()
    before = table(at.core.sessions)
    at.restart()
    assert at.fold.state_serial
    assert table(at.core.sessions) == before
    assert at.commit_stages("app", 3, two=1).already


def test_what_is_shown_rots_and_is_a_gap_of_that_part() -> None:
    at = Whole()
    for token in ("one", "two", "tri"):
        at.stage(token, token.encode())
    done = at.commit_stages("app", 1, one=1, two=1, tri=1)
    [_, two, _] = [batch for batch in at.batches() if batch.kind == KIND_STAGED]
    at.damage(two)
    items, cursor = at.log.read(at.log.seek(done.position), at.core.persisted, 1 << 20)
    assert [
        item[:2] if isinstance(item, Gap) else (item.position, item.end_position)
        for item in items
        if not isinstance(item, Skipped)
    ] == [(done.position + n, done.position + n + 1) for n in range(3)]
    assert [type(item) for item in items] == [Batch, Gap, Batch]
    assert cursor.position == done.position + 3


PARTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from(["t", "u", "v"])),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    parts=PARTS, wants=st.sets(st.sampled_from(["t", "u", "v"])),
    sizes=st.lists(st.sampled_from([1, 40, 400, 100_000]), min_size=1, max_size=5),
    seeks=st.lists(st.floats(0, 0.999), max_size=4),
)  # fmt: skip
def test_readers_get_what_they_would_get_of_a_publish(
    parts: list[tuple[str, int, str]], wants: set[str], sizes: list[int], seeks: list[float]
) -> None:
    at, expected, counts = Whole(), list[tuple[str, bytes]](), dict[str, int]()
    for number, (token, count, topic) in enumerate(parts):
        at.stage(token, *[b"%d.%d" % (number, n) for n in range(count)], topic=topic)
        counts[token] = counts.get(token, 0) + count
    for token in sorted(counts):
        for number, (of, count, topic) in enumerate(parts):
            expected += [(topic, b"%d.%d" % (number, n)) for n in range(count) if of == token]
    done = at.commit_stages("app", 1, **dict(sorted(counts.items())))
    first, end = done.position, done.position + done.count
    starts = [first, *(first + int(share * done.count) for share in seeks)]
    for start in starts:
        at.log.refresh()
        cursor, turn, seen = at.log.seek(start), 0, dict[int, tuple[str, bytes]]()
        assert cursor.position <= start
        position = cursor.position
        while cursor.position < end:
            size, turn = sizes[turn % len(sizes)], turn + 1
            items, cursor = at.log.read(cursor, end, size, wants.__contains__)
            for item in items:
                assert not isinstance(item, Gap)
                low = item.first if isinstance(item, Skipped) else item.position
                assert low == position
                position = item.end if isinstance(item, Skipped) else item.end_position
                if isinstance(item, Batch):
                    assert item.sequence - item.position == 1 - first
                    for n, payload in enumerate(msgspec.msgpack.decode(bytes(item.body))):
                        seen[item.position + n] = (item.topics[0], payload)
        assert seen == {
            first + n: one
            for n, one in enumerate(expected)
            if one[0] in wants and first + n >= min(seen, default=end)
        }
        assert not any(
            one[0] in wants for one in expected[start - first : min(seen, default=end) - first]
        )


# -- the table ------------------------------------------------------------------------------------


def _segment_of(at: Whole, batch: Batch) -> int:
    return max(start.serial for start in at.log.starts if start.position <= batch.position)


def test_a_segment_with_parts_stays_as_long_as_their_commit_does() -> None:
    at = Whole()
    at.stage("one", b"a")
    low = at.writer.serial
    table = at.core.sessions.stages
    assert table.removable(100) == low - 1, "it waits for its commit"
    at.roll_over()
    at.commit_stages("app", 1, one=1)
    high = at.writer.serial
    assert high > low
    assert table.removable(low) == low - 1
    assert table.removable(high - 1) == low - 1
    assert table.removable(high) == high
    table.removed(high)
    assert table.removable(low) == low


def test_a_stage_that_nobody_adds_to_for_a_day_of_this_process_is_overdue() -> None:
    """Whatever its messages, their log time, or any wall clock say."""
    at = Whole()
    at.stage("one", b"a")
    assert at.core.sessions.stages.overdue(10 * DAY_MS) == [], "seen for the first time"
    assert at.core.sessions.stages.overdue(11 * DAY_MS - 1) == []
    at.stage("one", b"b")
    assert at.core.sessions.stages.overdue(11 * DAY_MS) == [], "something was added"
    assert at.core.sessions.stages.overdue(12 * DAY_MS) == [("alice", "one")]
    at.restart()
    assert at.core.sessions.stages.overdue(7) == [], "who starts knows no earlier age"
    assert at.core.sessions.stages.overdue(7 + DAY_MS) == [("alice", "one")]


def test_what_is_aborted_stays_so_and_its_token_can_be_used_again() -> None:
    at = Whole()
    at.stage("one", b"a", b"b", b"c")
    at.abort_stages("one")
    at.stage("one", b"d", b"e", b"f")
    before = table(at.core.sessions)
    at.restart()
    assert table(at.core.sessions) == before
    assert at.commit_stages("app", 1, one=3).count == 3
    assert [payload for *_, payload in shown(at)] == [b"d", b"e", b"f"]


def test_an_abort_of_nothing_is_no_record() -> None:
    at = Whole()
    before = len(at.batches())
    at.abort_stages("never")
    assert len(at.batches()) == before


def test_an_abort_ends_what_stands_before_it_in_its_group() -> None:
    at = Whole()
    at.stage("one", b"a")
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    for _ in range(2):
        body = msgspec.msgpack.encode([b"x"])
        entry = m.Entry(
            known.id, known.session, known.high + 1, 1, known.high, group_builder.crc32c(body),
            None, ["t"], stage="one",
        )  # fmt: skip
        at.hear(DOOR, m.Append(MINE, at.ordinal, 0, [entry]), [body])
        at.ordinal += 1
        at.abort_stages("one")
        assert (len(at.core.sessions.stages), at.core.sessions.stages.bytes) == (0, 0)
        at.restart()
        assert len(at.core.sessions.stages) == 0
        at.hear(DOOR, m.Open(1, MINE, "task", "alice"), [])
        at.commit()
        known = at.core.sessions.get(publisher_id("task"))
        assert known is not None


def test_a_nearly_full_disk_takes_small_aborts() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.space(accepting=False)
    assert at.abort_stages("one").code == ""
    assert len(at.core.sessions.stages) == 0


def test_stages_and_apps_belong_to_their_principal() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("one", b"e", name="task-of-eve", owner="eve")
    at.stage("mine", b"f", name="task-of-eve", owner="eve")
    assert at.commit_of("eve", "z", 1, one=2).code == "stage_unknown"
    at.abort_stages("one", owner="eve")
    assert at.commit_of("eve", "jobs/nightly", 2**62, mine=1).count == 1
    at.restart()
    assert at.commit_of("eve", "other", 1, one=1).code == "stage_unknown"
    done = at.commit_stages("jobs/nightly", 1, one=1)
    assert (done.already, done.count) == (False, 1), "eve's app of that name is another one"
    assert [payload for *_, payload in shown(at)] == [b"f", b"a"]
    at.roll_over()
    at.state()
    at.restart()
    assert at.commit_stages("jobs/nightly", 1).position == done.position
    assert at.commit_of("bob", "jobs/nightly", 1) == StagesDone(1), "bob learns nothing of them"


def test_who_may_not_commit_everything_is_told_the_topics_first() -> None:
    at = Whole()
    at.stage("one", b"a", topic="t")
    at.stage("two", b"b", topic="u")
    wanted = [StagedBy("one", 1), StagedBy("two", 1)]
    ask = CommitStages(MINE, 1, "app", 1, wanted, "alice", asks_topics=True)
    at.hear(DOOR, ask, [])
    [answer] = [s.message for s in at.commit() if isinstance(s.message, StagesDone)]
    assert answer == StagesDone(1, topics=["t", "u"])
    assert shown(at) == []


def test_what_an_earlier_release_committed_is_done_for_every_principal() -> None:
    at = Whole()
    at.core.sessions.stages.learn_app(AppRow("jobs/a", 1, 40, 3))
    assert at.commit_stages("jobs/a", 1, any=3) == StagesDone(1, 40, 3, already=True)


def test_what_an_earlier_release_staged_can_be_committed_and_aborted() -> None:
    at = Whole()
    for token in ("one", "two"):
        at.core.sessions.stages.learn(StageRow(token, 5, 10, ["t"], [Reference(1, 1, 4096, 1)]))
    assert at.abort_stages("two").code == ""
    assert at.commit_stages("app", 1, one=1).count == 1
    assert len(at.core.sessions.stages) == 0


def test_with_security_off_everybody_may_mean_all_of_them() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("two", b"b")
    assert at.abort_stages("two", owner="").code == ""
    assert at.commit_of("", "app", 1, one=1).count == 1
    assert at.commit_of("", "app", 1).already


def test_one_principal_may_stage_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Whole()
    at.core.settings = at.core.settings._replace(staged_max_bytes=100)
    at.stage("one", b"x" * 60)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.get("alice", "two") is None, "it was refused for now"
    at.stage("eve", b"x" * 60, name="task-of-eve", owner="eve")
    assert at.core.sessions.stages.get("eve", "eve") is not None


def test_apps_of_one_principal_push_out_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    at.stage("one", b"a")
    at.commit_stages("mine", 1, one=1)
    for number in range(5):
        at.stage(f"s{number}", b"x", name="task-of-eve", owner="eve")
        at.commit_of("eve", f"app{number}", 1, **{f"s{number}": 1})
    assert at.commit_stages("mine", 1, any=1).already
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["mine", "app3", "app4"]


def test_names_of_apps_are_names_of_who_commits() -> None:
    at = Whole()
    at.core.settings = at.core.settings._replace(names_max=2)
    codes = []
    for number in range(3):
        at.stage(f"s{number}", b"x")
        codes.append(at.commit_stages(f"app{number}", 1, **{f"s{number}": 1}).code)
    assert codes == ["", "too_many", "too_many"], "the publisher of the parts is one of them"


def test_of_many_apps_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    for number, app in enumerate(("a", "b", "a", "c")):
        at.stage(f"s{number}", b"x")
        at.commit_stages(app, number, **{f"s{number}": 1})
    assert at.core.sessions.stages.last("alice", "b") is None
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["a", "c"]
    assert isinstance(at.core.sessions.stages, Stages)


def test_all_runs_of_a_name_are_one_publisher_and_each_is_done_once() -> None:
    at = Whole()
    for run in ("jobs/a", "jobs/b"):
        at.stage(run, b"x")
        at.commit_stages(run, 1, **{run: 1})
    assert at.commit_stages("jobs/a", 1, any=1).already
    assert [sequence for _, sequence, _, _ in shown(at)] == [1, 2]
    known = at.core.sessions.get(publisher_id("$staged.jobs"))
    assert known is not None
    assert known.high == 2


def test_runs_are_forgotten_before_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    for number, app in enumerate(("query", "jobs/a", "jobs/b")):
        at.stage(f"s{number}", b"x")
        at.commit_stages(app, 1, **{f"s{number}": 1})
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["query", "jobs/b"]
