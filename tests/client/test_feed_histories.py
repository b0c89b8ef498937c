"""Thousands of histories of subscriptions on one connection against a model of the listener.

The world loses connections with all that is under way, pauses and resumes, replaces filters, reads
when it likes, and cuts the power. Whatever happens: each message comes once, in order.
"""

from __future__ import annotations

import random

import pytest

from tests.client.listener_model import Listener, conflated, matches
from tests.client.times import at
from tests.client.wired import HERE
from tests.seed_counts import seed_count
from zbroker.client.connection import Phase
from zbroker.client.effects import Connected, Lost, MessagesArrived, NewToken
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import Feed, FeedBatch, FeedState
from zbroker.wire import messages as m

SEEDS = seed_count(100, 200)
CREDIT = 40


class World:
    """One connection, its subscriptions, and what was handed out of each, in order."""

    def __init__(self, seed, contents=("",), **options):
        self.rng = random.Random(seed)
        self.now = 0
        self.listener = Listener(self.rng)
        self.connection = SubscriberCore(self.rng.random)
        self.next = dict.fromkeys((1, 2, 3), 1)
        self.lost = []  # what a power cut took and its publishers will send again
        self.gone = set()  # what a power cut took for good
        self.requests = []
        self.feeds = []
        for content in contents:
            wishes = m.Options(**options) if options else None
            command = m.Subscribe(
                "", "t", bookmark="0", filter=content, options=wishes, credit=CREDIT
            )
            feed = Feed(command)
            self.connection.add(feed, 0, CREDIT)
            self.feeds.append(feed)
        self.got = {feed: [] for feed in self.feeds}
        self.contents = {feed: [] for feed in self.feeds}  # who published what, of each
        self.order = []  # positions over all of them, as they arrived
        self.listener.perform(self.connection.handle(NewToken("token", HERE, 1), at(0)))

    # -- steps --------------------------------------------------------------------------------

    def publish(self):
        publisher = self.rng.choice(list(self.next))
        again = [row for row in self.lost if row[0] == publisher]
        if again:
            self.lost.remove(again[0])
            self.listener.publish(*again[0])
            return
        self.listener.publish(publisher, self.next[publisher])
        self.next[publisher] += self.rng.choice([1, 1, 5])

    def take(self):
        """The next answer off the wire."""
        if not self.listener.down:
            return
        answer, body = self.listener.down.pop(0)
        if isinstance(answer, m.Msg):
            self.listener.perform(
                self.connection.handle(MessagesArrived(answer, body), at(self.now))
            )
        else:
            self.listener.perform(self.connection.handle(answer, at(self.now)))

    def read(self):
        """Something of what came first of all that waits is handed out."""
        for feed in self.feeds:
            if not feed.inbox:
                self.listener.perform(self.connection.asked(feed, self.now))
        waiting = [feed for feed in self.feeds if feed.inbox]
        if not waiting:
            return
        feed = min(waiting, key=arrival)
        item, effects = self.connection.hand_out(feed, self.now)
        self.listener.perform(effects)
        if isinstance(item, FeedBatch):
            self.got[feed] += [(x.position, x.publisher, x.sequence) for x in item.messages]
            self.contents[feed] += [(x.publisher, int(x.data)) for x in item.messages]
            self.order += [x.position for x in item.messages]

    def pass_time(self):
        wake = self.connection.next_wake_ms()
        self.now += self.rng.choice([1, 10, 500]) if wake is None else max(0, wake - self.now)
        self.listener.perform(self.connection.tick(at(self.now), drained=True))
        if self.connection.state is Phase.CONNECTING:
            self.listener.perform(self.connection.handle(Connected(), at(self.now)))

    def lose(self):
        self.listener.perform(self.connection.handle(Lost(), at(self.now)))

    def cut(self):
        """Some publishers come back with what was lost, some never do."""
        taken = self.listener.cut()
        died = self.rng.choice([0, 1, 2, 3])
        self.gone |= {row for row in [*taken, *self.lost] if row[0] == died}
        self.lost = [row for row in [*taken, *self.lost] if row[0] != died]
        self.lost.sort()
        self.listener.cursors.clear()
        self.lose()

    def ask(self, command, feeds=None):
        request, effects = self.connection.ask(command, feeds or list(self.feeds))
        self.requests.append(request)
        self.listener.perform(effects)

    def pause(self):
        self.ask(self.rng.choice([m.Pause, m.Resume])([]))

    def pause_one(self):
        self.ask(self.rng.choice([m.Pause, m.Resume])([]), [self.rng.choice(self.feeds)])

    # -- running ------------------------------------------------------------------------------

    def run(self, steps, rare, sync_each=1):
        """sync_each: the higher, the more of the log is not durable."""
        usual = [self.listener.answer, self.take, self.take, self.listener.send, self.read]
        usual = [*usual, self.pass_time, self.publish, self.listener.tell] * sync_each
        usual.append(self.listener.sync)
        for _ in range(steps):
            self.rng.choice(usual if self.rng.random() < 0.95 else rare)()
            self.check()
        for _ in range(200):
            if not self.lost:
                break
            self.publish()
        self.settle()

    def settle(self):
        """Everything goes well until all of it was read."""
        while len(self.listener.log) % 5 != 4:
            self.publish()
        self.listener.sync()
        for _ in range(30_000):
            if self.done():
                return
            for step in (self.listener.answer, self.take, self.listener.send, self.read):
                step()
            if not self.listener.down and not self.listener.up:
                self.pass_time()
                if any(feed.paused for feed in self.feeds) and not self.connection.requests.open:
                    self.ask(m.Resume([]), [feed for feed in self.feeds if feed.paused])
        raise AssertionError("it does not come to an end")

    def done(self):
        cursors = self.listener.cursors.values()
        ended = sum(feed.state is FeedState.ENDED for feed in self.feeds)
        return (
            len(cursors) == len(self.feeds) - ended
            and all(one.position > len(self.listener.log) and not one.due for one in cursors)
            and not any(one.by_replay and one.held for one in cursors)
            and not self.listener.down
            and not any(feed.inbox for feed in self.feeds)
            and all(request.done for request in self.requests)
        )

    def check(self):
        """What waits is never more than the credit and one batch."""
        for feed in self.feeds:
            waiting = [item for item in feed.inbox if isinstance(item, FeedBatch)]
            assert sum(item.size for item in waiting[:-1]) < CREDIT
            assert len(feed.inbox) <= 2 * len(waiting) + 1


