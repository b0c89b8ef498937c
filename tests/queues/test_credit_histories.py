"""Credit in any order of commands, acknowledgements and arrivals: none is sent more than it has.

A consumer's messages are counted as it counts them: what came is compared with the credit that was
given after the last stop or flush that was answered. Nothing here takes time; a disk that is slow,
refuses, or cannot read is a step among others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.queues.bench import AFTER_LEASE_MS, Bench, work
from zbroker.engine.effects import Send
from zbroker.queues.consumer_credit import ConsumerCredit, CreditEnd
from zbroker.queues.effects import Give, Given
from zbroker.queues.work import offers
from zbroker.queues.work.consumers import QueueConsumer, QueueConsumers
from zbroker.wire import consumer_credit as v
from zbroker.wire import messages as m

SIDS = ("a", "b")
BACKLOG = 3
CONFIGS = [
    work(barrier="/end = 1", lease=2_000), work(fairness="fast"), work(fairness="round-robin"),
    work(semantics="at-most-once"), work(max_backlog=4), work(group_key="/end"),
]  # fmt: skip


@dataclass
class Ledger:
    """What a consumer knows of its credit. sent: its commands in order; at: of the one that the
    last answer to a stop, a flush or a change of mode was about. came: since then."""

    mode: str
    sent: list[Any] = field(default_factory=list)
    at: int = -1
    came: int = 0
    began: int | None = 0
    acquired: set[int] = field(default_factory=set)

    def credit(self) -> int | None:
        """How many messages may have come; None: that is not limited."""
        until_answer = takewhile(
            lambda one: not isinstance(one, v.StopConsumer | v.FlushConsumer),
            self.sent[self.at + 1 :],
        )
        flows = [one for one in until_answer if isinstance(one, v.ConsumerFlow)]
        if self.mode == "window":
            return None if flows or (self.at < 0 and self.began is None) else 0
        return (self.began or 0) * (self.at < 0) + sum(one.messages for one in flows)

    def deliver(self, positions: list[int]) -> None:
        picked = self.acquired & set(positions)
        self.acquired -= picked
        self.came += len(positions) - len(picked)
        credit = self.credit()
        assert credit is None or self.came <= credit, f"{self.came} came, of {credit}"

    def answered(self, cid: str, *, done: bool) -> None:
        at = int(cid)
        command = self.sent[at]
        if isinstance(command, v.SetFlowMode):
            if not done:
                return
            self.mode = command.mode
        self.at, self.came = at, 0


class CreditWorld(Bench):
    """Two consumers of one queue, one in each mode."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.logon()
        self.ledgers = {"a": Ledger("credit"), "b": Ledger("window", began=None)}
        self.consume(sid="a", flow_mode="credit", backlog=BACKLOG)
        self.consume(sid="b", backlog=BACKLOG)

    def _send(self, send: Send) -> None:
        super()._send(send)
        said = self.last()
        if isinstance(said, v.Acquired):
            ends = said.ends
            for first, end in zip(ends[::2], ends[1::2], strict=True):
                self.ledgers[said.sid].acquired |= set(range(first, end))
        elif isinstance(said, m.Ack | v.Flushed) and said.sid in SIDS and said.cid:
            self.ledgers[said.sid].answered(said.cid, done=True)

    def _give(self, give: Give) -> Given:
        given = super()._give(give)
        self.ledgers[give.to.sid].deliver(list(give.positions - given.unread))
        return given

    # -- steps --------------------------------------------------------------------------------

    def step(self, name: str, sid: str, number: int) -> None:
        getattr(self, f"do_{name}")(sid, number)
        for one in self.one().queue.consumers.by_key.values():
            assert len(one.held) <= BACKLOG
        assert all(one.giving >= 0 for one in self.core.shared.consumers.values())

    def say_as(self, sid: str, command: Any) -> None:
        ledger = self.ledgers[sid]
        if hasattr(command, "cid"):
            command.cid = str(len(ledger.sent))
        ledger.sent.append(command)
        self.send(command)

    def do_publish(self, _sid: str, number: int) -> None:
        self.publish(*[b'{"end": %d}' % (each + number // 3) for each in range(number)])

    def do_settle(self, sid: str, number: int) -> None:
        key = next(one.key for one in self.core.shared.consumers.values() if one.sid == sid)
        held = list(self.one().queue.leased(key))[: number // 2 + 1]
        (self.release if number % 4 == 3 else self.ack)(*held, sid=sid)

    def do_flow(self, sid: str, number: int) -> None:
        self.say_as(sid, v.ConsumerFlow(sid, (number % 3) * 20, number // 2))

    def do_stop(self, sid: str, _number: int) -> None:
        self.say_as(sid, v.StopConsumer(sid))

    def do_flush(self, sid: str, _number: int) -> None:
        self.say_as(sid, v.FlushConsumer(sid))

    def do_mode(self, sid: str, number: int) -> None:
        self.say_as(sid, v.SetFlowMode(sid, "credit" if number % 2 else "window"))

    def do_acquire(self, sid: str, number: int) -> None:
        here = self.here()[number : number + 2]
        ends = [end for position in here for end in (position, position + 1)]
        self.send(v.AcquireMessages(sid, ends))

    def do_hold(self, _sid: str, _number: int) -> None:
        self.holding = True

    def do_land(self, _sid: str, number: int) -> None:
        self.holding = bool(number % 2)
        self.land()

    def do_refuse(self, _sid: str, number: int) -> None:
        self.refuse(count=number)

    def do_wait(self, _sid: str, number: int) -> None:
        self.pass_ms(number * 400)

    def do_slow(self, _sid: str, _number: int) -> None:
        """What is given waits."""
        self.later = (Give,)

    def do_fail(self, _sid: str, _number: int) -> None:
        """What waits could not be read, and is tried again; later things are read at once."""
        waiting, self.waiting, self.later = self.waiting, [], ()
        for give in waiting:
            assert isinstance(give, Give)
            self.fail(give)

    def do_damage(self, _sid: str, number: int) -> None:
        self.unreadable |= self.one().queue.here[number : number + 1]

    def end(self) -> None:
        """Everything goes well: each command is answered, and every message goes to somebody."""
        self.do_fail("a", 0)
        self.do_land("a", 0)
        assert all(one.ending is None for one in self.core.shared.consumers.values())
        for _ in range(40):
            if not self.here():
                return
            for sid in SIDS:
                self.say_as(sid, v.ConsumerFlow(sid, 1_000, 100))
                self.do_settle(sid, 4)
            self.pass_ms(AFTER_LEASE_MS)
        raise AssertionError(f"{self.here()} go to no consumer")


NAMES = sorted(name.removeprefix("do_") for name in vars(CreditWorld) if name.startswith("do_"))


def scripts(names: list[str], sids: tuple[str, ...] = SIDS) -> Any:
    """Steps, in any order."""
    step = st.tuples(st.sampled_from(names), st.sampled_from(sids), st.integers(0, 7))
    return st.lists(step, max_size=50)


def history(config: Any, steps: list[tuple[str, str, int]]) -> None:
    """Raises: AssertionError, for a promise that does not hold."""
    world = CreditWorld(config)
    for name, sid, number in steps:
        world.step(name, sid, number)
    world.end()


@given(st.sampled_from(CONFIGS), scripts(NAMES))
@settings(max_examples=300)
def test_no_consumer_is_sent_more_than_its_credit(config: Any, steps: Any) -> None:
    history(config, steps)


# -- the test of the test -------------------------------------------------------------------------


def _settling_gives_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    free = QueueConsumers.free

    def bad(self: QueueConsumers, positions: Any, first: Any = None) -> int:
        count = free(self, positions, first)
        for one in self.current():
            if one.left is not None and one is first:
                one.left += count
        return count

    monkeypatch.setattr(QueueConsumers, "free", bad)


def _credit_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = property(lambda one: one.backlog - len(one.held))
    monkeypatch.setattr(QueueConsumer, "spare", spare)
    monkeypatch.setattr(offers, "_spend", lambda one, count: _spend_some(one, count))


def _spend_some(one: QueueConsumer, count: int) -> None:
    if one.left is not None:
        one.left = max(0, one.left - count)


def _barriers_take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = offers.Offers._barrier

    def bad(self: Any, position: int) -> Any:
        left = {one.key: one.left for one in self._consumers.current()}
        made = barrier(self, position)
        for one in self._consumers.current():
            one.left = left[one.key]
        return made

    monkeypatch.setattr(offers.Offers, "_barrier", bad)


def _a_stop_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ConsumerCredit._answer

    def bad(self: ConsumerCredit, consumer: Any) -> None:
        giving, consumer.giving = consumer.giving, 0
        answer(self, consumer)
        consumer.giving = giving

    monkeypatch.setattr(ConsumerCredit, "_answer", bad)


def _what_comes_back_gives_credit_always(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(self: ConsumerCredit, give: Give, count: int) -> None:
        found = self._worker(give.to)
        if count and found is not None and found[1].left is not None:
            found[0].consumers.limit(found[1], found[1].left + count)

    monkeypatch.setattr(ConsumerCredit, "undelivered", bad)


def _what_comes_back_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerCredit, "done", lambda self, give: None)


def _a_flush_leaves_the_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    revoke = ConsumerCredit._revoke

    def bad(self: ConsumerCredit, consumer: Any) -> None:
        found, flushes = (
            self._worker(consumer),
            isinstance(consumer.ending.command, v.FlushConsumer),
        )
        assert found is not None
        left, credit = found[1].left, consumer.credit
        revoke(self, consumer)
        if flushes:
            found[0].consumers.limit(found[1], left)
            consumer.credit = credit

    monkeypatch.setattr(ConsumerCredit, "_revoke", bad)


def _credit_does_not_wait_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    put_off = CreditEnd.put_off

    def command(self: ConsumerCredit, connection: Any, said: Any) -> None:
        consumer = connection.consumers[said.sid]
        if consumer.ending is not None and not isinstance(said, v.ConsumerFlow):
            put_off(consumer.ending, said)
        else:
            self._handlers[type(said)](consumer, said)

    monkeypatch.setattr(ConsumerCredit, "command", command)


#: each with the steps that it takes to see it
BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (_settling_gives_credit, "flow publish settle"),
    (_credit_counts_for_nothing, "flow publish settle"),
    (_barriers_take_none, "flow publish settle"),
    (_a_stop_is_answered_at_once, "flow hold land publish stop"),
    (_what_comes_back_gives_credit_always, "acquire damage flow publish stop"),
    (_what_comes_back_gives_none, "flow publish stop"),
    (_a_flush_leaves_the_credit, "flow flush publish settle"),
    pytest.param(
        _credit_does_not_wait_for_the_answer,
        "flow hold land publish stop",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize(("bug", "names"), BUGS)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = given(st.sampled_from(CONFIGS), scripts(names.split(), ("a",)))(history)
    quick = settings(max_examples=2_000, derandomize=True, database=None, phases=[Phase.generate])
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        quick(found)()
