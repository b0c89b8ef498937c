"""Many subscriptions to rare and dense topics of one log; what each gets is compared with a model.

They begin anywhere and at any time, have filters, ends, limits and little credit, are paused and
replaced, and the journal is started again while they read. The delivery core is the real one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.delivery.world import ANN, BOB, HERE, Seen, World, ready
from zbroker.blocks.read_request import Read
from zbroker.delivery.scans import SharedScan
from zbroker.ids import format_vector
from zbroker.wire import messages as m

RARE: Final = [f"rare.{number}" for number in range(12)]
DENSE: Final = "dense"
PLENTY: Final = 1 << 40
TURNS_MAX: Final = 20_000


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Wish:
    """What a subscription should get. wants: from a position on, this topic."""

    rid: bytes
    sid: str
    first: int
    until: int
    limit: int | None
    high: bool  # only messages with a high value
    regex: bool
    wants: list[tuple[int, str]] = field(default_factory=list)

    def topic_at(self, position: int) -> str:
        return [topic for first, topic in self.wants if first <= position][-1]

    def fits(self, seen: Seen) -> bool:
        return self.topic_at(seen.position) == seen.topic and (
            not self.high or json.loads(seen.data)["x"] > 4
        )


class ReadWorld(World):
    """The world of the core, whose reads may fail."""

    before: Callable[[Read], bool] = staticmethod(lambda read: False)

    def fails(self, read: Read) -> bool:
        return self.before(read)


class ScansWorld:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = ready(kind=ReadWorld)
        self.world.before = self.before
        self.world.logon(BOB)
        self.world.asleep = True
        self.world.steps_max = self.rng.choice([2, 5, 40])
        self.wishes: dict[tuple[bytes, str], Wish] = {}
        self.gaps: list[int] = []
        self.seen: set[str] = set()  # what happened
        self._last_sid = 0

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([5, 40])):
            self.publish()
        self.persist()
        steps = [self.publish, self.persist, self.subscribe, self.flow, self.turns]
        weights = [3, 2, 6, 4, 8]
        rare = [self.pause, self.resume, self.replace, self.unsubscribe, self.restart, self.control]
        for _ in range(rng.choice([30, 120])):
            step = rng.choice(rare) if rng.random() < 0.2 else rng.choices(steps, weights)[0]
            step()
        if rng.random() < 0.2:
            self.gaps.append(self.world.next_position)
            self.world.damage(2)
            self.seen.add("gap")
            self.publish()
        self.end()
        self.judge()

    # -- steps --------------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            count = self.rng.randint(1, 4)
            topics = [
                DENSE if self.rng.random() < 0.4 else self.rng.choice(RARE) for _ in range(count)
            ]
            payloads = [b'{"x":%d}' % self.rng.randint(0, 9) for _ in topics]
            self.world.publish(*topics, publisher=self.rng.randint(1, 3), payloads=payloads)

    def control(self) -> None:
        self.world.control()

    def persist(self) -> None:
        self.world.persisted = self.world.next_position
        self.world.say_watermarks()

    def subscribe(self) -> None:
        rng, world = self.rng, self.world
        for _ in range(rng.choice([1, 1, 8])):
            self._last_sid += 1
            sid, rid = f"s{self._last_sid}", rng.choice([ANN, BOB])
            topic = DENSE if rng.random() < 0.2 else rng.choice(RARE)
            first = 1 if rng.random() < 0.7 else rng.randint(1, world.persisted)
            until = rng.randint(first, world.persisted) if rng.random() < 0.2 else PLENTY
            limit = rng.randint(1, 4) if rng.random() < 0.15 else None
            high, regex = rng.random() < 0.2, rng.random() < 0.1
            wish = Wish(rid, sid, first, until, limit, high, regex, [(0, topic)])
            self.wishes[rid, sid] = wish
            world.subscribe(
                topic, sid, rid, regex=regex, filter="/x > 4" if high else None,
                credit=rng.choice([0, 4, 40, PLENTY]),
                bookmark=format_vector({HERE: first - 1}),
                until=format_vector({HERE: until - 1}) if until != PLENTY else None,
                options=m.Options(limit=limit, paused=rng.random() < 0.1),
            )  # fmt: skip

    def flow(self) -> None:
        for wish in self._some():
            self.world.send(m.Flow(wish.sid, self.rng.choice([1, 30, PLENTY])), wish.rid)

    def pause(self) -> None:
        for wish in self._some(3):
            self.world.send(m.Pause([wish.sid]), wish.rid)

    def resume(self) -> None:
        for rid in (ANN, BOB):
            sids = [one.sid for one in self._some(5) if one.rid == rid]
            if sids:
                self.world.send(m.Resume(sids), rid)

    def replace(self) -> None:
        for wish in self._some(2):
            topic = self.rng.choice([DENSE, *RARE])
            self.world.send(m.Replace(wish.sid, "r", topic), wish.rid)
            _, answer = self.world.answers[-1]
            if isinstance(answer, m.Ack) and answer.position is not None:
                wish.wants.append((answer.position, topic))
                self.seen.add("replaced")

    def unsubscribe(self) -> None:
        for wish in self._some(1):
            self.world.send(m.Unsubscribe(wish.sid, "u"), wish.rid)
            del self.wishes[wish.rid, wish.sid]

    def restart(self) -> None:
        self.world.incarnation += 1
        self.world.say_watermarks()
        self.world.welcome()
        self.seen.add("restarted")

    def turns(self) -> None:
        self.world.pump(self.rng.choice([1, 3, 20]))

    def before(self, read: Read) -> bool:
        """What is to be read is noted. True if it cannot be."""
        waiting = [one for each in self.world.core.cursors.waiting for one in each.queue.values()]
        for scan in [one for one in waiting if isinstance(one, SharedScan) and one.key == read.key]:
            if len(scan.members) > 1:
                self.seen.add("shared at the end" if scan.live else "shared")
            if self.rng.random() < 0.02:
                self.seen.add("failed")
                return True
        return False

    def _some(self, most: int = 8) -> list[Wish]:
        wishes = list(self.wishes.values())
        return self.rng.sample(wishes, min(len(wishes), self.rng.randint(1, most)))

    # -- the end ------------------------------------------------------------------------------

    def end(self) -> None:
        self.persist()
        for wish in self.wishes.values():
            self.world.send(m.Resume([wish.sid]), wish.rid)
            self.world.send(m.Flow(wish.sid, PLENTY), wish.rid)
        self.world.pump(TURNS_MAX)
        if self.world.core.next_read() is not None:
            raise Violation("it reads for ever")

    def judge(self) -> None:
        ended = {
            (rid, answer.sid) for rid, answer in self.world.answers
            if isinstance(answer, m.Ack) and answer.type == "completed" and answer.ended
        }  # fmt: skip
        completed = [
            (rid, answer.sid) for rid, answer in self.world.answers
            if isinstance(answer, m.Ack) and answer.type == "completed"
        ]  # fmt: skip
        failed = {
            (rid, answer.sid): answer.code for rid, answer in self.world.answers
            if isinstance(answer, m.Error) and answer.code != "unknown_sid"
        }  # fmt: skip
        for key, wish in self.wishes.items():
            self._compare(key, wish, key in ended, failed.get(key), completed.count(key))

    def _compare(
        self, key: tuple[bytes, str], wish: Wish, ended: bool, error: str | None, completed: int
    ) -> None:
        gap = min((gap for gap in self.gaps if wish.first <= gap < wish.until), default=None)
        stop = wish.until if gap is None else gap
        expected = [
            seen for seen in self.world.published
            if wish.first <= seen.position < stop and wish.fits(seen)
        ][: wish.limit]  # fmt: skip
        got = self.world.got(wish.sid, wish.rid)
        if got != expected:
            positions = [[seen.position for seen in some] for some in (got, expected)]
            raise Violation(f"{wish}: got {positions[0]}, not {positions[1]}")
        over = len(expected) == wish.limit or (gap is None and wish.until != PLENTY)
        if ended != over:
            raise Violation(f"{wish}: ended {ended}")
        if error != (None if over or gap is None else "gap"):
            raise Violation(f"{wish}: error {error}")
        if error is None and completed != 1 and not (over and completed == 2 and wish.limit):
            raise Violation(f"{wish}: completed {completed} times")
