"""What a state snapshot says: its bytes, its parts, and who may not read it."""

from __future__ import annotations

import time
from itertools import repeat

import msgspec
import pytest
from msgspec import Raw, msgpack

from tests.journal.test_origins import HERE, batch, tie
from tests.journal.whole import cut, table
from zbroker.errors import StorageError
from zbroker.ids import Origin, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.effects import WriteGroup
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.holes import Hole
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.journal.stages import LinkRow
from zbroker.limits import STATE_BODY_BYTES
from zbroker.log.format import KIND_PUBLISH, KIND_STATE
from zbroker.wire import internal as m
from zbroker.wire.units import NamedRow

ROW = PublisherRow(7, "p", "alice", 90, 55, 3, 4, 2, 9, 60, 12, [Hole(20, 29, 25)], 6)
GOLDEN = (
    "85a17601a77468726f7567684da47061727400a5666f6c647383a76f726967696e73919c09010100ff00"
    "00ff0000ff00a47469657390aa7075626c697368657273919d07a170a5616c6963655a37030402093c0c"
    "9193141d1906a46c617374c3"
)
BEFORE_WROTE_IN = (
    "85a17601a77468726f7567684da47061727400a5666f6c647383a76f726967696e73919c09010100ff00"
    "00ff0000ff00a47469657390aa7075626c697368657273919c07a170a5616c6963655a37030402093c0c"
    "9193141d19a46c617374c3"
)
BEFORE_MIXED = (
    "85a17601a77468726f7567684da47061727400a5666f6c647383a76f726967696e73919b09010100ff00"
    "00ff0000ffa47469657390aa7075626c697368657273919c07a170a5616c6963655a37030402093c0c91"
    "93141d19a46c617374c3"
)
BEFORE_STORED = (  # ties counted as what is stored
    "85a17601a77468726f7567684da47061727400a5666f6c647383a76f726967696e73919909010100ff0000ff00a47469"
    "657390aa7075626c697368657273919c07a170a5616c6963655a37030402093c0c9193141d19a46c617374c3"
)
BEFORE_DIGESTS = (  # origins had no digest, no beginning and no CRC
    "85a17601a77468726f7567684da47061727400a5666f6c647383a76f726967696e73919509010100ffa4746965739"
    "0aa7075626c697368657273919c07a170a5616c6963655a3703040209 3c0c9193141d19a46c617374c3"
).replace(" ", "")


def filled(publishers: int = 1) -> Sessions:
    sessions = Sessions(HERE)
    for number in range(publishers):
        row = PublisherRow(**{name: getattr(ROW, name) for name in ROW.__struct_fields__})
        row.id, row.name = number, f"publisher-{number}"
        sessions.fold_row(row)
    sessions.origins.fold(batch(1, HERE, 1, 3))
    sessions.origins.fold(tie(5, 7, 9, 70))
    return sessions


def test_golden_bytes_never_change() -> None:
    sessions = Sessions(HERE)
    sessions.fold_row(ROW)
    made = batch(1, HERE, 1)
    made.kind = 3
    sessions.origins.fold(made)
    sessions.origins.begun = None
    [body] = cut(sessions, 77, STATE_BODY_BYTES)
    assert body.hex() == GOLDEN


@pytest.mark.parametrize("golden", [BEFORE_DIGESTS, BEFORE_STORED])
def test_a_snapshot_of_before_is_read_as_one_of_everything(golden: str) -> None:
    body = snapshot.decode(bytes.fromhex(golden))
    assert body is not None
    expected = OriginRow(
        HERE, 1, 1, 0, -1, digest=0, since=0, crc=-1, crc_at=0, stored=-1, stored_begun=-1
    )
    assert snapshot.origins(body) == [expected]


def test_a_row_of_before_had_no_other_topics() -> None:
    body = snapshot.decode(bytes.fromhex(BEFORE_MIXED))
    assert body is not None
    assert snapshot.origins(body) == [OriginRow(HERE, 1, 1, 0, -1, stored=0, mixed=0)]


def test_a_publisher_of_before_has_a_session_of_no_generation() -> None:
    body = snapshot.decode(bytes.fromhex(BEFORE_WROTE_IN))
    assert body is not None
    [row] = msgspec.msgpack.decode(body.folds["publishers"], type=list[PublisherRow])
    assert row == msgspec.structs.replace(ROW, wrote_in=0)


