"""Thousands of histories of a consumer against a model of the queues listener.

The world loses connections and answers, lets leases end, gives messages to others, refuses for a
while, and has a program that settles when it likes. Whatever happens: what the program acked is
acked at the broker in the end, and no lease is handed out twice.
"""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap64

from tests.client.consumer.listener_model import QueueListener
from tests.client.consumer.wired import ACK, Wired
from tests.seed_counts import seed_count
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.held_messages import HeldMessages
from zbroker.client.consumer.message_credit import CreditChange, MessageCredit
from zbroker.client.consumer.settlement import PendingSettlements, Verb
from zbroker.wire import consumer_credit as v
from zbroker.wire import queue_messages as q

SEEDS = seed_count(80, 200)
CREDIT = 40


class World(Wired):
    """program: messages that it works on. seen: the numbers of the leases that it got."""

    def __init__(self, seed, **kind):
        self.rng = random.Random(seed)
        super().__init__(QueueListener(backlog=6, **kind), jitter=self.rng.random, credit=CREDIT)
        self.program = []
        self.seen = []
        self.acked = set()
        self.rejected = set()

    # -- steps --------------------------------------------------------------------------------

    def read(self):
        for message in self.out(self.rng.choice([1, 2, None])):
            number = int(message.data)
            lease = self.listener.sent[number]
            if self.listener.kind == "work" and self.listener.semantics == "at-least-once":
                assert not lease.forsaken, "what the broker did not keep is handed out"
                assert self.core.live or not lease.why, "no one knows whether it is still ours"
                assert message._at not in self.acked, "it is done already"
                same = [each for each in self.program if each._at == message._at]
                assert not same, "the program has it already"
            self.seen.append(number)
            self.program.append(message)

    def work(self):
        """Some of it is done, or goes back."""
        if not self.program:
            return
        some = self.rng.sample(self.program, self.rng.randint(1, len(self.program)))
        verb = self.rng.choice([ACK, ACK, ACK, Verb("release"), Verb("reject", reason="bad")])
        self.core.settle(verb, some, self.now)
        if verb is ACK:
            self.acked |= {message._at for message in some}
        self.program = [message for message in self.program if message not in some]

    def wait(self):
        self.pass_time(self.rng.choice([1, 10, 100, 400]))

    def sleep(self):
        """The process was stopped: nothing was sent or read meanwhile."""
        self.listener.pass_time(self.rng.choice([500, 1_000, 3_000]))

    def forget(self):
        """An answer is lost, with its connection."""
        if self.listener.pending:
            self.listener.commit()
        self.lose()

    def die(self):
        """The process is killed: what was not durable is not done."""
        self.listener.pending = []
        self.lose()

    def refuse(self):
        self.listener.code = self.rng.choice(["not_ready", "disk_full"])

    # -- running ------------------------------------------------------------------------------

    def run(self, steps, rare):
        usual = [self.send, self.answer, self.answer, self.take, self.take, self.connect]
        usual += [
            self.listener.publish,
            self.listener.offer,
            self.listener.commit,
            self.read,
            self.work,
        ]
        usual += [self.wait, self.listener.other_takes]
        for _ in range(steps):
            step = self.rng.choice(usual if self.rng.random() < 0.94 else rare)
            step()
            self.core.check()
            self.check_credit()
        self.settle_all()

    def settle_all(self):
        """Everything goes well until the program has done all that there is."""
        self.listener.code = ""
        for _ in range(3_000):
            self.connect()
            self.talk()
            self.listener.other_takes()
            self.listener.offer()
            self.read()
            if self.program:
                self.core.settle(ACK, self.program, self.now)
                self.acked |= {message._at for message in self.program}
                self.program = []
            elif self.is_done():
                break
            if not self.core.ready:
                self.pass_time(300)
            assert self.core.error is None, self.core.error
        else:
            raise AssertionError("it does not come to an end")
        self.talk()
        self.check_end()

    def is_done(self):
        core = self.core
        return not (self.listener.here or self.listener.down or core.settling or len(core.held))

    def check_end(self):
        assert len(self.core.held) == 0
        (taker,) = self.listener.takers.values()
        assert taker.leases == {}
        assert self.core.settling.through(self.core.settling.number)
        assert taker.credit + self.core._used == CREDIT

    def check_credit(self):
        """All of it is somewhere: at the listener, on the way, waiting, or to be given back."""
        taker = self.listener.takers.get((self.peer, self.core._sid))
        if not self.core.live or taker is None:
            return
        coming = sum(
            len(body)
            for peer, answer, body in self.listener.down
            if peer is self.peer and isinstance(answer, q.Job)
        )
        going = sum(each.bytes for each in self.up if isinstance(each, v.ConsumerFlow))
        assert taker.credit + coming + going + self.core.held.size + self.core._used == CREDIT