def arrival(feed):
    head = feed.inbox[0]
    return head.arrival if isinstance(head, FeedBatch) else 0


def histories(part, run):
    for seed in range(part, SEEDS, 5):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(5))
def test_each_message_comes_once_in_order(part):
    def run(seed):
        world = World(seed, contents=("3",))
        world.run(400, [world.lose, world.lose, world.pause])
        (feed,) = world.feeds
        wanted = [
            (position, *row)
            for position, row in enumerate(world.listener.log, 1)
            if matches("3", *row)
        ]
        assert world.got[feed] == wanted

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_what_is_read_together_comes_once_in_order(part):
    def run(seed):
        world = World(seed, contents=("2", "3", "5"), paused=True)
        world.ask(m.Resume([]))
        world.run(400, [world.lose, world.lose, world.pause])
        for feed, content in zip(world.feeds, ("2", "3", "5"), strict=True):
            assert [row[1:] for row in world.got[feed]] == [
                row for row in world.listener.log if matches(content, *row)
            ]
        assert world.order == sorted(world.order), "the order of the log over all of them"

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_those_that_are_paused_alone_miss_nothing(part):
    def run(seed):
        world = World(seed, contents=("2", "3"), paused=True)
        world.run(400, [world.lose, world.pause, world.pause_one])
        for feed, content in zip(world.feeds, ("2", "3"), strict=True):
            assert [row[1:] for row in world.got[feed]] == [
                row for row in world.listener.log if matches(content, *row)
            ]

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_what_is_asked_while_they_come_to_their_ends_is_answered(part):
    def run(seed):
        limit = 1 + seed % 20
        world = World(seed, contents=("2", "3"), limit=limit)
        world.run(400, [world.lose, world.pause, world.pause_one])
        for feed, content in zip(world.feeds, ("2", "3"), strict=True):
            wanted = [row for row in world.listener.log if matches(content, *row)]
            assert [row[1:] for row in world.got[feed]] == wanted[:limit]

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_live_delivery_misses_nothing_and_repeats_nothing_over_power_cuts(part):
    def run(seed):
        world = World(seed, contents=("3",), delivery="live")
        world.run(400, [world.lose, world.cut], sync_each=4)
        (feed,) = world.feeds
        got = [row[1:] for row in world.got[feed]]
        assert len(got) == len(set(got)), "nothing twice"
        wanted = {row for row in world.listener.log if matches("3", *row)}
        assert wanted <= set(got), "nothing missed"
        assert set(got) - wanted <= world.gone, "only what was lost for good is not in the log"
        for publisher in world.next:
            mine = [sequence for who, sequence in got if who == publisher]
            assert mine == sorted(mine)

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_each_conflated_interval_comes_once(part):
    def run(seed):
        world = World(seed, contents=("3",), conflation_s=1.0)
        world.run(400, [world.lose, world.lose, world.pause])
        (feed,) = world.feeds
        assert [row[0] for row in world.got[feed]] == conflated(world.listener.log, "3")

    histories(part, run)