def test_what_a_snapshot_of_before_calls_messages_counts_as_stored() -> None:
    rows = [OriginRow(HERE, 1, 9, 9, 4), OriginRow(8, 1, 9, 9, 4, stored=7, stored_begun=3)]
    body = snapshot.Body(1, 77, 0, {"origins": Raw(msgpack.encode(rows))})
    begun, here = snapshot.begun(body, 70), snapshot.begun(body, 77)
    assert begun == ({Origin(HERE, 1): 4, Origin(8, 1): 4}, {Origin(HERE, 1): 4, Origin(8, 1): 3})
    assert here == ({Origin(HERE, 1): 9, Origin(8, 1): 9}, {Origin(HERE, 1): 9, Origin(8, 1): 7})


def test_golden_bytes_of_names_never_change() -> None:
    sessions = Sessions(HERE)
    sessions.named.wiring.learn(NamedRow("work", 5, b"\x80"))
    sessions.named.points.learn(NamedRow("noon", 300, b"\x81\x01\x02"))
    [data] = cut(sessions, 77, STATE_BODY_BYTES)
    body = snapshot.decode(data)
    assert body is not None
    assert bytes(body.folds["wiring"]).hex() == "9193a4776f726b05c40180"
    assert bytes(body.folds["points"]).hex() == "9193a46e6f6f6ecd012cc403810102"


@pytest.mark.parametrize("part_bytes", [STATE_BODY_BYTES, 400])
def test_what_was_cut_comes_back_whole(part_bytes: int) -> None:
    sessions, again = filled(20), Sessions(HERE)
    bodies = cut(sessions, 77, part_bytes)
    parts = snapshot.SnapshotParts()
    for number, data in enumerate(bodies):
        body = snapshot.decode(data)
        assert body is not None
        assert (body.through, body.part, body.last) == (77, number, number == len(bodies) - 1)
        assert parts.complete == 0
        snapshot.learn(body, snapshot.folds(again))
        parts.add(body)
    assert parts.complete == 77
    assert table(again) == table(sessions)
    assert (len(bodies) > 5) == (part_bytes == 400)


def test_an_empty_table_has_a_snapshot_too() -> None:
    [data] = cut(Sessions(HERE), 1, STATE_BODY_BYTES)
    body = snapshot.decode(data)
    assert body is not None
    assert set(body.folds) == {"origins", "ties", "publishers"}
    assert body.last


def test_without_one_of_its_parts_it_is_not_complete() -> None:
    bodies = cut(filled(20), 77, 400)
    for missing in range(len(bodies)):
        parts = snapshot.SnapshotParts()
        for number, data in enumerate(bodies):
            body = snapshot.decode(data)
            assert body is not None
            if number != missing:
                parts.add(body)
        assert parts.complete == 0


def test_parts_of_two_snapshots_make_none() -> None:
    first, second = cut(filled(20), 77, 400), cut(filled(20), 99, 400)
    parts = snapshot.SnapshotParts()
    for data in [*first[:3], *second[3:]]:
        body = snapshot.decode(data)
        assert body is not None
        parts.add(body)
    assert parts.complete == 0


def test_a_part_keeps_to_its_size() -> None:
    assert max(map(len, cut(filled(3_000), 1, 10_000))) <= 10_000


def test_each_row_is_as_of_its_own_part() -> None:
    sessions = filled(200)
    cutter = snapshot.Cutter(snapshot.folds(sessions), 1, 2_000)
    cutter.cut()
    last = sessions.get(199)
    assert last is not None
    last.high = 12_345
    again = Sessions(HERE)
    while not cutter.done:
        body = snapshot.decode(cutter.cut())
        assert body is not None
        snapshot.learn(body, snapshot.folds(again))
    known = again.get(199)
    assert known is not None
    assert known.high == 12_345


def test_what_changes_between_two_parts_is_in_the_second_or_folded_after_the_first() -> None:
    sessions, again = filled(60), Sessions(HERE)
    cutter = snapshot.Cutter(snapshot.folds(sessions), 1, 600)
    parts = 0
    while not cutter.done:
        body = snapshot.decode(cutter.cut())
        assert body is not None
        snapshot.learn(body, snapshot.folds(again))
        parts += 1
        for table_of in (sessions, again):  # each publishes once, after that part
            for publisher in table_of.ids():
                known = table_of.get(publisher)
                assert known is not None
                known.high += 1
    assert parts > 3
    assert table(again) == table(sessions)