def histories(run):
    for seed in range(SEEDS):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def usual_trouble(world):
    return [world.lose, world.forget, world.die, world.sleep, world.refuse]


def history(seed):
    """Raises: AssertionError, if something is not as it should be."""
    world = World(seed)
    world.run(400, usual_trouble(world))
    assert len(world.seen) == len(set(world.seen)), "no lease is handed out twice"
    assert world.acked <= world.listener.gone.keys(), "what was acked is gone"
    assert len(world.listener.gone) == world.listener.count


@pytest.mark.parametrize("part", range(4))
def test_what_was_acked_is_gone_and_no_lease_is_handed_out_twice(part):
    histories(lambda seed: history(4 * seed + part))


def test_what_is_sent_at_most_once_comes_once_and_all_of_it_where_no_connection_is_lost():
    def run(seed):
        world = World(seed, semantics="at-most-once", lease_ms=0)
        world.run(400, [world.refuse])
        positions = [world.listener.sent[number].position for number in world.seen]
        assert len(positions) == len(set(positions))
        mine = {at for at, why in world.listener.gone.items() if why == "sent"}
        assert mine == set(positions), "what was sent is handed out"

    histories(run)


def test_a_replayable_queue_comes_once_in_order_over_losses():
    def run(seed):
        world = Replay(seed)
        world.run(300)
        positions = [world.listener.sent[number].position for number in world.seen]
        assert positions == list(range(1, world.listener.count + 1))
        assert world.acked <= world.listener.noted

    histories(run)


class Replay(World):
    """A replayable queue, whose messages the program notes as done now and then."""

    def __init__(self, seed):
        super().__init__(seed, kind="replayable", lease_ms=0)
        self.core._command.since = "0"

    def work(self):
        some = [message for message in self.program if self.rng.random() < 0.5]
        self.core.settle(ACK, some, self.now)
        self.acked |= {message._at for message in some}
        self.program.clear()

    def run(self, steps):
        usual = [self.send, self.answer, self.take, self.take, self.connect, self.listener.publish]
        usual += [self.listener.offer, self.listener.commit, self.read, self.work, self.wait]
        for _ in range(steps):
            self.rng.choice(usual if self.rng.random() < 0.95 else [self.lose, self.forget])()
            self.core.check()
            self.check_credit()
        for _ in range(3_000):
            self.connect()
            self.talk()
            self.listener.offer()
            self.read()
            at_end = all(t.at > self.listener.count for t in self.listener.takers.values())
            if at_end and self.listener.takers and not self.core.ready and not self.listener.down:
                return
        raise AssertionError("it does not come to an end")


