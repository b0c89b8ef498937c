"""Refusals that wait for the admin: each reported once, of a flood the newest, of the dead none."""

from __future__ import annotations

import pytest
from msgspec import Raw

from zbroker.wire import messages as m
from zbroker.wire.queue_messages import DeleteExchange
from zbroker.wire.surveys import KEPT, AskRefusals, RefusalLog, RefusalRow, command_text, stranger


def peers(rid: bytes) -> tuple[str, int | None]:
    return f"at {rid.decode()}", 0


def test_each_is_reported_once_with_where_it_came_from() -> None:
    refusals = RefusalLog()
    refusals.add(b"r1", "ann", "publish t", "not_entitled")
    refusals.add(b"", "key abc...", "connect", "auth_failed", "10.0.0.1")
    first = refusals.report(AskRefusals(7, 0), peers)
    assert (first.cid, first.last, first.left_out) == (7, 2, 0)
    assert first.rows == [
        RefusalRow("ann", "at r1", "publish t", "not_entitled"),
        RefusalRow("key abc...", "10.0.0.1", "connect", "auth_failed"),
    ]
    refusals.add(b"r2", "eve", "ranges", "not_entitled")
    again = refusals.report(AskRefusals(8, first.last), peers)
    assert [row.who for row in again.rows] == ["eve"]
    assert refusals.report(AskRefusals(9, again.last), peers).rows == []


def test_a_flood_pushes_the_oldest_out_and_is_counted() -> None:
    refusals = RefusalLog()
    for number in range(KEPT + 10):
        refusals.add(b"r", str(number), "publish t", "not_entitled")
    reported = refusals.report(AskRefusals(1, 3), peers)
    assert (reported.last, len(reported.rows), reported.left_out) == (KEPT + 10, KEPT, 7)
    assert reported.rows[-1].who == str(KEPT + 9)


@pytest.mark.parametrize("incarnations", [(1 << 40, 1 << 50), (1 << 50, 1 << 40), (1 << 50, 1)])
def test_one_of_a_process_before_hides_nothing_of_this_one(incarnations: tuple[int, int]) -> None:
    """Also where as many were refused since."""
    before, after = map(RefusalLog, incarnations)
    before.add(b"r", "ann", "publish t", "not_entitled")
    seen = before.report(AskRefusals(1, 0), peers).last
    for number in range(20):
        after.add(b"r", str(number), "publish t", "not_entitled")
    reported = after.report(AskRefusals(2, seen), peers)
    assert [row.who for row in reported.rows] == [str(number) for number in range(20)]
    assert after.report(AskRefusals(3, reported.last), peers).rows == []


def test_a_command_is_reported_by_what_it_is_about_never_by_what_it_carries() -> None:
    secret = {"user": "ann", "password": "secret"}
    logon = m.Logon("pricer", "i", credentials=secret)
    publish = m.Publish(
        1, topics=["a", "b", "c", "d"], key=b"secret", headers={"x": Raw(b"\xa6secret")}
    )
    subscribe = m.Subscribe("s", "orders", filter="/secret = 1")
    exchange = DeleteExchange("events")
    commands = (logon, publish, subscribe, exchange, m.ListenerLogon("secret"), None)
    assert [command_text(command) for command in commands] == [
        "logon pricer", "publish a b c", "subscribe orders", "delete_exchange events", "logon",
        "command",
    ]  # fmt: skip
    assert stranger("abcdefghijkl") == "key abcdefgh..."
    assert stranger("") == ""
