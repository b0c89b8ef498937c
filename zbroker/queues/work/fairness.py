"""Who gets how many of the next messages. Pure.

proportional   all have the same share of their backlog in use, as far as that can be
round-robin    each in turn gets one more
fast           who has had room for longest gets as many as fit
"""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.queues.work.consumers import Model, QueueConsumer, in_turn

Shares = list[tuple[QueueConsumer, int]]


def share(model: Model, able: Sequence[QueueConsumer], count: int, turn: int) -> Shares:
    """Shares of `count` messages, at most as many as there is room for, and none of 0.

    able: who has room. turn: `number` of who was last in turn; next time that is the last one
    returned.
    """
    count = min(count, sum(one.room for one in able))
    if model == "round-robin":
        return _in_turn(in_turn(able, turn), count)
    if model == "fast":
        return _fast(able, count)
    return _proportional(able, count)


def next_of(model: Model, able: Sequence[QueueConsumer], turn: int) -> QueueConsumer:
    """Who gets the next message."""
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
    # what is left by rounding: fewer than there are, one each, to who is behind the level most
    level.sort(key=lambda pair: (len(pair[0].held) + pair[1]) / pair[0].backlog)
    shares = []
    for one, some in level:
        more = min(1, left, one.room - some)
        left -= more
        if some + more:
            shares.append((one, some + more))
    return shares


def _in_turn(able: list[QueueConsumer], count: int) -> Shares:
    """As if one message after the other went to the next who has room."""
    given = dict.fromkeys([one.key for one in able], 0)
    last, open_ = 0, list(able)
    while count:
        each = min(count // len(open_), min(one.room - given[one.key] for one in open_))
        if not each:
            for one in open_[:count]:
                given[one.key] += 1
            last, count = open_[count - 1].key, 0
            break
        for one in open_:
            given[one.key] += each
        last, count = open_[-1].key, count - each * len(open_)
        open_ = [one for one in open_ if one.room > given[one.key]]
    shares = [(one, given[one.key]) for one in able if given[one.key]]
    return sorted(shares, key=lambda pair: pair[0].key == last)


def _fast(able: Sequence[QueueConsumer], count: int) -> Shares:
    shares = []
    for one in sorted(able, key=lambda one: one.since):
        some = min(one.room, count)
        count -= some
        if some:
            shares.append((one, some))
    return shares
