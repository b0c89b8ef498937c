"""A planned hand-over at ingest: hold, then leave; it gives up a hold that lasts too long."""

from __future__ import annotations

from typing import Any

from tests.ingest.rig import Rig, item, made
from zbroker.engine.effects import Answer, Gate, Tell
from zbroker.engine.events import Asked
from zbroker.ingest.contract import PublishLimits
from zbroker.ingest.drain import HOLD_MAX_MS
from zbroker.wire import messages as m
from zbroker.wire import surveys as s

LIMITS = PublishLimits(1_000, 1_000, 1_000, 10)


def rid(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def rig(*names: str) -> Rig:
    found = Rig(made(LIMITS))
    for number, name in enumerate(names, 1):
        found.turn(item(rid(number), m.Logon(name, "i"), None))
    found.tick()
    return found


def ask(to: Rig, what: str) -> tuple[s.IngestDrained, list[Any]]:
    effects = list(to.core.handle(Asked(b"admin", s.DrainIngest(7, what)), to.now))
    to.core.check()
    (tell,) = (one for one in effects if isinstance(one, Tell))
    assert isinstance(tell.answer, s.IngestDrained)
    return tell.answer, effects


def gates(to: Rig) -> list[bool]:
    effects = to.core.tick(to.now, drained=True)
    return [one.open for one in effects if isinstance(one, Gate)]


def test_a_hold_reads_no_client_until_it_is_over() -> None:
    one = rig("ann")
    said, _ = ask(one, "hold")
    assert (said.state, said.cid, said.sessions) == ("held", 7, 0)
    assert gates(one) == [False]
    assert ask(one, "off")[0].state == "off"
    assert gates(one) == [True]


def test_a_hold_that_no_one_goes_on_with_ends() -> None:
    """Else publishers would wait for ever for an admin that died."""
    one = rig("ann")
    ask(one, "hold")
    assert gates(one) == [False]
    one.now_ms = HOLD_MAX_MS - 1
    ask(one, "hold")
    one.now_ms = HOLD_MAX_MS
    assert gates(one) == []
    one.now_ms = 2 * HOLD_MAX_MS
    assert gates(one) == [True]
    assert ask(one, "leave")[0].state == "off", "it has to be held first"


def test_sessions_end_and_logons_are_refused() -> None:
    one = rig("ann", "bob")
    ask(one, "hold")
    said, effects = ask(one, "leave")
    assert (said.state, said.sessions) == ("left", 2)
    errors = {e.rid: e.message for e in effects if isinstance(e, Answer)}
    assert {rid: error.code for rid, error in errors.items()} == {
        rid(1): "not_logged_on", rid(2): "not_logged_on",
    }  # fmt: skip
    assert not one.core.clients.by_name
    assert gates(one) == [], "it was open before the first tick of the hold"
    (refused,) = one.turn(item(rid(3), m.Logon("ann", "i"), None))
    assert isinstance(refused, m.Error)
    assert (refused.code, "drained" in refused.reason) == ("not_ready", True)
    ask(one, "off")
    one.turn(item(rid(4), m.Logon("ann", "i"), None))
    assert list(one.core.clients.by_name) == ["ann"]
    assert one.core.stats()["drain"] == "off"
