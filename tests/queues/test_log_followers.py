"""zbroker/queues/log_followers.py: every queue reads every position once, whoever it reads with."""

from __future__ import annotations

import random

from zbroker.blocks.frame_builder import Block
from zbroker.log.reader import Cursor
from zbroker.queues.log_followers import LogFollowers


def _read(following: LogFollowers, size: int) -> tuple[set[str], int, int]:
    """One turn; who had which stretch read."""
    read = following.next_read()
    assert read is not None
    first = read.cursor.position
    behind = min(first + size, read.limit)
    block = Block(read.cursor, [], Cursor(1, behind, behind))
    found = following.read(read.key, block)
    assert found is not None
    return set(found[0].members), first, behind


def test_nothing_is_read_for_nobody() -> None:
    following = LogFollowers()
    following.persisted = 100
    assert following.next_read() is None
    assert following.lowest is None
    assert following.behind == 0


def test_who_begins_at_the_same_place_reads_together() -> None:
    following = LogFollowers()
    following.persisted = 100
    following.begin("a", 1)
    following.begin("b", 1)
    assert _read(following, 50) == ({"a", "b"}, 1, 51)
    following.end("a")
    assert _read(following, 50) == ({"b"}, 51, 100)
    assert following.next_read() is None


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


def test_every_queue_is_shown_every_position_behind_its_beginning() -> None:
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
            members, first, behind = _read(following, rng.choice([1, 7, 100]))
            for name in members:
                assert first <= seen[name], f"seed {seed}: a gap before {first} for {name}"
                seen[name] = max(seen[name], behind)
        following.persisted += 1_000
        while following.next_read() is not None:
            members, first, behind = _read(following, 97)
            for name in members:
                assert first <= seen[name], f"seed {seed}: a gap before {first} for {name}"
                seen[name] = max(seen[name], behind)
        assert set(seen.values()) == {following.persisted}, f"seed {seed}"
