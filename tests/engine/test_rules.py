"""The order rules of a turn (zbroker/engine/turn.py): each holds, and is missed where it is broken.

Every test takes the class of the turn; `BROKEN` has, for each, a turn, core or port without the
rule, and the test has to fail with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.engine.rig import Given, Rig
from zbroker.engine.contract import Limit
from zbroker.engine.effects import Gate, LoggedOff, LoggedOn, Reconnect, Say, Send, Sync, Write
from zbroker.engine.events import Full, Gone, Synced
from zbroker.engine.turn import CHAIN_MAX, Turn
from zbroker.errors import Bug, StorageError
from zbroker.server.peers import Peers
from zbroker.wire.internal import Confirm
from zbroker.wire.token import Token

ANY = Turn[Any, Any]
A, B = b"\0ann1", b"\0bob1"
TOKEN = Token("name", "ann", "instance", 1, 2**40)


def nothing(_event: Any) -> list[Any]:
    return []


@pytest.fixture
def turn() -> type[ANY]:
    return Turn


@pytest.fixture
def link_class() -> type[Link]:
    return Link


@pytest.fixture
def kind() -> type[Peers[Any]]:
    return Peers


# -- 1 to 4 ---------------------------------------------------------------------------------------


def test_1_sources_come_in_order_up_to_their_limits_then_reads_then_one_tick(
    turn: type[ANY],
) -> None:
    def read(what: Any) -> Any:
        return rig.core.reads.pop(0)

    rig = Rig(turn, nothing, "ab", "cde", str=read)
    rig.plan.sources[1] = (rig.sources[1], Limit(2))
    rig.core.reads = ["r1", "r2"]
    rig.run()
    reported = [what for what in rig.log if type(what) is tuple]
    assert reported == [("heard", each) for each in ("a", "b", "c", "d", "r1", "r2")] + [
        ("tick", False)
    ]
    rig.log.clear()
    rig.run()
    assert rig.log == [("heard", "e"), ("tick", True)]


def test_1_a_hot_turn_takes_hot_sources_in_the_order_of_the_plan_then_one_tick() -> None:
    rig = Rig(Turn, nothing, "ab", "cd", "ef", str=lambda _: "read")
    rig.plan.hot = [rig.sources[2], rig.sources[0]]
    rig.core.reads = ["r1"]
    rig.turn.run({}, hot=True)
    assert rig.log == [*(("heard", each) for each in "abef"), ("tick", True)]
    assert rig.core.reads == ["r1"]
    rig.log.clear()
    rig.run()
    assert [what for what in rig.log if type(what) is tuple][:2] == [("heard", "c"), ("heard", "d")]


def test_2_effects_are_performed_in_the_order_of_decision_across_events(
    turn: type[ANY],
) -> None:
    decided: list[int] = []

    def decide(event: Any) -> list[Any]:
        found = {"a": [1, 2], "b": [5, 6], 3: [3], 4: [4]}[event]
        decided.extend(found)
        return found

    rig = Rig(turn, decide, "ab", int=lambda n: n + 2 if n < 3 else None)
    rig.run()
    assert rig.done == decided == [1, 2, 3, 4, 5, 6]


def test_3_a_core_hears_of_nothing_while_effects_of_it_wait(turn: type[ANY]) -> None:
    """An Append that was decided first is not overtaken by the Close that a failed send led to."""
    rig = Rig(
        turn, lambda event: ["close"] if isinstance(event, Gone) else ["send", "append"],
        ["burst"], str=lambda what: Gone(A) if what == "send" else None,
    )  # fmt: skip
    rig.run()
    assert rig.done == ["send", "append", "close"]


def test_4_all_effects_of_an_event_are_performed_before_the_next_is_taken(
    turn: type[ANY],
) -> None:
    rig = Rig(turn, lambda event: [event], [1, 2], [3])
    rig.run()
    assert rig.log[:-1] == [each for n in (1, 2, 3) for each in (("heard", n), n)]


# -- 5 and 6 --------------------------------------------------------------------------------------


def test_5_a_completion_at_once_and_one_later_are_the_same_event(turn: type[ANY]) -> None:
    def decide(event: Any) -> list[Any]:
        return {"go": ["save"], "saved": [7], 8: ["end"]}.get(event, [])

    at_once = Rig(turn, decide, ["go"], str=lambda what: "saved" if what == "save" else None,
                  int=lambda n: n + 1)  # fmt: skip
    at_once.run()
    mailbox = Given()

    def post(what: Any) -> None:
        if what != "end":
            mailbox.waiting.append("saved" if what == "save" else 8)

    later = Rig(turn, decide, ["go"], mailbox, str=post, int=post)
    later.run()
    later.run()
    assert later.heard == at_once.heard == ["go", "saved", 8]
    assert later.done == at_once.done == ["save", 7, "end"]


def test_6_a_read_is_asked_for_when_it_is_done(turn: type[ANY]) -> None:
    """What was read first changes what is to be read next: a second subscriber joined."""
    rig = Rig(turn, lambda event: rig.core.reads.clear() or [], str=lambda _: "block")
    rig.core.reads = ["one topic", "one topic"]
    rig.run()
    assert rig.done == ["one topic"]
    assert rig.run() is None, "nothing is left to be read"


# -- 7 and 8: peers -------------------------------------------------------------------------------


def test_7_a_peer_that_is_gone_gets_nothing_more_and_is_reported_once(
    turn: type[ANY],
) -> None:
    sent: list[Send] = []

    def send(effect: Send) -> Any:
        sent.append(effect)
        return Gone(effect.rid) if effect.rid == A else None

    burst = [Send(A, b"1"), Send(B, b"2"), Send(A, b"3"), Send(B, b"4")]
    late = [Send(A, b"5")]
    rig = Rig(turn, lambda event: late if event == Gone(A) else burst, ["burst"], Send=send)
    rig.run()
    assert sent == [burst[0], burst[1], burst[3]]
    assert rig.heard == ["burst", Gone(A)]
    rig.turn.hear("again")
    assert sent[3:] == sent[:3], "the next drain tries again: it may be back"


def test_8_a_full_peer_is_given_nothing_newer_before_what_it_is_owed(
    turn: type[ANY],
) -> None:
    burst = [Send(A, b"1"), Send(A, b"2"), Send(B, b"3"), Send(A, b"4")]
    refusals = {b"2": 0}  # sends that find space again after one that did not

    def send(effect: Send) -> Any:
        return Full(effect.rid, effect) if effect.header in refusals else None

    rig = Rig(turn, lambda event: burst if event == "burst" else [], ["burst"], Send=send)
    rig.run()
    assert rig.done == [burst[0], burst[1], burst[2]]
    assert rig.heard == ["burst", Full(A, burst[1]), Full(A, burst[3])]


# -- 9: durability --------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [Write(), Sync(2)])
def test_9_nothing_is_written_or_synced_while_a_sync_runs(second: Any, turn: type[ANY]) -> None:
    for synced_at_once in (True, False):
        rig = Rig(turn, lambda event: [Sync(1), second] if event == "go" else [], ["go"],
                  Sync=lambda sync, once=synced_at_once: Synced(1) if once else None)  # fmt: skip
        with pytest.raises(Bug, match="while a sync runs"):
            rig.run()
        assert rig.done == [Sync(1)]


def test_9_synced_comes_of_a_sync_only(turn: type[ANY]) -> None:
    with pytest.raises(Bug, match="without a Sync"):
        Rig(turn, nothing, [Synced(1)]).run()
    rig = Rig(turn, lambda event: [Sync(1)] if event == "go" else [], ["go", Synced(1), "go"])
    rig.run()
    with pytest.raises(Bug, match="while a sync runs"):
        rig.turn.hear("go")


def test_9_nothing_is_performed_after_a_write_that_failed(turn: type[ANY]) -> None:
    def fail(_effect: Any) -> None:
        raise StorageError("damaged", "the disk fails")

    rig = Rig(turn, lambda event: ["before", Write(), "receipt"], ["go"], Write=fail)
    with pytest.raises(StorageError, match="the disk fails"):
        rig.run()
    assert rig.done == ["before", Write()]


# -- 10 to 12: kept by ports and cores, on a turn that lets them ----------------------------------


class Link(Given):
    """A link to another process: what it sends goes out of the socket that is open then."""

    def __init__(self, *waiting: Any) -> None:
        super().__init__(*waiting)
        self.queued: list[Any] = []

    def reconnect(self, _effect: Reconnect) -> None:
        self.waiting.clear()
        self.queued.clear()

    def say(self, effect: Say) -> None:
        self.queued.append(effect)


class KeptLink(Link):
    """Without the rule: the old socket stays."""

    def reconnect(self, effect: Reconnect) -> None:
        pass


def test_10_a_new_socket_has_nothing_of_the_old_one(link_class: type[Link]) -> None:
    old, new = Say("journal", Confirm(1, 1)), Say("journal", Confirm(2, 2))
    link = link_class("watermarks of another journal", "an answer of the dead one")
    rig = Rig(Turn, lambda event: [old, Reconnect("journal"), new], link,
              Say=link.say, Reconnect=link.reconnect)  # fmt: skip
    rig.run()
    assert link.queued == [new]
    assert rig.heard == ["watermarks of another journal"]


def peers(kind: type[Peers[Any]]) -> Peers[Any]:
    found = kind(lambda _rid, _token, _pulse: _Peer())
    for rid in (A, B):
        found.logon(rid, TOKEN, None, 0)
    return found


class _Peer:
    def __init__(self) -> None:
        self.use: Any = None


class ArrivalsFirst(Peers[Any]):
    """Without the rule."""

    def moved(self) -> Any:
        return super().moved()[::-1]


def test_11_departures_come_before_arrivals(kind: type[Peers[Any]]) -> None:
    found = peers(kind)
    assert kind.moved(found)
    found.leave(A)
    found.logon(A, TOKEN, None, 0)
    found.leave(B)
    assert found.moved() == [LoggedOff(A), LoggedOff(B), LoggedOn(A)]
    assert found.moved() == []


def test_12_a_gate_that_is_closed_counts_at_once(turn: type[ANY]) -> None:
    clients = Given("command")

    def gate(effect: Gate) -> None:
        clients.open = effect.open

    rig = Rig(turn, lambda event: [Gate("clients", open=event == "credit")], ["full"], clients,
              Gate=gate)  # fmt: skip
    rig.run()
    assert rig.heard == ["full"]
    rig.sources[0].waiting = ["credit"]
    rig.run()
    assert rig.heard == ["full", "credit", "command"]


# -- 13 and 14 ------------------------------------------------------------------------------------


def test_13_errors_go_through_and_the_turn_is_dead(turn: type[ANY]) -> None:
    error = StorageError("damaged", "the log ends before what was read")

    def decide(_event: Any) -> list[Any]:
        raise error

    rig = Rig(turn, decide, ["a", "b"])
    with pytest.raises(StorageError) as caught:
        rig.run()
    assert caught.value is error
    for again in (rig.run, lambda: rig.turn.hear("c")):
        with pytest.raises(Bug, match="has failed before"):
            again()
    assert rig.heard == ["a"]


def test_14_an_endless_chain_of_completions_is_a_defect(turn: type[ANY]) -> None:
    def step(n: int) -> int | None:
        if n > 3 * CHAIN_MAX:
            raise OverflowError("it did not end")
        return n + 1

    with pytest.raises(Bug, match="does not end"):
        Rig(turn, lambda event: [event], [0], int=step).run()


def test_14_many_effects_of_one_event_are_no_chain(turn: type[ANY]) -> None:
    many = [Send(n.to_bytes(4, "big"), b"") for n in range(10 * CHAIN_MAX)]
    rig = Rig(turn, lambda event: many if event == "block" else [], ["block"],
              Send=lambda send: Gone(send.rid))  # fmt: skip
    rig.run()
    assert len(rig.heard) == 1 + len(many)


def test_a_turn_is_not_entered_twice() -> None:
    rig = Rig(Turn, lambda event: ["again"], ["go"], str=lambda _: rig.run())
    with pytest.raises(Bug, match="entered twice"):
        rig.run()


def test_an_effect_that_nothing_performs_is_found_when_the_turn_is_made() -> None:
    rig = Rig(Turn, nothing)
    with pytest.raises(Bug, match="nothing performs Say"):
        Turn(rig.core, rig.plan, {int: nothing, str: nothing, Send: nothing}, lambda: None)  # type: ignore[arg-type, return-value]


# -- how long to sleep ----------------------------------------------------------------------------


def test_the_port_sleeps_until_the_first_that_has_something_to_do() -> None:
    rig = Rig(Turn, nothing, [], [])
    assert rig.run() is None
    rig.now_ms, rig.core.wake_ms, rig.sources[1].wake_ms = 100, 180, 150
    assert rig.run() == 50
    rig.core.wake_ms = 0
    assert rig.run() == 0
    rig.core.wake_ms, rig.core.reads = 180, ["a"]
    assert rig.run() == 0, "reads are due"


def test_reads_end_with_their_slice() -> None:
    def read(_what: str) -> str:
        rig.now_ms += 400
        return "block"

    rig = Rig(Turn, nothing, str=read)
    rig.core.reads = ["more"] * 10
    rig.run()
    assert rig.heard == ["block"] * 3


# -- turns without a rule -------------------------------------------------------------------------


class TickFirst(ANY):
    def run(self, ready: Any) -> int | None:
        self._perform(self._core.tick(self._clock(), drained=True))
        return super().run(ready)


class Backwards(ANY):
    def _perform(self, effects: Any) -> list[Any]:
        return super()._perform(effects[::-1])


class Nested(ANY):
    """A completion is decided and done in the middle of the list that it came of."""

    def _perform(self, effects: Any) -> list[Any]:
        for effect in effects:
            for event in super()._perform([effect]):
                self._perform(self._core.handle(event, self._clock()))
        return []


class Collecting(ANY):
    """All events of a turn are decided first, and their effects performed afterwards."""

    waiting: list[Any]

    def run(self, ready: Any) -> int | None:
        self.waiting = []
        for source, limit in self._plan.sources:
            for event in source.events(ready, limit):
                self.waiting += self._core.handle(event, self._clock())
        super()._drain(super()._perform(self.waiting), self._clock())
        return super().run(ready)


class Dropping(ANY):
    """What a performer returns is not looked at."""

    def _perform(self, effects: Any) -> list[Any]:
        super()._perform(effects)
        return []


class Queueing(ANY):
    """Reads are taken from the core at once, and done one after the other."""

    def _read(self, now: Any) -> Any:
        waiting = [self._core.next_read()] * 2
        for read in waiting:
            if read is not None:
                self._drain([self._performers[type(read)](read)], now)
        return now


class Trying(ANY):
    """Each send is tried, whatever became of the one before."""

    def _perform(self, effects: Any) -> list[Any]:
        found = []
        for effect in effects:
            self._not_sent.clear()
            found += super()._perform([effect])
        return found


class Overlapping(ANY):
    def _write(self, do: Any, effect: Any) -> object:
        return do(effect)

    def _end_sync(self) -> None:
        pass


class Undead(ANY):
    def _enter(self) -> None:
        pass


class GoingOn(ANY):
    """An error of a performer is passed over."""

    def _perform(self, effects: Any) -> list[Any]:
        found = []
        for effect in effects:
            try:
                found += super()._perform([effect])
            except StorageError:
                continue
        return found


class Endless(ANY):
    def _drain(self, heard: list[Any], now: Any) -> None:
        while heard:
            heard = [
                done for event in heard for done in self._perform(self._core.handle(event, now))
            ]


class Counting(ANY):
    """Effects are counted as links."""

    def _perform(self, effects: Any) -> list[Any]:
        if len(effects) > CHAIN_MAX:
            raise Bug("too many")
        return super()._perform(effects)


BROKEN: list[tuple[Callable[..., None], Any]] = [
    (test_1_sources_come_in_order_up_to_their_limits_then_reads_then_one_tick, TickFirst),
    (test_2_effects_are_performed_in_the_order_of_decision_across_events, Backwards),
    (test_3_a_core_hears_of_nothing_while_effects_of_it_wait, Nested),
    (test_4_all_effects_of_an_event_are_performed_before_the_next_is_taken, Collecting),
    (test_5_a_completion_at_once_and_one_later_are_the_same_event, Dropping),
    (test_6_a_read_is_asked_for_when_it_is_done, Queueing),
    (test_7_a_peer_that_is_gone_gets_nothing_more_and_is_reported_once, Trying),
    (test_8_a_full_peer_is_given_nothing_newer_before_what_it_is_owed, Trying),
    (partial(test_9_nothing_is_written_or_synced_while_a_sync_runs, Write()), Overlapping),
    (partial(test_9_nothing_is_written_or_synced_while_a_sync_runs, Sync(2)), Overlapping),
    (test_9_synced_comes_of_a_sync_only, Overlapping),
    (test_9_nothing_is_performed_after_a_write_that_failed, GoingOn),
    (test_10_a_new_socket_has_nothing_of_the_old_one, KeptLink),
    (test_11_departures_come_before_arrivals, ArrivalsFirst),
    (test_12_a_gate_that_is_closed_counts_at_once, Collecting),
    (test_13_errors_go_through_and_the_turn_is_dead, Undead),
    (test_14_an_endless_chain_of_completions_is_a_defect, Endless),
    (test_14_many_effects_of_one_event_are_no_chain, Counting),
]  # fmt: skip


@pytest.mark.parametrize(("test", "broken"), BROKEN)
def test_what_lacks_a_rule_is_found(test: Callable[..., None], broken: Any) -> None:
    with pytest.raises((AssertionError, OverflowError, StorageError, pytest.fail.Exception)):
        test(broken)