def test_a_large_table_is_cut_in_short_steps() -> None:
    sessions = filled(20_000)
    cutter = snapshot.Cutter(snapshot.folds(sessions), 1)
    longest = 0.0
    while not cutter.done:
        begun = time.thread_time()
        cutter.cut()
        longest = max(longest, time.thread_time() - begun)
    assert longest < 1, "a part is bounded in bytes, so in time"


def test_a_row_replaces_what_was_known() -> None:
    sessions = filled()
    sessions.fold_row(PublisherRow(0, "publisher-0", "", 5, 5, 1, 1, 1))
    known = sessions.get(0)
    assert known is not None
    assert (known.high, known.holes, known.given_up, known.named) == (5, [], 0, True)


def test_rows_of_a_newer_release_may_have_more_fields() -> None:
    row = [*msgpack.decode(msgpack.encode(ROW)), "later"]
    folds = msgpack.encode({"publishers": [row]})
    body = snapshot.decode(b"\x84\xa1v\x01\xa7through\x01\xa4part\x00\xa5folds" + folds)
    assert body is not None
    sessions = Sessions()
    snapshot.learn(body, snapshot.folds(sessions))
    assert sessions.get(7) is not None


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"folds": {"queues": []}}, {"folds": {"queues": []}, "optional": ["other"]}],
)
def test_what_only_a_newer_release_knows_stops_the_start(change: dict[str, object]) -> None:
    plain: dict[str, object] = {"v": 1, "through": 1, "part": 0, "folds": {}}

    def read() -> None:
        body = snapshot.decode(msgpack.encode(plain | change))
        assert body is not None
        snapshot.learn(body, snapshot.folds(Sessions()))

    with pytest.raises(StorageError) as caught:
        read()
    assert caught.value.code == "unknown_version"


def test_an_optional_fold_that_is_unknown_is_stepped_over() -> None:
    data = {"v": 1, "through": 1, "part": 0, "folds": {"later": [1]}, "optional": ["later"]}
    body = snapshot.decode(msgpack.encode(data))
    assert body is not None
    snapshot.learn(body, snapshot.folds(Sessions()))


@pytest.mark.parametrize("data", [b"", b"junk", b"\x80", msgpack.encode({"v": 1})])
def test_what_is_no_snapshot_is_none(data: bytes) -> None:
    assert snapshot.decode(data) is None


def test_how_a_segment_began_is_reported_if_it_is_known() -> None:
    sessions = filled()
    sessions.origins.begun = {Origin(HERE, 1): 2}
    sessions.origins.stored_begun = {Origin(HERE, 1): 1}
    body = snapshot.decode(cut(sessions, 77, STATE_BODY_BYTES)[0])
    assert body is not None
    begun, first = snapshot.begun(body, 70), snapshot.begun(body, 77)
    assert begun is not None
    assert begun.messages == {Origin(HERE, 1): 2, Origin(8, 1): 0}
    assert begun.stored == {Origin(HERE, 1): 1, Origin(8, 1): 0}
    assert first is not None, "it is the segment's first batch"
    assert first.messages == sessions.origins.messages
    assert first.stored == {Origin(HERE, 1): 3, Origin(8, 1): 0}, "the other one has a tie only"
    sessions.origins.begun = None
    body = snapshot.decode(cut(sessions, 77, STATE_BODY_BYTES)[0])
    assert body is not None
    assert snapshot.begun(body, 70) is None


@pytest.mark.parametrize("count", [0, 15, 16, (1 << 16) - 1, 1 << 16])
def test_rows_are_in_an_array_of_any_length(count: int) -> None:
    row, learned = LinkRow(1, 0), list[LinkRow]()
    fold = snapshot.FoldCodec("links", list[LinkRow], lambda: repeat(row, count), learned.append)
    body = snapshot.decode(snapshot.Cutter([fold], 1).cut())
    assert body is not None
    snapshot.learn(body, [fold])
    assert learned == [row] * count


MINE, RID = 77, b"\0ingest"
P = publisher_id("p")


@pytest.fixture
def core() -> GroupCommit:
    """Two hundred publishers are known; ingest is there."""
    sessions = Sessions(9)
    for number in range(200):
        sessions.fold_row(PublisherRow(number, f"publisher-{number}", "", 1, 1, 1, 1, 1))
    made = GroupCommit(JournalSettings(9, MINE), sessions, LogEnd(1, 300, 0))
    made.receive(RID, m.Hello("ingest", 1), [])
    made.serial = 4
    return made


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = snapshot.Cutter
    monkeypatch.setattr(
        snapshot, "Cutter", lambda folds, through: real(folds, through, part_bytes=2_000)
    )


