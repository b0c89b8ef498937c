"""zbroker/journal/stages.py: what a token means after an abort, in new generations, to old logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.journal import build
from tests.journal.whole import LISTENER, MINE, Whole, table
from zbroker.checksums import crc32c
from zbroker.ids import Origin, publisher_id
from zbroker.journal.fold import LogFold
from zbroker.log.disk import RealDisk
from zbroker.log.format import FLAG_SHOWS, KIND_ABORT, KIND_PUBLISH, KIND_STAGED, Batch
from zbroker.log.reader import Gap, Log
from zbroker.log.records import ABORT
from zbroker.log.recovery import recover
from zbroker.log.references import PartsOrigin, decode
from zbroker.wire import internal as m

BEFORE = Path(__file__).parents[1] / "data" / "v1-staged"


def stored(at: Whole) -> list[Batch]:
    """The batches of a log, commits as they are in it."""
    at.log.refresh()
    items, cursor = at.log.read(at.log.seek(1), at.core.persisted, 1 << 24, stored=True)
    assert cursor.position == at.core.persisted
    return [item for item in items if isinstance(item, Batch)]


def messages(log: Log, end: int) -> Iterator[tuple[Batch, int, bytes]]:
    """What readers see: of each message its batch, its number in it and its payload."""
    log.refresh()
    cursor = log.seek(log.first_position)
    while cursor.position < end:
        items, cursor = log.read(cursor, end, 1 << 20)
        for item in items:
            assert not isinstance(item, Gap)
            if item.kind == KIND_PUBLISH and item.body_length < 100:  # else it fills a segment
                data = msgspec.msgpack.decode(bytes(item.body))[item.skip : item.count - item.cut]
                yield from ((item, n, payload) for n, payload in enumerate(data))


def payloads(at: Whole) -> list[bytes]:
    """The payloads that readers see."""
    return [payload for _, _, payload in messages(at.log, at.core.persisted)]


def part(at: Whole, token: str, seq: int, *data: bytes, prev: int = 0) -> m.ReceiptItem:
    """A part of publisher "task" with these sequences, of the session that it has."""
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    body = msgspec.msgpack.encode(list(data))
    entry = m.Entry(
        known.id, known.session, seq, len(data), prev, crc32c(body), None, ["t"], stage=token
    )
    at.hear(LISTENER, m.Append(MINE, at.ordinal, 0, [entry]), [body])
    at.ordinal += 1
    [item] = [
        item
        for answer in at.commit()
        if isinstance(answer.message, m.JournalReceipt)
        for item in answer.message.items[-1:]
    ]
    return item


def log_on(at: Whole) -> None:
    at.hear(LISTENER, m.Open(1, MINE, "task", "alice"), [])
    at.commit()


# -- a token that ended ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["aborted", "committed"])
@pytest.mark.parametrize("then", ["at once", "after a restart", "after a snapshot"])
def test_a_part_that_is_still_under_way_begins_no_stage_again(how: str, then: str) -> None:
    at = Whole()
    at.stage("one", b"a")
    if how == "aborted":
        at.abort_stages("one")
    else:
        at.commit_stages("app", 1, one=1)
    if then == "after a snapshot":
        at.roll_over()
        at.state()
    if then != "at once":
        at.restart()
    assert part(at, "one", 2, b"b", prev=1).code == "stage_ended"
    assert len(at.core.sessions.stages) == 0
    assert part(at, "two", 2, b"b", prev=1).code == "", "its session goes on, under other tokens"


@pytest.mark.parametrize("how", ["it logged off", "it logged on again"])
def test_a_token_is_free_when_the_sessions_that_staged_under_it_have_ended(how: str) -> None:
    at = Whole()
    at.stage("one", b"a")
    at.abort_stages("one")
    at.stage("one", b"b", name="other")
    assert len(at.core.sessions.stages) == 0, "of no publisher anything is taken before"
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    if how == "it logged off":
        at.hear(LISTENER, m.Close(MINE, "task", known.session), [])
        at.commit()
    else:
        log_on(at)
    at.stage("one", b"b", name="other")
    assert at.commit_stages("app", 1, one=1).count == 1
    assert payloads(at) == [b"b"]


def test_a_part_that_comes_again_is_known_by_its_own_stage() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    assert part(at, "one", 1, b"a", b"b").duplicate == 2
    assert part(at, "one", 2, b"b", b"c", prev=1).duplicate == 1
    assert part(at, "two", 1, b"a").code == "", "a stage of its own: it begins with what it gets"
    assert at.commit_stages("app", 1, one=3, two=1).count == 4
    assert payloads(at) == [b"a", b"b", b"c", b"a"]


def test_what_is_staged_is_not_published() -> None:
    """Messages that come with sequences which are staged here are no copies of them."""
    at = Whole()
    at.stage("one", b"a", b"b")
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    body = msgspec.msgpack.encode([b"published"])
    entry = m.Entry(known.id, known.session, 2, 1, 1, crc32c(body), None, ["t"])
    at.hear(LISTENER, m.Append(MINE, at.ordinal, 0, [entry]), [body])
    at.commit()
    assert payloads(at) == [b"published"]
    before = table(at.core.sessions)
    at.restart()
    assert table(at.core.sessions) == before


# -- generations ----------------------------------------------------------------------------------


def test_a_token_means_all_that_is_staged_under_it_whatever_the_generation() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.core.generation = 2
    at.stage("one", b"c")
    assert part(at, "one", 2, b"b", prev=1).duplicate == 1, "it came in before the new generation"
    before = table(at.core.sessions)
    at.restart()
    assert table(at.core.sessions) == before
    done = at.commit_stages("app", 1, one=3)
    assert done.count == 3
    assert payloads(at) == [b"a", b"b", b"c"]
    [commit] = [decode(batch.body) for batch in stored(at) if batch.flags & FLAG_SHOWS]
    assert commit is not None
    assert commit.origins == [PartsOrigin(at.instance, 1, 1, 1), PartsOrigin(at.instance, 2, 1, 1)]


def test_an_abort_ends_the_stages_of_all_generations_and_names_them() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.core.generation = 2
    at.stage("one", b"b")
    at.abort_stages("one")
    assert len(at.core.sessions.stages) == 0
    [record] = [ABORT.decode(batch.body) for batch in at.batches() if batch.kind == KIND_ABORT]
    assert record.stages == [("alice", "one")] * 2
    assert record.origins == [Origin(at.instance, 1), Origin(at.instance, 2)]
    at.restart()
    assert len(at.core.sessions.stages) == 0


def test_a_commit_waits_for_parts_that_were_lost_with_the_end_of_the_log() -> None:
    """They come back from a peer as records of the old generation."""
    at, peer = Whole(), Whole()
    for each in (at, peer):
        each.stage("one", b"a")
    peer.stage("one", b"b")  # it has what `at` lost
    at.core.generation = 2
    assert at.commit_stages("app", 1, one=2).code == "stage_unknown"
    lost = [batch for batch in peer.batches() if batch.kind == KIND_STAGED][-1]
    at.give(*build.sent(lost, 0))
    assert at.commit_stages("app", 1, one=2).count == 2
    assert payloads(at) == [b"a", b"b"]


def test_an_app_publishes_in_each_generation_under_a_name_of_its_own() -> None:
    at = Whole()
    for generation in (1, 2):
        at.core.generation = generation
        at.stage(f"s{generation}", b"x")
        at.commit_stages("jobs/x", generation, **{f"s{generation}": 1})
        known = at.core.sessions.get(publisher_id(f"$staged.jobs.{at.instance:016x}.{generation}"))
        assert known is not None
        assert known.high == 1


# -- a log of before ------------------------------------------------------------------------------


@pytest.fixture
def before(tmp_path: Path) -> tuple[LogFold, Log, dict[str, object]]:
    """A directory that the release before instances in stages wrote, after a start."""
    shutil.copytree(BEFORE / "journal", tmp_path / "journal")
    disk, fold = RealDisk(tmp_path / "journal"), LogFold(build.INSTANCE)
    recovered = recover(
        disk, build.INSTANCE, on_batch=fold, begin=fold.begin, segment_bytes=build.SEGMENT_BYTES,
        clock=build.Clock(),
    )  # fmt: skip
    assert recovered.findings == []
    return fold, Log(disk=disk), json.loads((BEFORE / "expected.json").read_text(encoding="utf-8"))


def test_what_was_staged_and_committed_before_is_read_unchanged(
    before: tuple[LogFold, Log, dict[str, object]],
) -> None:
    _, log, expected = before
    found = [
        [batch.position + n, batch.sequence + n, batch.topics[0], payload.decode()]
        for batch, n, payload in messages(log, int(str(expected["end"])))
    ]
    assert found == expected["shown"]


def test_stages_and_apps_of_before_are_as_they_were(
    before: tuple[LogFold, Log, dict[str, object]],
) -> None:
    fold, _, expected = before
    found = json.loads(msgspec.json.encode(table(fold.sessions)))
    was = expected["table"]
    assert isinstance(was, list)
    assert [row[:5] for row in found[1]] == was[1], "origins"
    assert found[2:5] == was[2:5], "ties and names"
    [[token, _, size, topics, parts, principal]] = was[5]
    both = found[5]
    assert [(row[0], row[3], row[5]) for row in both] == [(token, topics, principal)] * 2
    assert sum(row[2] for row in both) == size
    assert [one[:4] for row in both for one in row[4]] == parts
    assert [row[:5] for row in found[6]] == was[6]
    assert found[7] == was[7]
    assert [row[:11] for row in found[0]] == [row[:11] for row in was[0]]
    last = fold.sessions.stages.last("alice", "app")
    assert last is not None
    assert last.batch == 4


def test_a_stage_of_before_goes_on(before: tuple[LogFold, Log, dict[str, object]]) -> None:
    stages = before[0].sessions.stages
    of_snapshot, of_log = stages.own("alice", "waits")
    assert (of_snapshot.key.origin.generation, of_log.key.origin.generation) == (0, 1)
    assert (of_snapshot.messages, of_log.messages, of_snapshot.senders) == (2, 1, None)
    assert stages.lacks("alice", "waits", publisher_id("task"), 1, 2) is None
    assert len(stages.known("alice", ["waits"])) == 2, "a commit or an abort means both"