class Credited(World):
    """A program that asks for messages, stops, drains and picks. given: how many it asked for;
    came: of all that it got, without what it picked."""

    def __init__(self, seed):
        super().__init__(seed)
        self.core._command.flow_mode = "credit"
        self.core.flow.counted = True
        self.given = 0
        self.changes, self.picks = [], []

    def ask(self):
        count = self.rng.randint(1, 4)
        self.given += count
        self.changes.append(self.core.flow.change(CreditChange("flow", count)))

    def stop(self):
        kind = self.rng.choice(["stop", "drain"])
        self.changes.append(self.core.flow.change(CreditChange(kind)))

    def choose(self):
        some = self.rng.sample(range(1, self.listener.count + 2), min(2, self.listener.count))
        self.picks.append(self.core.flow.pick(BitMap64(some)))

    @property
    def got(self):
        """How many the program saw that it did not pick."""
        return sum(not self.listener.sent[number].picked for number in self.seen)

    def check_credit(self):
        assert self.got <= self.given, "no more than it asked for"
        waiting = sum(not self.sent_of(m).picked for b in self.core.held.line for m in b.rest)
        assert self.got + waiting <= self.given

    def sent_of(self, message):
        return self.listener.sent[int(message.data)]

    def check_all_came(self):
        """Credit is not lost with messages that it did not see."""
        for _ in range(self.given + 50):
            self.listener.publish()
        for _ in range(600):
            self.connect()
            self.talk()
            self.listener.offer()
            self.read()
            self.core.settle(ACK, self.program, self.now)
            self.acked |= {message._at for message in self.program}
            self.program = []
            if not self.core.ready:
                self.pass_time(300)
        assert self.got == self.given

    def settle_all(self):
        """Its commands are answered in the end, and with credit it gets all there is."""
        self.listener.code = ""
        for _ in range(30):
            self.connect()
            self.talk()
        assert all(each.done for each in self.changes)
        assert all(pick.got is not None or pick.error for pick in self.picks)
        self.given += 10_000
        self.core.flow.change(CreditChange("flow", 10_000))
        super().settle_all()


def test_no_more_comes_than_was_asked_for_whatever_is_lost():
    def run(seed):
        world = Credited(seed)
        usual = [world.ask, world.ask, world.stop, world.choose]
        world.run(400, [*usual, *usual, world.lose, world.forget, world.sleep])
        assert world.acked <= world.listener.gone.keys()
        assert len(world.seen) == len(set(world.seen))

    histories(run)


def test_credit_is_not_lost_with_messages_that_were_not_seen():
    def run(seed):
        world = Credited(seed)
        world.settle_all = world.check_all_came
        usual = [world.ask, world.choose, world.ask, world.choose]
        world.run(300, [*usual, world.lose, world.forget, world.sleep, world.refuse])

    histories(run)


# -- the test of the test ---------------------------------------------------------------------


def _failures():
    failed = 0
    for seed in range(60):
        try:
            history(seed)
        except AssertionError:
            failed += 1
    return failed


def test_the_world_notices_acks_that_are_not_sent_again(monkeypatch):
    monkeypatch.setattr(PendingSettlements, "lost", lambda self: self._sent.clear())
    assert _failures() >= 5


def test_the_world_notices_what_is_handed_out_though_it_was_not_kept(monkeypatch):
    monkeypatch.setattr(HeldMessages, "keep", lambda self, kept: 0)
    assert _failures() >= 5


def test_the_world_notices_what_is_handed_out_before_the_broker_said_what_it_keeps(monkeypatch):
    monkeypatch.setattr(ConsumerCore, "ready", property(lambda self: bool(self.held.line)))
    assert _failures() >= 1


def test_the_world_notices_a_message_that_comes_again_while_its_ack_is_under_way(monkeypatch):
    monkeypatch.setattr(ConsumerCore, "_fresh", lambda self, messages: (messages, 0))
    assert _failures() >= 5


def test_the_world_notices_credit_that_is_lost(monkeypatch):
    monkeypatch.setattr(HeldMessages, "drop", lambda self, gone: Holding_drop(self, gone) and 0)
    assert _failures() >= 3


Holding_drop = HeldMessages.drop


def _credit_failures():
    failed = 0
    for seed in range(60):
        world = Credited(seed)
        try:
            world.run(400, [world.ask, world.stop, world.choose, world.lose, world.forget])
        except AssertionError:
            failed += 1
    return failed


def test_the_world_notices_credit_that_is_restated_as_it_was_given(monkeypatch):
    monkeypatch.setattr(MessageCredit, "came", lambda self, messages: None)
    assert _credit_failures() >= 5


def test_the_world_notices_a_stop_that_is_forgotten_with_its_connection(monkeypatch):
    def restate(self, command):
        self.revoked, self._cid = False, ""
        command.messages = self.left

    monkeypatch.setattr(MessageCredit, "restate", restate)
    assert _credit_failures() >= 5
