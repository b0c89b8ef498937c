"""The replication process of the simulated instances: the core, Turn and log port that ship.

It may be killed before and after each effect. A cut between two instances drops frames in one
direction or in both, until it heals; the connection looks alive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from tests.sim.lives import ProcessLife
from tests.sim.net import Pipe
from tests.sim.ports import JournalLink, Mailbox, Ordered
from zbroker.engine.contract import Now
from zbroker.engine.effects import (
    Answer,
    Exit,
    Follow,
    LoggedOff,
    LoggedOn,
    Note,
    Ready,
    Reconnect,
    Say,
    Tell,
)
from zbroker.engine.events import Gone
from zbroker.log.reader import Log
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.core import FromDestination, ReplicationCore
from zbroker.replication.durability import DestinationRule
from zbroker.replication.effects import (
    CloseLink,
    ConnectLink,
    Effect,
    FindStart,
    PublishMark,
    ReadLink,
    ReadState,
    SayOn,
)
from zbroker.replication.log_port import LinkLog
from zbroker.replication.sources import FromSource
from zbroker.replication.state_reader import StateReader
from zbroker.wire import codec

if TYPE_CHECKING:
    from tests.sim.many_world import Instance


QUEUES = b"queues"  # the connection of the queues process


def links_of(name: str) -> str:
    """Where an instance listens for links."""
    return f"tcp-links-{name}"


class ReplicationNode(ProcessLife):
    """One life of the process."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.world, instance)
        self.instance = instance
        world, name = self.world, instance.name
        sync = instance.needed > 0
        rules = [
            DestinationRule(each, sync=sync, topics=instance.topics_for(each))
            for each in instance.destinations
        ]
        self.core = ReplicationCore(
            ReplicationSettings(
                instance.id, name, "g", next(world.incarnations), rules, instance.needed
            )
        )
        self.journal = JournalLink(
            world.net, f"ipc-journal-{name}", f"ipc-marks-{name}", every_write=True
        )
        self.sources, self.answers = Mailbox(), Mailbox()
        self.told: list[Any] = []  # to operators
        self._listener = world.net.bind(
            links_of(name), self._arrived, lambda rid: self.sources.put(Gone(rid))
        )
        self._links: dict[str, Pipe] = {}
        self._log = LinkLog(lambda: Log(disk=instance.disk), lambda: self.core.persisted)
        self._states = StateReader(
            lambda: Log(disk=instance.disk), lambda: self.core.persisted, instance.id
        )
        world.plant_replication(self.core, self._log)
        judged = Ordered(self.core, lambda wrong: world.demand(False, wrong))
        sources = [self.journal, self.sources, self.answers]
        self.begin(judged, sources, (ReadLink, ReadState, *get_args(Effect)), self._performers())

    @property
    def now(self) -> Now:
        return Now(self.world.at.now_ms, self.instance.wall_ns())

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        return {
            ReadLink: self._log.read, ReadState: self._states.read,
            FindStart: self._log.find, Say: self.journal.say,
            Reconnect: self.journal.reconnect, Follow: self.journal.follow,
            ConnectLink: self._connect, CloseLink: lambda effect: self._close(effect.link),
            SayOn: self._say_on, Answer: self._answer, PublishMark: self._mark,
            **dict.fromkeys((LoggedOn, LoggedOff, Ready), lambda _effect: None),
            Tell: self._tell, Exit: _never,
            Note: lambda effect: self.world.noted(self.instance, effect),
        }  # fmt: skip

    def kill(self) -> None:
        self.instance.kill_replication()

    def _tell(self, effect: Tell) -> None:
        if effect.rid == QUEUES:
            self.instance.replication_says(effect.answer)
        else:
            self.told.append(effect.answer)

    # -- links --------------------------------------------------------------------------------

    def _arrived(self, rid: bytes, frame: tuple[str, bytes, list[bytes]]) -> None:
        source, header, bodies = frame
        if not self.world.is_cut(source, self.instance.name):
            self.sources.put(FromSource(rid, codec.TO_DESTINATION.decode(header), bodies))

    def _answer(self, effect: Answer) -> Gone | None:
        frame = self.instance.name, codec.encode(effect.message)
        sent = self.world.net.answer(self._listener, effect.rid, frame)
        return None if sent else Gone(effect.rid)

    def _connect(self, effect: ConnectLink) -> None:
        link = effect.link
        self._close(link)

        def arrived(frame: tuple[str, bytes]) -> None:
            if pipe is self._links.get(link) and not self.world.is_cut(link, self.instance.name):
                self.answers.put(FromDestination(link, codec.TO_SOURCE.decode(frame[1])))

        pipe = self._links[link] = Pipe(links_of(link), arrived)
        self.world.net.dealer(pipe)

    def _close(self, link: str) -> None:
        pipe = self._links.pop(link, None)
        if pipe is not None:
            self.world.net.close(pipe)

    def _say_on(self, effect: SayOn) -> None:
        pipe = self._links.get(effect.link)
        if pipe is not None:
            bodies = [bytes(body) for body in effect.bodies]
            frame = self.instance.name, codec.encode(effect.message), bodies
            self.world.net.send(pipe, frame)

    def _mark(self, effect: PublishMark) -> None:
        self.instance.replicated(effect.message, to_all=effect.to_all)

    def die(self) -> None:
        self.alive = False
        self.journal.close()
        self.world.net.die(self._listener)
        for pipe in self._links.values():
            self.world.net.close(pipe)


def _never(effect: object) -> None:
    raise AssertionError(f"not asked for: {effect}")
