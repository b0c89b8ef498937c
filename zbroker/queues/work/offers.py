"""Offers: which consumer gets which messages. Pure.

Without filters one set of the next messages is taken, and dealt out by shares. With filters, or
credit in messages, small chunks go to one consumer after the other, since each may get something
else, or fewer than its share. Fairness:

    proportional   all have the same share of their backlog in use, as far as that can be
    round-robin    each in turn gets one more
    fast           the consumer that has had room for longest gets as many as fit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.consumers import Model, QueueConsumer, QueueConsumers, in_turn
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.sets import insert, split, union
from zbroker.queues.work.values import Offer

OFFER_MAX: Final = 1_000  # messages a consumer gets of one call, on average
_CHUNK_MAX: Final = 256  # messages that a consumer with a filter gets at a time

Shares = list[tuple[QueueConsumer, int]]


class Offers:
    """Takes messages from their places and gives them to consumers."""

    def __init__(self, places: MessagePlaces, consumers: QueueConsumers) -> None:
        self._places = places
        self._consumers = consumers

    def offer(self, config: QueueConfig, now: Now) -> tuple[list[Offer], bool]:
        """What can be given now; True if something may be left: the limit was reached, or a
        consumer has to apply its filter."""
        barrier = self._places.barrier_due()
        if barrier is not None:
            return self._barrier(barrier), False
        if config.single_active_consumer and self._places.failing:
            return [], False  # messages that come back go before later ones
        taking = self._consumers.taking(config)
        able = [one for one in taking if one.credit and one.spare > 0]
        if not able or not self._places.ready.standing:
            return [], False
        wanted = sum(one.spare for one in able)
        if config.max_backlog:
            wanted = min(wanted, config.max_backlog - self._consumers.held())
        count = min(wanted, OFFER_MAX * len(able))
        way = _Way(model_of(config), once(config), end_of(now.mono_ms, config.lease))
        by_chunks = self._consumers.filtered or self._consumers.limited
        given = self._chunks if by_chunks else self._shares
        offers = given(way, list(able), count) if count > 0 else []
        limited = sum(len(offer.positions) for offer in offers) == count < wanted
        looking = bool(offers) and any(one.looks is not None and one.spare > 0 for one in able)
        return offers, limited or looking

    def _barrier(self, position: int) -> list[Offer]:
        """Offers it to every consumer, whatever its backlog; it waits without consumers, and until
        each of them has credit."""
        consumers = self._consumers.current()
        if any(one.left == 0 for one in consumers):
            return []
        if consumers:
            barrier = BitMap64([position])
            self._places.going_to_go(barrier)
            insert(self._places.were_leased, barrier)  # if it is undone, it comes flagged
        for one in consumers:
            _spend(one, 1)
        return [Offer(one.key, BitMap64([position]), barrier=True) for one in consumers]

    def _shares(self, way: _Way, able: list[QueueConsumer], count: int) -> list[Offer]:
        """One take for all of them."""
        parts = self._places.ready.take(count, self._places.offered_before)
        if not parts:
            return []
        whole = union(parts)
        self._leave(way, whole)
        total = len(whole)
        parts.reverse()
        offers: list[Offer] = []
        for one, some in share(way.model, able, total, self._consumers.turn):
            self._consumers.turn = one.number
            its: list[BitMap64] = []
            while some:
                its.append(parts.pop() if len(parts[-1]) <= some else split(parts[-1], some))
                some -= len(its[-1])
            self._consumers.give(one, union(its))
            if one.session is not None:
                self._places.leases.move(union(its), None)
            offers += [Offer(one.key, part, first_commit=way.once) for part in its]
        return offers

    def _chunks(self, way: _Way, able: list[QueueConsumer], count: int) -> list[Offer]:
        """A chunk at a time, to the next consumer that can get one."""
        ready, stop = self._places.ready, self._places.offered_before
        offers: list[Offer] = []
        while able and count:
            one = next_of(way.model, able, self._consumers.turn)
            among = one.looks.matching if one.looks is not None else None
            there = ready.count(min(_CHUNK_MAX, one.spare, count), stop, among)
            parts = ready.take(-(-there // (4 * len(able))), stop, among) if there else []
            for part in parts:
                self._leave(way, part)
                self._consumers.give(one, part)
                _spend(one, len(part))
                if one.session is not None:
                    self._places.leases.move(part, None)
                offers.append(Offer(one.key, part, first_commit=way.once))
                count -= len(part)
                self._consumers.turn = one.number
            if not parts or not one.spare:
                able.remove(one)
        return offers

    def _leave(self, way: _Way, part: BitMap64) -> None:
        """Gives messages that were taken from the ready ones another place."""
        if way.once:
            self._places.going_to_go(part)
        else:
            self._places.leases.give(part, way.end_ms)


def _spend(one: QueueConsumer, count: int) -> None:
    if one.left is not None:
        one.left -= count


class _Way(NamedTuple):
    """once: at-most-once. end_ms: of the leases."""

    model: Model
    once: bool
    end_ms: int | None


def once(config: QueueConfig) -> bool:
    """True if a message is gone before it is sent."""
    return config.semantics == "at-most-once"


def model_of(config: QueueConfig) -> Model:
    """Proportional by default, in turn for at-most-once."""
    return config.fairness or ("round-robin" if once(config) else "proportional")


def share(model: Model, able: Sequence[QueueConsumer], count: int, turn: int) -> Shares:
    """Shares of `count` messages, at most as many as there is room for, and none of 0.

    able: consumers that have room. turn: `number` of the one that was last in turn; next time
    that is the last one returned.
    """
    count = min(count, sum(one.spare for one in able))
    if model == "round-robin":
        return _in_turn(in_turn(able, turn), count)
    if model == "fast":
        return _fast(able, count)
    return _proportional(able, count)


def next_of(model: Model, able: Sequence[QueueConsumer], turn: int) -> QueueConsumer:
    """The consumer that gets the next message."""
    if model == "round-robin":
        return in_turn(able, turn)[0]
    if model == "fast":
        return min(able, key=lambda one: one.since)
    return min(able, key=_used)


def _used(one: QueueConsumer) -> tuple[float, int]:
    return len(one.held) / one.backlog, one.number


def _proportional(able: Sequence[QueueConsumer], count: int) -> Shares:
    """Raises all to one level, those with the least in use first."""
    if len(able) == 1:
        return [(able[0], count)] if count else []
    many = sorted(able, key=_used)
    held = backlog = joined = 0
    for one in many:
        # with those below this one alone, would the level come up to this one?
        if joined and (count + held) * one.backlog <= len(one.held) * backlog:
            break
        held, backlog, joined = held + len(one.held), backlog + one.backlog, joined + 1
    level = [
        (one, max(0, (count + held) * one.backlog // backlog - len(one.held)))
        for one in many[:joined]
    ]
    left = count - sum(some for _, some in level)
    # rounding leaves fewer than there are consumers: one each, for the furthest below the level
    level.sort(key=lambda pair: (len(pair[0].held) + pair[1]) / pair[0].backlog)
    shares = []
    for one, some in level:
        more = min(1, left, one.spare - some)
        left -= more
        if some + more:
            shares.append((one, some + more))
    return shares


def _in_turn(able: list[QueueConsumer], count: int) -> Shares:
    """As if one message after the other went to the next consumer that has room."""
    given = dict.fromkeys([one.key for one in able], 0)
    last, open_ = 0, list(able)
    while count:
        each = min(count // len(open_), min(one.spare - given[one.key] for one in open_))
        if not each:
            for one in open_[:count]:
                given[one.key] += 1
            last, count = open_[count - 1].key, 0
            break
        for one in open_:
            given[one.key] += each
        last, count = open_[-1].key, count - each * len(open_)
        open_ = [one for one in open_ if one.spare > given[one.key]]
    shares = [(one, given[one.key]) for one in able if given[one.key]]
    return sorted(shares, key=lambda pair: pair[0].key == last)


def _fast(able: Sequence[QueueConsumer], count: int) -> Shares:
    shares = []
    for one in sorted(able, key=lambda one: one.since):
        some = min(one.spare, count)
        count -= some
        if some:
            shares.append((one, some))
    return shares
