"""zbroker/heartbeats.py: when a silence is long enough, and when it does not count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.heartbeats import BEATS_PER_INTERVAL, ListenerHeartbeats, Pulse, Silence
from zbroker.limits import HEARTBEAT_MS

A, B, C = b"\0aaaa", b"\0bbbb", b"\0cccc"
INTERVALS = st.integers(8, 5_000)


# -- a client's broker ----------------------------------------------------------------------------


def until_silent(quiet: Silence, now_ms: int, arrivals: list[int]) -> int:
    """Looks when it wants to be woken, and when something arrives; when it is silent."""
    waiting = sorted(arrivals)
    while not quiet.look(now_ms):
        wake_ms = quiet.wake_ms
        assert wake_ms is not None
        assert wake_ms > now_ms, "it would spin"
        now_ms = wake_ms
        if waiting and waiting[0] <= now_ms:
            now_ms = waiting.pop(0)
            quiet.fresh = True
    return now_ms


@given(INTERVALS, st.lists(st.integers(1, 10_000), max_size=20))
def test_a_broker_is_silent_exactly_two_intervals_after_what_it_said_last(
    interval_ms: int, gaps: list[int]
) -> None:
    """A gap of two intervals between two of its messages ends it there."""
    quiet = Silence(interval_ms / 1_000)
    last_ms, arrivals = 0, []
    limit_ms = 2 * int(interval_ms / 1_000 * 1_000)
    for gap in gaps:
        if gap >= limit_ms:
            break
        last_ms += gap
        arrivals.append(last_ms)
    assert until_silent(quiet, 0, arrivals) == last_ms + limit_ms


def test_who_did_not_look_for_an_interval_hears_no_silence() -> None:
    """The process was stopped, or a handler ran: what came then is not read yet."""
    quiet = Silence(1.0)
    quiet.look(0)
    assert not quiet.look(1_000_000)
    assert until_silent(quiet, 1_000_000, []) == 1_002_000


def test_a_listener_without_interval_never_hears_a_silence() -> None:
    quiet = Silence(None)
    assert (quiet.look(0), quiet.look(10**9), quiet.wake_ms) == (False, False, None)


# -- the clients of a listener --------------------------------------------------------------------


class Listener:
    """A process that looks whenever it wants to be woken, and at given times besides."""

    def __init__(self, quiet_ms: Callable[[bytes], int | None] | None = None) -> None:
        self.heartbeats = ListenerHeartbeats(quiet_ms)
        self.clients: dict[bytes, Pulse] = {}
        self.now_ms = 0
        self.silent: dict[bytes, int] = {}
        self.beats: dict[bytes, list[int]] = {}
        self.ticks = 0

    def logon(self, rid: bytes, interval_s: float | None) -> None:
        self.clients[rid] = self.heartbeats.begin(interval_s, self.now_ms)
        self.beats[rid] = [self.now_ms]

    def tick(self, *, drained: bool = True) -> None:
        self.ticks += 1
        silent, beats = self.heartbeats.tick(self.now_ms, self.clients.items(), drained=drained)
        for rid in silent:
            del self.clients[rid]
            self.silent[rid] = self.now_ms
        for rid in beats:
            self.beats[rid].append(self.now_ms)

    def run(self, end_ms: int, *, drained: bool = True) -> None:
        while self.now_ms < end_ms:
            due_ms = self.heartbeats.due_ms
            if due_ms is not None:
                assert due_ms > self.now_ms, "it would spin"
            self.now_ms = end_ms if due_ms is None else min(end_ms, due_ms)
            self.tick(drained=drained)


@pytest.mark.seed("002-42")
@given(INTERVALS, INTERVALS, st.lists(st.integers(0, 20_000), max_size=20))
def test_a_client_is_silent_exactly_two_intervals_after_it_was_heard_last(
    interval_ms: int, other_ms: int, heard: list[int]
) -> None:
    listener = Listener()
    listener.logon(A, interval_ms / 1_000)
    listener.logon(B, other_ms / 1_000)
    last_ms, limit_ms = 0, 2 * int(interval_ms / 1_000 * 1_000)
    for at_ms in sorted(heard):
        if at_ms >= last_ms + limit_ms:
            break
        listener.run(at_ms)
        listener.clients[A].heard_ms = last_ms = at_ms
    listener.run(last_ms + limit_ms)
    assert listener.silent.get(A) == last_ms + limit_ms


@pytest.mark.seed("002-41")
@given(st.lists(INTERVALS, min_size=1, max_size=6), st.integers(1_000, 5_000))
def test_everybody_gets_two_beats_in_each_interval_for_few_wakes(
    intervals: list[int], end_ms: int
) -> None:
    listener = Listener(lambda _rid: 0)
    for number, interval_ms in enumerate(intervals):
        listener.logon(b"%d" % number, interval_ms / 1_000)
    listener.run(end_ms)
    for number, interval_ms in enumerate(intervals):
        times = listener.beats[b"%d" % number]
        every_ms = max(1, int(interval_ms / 1_000 * 1_000) // BEATS_PER_INTERVAL)
        gaps = [after - before for before, after in pairwise(times)]
        assert max([*gaps, end_ms - times[-1]]) <= every_ms
        assert all(gap >= every_ms - every_ms // 8 for gap in gaps)


def test_many_clients_with_the_same_interval_do_not_cost_a_wake_each() -> None:
    listener = Listener(lambda _rid: 0)
    for number in range(1_000):
        listener.run(number)
        listener.logon(b"%d" % number, 1.0)
    listener.ticks = 0
    listener.run(11_000)
    assert listener.ticks < 300, "ten seconds of beats, 20,000 of them"


def test_who_asked_for_nothing_gets_a_beat_now_and_then_and_is_never_silent() -> None:
    listener = Listener()
    listener.logon(A, None)
    listener.run(10 * HEARTBEAT_MS)
    assert (len(listener.beats[A]), listener.silent) == (11, {})


def test_who_says_nothing_but_sends_bytes_is_not_silent() -> None:
    """The PINGs of libzmq: its program computes, or a handler runs."""
    last = {A: 0, B: 0}
    listener = Listener(lambda rid: listener.now_ms - last[rid])
    listener.logon(A, 1.0)
    listener.logon(B, 1.0)
    for now_ms in range(0, 20_000, 500):
        listener.run(now_ms)
        last[A] = now_ms
        if now_ms <= 10_000:
            last[B] = now_ms
    assert listener.silent == {B: 12_000}


def test_a_process_that_was_stopped_gives_everybody_two_new_intervals() -> None:
    listener = Listener()
    listener.logon(A, 1.0)
    listener.run(500)
    listener.now_ms = 60_000
    listener.tick()
    assert listener.silent == {}
    listener.run(70_000)
    assert listener.silent == {A: 62_000}


def test_silence_does_not_count_while_the_listener_is_not_read_to_the_end() -> None:
    """The journal takes nothing more, or more comes in than a turn reads."""
    listener = Listener()
    listener.logon(A, 1.0)
    listener.run(30_000, drained=False)
    assert listener.silent == {}
    listener.run(40_000)
    assert listener.silent == {A: 32_000}


def test_a_listener_without_clients_is_not_woken() -> None:
    listener = Listener()
    assert listener.heartbeats.due_ms is None
    listener.logon(C, 1.0)
    listener.run(2_000)
    assert listener.silent == {C: 2_000}
    assert listener.heartbeats.due_ms is None
