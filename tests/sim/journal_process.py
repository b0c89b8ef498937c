"""The journal process without sockets: the core, turn and log port that ship, on any disk.

A world gives it a net and kills it; a rig calls `hear` and `commit` by itself. What it answers and
publishes goes to two methods; `boundary` is called before and after each effect, with its name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

from tests.sim.ports import Mailbox, Ordered, mortal
from zbroker.clock import Clock
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Now, Ready, TurnPlan
from zbroker.engine.events import Synced
from zbroker.engine.turn import Turn
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.core import JournalCore, JournalSettings, RetentionSettings
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import Body
from zbroker.journal.log_port import LogPort, Space
from zbroker.journal.startup import core_of
from zbroker.limits import SEGMENT_BYTES
from zbroker.log.disk import Disk
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import random_salt
from zbroker.log.writer import Writer
from zbroker.wire import internal as m

BURST_MAX = 1_000  # messages of one turn, unless a world draws another limit


class Start(NamedTuple):
    """What recovery and writer are told."""

    clock: Clock
    segment_bytes: int = SEGMENT_BYTES
    salt: Callable[[], int] = random_salt
    archive: Disk | None = None
    accept_loss: bool = False


class Inbox(Mailbox):
    """What other processes said: a burst of it is one event."""

    def events(self, ready: Ready, limit: Limit) -> Iterator[ev.Requested]:
        burst = list(super().events(ready, limit))
        if burst:
            yield ev.Requested(burst)


class RigLog(LogPort):
    """held: a sync begins, and ends with `end_sync`. lies: it syncs nothing and says it did.

    space_is: what there is for a group, whatever the disk has.
    """

    held = lies = False
    space_is: ev.Reserved | None = None

    def reserve(self, effect: je.Reserve) -> ev.Reserved:
        return self.space_is or super().reserve(effect)

    def look_for_space(self, effect: je.LookForSpace) -> ev.SpaceFound:
        found = super().look_for_space(effect)
        given = self.space_is
        return found if given is None else ev.SpaceFound(given.accepting, given.state_fits)

    def sync(self, effect: e.Sync) -> Synced | None:
        if self.held:
            return None
        return Synced(effect.position) if self.lies else super().sync(effect)


class Port(Protocol):
    """See LogPort: performers of Reserve, LookForSpace, WriteGroup, Sync and KeepFrom."""

    performers: dict[type, Callable[[Any], Any]]


class SimJournal:
    """Core and turn of one life. port: what performs the steps of a commit."""

    turn_of: type[Turn[Any, Any]] = Turn

    def __init__(self, core: JournalCore, port: Port, clock: Clock) -> None:
        self.core, self.clock = core, clock
        self.plant_core(core)
        self.inbox, self.done = self.inbox_of(), Mailbox()
        self.sent: list[e.Answer] = []  # since it was looked at
        self.published: list[m.Watermarks] = []
        watched = Ordered(core, _wrong)
        self.plan = TurnPlan(
            [(self.inbox, Limit(BURST_MAX)), (self.done, Limit(BURST_MAX))], get_args(je.Effect)
        )
        done = {**self.performers(), **port.performers}
        performers = watched.performers(mortal(done, self.boundary, name_of))
        self._turn = self.turn_of(watched, self.plan, performers, self.now)

    # -- what is overridden -------------------------------------------------------------------

    def plant_core(self, core: JournalCore) -> None:
        """A bug, before the first turn."""

    def inbox_of(self) -> Inbox:
        """Where messages arrive."""
        return Inbox()

    def performers(self) -> dict[type, Callable[[Any], Any]]:
        """What is beside the log does nothing here."""
        return {
            **dict.fromkeys(get_args(je.Effect), _nothing),
            je.KeepConflicts: lambda _: ev.ConflictsKept(),
            e.Answer: self.answer,
            je.PublishWatermarks: self.publish_all,
        }

    def answer(self, effect: e.Answer) -> Any:
        """An answer leaves."""
        self.sent.append(effect)

    def publish_all(self, effect: je.PublishWatermarks) -> None:
        """Watermarks leave."""
        self.published.append(effect.message)

    def boundary(self, name: str) -> None:
        """It may die here."""

    # -- turns --------------------------------------------------------------------------------

    def now(self) -> Now:
        return Now(self.clock.mono_ms(), self.clock.wall_ns())

    def hear(self, rid: bytes, message: m.InternalMessage, bodies: Sequence[Body] = ()) -> None:
        """Another process says something."""
        self._turn.hear(ev.Requested([ev.Incoming(rid, message, list(bodies))]))

    def turn(self) -> int | None:
        """One turn: what arrived, then at most one commit."""
        wait_ms = self._turn.run({})
        self.core.check()
        return wait_ms

    def commit(self) -> list[e.Answer]:
        """Turns until nothing waits for a commit; what was answered."""
        while self.core.commit.backlog:
            self.turn()
        return self.taken()

    def taken(self) -> list[e.Answer]:
        """What was answered since the last call."""
        sent, self.sent = self.sent, []
        return sent


class JournalProcess(SimJournal):
    """The same over a disk: recovery and writer are the product's own, too."""

    def __init__(
        self, disk: Disk, settings: JournalSettings, start: Start, readers: tuple[str, ...] = ()
    ) -> None:
        disk.lock()
        self.disk, self.clock, self.fold = disk, start.clock, LogFold(settings.instance)
        self.recovered: Recovered = recover(
            disk, settings.instance, archive=start.archive, accept_loss=start.accept_loss,
            on_batch=self.fold, begin=self.fold.begin, clock=start.clock,
            segment_bytes=start.segment_bytes, salt=start.salt,
        )  # fmt: skip
        self.writer = Writer(
            disk, self.recovered.tail, segment_bytes=start.segment_bytes, clock=start.clock,
            salt=start.salt,
        )  # fmt: skip
        self.plant_fold(self.fold)
        retention = RetentionSettings(readers, settings.staged_max_bytes)
        core = core_of(settings, retention, self.fold, self.recovered, self.writer)
        self.port = self.port_of()
        super().__init__(core, self.port, start.clock)

    def plant_fold(self, fold: LogFold) -> None:
        """A bug, in what recovery found out."""

    def port_of(self) -> RigLog:
        """How the log is written."""
        space = Space(self.writer, Path(), logging.getLogger("zbroker.rig"))
        return RigLog(self.writer, space, self.clock.mono_ms)

    def end_sync(self) -> list[e.Answer]:
        """The sync that was begun ends; what was answered."""
        self._turn.hear(Synced(self.writer.sync()))
        return self.taken()


def name_of(effect: Any) -> str:
    """How a boundary is called."""
    if isinstance(effect, e.Answer):
        return f"send:{effect.message.__struct_config__.tag}"
    return "send:marks" if isinstance(effect, je.PublishWatermarks) else type(effect).__name__


def _nothing(_effect: Any) -> None:
    pass


def _wrong(what: str) -> None:
    raise AssertionError(what)
