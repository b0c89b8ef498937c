"""What is offered to whom. Pure.

Without filters one set of the next messages is taken, and dealt out by shares. With filters, small
chunks go to one consumer after the other, since each may get something else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.consumers import Model, QueueConsumer, QueueConsumers
from zbroker.queues.work.fairness import next_of, share
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.sets import insert, split, union
from zbroker.queues.work.values import Offer

OFFER_MAX: Final = 1_000  # messages a consumer gets of one call, on average
_CHUNK_MAX: Final = 256  # of consumers with filters


class OfferResult(NamedTuple):
    """more: something may be left: it stopped at its limit, or who has a filter has to look."""

    offers: list[Offer]
    more: bool


class Offers:
    """Takes messages from their places and gives them to consumers."""

    def __init__(self, places: MessagePlaces, consumers: QueueConsumers) -> None:
        self._places = places
        self._consumers = consumers

    def offer(self, config: QueueConfig, now: Now) -> OfferResult:
        """What can be given now."""
        barrier = self._places.barrier_due()
        if barrier is not None:
            return OfferResult(self._barrier(barrier), False)
        able = [one for one in self._consumers.current() if one.credit and one.room > 0]
        if not able or not self._places.ready.standing:
            return OfferResult([], False)
        wanted = sum(one.room for one in able)
        if config.max_backlog:
            wanted = min(wanted, config.max_backlog - self._consumers.held())
        count = min(wanted, OFFER_MAX * len(able))
        way = _Way(model_of(config), once(config), end_of(now.mono_ms, config.lease))
        given = self._chunks if self._consumers.filtered else self._shares
        offers = given(way, list(able), count) if count > 0 else []
        limited = sum(len(offer.positions) for offer in offers) == count < wanted
        looking = bool(offers) and any(one.looks is not None and one.room > 0 for one in able)
        return OfferResult(offers, limited or looking)

    def _barrier(self, position: int) -> list[Offer]:
        """To everybody, whatever room there is; it waits for somebody if nobody is there."""
        consumers = self._consumers.current()
        if consumers:
            barrier = BitMap64([position])
            self._places.going_to_go(barrier)
            insert(self._places.were_leased, barrier)  # if it is undone, it comes flagged
        return [Offer(one.key, BitMap64([position]), barrier=True) for one in consumers]

    def _shares(self, way: _Way, able: list[QueueConsumer], count: int) -> list[Offer]:
        """One take for all of them."""
        parts = self._places.ready.take(count, self._places.behind)
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
            offers += [Offer(one.key, part, first_commit=way.once) for part in its]
        return offers

    def _chunks(self, way: _Way, able: list[QueueConsumer], count: int) -> list[Offer]:
        """A chunk at a time, to whoever is next and can get one."""
        ready, behind = self._places.ready, self._places.behind
        offers: list[Offer] = []
        while able and count:
            one = next_of(way.model, able, self._consumers.turn)
            among = one.looks.matching if one.looks is not None else None
            there = ready.count(min(_CHUNK_MAX, one.room, count), behind, among)
            parts = ready.take(-(-there // (4 * len(able))), behind, among) if there else []
            for part in parts:
                self._leave(way, part)
                self._consumers.give(one, part)
                offers.append(Offer(one.key, part, first_commit=way.once))
                count -= len(part)
                self._consumers.turn = one.number
            if not parts or not one.room:
                able.remove(one)
        return offers

    def _leave(self, way: _Way, part: BitMap64) -> None:
        """What was taken from the ready ones gets another place."""
        if way.once:
            self._places.going_to_go(part)
        else:
            self._places.leases.give(part, way.end_ms)


class _Way(NamedTuple):
    """once: at-most-once. end_ms: of the leases."""

    model: Model
    once: bool
    end_ms: int | None


def once(config: QueueConfig) -> bool:
    """True if a message is gone before it is sent."""
    return config.semantics == "at-most-once"


def model_of(config: QueueConfig) -> Model:
    """Proportional by default, of at-most-once in turn."""
    return config.fairness or ("round-robin" if once(config) else "proportional")