def append(core: GroupCommit, seq: int, size: int = 10) -> None:
    known = core.sessions.get(P)
    if known is None:
        core.receive(RID, m.Open(1, MINE, "p", ""), [])
        step(core)
        known = core.sessions.get(P)
    assert known is not None
    entry = m.Entry(P, known.session, seq, 1, None, 0, None, ["t"])
    core.receive(RID, m.Append(MINE, seq, 0, [entry]), [b"x" * size])


def step(core: GroupCommit) -> WriteGroup | None:
    group = core.group(1_000)
    core.written_to(core.next_position, core.serial)
    core.synced(core.next_position)
    return group


def test_a_wish_is_a_reason_for_a_group(core: GroupCommit) -> None:
    assert core.backlog == 0
    core.want_state()
    assert core.backlog == 1
    group = step(core)
    assert group is not None
    assert [(b.kind, b.position, b.count) for b in group.batches] == [(KIND_STATE, 300, 1)]
    assert core.backlog == 0


def test_the_group_begins_with_it(core: GroupCommit) -> None:
    append(core, 1)
    core.want_state()
    group = step(core)
    assert group is not None
    kinds = [b.kind for b in group.batches]
    assert (kinds[0], kinds[-1]) == (KIND_STATE, KIND_PUBLISH)


@pytest.mark.usefixtures("small_parts")
def test_a_large_one_goes_part_by_part_and_holds_no_one_up(core: GroupCommit) -> None:
    append(core, 1)
    step(core)
    core.want_state()
    groups, seq = [], 2
    while core.backlog:
        append(core, seq)
        group = step(core)
        assert group is not None
        groups.append([b.kind for b in group.batches if b.kind in (KIND_STATE, KIND_PUBLISH)])
        seq += 1
    assert len(groups) > 3
    assert groups == [[KIND_STATE, KIND_PUBLISH]] * len(groups)


@pytest.mark.usefixtures("small_parts")
def test_it_counts_for_the_segment_of_its_first_part_when_all_is_durable(
    core: GroupCommit,
) -> None:
    core.want_state()
    step(core)
    core.serial = 5
    while core.backlog:
        assert core.state_serial == 0
        group = core.group(1_000)
        assert group is not None
        core.written_to(group.end, core.serial)
        assert core.state_serial == 0
        core.synced(group.end)
    assert core.state_serial == 4


def test_one_that_is_larger_than_all_written_since_waits(core: GroupCommit) -> None:
    """Else small segments and a large table would cause snapshots for ever."""
    core.want_state()
    step(core)
    core.want_state()
    assert core.backlog == 0
    append(core, 1, size=100)
    group = step(core)
    assert group is not None
    assert KIND_STATE not in [b.kind for b in group.batches]
    append(core, 2, size=100_000)
    step(core)
    assert core.backlog == 1
    group = step(core)
    assert group is not None
    assert [b.kind for b in group.batches] == [KIND_STATE]


@pytest.mark.usefixtures("small_parts")
def test_a_wish_during_one_is_for_another_one_after_it(core: GroupCommit) -> None:
    core.want_state()
    step(core)
    core.want_state()
    while core.backlog:
        step(core)
    append(core, 1, size=100_000)
    step(core)
    assert core.backlog == 1


def test_a_fenced_journal_writes_none(core: GroupCommit) -> None:
    core.fenced = True
    core.want_state()
    assert core.backlog == 0
    core.fenced = False
    assert core.backlog == 1


def test_none_is_written_where_not_even_a_part_fits(core: GroupCommit) -> None:
    core.state_fits = False
    core.want_state()
    assert core.backlog == 0
    core.state_fits = True
    assert core.backlog == 1


def test_on_a_nearly_full_disk_a_small_one_is_written_and_a_large_one_pauses(
    core: GroupCommit, monkeypatch: pytest.MonkeyPatch, small_parts: None
) -> None:
    monkeypatch.setattr("zbroker.journal.snapshot.STATE_BODY_BYTES", 3_000)
    core.accepting = False
    core.want_state()
    parts = 0
    while core.backlog:
        step(core)
        parts += 1
    assert (parts, core.state_serial) == (2, 0)
    core.accepting = True
    while core.backlog:
        step(core)
    assert core.state_serial == 4
