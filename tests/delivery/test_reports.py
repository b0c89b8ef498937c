"""What is reported of subscriptions: rows, their order, and why each waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.delivery import reports
from zbroker.delivery.contract import DeliveryStats
from zbroker.delivery.subscription import Trail
from zbroker.server.peers import Peer, Peers
from zbroker.wire.messages import Options
from zbroker.wire.surveys import (
    AskClients,
    AskSubscriptions,
    ClientRow,
    Clients,
    SubscriptionRow,
    TopicRow,
    unknown,
)

NOW_MS = 5_000
ALL = AskSubscriptions(1, limit=100)


class Names(NamedTuple):
    rid: bytes
    sid: str


class Token(NamedTuple):
    name: str
    principal: str = "p"
    instance: str = "i"
    session: int = 7


class Pulse(NamedTuple):
    interval_ms: int | None = None


class Selection(NamedTuple):
    text: str = ""


@dataclass
class Connection:
    token: Token
    rid: bytes
    pulse: Pulse = field(default_factory=Pulse)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


@dataclass
class Subscription:
    names: Names
    topic: str = "t"
    regex: bool = False
    selection: Selection = field(default_factory=Selection)
    options: Options = field(default_factory=Options)
    credit: int = 10
    sent_messages: int = 0
    sent_bytes: int = 0
    since_ms: int = 0
    paused: bool = False
    not_before_ns: int | None = None
    trail: Trail = field(default_factory=Trail)


@dataclass
class Replay:
    members: Sequence[Subscription]
    position: int
    due_ns: int | None = None


@dataclass
class Cursors:
    persisted: int = 100
    of: dict[int, Replay] = field(default_factory=dict)
    replicated: int = 100

    def limit(self, _replay: Replay) -> int:
        return min(self.persisted, self.replicated)


@dataclass
class World:
    """A core as far as it is looked at."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    connections: Peers[Any] = field(default_factory=lambda: Peers(Peer))
    cursors: Cursors = field(default_factory=Cursors)
    counts: DeliveryStats = field(default_factory=DeliveryStats)

    def add(self, position: int = 0, client: str = "ann", sid: str = "s") -> Subscription:
        """position 0: it is not located yet."""
        one = Subscription(Names(client.encode(), sid))
        key = len(self.subscriptions) + 1
        self.subscriptions[key] = one
        connection = self.connections.setdefault(
            one.names.rid, Connection(Token(client), one.names.rid)
        )
        connection.subscriptions[sid] = one
        if position:
            self.cursors.of[key] = Replay([one], position)
        return one

    def rows(self, ask: AskSubscriptions = ALL) -> list[SubscriptionRow]:
        return reports.rows(self, ask, NOW_MS)[0]

    def state(self) -> str:
        [row] = self.rows()
        return row.state


def test_a_row_tells_everything() -> None:
    world = World()
    one = world.add(40, "ann", "s1")
    one.topic, one.regex, one.selection = "a.*", True, Selection("/x > 1")
    one.options = Options(rate="2X")
    one.sent_messages, one.sent_bytes, one.since_ms = 3, 300, 77
    assert world.rows() == [
        SubscriptionRow(
            "ann", "s1", "a.*", True, "/x > 1", Options(rate="2X"), "sending", 40, 60, 10, 3, 300,
            77, handled=40,
        )
    ]  # fmt: skip


def test_one_that_is_located_has_no_position() -> None:
    world = World()
    world.add()
    [row] = world.rows()
    assert (row.state, row.position, row.lag) == ("locating", 0, 0)


def test_what_is_sent_before_it_is_durable_is_not_after() -> None:
    world = World()
    world.add(103)
    [row] = world.rows()
    assert (row.state, row.lag) == ("caught up", 0)


def test_a_rate_tells_when_the_next_one_is_due() -> None:
    world = World()
    world.add(40)
    world.cursors.of[1].due_ns = (NOW_MS + 20) * 1_000_000
    [row] = world.rows()
    assert (row.state, row.due_ms) == ("rate", 20)
    world.cursors.of[1].due_ns = 1
    assert world.rows()[0].due_ms == 0


def test_a_start_in_the_future_is_reported() -> None:
    world = World()
    world.add(100).not_before_ns = 7
    [row] = world.rows()
    assert (row.state, row.starts_ns) == ("future start", 7)


def test_one_that_is_combined_waits_for_the_credit_of_the_other() -> None:
    world = World()
    one, other = world.add(40), world.add(0, "bob")
    other.credit = 0
    world.cursors.of[1] = world.cursors.of[2] = Replay([one, other], 40)
    assert [row.state for row in world.rows()] == ["no credit", "no credit"]


@pytest.mark.parametrize("reasons", range(32))
def test_the_reason_that_has_to_go_first_is_reported(reasons: int) -> None:
    """Every mix of reasons; the first of them in this order counts."""
    names = ["paused", "future start", "caught up", "no credit", "rate"]
    given_ = [name for bit, name in enumerate(names) if reasons >> bit & 1]
    world = World()
    one = world.add(100 if "caught up" in given_ else 40)
    one.paused = "paused" in given_
    one.not_before_ns = 7 if "future start" in given_ else None
    one.credit = 0 if "no credit" in given_ else 10
    world.cursors.of[1].due_ns = NOW_MS * 1_000_000 if "rate" in given_ else None
    assert world.state() == (given_[0] if given_ else "sending")


