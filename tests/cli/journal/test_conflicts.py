"""`zbroker-admin journal conflicts` shows what came twice with different content."""

from __future__ import annotations

import json

from tests.cli.journals import PUBLISHER, TIME_NS, Maker, run
from zbroker.journal.conflicts import encode
from zbroker.journal.group_builder import Conflict
from zbroker.wire.bodies import pack


def conflict(sequence: int, body: bytes) -> Conflict:
    return Conflict(
        time_ns=TIME_NS, publisher=PUBLISHER, name="maker", session=3, seq=sequence, count=2,
        crc=1, original_position=17, topics=["orders"], body=body,
    )  # fmt: skip


def keep(maker: Maker, *found: Conflict) -> None:
    path = maker.directory.parent / "conflicts"
    path.write_bytes(b"".join(map(encode, found)))


def test_each_has_its_bookmark_and_where_the_first_one_is(maker: Maker) -> None:
    keep(maker, conflict(5, pack([b"a", b"\xff"])), conflict(9, pack([b"c", b"d"])))
    result = run(maker, "conflicts")
    first, second = result.stdout.splitlines()
    assert f"bookmark={PUBLISHER}|5|" in first
    assert "original_position=17" in first
    assert f"bookmark={PUBLISHER}|9|" in second


def test_json_has_the_messages_that_came_the_second_time(maker: Maker) -> None:
    keep(maker, conflict(5, pack([b"a", b"\xff"])), conflict(9, b"junk"))
    found = json.loads(run(maker, "conflicts", "--json").stdout)
    assert found["kept"] == 2
    assert found["conflicts"][0]["messages"] == [{"data": "a"}, {"data_base64": "/w=="}]
    assert found["conflicts"][1]["messages"] is None


def test_only_the_newest_are_shown_if_asked_for(maker: Maker) -> None:
    keep(maker, *(conflict(n, pack([b"a", b"b"])) for n in range(1, 6)))
    found = json.loads(run(maker, "conflicts", "--json", "--limit", "2").stdout)
    assert [one["sequence"] for one in found["conflicts"]] == [4, 5]
    assert found["kept"] == 5


def test_none_is_said_in_words(maker: Maker) -> None:
    assert run(maker, "conflicts").stdout.startswith("no conflicts")
