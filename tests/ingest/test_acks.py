"""zbroker/ingest/acks.py: acks at an interval, never after what they are before."""

from __future__ import annotations

import msgspec
import pytest

from tests.ingest.rig import item
from tests.ingest.test_core import A, B, Bench, packed, single
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m


@pytest.fixture
def bench() -> Bench:
    """A publisher that wants to hear once a second, and was sent something at 0."""
    made = Bench()
    made.logon(ack_interval_s=1.0)
    publish(made, 1)
    assert acks(made, 0) == [1], "the first is reported at once"
    return made


def publish(bench: Bench, seq: int, **settled: int) -> list[m.ServerAnswer | m.Heartbeat]:
    bench.turn(packed(seq, b"x"))
    ordinal = bench.appended[-1][0]
    return bench.settle(i.ReceiptItem(ordinal, 1, seq, **settled))


def acks(bench: Bench, now_ms: int) -> list[int | None]:
    reported = bench.tick(now_ms)
    return [one.seq for one in reported if isinstance(one, m.Ack)]


@pytest.mark.seed("002-25")
def test_acks_are_merged_over_the_interval(bench: Bench) -> None:
    for seq in (2, 3, 4):
        assert publish(bench, seq, duplicate=1) == []
        assert acks(bench, 999) == []
    assert bench.core.next_wake_ms() == 1_000
    [ack] = bench.tick(1_000)
    assert ack == m.Ack("persisted", seq=4, durability="disk", duplicate=3)
    assert publish(bench, 5) == []
    assert (acks(bench, 1_999), acks(bench, 2_000), acks(bench, 9_000)) == ([], [5], [])


def test_who_does_not_ask_is_answered_with_each_commit(bench: Bench) -> None:
    bench.logon(B, "q")
    bench.turn(single(1, rid=B))
    assert [one.seq for one in bench.settle(i.ReceiptItem(2, 5, 1))] == [1]  # type: ignore[union-attr]


def test_a_refusal_comes_after_the_acks_before_it(bench: Bench) -> None:
    publish(bench, 2)
    bench.turn(packed(3, b"x"))
    reported = bench.settle(i.ReceiptItem(bench.appended[-1][0], 0, 2, 0, "disk_full", "full"))
    assert [(type(one).__name__, one.seq) for one in reported] == [("Ack", 2), ("Error", 3)]  # type: ignore[union-attr]


def test_a_flush_is_answered_at_once(bench: Bench) -> None:
    publish(bench, 2)
    reported = bench.turn(item(A, m.Flush("f"), None))
    assert [(one.cid, one.seq) for one in reported if isinstance(one, m.Ack)] == [
        (None, 2),
        ("f", 2),
    ]


def test_a_heartbeat_releases_nothing(bench: Bench) -> None:
    publish(bench, 2)
    assert bench.core._pacer.next_wake_ms() == 1_000


def test_no_one_who_is_gone_is_informed(bench: Bench) -> None:
    publish(bench, 2)
    bench.gone(A)
    assert (acks(bench, 5_000), bench.core._pacer.next_wake_ms()) == ([], None)


@pytest.mark.parametrize("wrong", [0, -1, 61])
def test_an_interval_is_up_to_a_minute(wrong: float) -> None:
    frame = {"cmd": "logon", "client": "p", "instance": "x", "ack_interval_s": wrong}
    with pytest.raises(ClientError, match="ack_interval_s"):
        codec.decode(codec.INGEST, msgspec.msgpack.encode(frame))