@pytest.mark.parametrize("part", range(5))
def test_the_newest_of_each_key_comes_whatever_interval_is_cut_again(part):
    def run(seed):
        """All is published before, so that nothing newer makes up for what is missed."""
        world = World(seed, contents=("3",), conflation_s=1.0, conflation_clock="replay")
        for _ in range(24):
            world.publish()
        world.listener.sync()
        usual = [
            world.listener.answer,
            world.take,
            world.listener.send,
            world.read,
            world.listener.tell,
        ]
        for _ in range(150):
            world.rng.choice([*usual * 3, world.pass_time, world.pass_time, world.lose])()
        world.settle()
        (feed,) = world.feeds
        newest = {row[0]: at for at, row in enumerate(world.listener.log, 1) if matches("3", *row)}
        assert dict(world.contents[feed]) == newest

    histories(part, run)


def test_a_replaced_filter_holds_from_the_position_that_is_reported():
    for seed in range(SEEDS):
        world = World(seed, contents=("3",))
        request, effects = world.connection.ask(m.Replace("", filter="2"), world.feeds)
        for _ in range(world.rng.randint(0, 200)):
            world.rng.choice(
                [world.publish, world.listener.sync, world.take, world.listener.answer]
            )()
            world.rng.choice([world.listener.send, world.read, world.pass_time])()
        world.listener.perform(effects)
        world.run(200, [world.lose])
        position = request.answer.position
        wanted = [
            at for at, row in enumerate(world.listener.log, 1)
            if matches("3" if at < position else "2", *row)
        ]  # fmt: skip
        assert [row[0] for row in world.got[world.feeds[0]]] == wanted, seed


def test_the_world_notices_a_resume_that_goes_by_positions_where_they_are_given_again(monkeypatch):
    monkeypatch.setattr(Feed, "_fresh", Feed._after_seen)
    failed = 0
    for seed in range(100):
        world = World(seed, contents=("3",), delivery="live")
        try:
            world.run(400, [world.lose, world.cut], sync_each=4)
        except AssertionError:
            failed += 1
            continue
        got = {row[1:] for row in world.got[world.feeds[0]]}
        failed += not {row for row in world.listener.log if matches("3", *row)} <= got
    assert failed >= 5