def test_only_what_was_asked_for_is_reported() -> None:
    world = World()
    world.add(1, "ann", "a").topic = "x"
    world.add(2, "ann", "b").topic = "y"
    world.add(3, "bob", "c").topic = "y"

    def sids(**ask: str) -> list[str]:
        return [row.sid for row in world.rows(AskSubscriptions(1, limit=9, **ask))]

    assert (sids(client="ann"), sids(topic="y"), sids(client="ann", topic="y")) == (
        ["a", "b"], ["b", "c"], ["b"],
    )  # fmt: skip
    assert sids(client="an") == []


@given(st.lists(st.integers(0, 120), max_size=30), st.integers(0, 40))
def test_the_farthest_behind_are_reported_first(positions: list[int], limit: int) -> None:
    world = World()
    for number, position in enumerate(positions):
        world.add(position, f"c{number % 3}", f"s{number}")
    found, left_out = reports.rows(world, AskSubscriptions(1, limit=limit), NOW_MS)
    assert len(found) + left_out == len(positions)
    assert len(found) == min(limit, len(positions))
    keys = [(-row.lag, row.client, row.sid) for row in found]
    assert keys == sorted(keys)
    reported = {row.sid for row in found}
    lags = [100 - at if 0 < at < 100 else 0 for at in positions]
    others = [lag for number, lag in enumerate(lags) if f"s{number}" not in reported]
    assert max(others, default=0) <= min((row.lag for row in found), default=100)


def test_one_answer_has_a_limit() -> None:
    world = World()
    for number in range(reports.ROWS_MAX + 5):
        world.add(1, sid=f"s{number}")
    found, left_out = reports.rows(world, AskSubscriptions(1, limit=1 << 40), NOW_MS)
    assert (len(found), left_out) == (reports.ROWS_MAX, 5)


# -- connections ----------------------------------------------------------------------------------


def peers(rid: bytes) -> tuple[str, int]:
    return ("127.0.0.1:5", NOW_MS - 1_500)


def names(world: World, ask: AskClients) -> tuple[list[str], int]:
    found = reports.clients(world, ask, unknown, NOW_MS)
    return [row.client for row in found.rows], found.left_out


def test_a_connection_is_reported_with_what_it_was_sent() -> None:
    world = World()
    world.add(40, "ann", "s1").sent_messages = 3
    world.add(40, "ann", "s2").sent_messages = 4
    world.connections[b"ann"].pulse = Pulse(2_500)
    row = ClientRow("ann", "p", "i", "127.0.0.1:5", 1_500, 7, None, None, 0, 7, 2, 2.5)
    assert reports.clients(world, AskClients(1, limit=5), peers, NOW_MS) == Clients(1, [row])


def test_what_is_not_known_of_a_connection_is_not_reported() -> None:
    world = World()
    world.add()
    [row] = reports.clients(world, AskClients(1, limit=5), unknown, NOW_MS).rows
    assert (row.address, row.connected_ms, row.heartbeat_s) == ("", None, 30.0)


def test_connections_are_reported_by_name() -> None:
    world = World()
    for client in ("cid", "ann", "bob"):
        world.add(1, client)
    assert names(world, AskClients(1, limit=2)) == (["ann", "bob"], 1)
    assert names(world, AskClients(1, "bob", 5)) == (["bob"], 0)
    assert names(world, AskClients(1, "bo", 5)) == ([], 0)


def test_topics_are_counted_as_they_were_asked_for() -> None:
    world = World()
    for number, (topic, regex) in enumerate([("a", False), ("a", True), ("b", False), ("a", True)]):
        one = world.add(1, sid=f"s{number}")
        one.topic, one.regex = topic, regex
    found, left_out = reports.topics(world)
    assert found[0] == TopicRow("a", True, 2)
    assert sorted((row.topic, row.regex, row.subscriptions) for row in found) == [
        ("a", False, 1), ("a", True, 2), ("b", False, 1),
    ]  # fmt: skip
    assert left_out == 0


def test_topics_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TOPICS_MAX", 2)
    world = World()
    for number in range(5):
        world.add(1, sid=f"s{number}").topic = f"t{number}"
    found, left_out = reports.topics(world)
    assert (len(found), left_out) == (2, 3)


def test_lag_counts_what_was_sent_and_is_not_handled() -> None:
    """Caught up, and far behind: the program has it in hand."""
    world = World()
    one = world.add(100)
    one.trail.begin(1)
    one.sent_messages, one.trail.spent = 99, 990
    one.trail.mark(99, 100)
    [row] = world.rows()
    assert (row.state, row.position, row.handled, row.lag, row.in_hand) == (
        "in hand",
        100,
        1,
        99,
        99,
    )
    one.trail.give_back(990)
    [row] = world.rows()
    assert (row.state, row.handled, row.lag, row.in_hand) == ("caught up", 100, 0, 0)


def test_a_fully_durable_one_waits_for_destinations() -> None:
    world = World()
    world.add(40)
    world.cursors.replicated = 40
    assert world.state() == "not replicated"
