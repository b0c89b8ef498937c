"""zbroker/queues/log_fold.py: blocks go into the queues that they are about, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.queues.bench import Bench, bench, replayable, work
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.config import QueueConfig
from zbroker.definitions.intake import QueueIntake
from zbroker.exchanges import BoundQueue
from zbroker.log.queue_records import QueueDeclaration
from zbroker.log.reader import Cursor
from zbroker.queues import commits, queue_index
from zbroker.queues.log_followers import WHOLE_BLOCKS, LogFollowers
from zbroker.queues.queue_index import TopicIndex
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue
from zbroker.wire import messages as m
from zbroker.wire import queue_surveys as s

IDLE = 200


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of queues, by name of what."""
    found: list[str] = []
    for of, name in ((QueueIntake, "__call__"), (Queue, "next_wake"), (QueueState, "waited")):
        real = getattr(of, name)

        def counted(self: Any, *given: Any, real: Any = real, name: str = name) -> Any:
            found.append(name)
            return real(self, *given)

        monkeypatch.setattr(of, name, counted)
    return found


def test_idle_queues_are_asked_nothing_when_others_get_messages(asked: list[str]) -> None:
    """However many there are: a batch, a turn and a tick cost what is in them."""
    counts = []
    for idle in (0, IDLE):
        at = bench(work("busy"), *(work(f"idle{i}", topic=f"x{i}") for i in range(idle)))
        at.consume("busy")
        asked.clear()
        positions = at.many(3)
        at.pass_ms(1_000)
        at.ack(*positions)
        at.holds(0)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


@pytest.fixture
def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each block whether it was read with bodies."""
    found: list[bool] = []
    real = Bench._block

    def noted(self: Bench, read: Read) -> BlockRead | None:
        if read.cursor.position < min(read.limit, self.persisted):
            found.append(not read.headers)
        return real(self, read)

    monkeypatch.setattr(Bench, "_block", noted)
    return found


def test_bodies_that_no_queue_takes_are_not_read(read_whole: list[bool]) -> None:
    at = bench(work("idle", topic="x"))
    read_whole.clear()
    for _ in range(WHOLE_BLOCKS + 3):
        at.many(2)
    assert read_whole == [True] * WHOLE_BLOCKS + [False] * 3
    assert at.one("idle").folded == at.position


def test_the_first_one_that_a_queue_takes_is_read_again_whole(read_whole: list[bool]) -> None:
    at = bench(work(topic="x", filter="/a = 1"))
    for _ in range(WHOLE_BLOCKS):
        at.many(1)
    read_whole.clear()
    [taken, _] = at.publish(b'{"a": 1}', b'{"a": 2}', topic="x")
    assert read_whole == [False, True]
    assert at.here() == [taken]
    at.many(1)
    assert read_whole == [False, True, True], "the next ones may be taken, too"


def test_a_record_is_read_again_whole(read_whole: list[bool]) -> None:
    at = bench(work(), work("b", topic="x"))
    positions = at.many(2)
    at.consume()
    for _ in range(WHOLE_BLOCKS):
        at.many(1, topic="y")
    read_whole.clear()
    at.ack(*positions)
    assert read_whole == [False, True]
    at.holds(0)


def test_routes_are_seen_in_headers(read_whole: list[bool]) -> None:
    at = bench(QueueConfig("q", bound=True))
    [(name, numbers)] = at.one().definition.names
    route = BoundQueue(name, QueueDeclaration(*numbers))
    for _ in range(WHOLE_BLOCKS):
        at.many(1, topic="x")
    read_whole.clear()
    expected = at.publish(b"1", topic="x", routes=[[route]])
    assert read_whole == [False, True]
    assert at.here() == expected


def test_the_admin_learns_of_idle_queues_what_is_so() -> None:
    at = bench(work("a"), work("idle", topic="x"))
    rows = [at.ask(s.AskQueues(1, "idle")).rows[0] for _ in range(2)]
    assert rows[0] is rows[1]
    at.many(3)
    [row] = at.ask(s.AskQueues(1, "idle")).rows
    assert (row.depth, row.behind, row.holding) == (0, 0, at.position)
    at.consume("idle")
    assert at.ask(s.AskQueues(1, "idle")).rows[0].consumers == 1
    at.publish(b"1", topic="x")
    assert at.ask(s.AskQueues(1, "idle")).rows[0].depth == 1


def test_the_admin_learns_how_an_idle_queue_was_altered() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    at.ask(s.AskQueues(1, "q"))
    at.ask(s.Define(1, "alter", "q", {"lease": "5s"}))
    assert at.ask(s.AskQueues(1, "q")).rows[0].definition["lease"] == 5_000


def test_a_queue_that_waited_for_units_goes_on_when_they_landed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else touches it: its messages came long before."""
    monkeypatch.setattr(commits, "UNDER_WAY_MAX", 1)
    at = bench(work("a"), work("b", topic="x"))
    at.holding = True
    for number in range(4):
        at.ask(s.SetPoint(number, f"p{number}"))
    assert at.manager.commits.full
    expected = at.publish(b"1", topic="x")
    at.consume("b")
    assert at.got() == []
    at.holding = False
    at.land()
    assert at.got() == expected


