"""One life of a simulated process: the turn that ships, over ports of the world, until it dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tests.sim.ports import JournalLink, Killed, Listener, Mailbox, draw, mortal
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.effects import Follow, FollowMark, Note, Reconnect, Say, Send
from zbroker.engine.turn import Turn
from zbroker.wire.replicas import Replicated

POLL_MS: Final = 20  # it sleeps no longer


class ProcessLife:
    """host: counts down its `deaths`, and has its disk."""

    turn: type[Turn[Any, Any]] = Turn
    now: Any  # of its host
    core: Any

    def __init__(self, world: Any, host: Any) -> None:
        self.world, self.host, self.alive = world, host, True

    def begin(
        self, judged: Any, sources: Sequence[Any], effects: Sequence[type],
        performers: dict[type, Callable[[Any], Any]],
    ) -> None:  # fmt: skip
        """From now on it has turns. judged: its core, and what has to be true of it."""
        self._judged = judged
        kept = judged.performers(mortal(performers, self._point))
        limited = [(each, Limit(1)) for each in sources]
        self._plan = TurnPlan(limited, tuple(effects), read_slice_ms=1_000)
        self._turn = self.turn(judged, self._plan, kept, lambda: self.now)
        self.world.at.after(0, self._next_turn)

    def kill(self) -> None:
        """It dies now; its host lets go of it."""
        raise NotImplementedError

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive:
            return
        draw(self._plan, world.rng)
        try:
            with self.host.undisturbed_disk():
                wait_ms = self._turn.run({})
        except Killed:
            self.kill()
            return
        self._judged.check()
        if wait_ms == 0:
            world.at.after(world.rng.choice((0, 0, 1, 5)), self._next_turn)
        else:
            world.at.after(POLL_MS if wait_ms is None else min(wait_ms, POLL_MS), self._next_turn)

    def _point(self, _boundary: str = "") -> None:
        """It may die here."""
        self.host.deaths -= 1
        if self.host.deaths == 0:
            raise Killed


class ListenerLife(ProcessLife):
    """Of a process of one of several instances, which has a listener and follows the journal."""

    def __init__(self, instance: Any, address: str, *, every_write: bool = False) -> None:
        super().__init__(instance.world, instance)
        self.instance, net, name = instance, instance.world.net, instance.name
        self.journal = JournalLink(
            net, f"ipc-journal-{name}", f"ipc-marks-{name}", every_write=every_write
        )
        self.clients = Listener(net, address)
        self.marks, self._follows_mark = Mailbox(), False

    @property
    def now(self) -> Now:
        """By the clock of its instance."""
        return Now(self.world.at.now_ms, self.instance.wall_ns())

    def performers(
        self, effects: Iterable[type], own: dict[type, Callable[[Any], Any]]
    ) -> dict[type, Callable[[Any], Any]]:
        """own: besides those of all; nothing comes of the other effects."""
        return dict.fromkeys(effects, lambda _effect: None) | {
            Send: self.clients.send, Say: self.journal.say, Reconnect: self.journal.reconnect,
            Follow: self.journal.follow, FollowMark: self._follow_mark,
            Note: lambda effect: self.world.noted(self.instance, effect),
        } | own  # fmt: skip

    def marked(self, said: Replicated, *, to_all: bool) -> None:
        """The replication process says how far enough destinations are: see PublishMark."""
        if to_all or self._follows_mark:
            self.marks.put(said)

    def _follow_mark(self, effect: FollowMark) -> None:
        """The socket is a new one, which the replication process notices."""
        self._follows_mark = effect.on
        self.marks.waiting.clear()
        self.instance.mark_subscribed()

    def die(self) -> None:
        """Its sockets go with it."""
        self.alive = False
        self.clients.close()
        self.journal.close()
