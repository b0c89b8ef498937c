"""Several queues cores, each with a log of its own, between which records go by hand.

`pull` moves the next record of one origin into another log, as a link would: in the order of that
origin, and in no order with those of others. A message that two instances accepted is stored once
in each log; the second record of it is a tie.

Each message has a number, and a publisher of its own; so it is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from tests.queues.bench import ANN, Bench, replayable
from zbroker.config import QueueConfig
from zbroker.ids import (
    NOW,
    Origin,
    Vector,
    format_bookmark,
    format_vector,
    is_vector,
    parse_vector,
    raise_to,
)
from zbroker.log.format import (
    KIND_DEFINITION,
    KIND_OUTCOMES,
    KIND_OWNERSHIP,
    KIND_PUBLISH,
    KIND_SHARED_POINT,
    KIND_TIE,
    Batch,
)
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import bodies
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Locate, Located, Watermarks, Welcome

FIRST: Final = 1_000  # publisher of message 0
TRAVELS: Final = frozenset(
    {KIND_PUBLISH, KIND_DEFINITION, KIND_OUTCOMES, KIND_OWNERSHIP, KIND_SHARED_POINT}
)
SHARED: Final = replayable(scope="distributed")


class Linked(Bench):
    """An instance of its own id. came: how many records of each other one."""

    def __init__(self, number: int, *configs: QueueConfig, **more: Any) -> None:
        super().__init__(*configs, welcome=False, replicates=True, **more)
        self.home = self.origin = Origin(0xA0 + number, 1)
        self.came: dict[Origin, int] = {}
        self.welcome()
        self.logon()

    def welcome(self, persisted: int | None = None, generation: int = 1) -> None:
        self.up = True
        self.turn.hear(Welcome(
            self.journal, self.incarnation, self.home.instance, generation, 0, "disk",
            self.log_start, self.position, self.persisted, [], self.generations,
        ))  # fmt: skip
        self.run()

    def _watermarks(self) -> Watermarks:
        extent = self.log_start, self.position, self.persisted
        return Watermarks(self.journal, *self.home, *extent, 1, 0, [], definitions=self.definitions)

    def accept(self, number: int) -> None:
        """A publisher sends this message here."""
        if self.place(number) is None:
            self._put(KIND_PUBLISH, bodies.pack([b"%d" % number]), FIRST + number, ["t"])
        self.persist()

    def place(self, number: int) -> int | None:
        """Where a message is here."""
        found = (
            one.position for one in self.log
            if one.kind == KIND_PUBLISH and one.publisher == FIRST + number
        )  # fmt: skip
        return next(found, None)

    def number(self, position: int) -> int:
        """Which message is there."""
        [found] = [one for one in self.log if one.position == position]
        return found.publisher - FIRST

    def own(self) -> list[Batch]:
        """What goes to others of what was written here first."""
        return [one for one in self.log if one.origin == self.home and one.kind in TRAVELS]

    def pull(self, other: Linked) -> bool:
        """The next record of another one is here. False: there is none."""
        at, records = self.came.get(other.home, 0), other.own()
        if at >= len(records):
            return False
        self.came[other.home] = at + 1
        found = records[at]
        known = found.kind == KIND_PUBLISH and self.place(found.publisher - FIRST) is not None
        kind = KIND_TIE if known else found.kind
        self.log.append(replace(
            found, kind=kind, position=self.position, body=b"" if known else found.body,
            topics=[] if known else found.topics, log_time=self.position, offset=len(self.log),
            prev=found.sequence - 1,
        ))  # fmt: skip
        self.position += 1
        if kind in (KIND_DEFINITION, KIND_SHARED_POINT):
            self.definitions += 1
        self.persist()
        return True

    def locate(self, ask: Locate) -> Located:
        """As the journal does that has messages of several origins."""
        found = super().locate(ask)
        if ask.value == NOW:
            at_end: Vector = {}
            for one in self.log:
                if one.kind in (KIND_PUBLISH, KIND_TIE):
                    raise_to(at_end, {one.origin: one.origin_position})
            found.at_end = _rows(at_end)
        elif is_vector(ask.value):
            vector = parse_vector(ask.value)
            found.passed = _rows(vector)
            left = (
                one.position for one in self.log
                if one.kind == KIND_PUBLISH and one.origin_position > vector.get(one.origin, 0)
            )  # fmt: skip
            found.position = next(left, self.persisted)
        return found

    # -- the queue ----------------------------------------------------------------------------

    def numbers(self) -> set[int]:
        """The messages of the queue."""
        return {self.number(at) for at in self.here()}

    def noted(self) -> set[int]:
        """Those of them that were acknowledged."""
        return {self.number(at) for at in self.here() if self.state(at) == "acked"}

    def acknowledge(self, *numbers: int) -> None:
        """By bookmarks, as a client does that got them at another instance."""
        marks = [format_bookmark(FIRST + number, 1) for number in numbers]
        self.ack(sid=None, queue="q", ends=[], bookmarks=marks)

    def purge(self, before: int = 0, **more: Any) -> s.Changed:
        found: s.Changed = self.ask(s.Purge(1, "q", before, **more))
        return found

    def tables(self) -> dict[Any, Any]:
        """What the tables would hold now."""
        return Snapshots().take(self.manager).many

    def begin_again(self, saved: dict[Any, Any] | None = None) -> None:
        """The process ends and begins. saved: the tables; without them the log is read."""
        self.restart(saved)
        self.logon()


def _rows(vector: Vector) -> list[tuple[int, int, int]]:
    return [(*origin, at) for origin, at in vector.items()]


def linked(count: int = 3, config: QueueConfig = SHARED) -> list[Linked]:
    """So many of them, which all have the queue."""
    first, *others = Linked(0, config), *(Linked(number) for number in range(1, count))
    many = [first, *others]
    join(many)
    return many


def join(many: list[Linked]) -> None:
    """Everything goes everywhere, until there is nothing more."""
    while any(one.pull(other) for one in many for other in many if other is not one):
        pass


class Roaming:
    """A consumer that goes from instance to instance, with a vector as a client has it."""

    def __init__(self) -> None:
        self.vector: dict[Origin, int] = {}
        self.got: list[int] = []
        self.at: Linked | None = None
        self._sids = 0
        self._given = 0

    def read_at(self, at: Linked, **more: Any) -> str:
        """It consumes there. Returns: the code of a refusal."""
        self.leave()
        self.at, self._given = at, len(at.gives)
        self._sids += 1
        since = format_vector(self.vector) if self.vector else "0"
        at.consume(sid=f"r{self._sids}", **({"since": since} | more))
        answer = at.last()
        if isinstance(answer, m.Error):
            self.at = None
            return answer.code
        began = at.of(q.Consuming)[-1]
        assert began.vector is not None
        raise_to(self.vector, parse_vector(began.vector) if began.vector else {})
        self.take()
        return ""

    def take(self) -> None:
        """What it was given meanwhile."""
        if self.at is None:
            return
        for number, origin, position in self._batches():
            self.got.append(number)
            raise_to(self.vector, {origin: position})

    def _batches(self) -> Iterator[tuple[int, Origin, int]]:
        assert self.at is not None
        gives, self._given = self.at.gives[self._given :], len(self.at.gives)
        for sid, give in gives:
            for at in give.positions if sid == f"r{self._sids}" else ():
                [batch] = [one for one in self.at.log if one.position == at]
                yield self.at.number(at), batch.origin, batch.origin_position

    def leave(self) -> None:
        """It ends, or its instance does."""
        self.take()
        if (
            self.at is not None
            and f"r{self._sids}" in self.at.core.shared.connections[ANN].consumers
        ):
            self.at.send(q.Cancel(f"r{self._sids}"))
        self.at = None
