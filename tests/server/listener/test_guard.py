"""zbroker/server/listener/guard.py: which connections are cut."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.server.listener.guard import (
    FRAMES_MIN,
    HEADER_SPARE_BYTES,
    HEARTBEATS_BYTES_S,
    INSIDE,
    LOGON_MS,
    ROUND_MAX,
    SHAKING_MAX_BYTES,
    UNREAD_FRAMES_MAX,
    WAITING,
    WAITING_MAX_BYTES,
    WAITING_TOTAL_BYTES,
    ConnectionGuard,
    ConnectionLimits,
    Cut,
    GuardedConnection,
    TcpCounters,
    Why,
)

WORK_US = 1_000_000  # enough for a round of any number
UNREAD = 4 << 20
SHAKEN = 270
SHOOK = 301
BOUNDS = ConnectionLimits(connections=10, unread_bytes=UNREAD, shaken_bytes=SHAKEN)


class Bench:
    """A guard, a clock, and a kernel that says what a test sets."""

    def __init__(self, bounds: ConnectionLimits = BOUNDS) -> None:
        self.guard = ConnectionGuard(bounds)
        self.flows: dict[int, TcpCounters] = {}
        self.now_ms = 1 << 40  # a machine that has been up for long
        self.looked_at: list[int] = []
        self._worked_us = 0

    def accept(self, fd: int, received: int = 64, acked: int = SHOOK) -> list[Cut]:
        self.flows[fd] = TcpCounters(received, acked)
        return self.guard.accepted(fd, self.now_ms)

    def enter(self, fd: int) -> GuardedConnection:
        """One that has logged on."""
        self.accept(fd)
        met = self.guard.meet(b"%d" % fd, fd, self.now_ms)
        assert met is not None
        self.guard.logged_on(met)
        return met

    def says(self, fd: int, count: int) -> None:
        self.flows[fd] = self.flows[fd]._replace(received=self.flows[fd].received + count)

    def look(
        self, after_ms: int = INSIDE.every_ms, worked_us: int = WORK_US, *, drained: bool = False
    ) -> list[Cut]:
        self.now_ms += after_ms
        self._worked_us += worked_us
        worked = self._worked_us
        cuts = self.guard.look(self.now_ms, lambda: worked, self._flow, drained=drained)
        self.guard.check()
        return cuts

    def _flow(self, fd: int) -> TcpCounters | None:
        self.looked_at.append(fd)
        return self.flows.get(fd)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- who waits ------------------------------------------------------------------------------------


def test_who_does_not_log_on_is_cut_at_the_deadline(bench: Bench) -> None:
    bench.accept(1)
    assert bench.look(LOGON_MS - 1) == []
    assert bench.look(1) == [Cut(1, "silent")]
    assert len(bench.guard) == 0


def test_who_logged_on_may_be_silent_for_ever(bench: Bench) -> None:
    bench.enter(1)
    assert bench.look(100 * LOGON_MS) == []


def test_a_deadline_needs_no_work_of_the_receiving_threads(bench: Bench) -> None:
    bench.accept(1)
    assert bench.look(LOGON_MS, worked_us=0) == [Cut(1, "silent")]
    assert bench.looked_at == []


@pytest.mark.parametrize(
    ("acked", "said", "why"),
    [
        (SHAKEN - 1, SHAKING_MAX_BYTES, None),
        (SHAKEN - 1, SHAKING_MAX_BYTES + 1, "handshakes"),
        (SHAKEN, SHAKING_MAX_BYTES + 1, None),
        (SHAKEN, WAITING_MAX_BYTES, None),
        (SHAKEN, WAITING_MAX_BYTES + 1, "silent"),
    ],
)
def test_what_may_be_said_depends_on_the_handshake(
    bench: Bench, acked: int, said: int, why: Why | None
) -> None:
    bench.accept(1, said, acked)
    assert bench.look() == ([Cut(1, why)] if why else [])


def test_a_message_proves_the_handshake_whatever_was_confirmed(bench: Bench) -> None:
    bench.accept(1, SHAKING_MAX_BYTES + 1, acked=0)
    assert bench.guard.meet(b"1", 1, bench.now_ms) is not None
    assert bench.look() == []


@pytest.mark.parametrize("over", [0, 1])
def test_all_that_wait_share_what_may_be_said(over: int) -> None:
    bench = Bench(BOUNDS._replace(connections=64))
    for fd in range(64):
        bench.accept(fd, WAITING_TOTAL_BYTES // 64 + over)
    assert len(bench.look()) > 0 if over else bench.look() == []


def test_a_share_is_never_less_than_a_handshake_may_have() -> None:
    many = 2 * WAITING_TOTAL_BYTES // SHAKING_MAX_BYTES
    bench = Bench(BOUNDS._replace(connections=many))
    for fd in range(many):
        bench.accept(fd, SHAKING_MAX_BYTES)
    cuts = [cut for _ in range(many // ROUND_MAX + 1) for cut in bench.look()]
    assert (cuts, set(bench.looked_at)) == ([], set(range(many)))


# -- too many -------------------------------------------------------------------------------------


def test_over_the_limit_the_longest_waiting_one_goes(bench: Bench) -> None:
    bench.enter(0)
    assert [bench.accept(fd) for fd in range(1, 10)] == [[]] * 9
    assert bench.accept(10) == [Cut(1, "over_limit")]
    bench.guard.check()


def test_over_the_limit_of_logged_on_ones_the_new_one_goes(bench: Bench) -> None:
    for fd in range(10):
        bench.enter(fd)
    assert bench.accept(10) == [Cut(10, "over_limit")]


def test_a_descriptor_that_comes_again_is_a_new_connection(bench: Bench) -> None:
    bench.enter(1)
    bench.accept(1)
    assert (len(bench.guard), bench.guard.by_rid) == (1, {})
    assert bench.look(LOGON_MS) == [Cut(1, "silent")]


def test_who_was_taken_for_its_predecessor_has_to_log_on_itself(bench: Bench) -> None:
    bench.enter(1)
    assert bench.guard.meet(b"next", 1, bench.now_ms) is not None
    assert list(bench.guard.by_rid) == [b"next"]
    bench.guard.check()
    assert bench.look(LOGON_MS) == [Cut(1, "silent")]


def test_a_peer_whose_connection_has_ended_has_none(bench: Bench) -> None:
    bench.enter(1)
    bench.guard.closed(1)
    bench.guard.closed(1)
    assert bench.guard.meet(b"1", 1, bench.now_ms) is None
    assert bench.guard.wake_ms() is None


# -- inside ---------------------------------------------------------------------------------------


def test_who_is_not_read_may_say_so_much(bench: Bench) -> None:
    bench.enter(1)
    assert bench.look() == []
    bench.says(1, UNREAD)
    assert bench.look() == []
    bench.says(1, SHAKING_MAX_BYTES)
    assert bench.look() == [Cut(1, "unread")]


def test_the_age_of_the_machine_is_no_credit(bench: Bench) -> None:
    bench.enter(1)
    bench.says(1, UNREAD + SHAKING_MAX_BYTES)
    assert bench.look() == [Cut(1, "unread")]


def test_who_is_read_may_say_any_number_of_bytes(bench: Bench) -> None:
    connection = bench.enter(1)
    for _ in range(100):
        bench.says(1, UNREAD)
        connection.read += UNREAD
        assert bench.look() == []


def test_what_was_estimated_too_high_is_no_credit(bench: Bench) -> None:
    connection = bench.enter(1)
    connection.read += 100 * UNREAD
    assert bench.look() == []
    bench.says(1, UNREAD + SHAKING_MAX_BYTES)
    assert bench.look() == [Cut(1, "unread")]


def test_of_short_frames_fewer_bytes_may_be_unread(bench: Bench) -> None:
    connection = bench.enter(1)
    bench.look()
    for more, cuts in ((3 * UNREAD_FRAMES_MAX, []), (SHAKING_MAX_BYTES, [Cut(1, "unread")])):
        bench.says(1, 3 * FRAMES_MIN + more)
        connection.read, connection.frames = 3 * FRAMES_MIN, FRAMES_MIN
        assert bench.look() == cuts


def test_a_few_short_frames_say_nothing_of_what_waits(bench: Bench) -> None:
    """A client that has sent heartbeats alone may send its window at once."""
    connection = bench.enter(1)
    bench.says(1, UNREAD - 1_000)
    connection.read, connection.frames = 30, 10
    assert bench.look() == []
    assert bench.look() == []


def test_longer_headers_than_needed_cut_no_one_of_whom_all_is_read(bench: Bench) -> None:
    connection = bench.enter(1)
    for _ in range(1_000):
        bench.says(1, 10_000 * (3 + HEADER_SPARE_BYTES))
        connection.read, connection.frames = 30_000, 10_000
        assert bench.look(drained=True) == []


def test_heartbeats_of_months_cut_no_one(bench: Bench) -> None:
    bench.enter(1)
    for _ in range(10_000):
        bench.says(1, HEARTBEATS_BYTES_S * 3_600)
        assert bench.look(3_600_000) == []


def test_after_a_session_the_bounds_are_those_of_the_beginning(bench: Bench) -> None:
    connection = bench.enter(1)
    bench.says(1, 2 * WAITING_MAX_BYTES)
    bench.guard.forget(connection, bench.now_ms)
    assert bench.look() == []
    bench.says(1, WAITING_MAX_BYTES + 1)
    assert bench.look() == [Cut(1, "silent")]


def test_a_logoff_without_a_session_puts_nothing_off(bench: Bench) -> None:
    bench.accept(1)
    connection = bench.guard.meet(b"1", 1, bench.now_ms)
    assert connection is not None
    bench.look(LOGON_MS - 1)
    bench.guard.forget(connection, bench.now_ms)
    assert bench.look(1) == [Cut(1, "silent")]


def test_a_logoff_does_not_hide_what_was_not_read(bench: Bench) -> None:
    connection = bench.enter(1)
    bench.look()
    bench.says(1, UNREAD // 2)
    bench.guard.forget(connection, bench.now_ms)
    bench.look()
    bench.guard.logged_on(connection)
    bench.says(1, UNREAD // 2 + SHAKING_MAX_BYTES)
    assert bench.look() == [Cut(1, "unread")]


# -- what looking costs ---------------------------------------------------------------------------


def test_no_one_is_looked_at_while_nothing_is_received(bench: Bench) -> None:
    bench.accept(1)
    bench.enter(2)
    bench.look()
    bench.looked_at.clear()
    for _ in range(50):
        assert bench.look(worked_us=0) == []
    assert bench.looked_at == []
    bench.look(worked_us=WORK_US)
    assert sorted(bench.looked_at) == [1, 2]


def test_little_work_adds_up(bench: Bench) -> None:
    bench.accept(1)
    for _ in range(WAITING.work_us // 100):
        assert bench.looked_at == []
        bench.look(worked_us=100)
    assert bench.looked_at == [1]


def test_a_turn_looks_at_few_of_many() -> None:
    many = 3 * ROUND_MAX
    bench = Bench(BOUNDS._replace(connections=many))
    for fd in range(many):
        bench.accept(fd)
    for turn in range(1, 4):
        bench.look()
        assert len(bench.looked_at) == turn * ROUND_MAX
    assert sorted(bench.looked_at) == list(range(many))


def test_deadlines_of_many_are_kept_a_few_per_turn() -> None:
    many = 2 * ROUND_MAX + 1
    bench = Bench(BOUNDS._replace(connections=many))
    for fd in range(many):
        bench.accept(fd)
    assert [len(bench.look(LOGON_MS)) for _ in range(4)] == [ROUND_MAX, ROUND_MAX, 1, 0]


def test_one_that_ended_during_a_round_is_not_looked_at() -> None:
    bench = Bench(BOUNDS._replace(connections=2 * ROUND_MAX))
    for fd in range(2 * ROUND_MAX):
        bench.accept(fd)
    bench.look()
    for fd in range(2 * ROUND_MAX):
        if fd not in bench.looked_at:
            bench.guard.closed(fd)
    bench.look(WAITING.every_ms - 1)
    assert len(bench.looked_at) == ROUND_MAX


def test_one_that_the_kernel_does_not_know_is_left_alone(bench: Bench) -> None:
    bench.enter(1)
    bench.flows.clear()
    assert bench.look() == []


def test_a_wake_up_is_due_as_long_as_there_is_somebody(bench: Bench) -> None:
    assert bench.guard.wake_ms() is None
    bench.accept(1)
    bench.look()
    assert bench.guard.wake_ms() == bench.now_ms + WAITING.every_ms
    connection = bench.guard.meet(b"1", 1, bench.now_ms)
    assert connection is not None
    bench.guard.logged_on(connection)
    bench.look()
    assert bench.guard.wake_ms() == bench.now_ms + INSIDE.every_ms


# -- any history ----------------------------------------------------------------------------------


@dataclass
class One:
    """What the model knows of a connection; nothing is forgotten or estimated."""

    since_ms: int
    said_before: int
    inside: bool = False
    unread: int = 0
    said: int = 0
    left_to_heartbeats: float = 0.0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["accept", "close", "logon", "logoff", "say", "read", "look"]),
        st.integers(0, 7),
        st.sampled_from([100, 60_000, 500_000, 3 << 20]),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_history_cuts_whom_a_simple_model_cuts(
    steps: list[tuple[str, int, int]],
) -> None:
    bench = Bench(BOUNDS._replace(connections=5))
    model: dict[int, One] = {}
    for what, fd, count in steps:
        _step(bench, model, what, fd, count)
        bench.guard.check()
        assert len(bench.guard) == len(model)


def _step(bench: Bench, model: dict[int, One], what: str, fd: int, count: int) -> None:
    if what == "accept":
        model.pop(fd, None)
        cuts = bench.accept(fd, received=0)
        model[fd] = One(bench.now_ms, 0)
        assert cuts == _over(model)
    elif what == "close":
        bench.guard.closed(fd)
        model.pop(fd, None)
    elif what == "look":
        cuts = _look(bench, model, INSIDE.every_ms + count // 300)
        assert sorted(cuts) == sorted(_due(model, bench.now_ms, cuts))
    elif (one := model.get(fd)) is not None:
        connection = bench.guard.by_rid.get(b"%d" % fd) or bench.guard.meet(
            b"%d" % fd, fd, bench.now_ms
        )
        assert connection is not None
        _talk(bench, one, connection, what, count)
        if what == "logoff":  # what is said before the next look is not counted
            _step(bench, model, "look", fd, 0)


def _talk(bench: Bench, one: One, connection: GuardedConnection, what: str, count: int) -> None:
    if what == "say":
        bench.says(connection.fd, count)
        one.said += count
        one.unread += count
    elif what == "read":
        taken = min(count, one.unread)  # exactly what was there
        connection.read += taken
        one.unread -= taken
    elif what == "logon":
        bench.guard.logged_on(connection)
        one.inside = True
    elif one.inside:
        bench.guard.forget(connection, bench.now_ms)
        one.inside, one.since_ms, one.said_before = False, bench.now_ms, one.said


def _over(model: dict[int, One]) -> list[Cut]:
    if len(model) <= 5:
        return []
    waiting = [fd for fd, one in model.items() if not one.inside]
    oldest = min(waiting, key=lambda fd: (model[fd].since_ms, list(model).index(fd)))
    del model[oldest]
    return [Cut(oldest, "over_limit")]


def _look(bench: Bench, model: dict[int, One], after_ms: int) -> list[Cut]:
    for one in model.values():
        one.left_to_heartbeats += HEARTBEATS_BYTES_S * after_ms / 1_000
    return bench.look(after_ms)


def _due(model: dict[int, One], now_ms: int, cuts: list[Cut]) -> list[Cut]:
    """Who has to go; near the bound of what is unread both is right."""
    due: list[Cut] = []
    for fd, one in list(model.items()):
        unread = Cut(fd, "unread")
        if one.inside:
            over = one.unread - UNREAD
            if over > one.left_to_heartbeats or (over > 0 and unread in cuts):
                due.append(unread)
        elif now_ms - one.since_ms >= LOGON_MS or one.said - one.said_before > WAITING_MAX_BYTES:
            due.append(Cut(fd, "silent"))
    for cut in due:
        del model[cut.fd]
    return due
