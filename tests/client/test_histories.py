"""Thousands of histories of one publishing link against a model of the journal.

The world loses connections with all that is under way, restarts brokers, refuses for a time and
for good, and delivers late. Whatever happens: each message that was not finally refused is in the
log once, in order, before it is settled; a restart loses only what was not acknowledged.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.client.times import at
from zbroker.client.connection import Phase
from zbroker.client.effects import Connect, Connected, Ended, Lost, MessagesRefused, SendCommand
from zbroker.client.publisher.core import PublisherCore
from zbroker.client.publisher.packer import PackedBatch
from zbroker.errors import TEMPORARY
from zbroker.wire.messages import Ack, Error, Logon, Publish

SEEDS = int(os.environ.get("ZB_SEEDS", "300"))
TEMPORARY_CODES = sorted(TEMPORARY)


class Journal:
    """What the broker holds of one publisher; `durable` of it survives a restart."""

    def __init__(self, rng, forget_check=False):
        self.rng = rng
        self.log = []
        self.durable = 0
        self.high = 0
        self.refused = set()
        self.forget_check = forget_check

    def publish(self, p):
        last = p.seq + p.count - 1
        if p.prev > self.high and not self.forget_check:
            return Error("sequence_gap", "gap", cid=p.cid, seq=p.seq, high=self.high)
        if last <= self.high:
            return None
        if p.seq in self.refused or self.rng.random() < 0.03:
            self.refused.add(p.seq)
            return Error("bad_topic", "no", cid=p.cid, seq=p.seq, high=self.high)
        if self.rng.random() < 0.05:
            code = self.rng.choice(TEMPORARY_CODES)
            return Error(code, "later", cid=p.cid, seq=p.seq, high=self.high)
        self.log += range(max(p.seq, self.high + 1), last + 1)
        self.high = last
        return None

    def restart(self):
        del self.log[self.durable :]
        self.high = self.log[-1] if self.log else 0


class World:
    """One client, one broker, and the wire between them."""

    def __init__(self, seed, forget_check=False):
        self.rng = random.Random(seed)
        self.now = 0
        self.core = PublisherCore(Logon("me", "i"), 100, self.rng.random)
        self.journal = Journal(self.rng, forget_check)
        self.up, self.down = [], []
        self.logged_on = False
        self.issued, self.refused = [], set()
        self.perform(self.core.tick(at(0), drained=True))

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Connect):
                self.up, self.down, self.logged_on = [], [], False
            elif isinstance(effect, SendCommand):
                copy = effect.command
                if isinstance(copy, Logon):
                    copy = Logon(copy.client, copy.instance, cid=copy.cid)
                self.up.append(copy)
            elif isinstance(effect, MessagesRefused):
                self.refused.update(range(effect.first, effect.last + 1))
            else:
                assert not isinstance(effect, Ended), effect
        self.check()

    def check(self):
        """What is settled and was not refused is in the log, in order and durable."""
        durable = set(self.journal.log[: self.journal.durable])
        for sequence in self.issued:
            if sequence <= self.core.settled and sequence not in self.refused:
                assert sequence in durable
        assert self.journal.log == sorted(set(self.journal.log))

    def broker(self):
        """Takes one command off the wire."""
        if not self.up:
            return
        command = self.up.pop(0)
        if isinstance(command, Logon):
            self.logged_on = True
            acked = self.journal.log[self.journal.durable - 1] if self.journal.durable else 0
            answer = Ack("processed", command.cid, seq=self.journal.high, acked=acked)
            answer.window_bytes = 60
            self.down.append(answer)
        elif not self.logged_on:
            cid = getattr(command, "cid", None)
            self.down.append(
                Error("not_logged_on", "who", cid=cid, seq=getattr(command, "seq", None))
            )
        elif isinstance(command, Publish):
            refusal = self.journal.publish(command)
            if refusal is not None:
                self.down.append(refusal)

    def sync(self):
        self.journal.durable = len(self.journal.log)
        if self.logged_on and self.journal.log:
            self.down.append(Ack("persisted", seq=self.journal.log[-1]))

    def step(self, calm=False):
        kinds = [self.broker] * 3 + [self.answer] * 2 + [self.sync] + [self.pass_time] * 2
        if not calm:
            rare = [self.lose, self.restart, self.forget, self.log_on_again]
            kinds += [self.add, self.rng.choice(rare)]
        self.rng.choice(kinds)()

    def add(self):
        if self.core.state is Phase.LIVE:
            batch = PackedBatch(self.rng.randint(1, 3), b"x" * 10, 0, "t", None, None)
            effects = self.core.add(batch, self.now)
            self.issued += range(batch.first, batch.last + 1)
            self.perform(effects)

    def answer(self):
        if self.down:
            self.perform(self.core.handle(self.down.pop(0), at(self.now)))

    def pass_time(self):
        wake = self.core.next_wake_ms()
        self.now += self.rng.choice([1, 10, 500]) if wake is None else max(0, wake - self.now)
        self.perform(self.core.tick(at(self.now), drained=True))
        if self.core.state is Phase.CONNECTING:
            self.perform(self.core.handle(Connected(), at(self.now)))

    def lose(self):
        self.perform(self.core.handle(Lost(), at(self.now)))

    def restart(self):
        self.journal.restart()
        self.logged_on = False
        self.lose()

    def forget(self):
        self.logged_on = False

    def log_on_again(self):
        self.perform(self.core.log_on_again(self.now))

    def run(self):
        for _ in range(250):
            self.step()
        for _ in range(20_000):
            if not self.core.store.batches:
                break
            self.step(calm=True)
        assert not self.core.store.batches, "everything is settled in the end"
        assert [s for s in self.issued if s not in self.refused] == self.journal.log


@pytest.mark.parametrize("part", range(10))
def test_every_history_ends_with_each_message_once_in_order(part):
    for seed in range(part, SEEDS, 10):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_world_notices_a_journal_that_does_not_look_at_prev():
    failed = 0
    for seed in range(100):
        try:
            World(seed, forget_check=True).run()
        except AssertionError:
            failed += 1
    assert failed > 10