def test_a_replay_does_not_end_before_the_log_was_read_up_to_its_end() -> None:
    at = bench(replayable())
    first = at.many(2)
    at.reading = False
    more = at.many(2)
    at.consume(since="epoch", until="now")
    assert [ack for ack in at.of(m.Ack) if ack.type == "completed"] == []
    at.reading = True
    at.fold()
    at.run()
    assert at.got() == first + more
    assert at.of(m.Ack)[-1].type == "completed"


def _index(at: Bench) -> TopicIndex:
    return at.manager.folding.index


def _names(at: Bench, *topics: str) -> list[str]:
    return sorted(one.name for one in _index(at).of(topics))


def test_queues_are_found_by_topic_and_by_pattern() -> None:
    at = Bench(work("a"), work("b", topic="other"), work("c", topic="t|o.*", regex=True))
    assert _names(at, "t") == ["a", "c"]
    assert _names(at, "other") == ["b", "c"]
    assert _names(at, "t", "other", "x") == ["a", "b", "c"]
    assert _names(at, "x") == []


def test_what_ends_is_not_found_any_more() -> None:
    at = Bench(work("a"), work("b", topic="t.*", regex=True))
    assert _names(at, "t") == ["a", "b"]
    for name in ("a", "b"):
        _index(at).remove(at.manager.running[name])
    assert _names(at, "t") == []
    _index(at).add(at.manager.running["a"])
    assert _names(at, "t") == ["a"]


def test_only_so_many_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_index, "TOPICS_MAX", 2)
    at = Bench(work("a"))
    for topic in ("t", "x", "y", "t"):
        assert _names(at, topic) == (["a"] if topic == "t" else [])
    assert len(_index(at)._known) <= 2


def _read(following: LogFollowers, size: int) -> tuple[set[str], int, int]:
    """One turn; who had which stretch read."""
    read = following.next_read()
    assert read is not None
    first = read.cursor.position
    stop = min(first + size, read.limit)
    block = Block(read.cursor, [], Cursor(1, stop, stop))
    found = following.read(read.key, block)
    assert found is not None
    return set(found[0].members), first, stop


def test_nothing_is_read_for_no_one() -> None:
    following = LogFollowers()
    following.persisted = 100
    assert following.next_read() is None
    assert following.lowest is None
    assert following.lag == 0


def test_who_begins_at_the_same_place_reads_together() -> None:
    following = LogFollowers()
    following.persisted = 100
    following.begin("a", 1)
    following.begin("b", 1)
    assert _read(following, 50) == ({"a", "b"}, 1, 51)
    following.end("a")
    assert _read(following, 50) == ({"b"}, 51, 100)
    assert following.next_read() is None


def test_a_queue_that_is_ahead_of_the_walk_that_it_joined_may_be_in_a_unit() -> None:
    at = bench(work("q"))
    at.many(3)
    one = at.manager.running["q"]
    assert one.walk is not None
    assert not one.in_unit
    one.ahead = one.walk.position + 1
    assert one.in_unit, "its own walk is not there any more, to say whether it was"
    at.many(3)
    assert not one.in_unit


def test_one_that_reaches_another_joins_it() -> None:
    following = LogFollowers()
    following.persisted = 100
    following.begin("old", 60)
    following.begin("new", 1)
    seen = [_read(following, 70) for _ in range(2)]
    while following.next_read() is not None:
        seen.append(_read(following, 70))
    assert following.lowest == 100
    following.persisted = 110
    assert _read(following, 70)[0] == {"old", "new"}
    assert following.next_read() is None


def test_many_that_begin_one_after_another_soon_read_together() -> None:
    following, reads = LogFollowers(), 0
    following.persisted = 101
    following.begin("live", 101)
    for number in range(100):
        following.begin(f"q{number}", 1)
        _read(following, 1)
        following.persisted += 1
    while following.next_read() is not None:
        _read(following, 1)
        reads += 1
    assert reads < 500, "each of them has 100 blocks to read"
    assert len(following.walks) == 1


def test_who_follows_the_end_waits_for_few_others() -> None:
    following = LogFollowers()
    following.persisted = 1_001
    following.begin("live", 1_001)
    for number in range(100):
        following.begin(f"q{number}", 1 + number)
    following.persisted += 1
    turns = [_read(following, 1)[0] for _ in range(3)]
    assert {"live"} in turns


def test_after_a_restart_of_the_journal_cursors_are_looked_for_by_position() -> None:
    following = LogFollowers()
    following.persisted = 100
    following.begin("a", 1)
    _read(following, 10)
    following.look_again()
    read = following.next_read()
    assert read is not None
    assert read.seek
    assert read.cursor.position == 11


def test_every_queue_is_shown_every_position_after_its_beginning() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        following, begun, seen = LogFollowers(), {}, {}
        for number in range(rng.randint(1, 5)):
            name = f"q{number}"
            begun[name] = rng.randint(1, 300)
            seen[name] = begun[name]
            following.begin(name, begun[name])
        for _ in range(60):
            following.persisted += rng.choice([0, 0, 5, 40])
            if following.next_read() is None:
                continue
            members, first, stop = _read(following, rng.choice([1, 7, 100]))
            for name in members:
                assert first <= seen[name], f"seed {seed}: a gap before {first} for {name}"
                seen[name] = max(seen[name], stop)
        following.persisted += 1_000
        while following.next_read() is not None:
            members, first, stop = _read(following, 97)
            for name in members:
                assert first <= seen[name], f"seed {seed}: a gap before {first} for {name}"
                seen[name] = max(seen[name], stop)
        assert set(seen.values()) == {following.persisted}, f"seed {seed}"
