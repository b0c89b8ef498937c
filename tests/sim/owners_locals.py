"""Histories that begin with a local queue, which becomes one of several instances at some moment.

One instance has it, or two: then each has a queue of its own until both have changed. It was made
by an operator, or is in the config, which is changed then, and the process started again.

Safety: what one local queue has done is sent by no instance after that; messages that several
instances accepted before they knew of each other are left out, as everywhere here. Liveness: as of
the world.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from tests.sim.two_nodes import Message
from zbroker.config import QueueConfig
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

if TYPE_CHECKING:
    from tests.sim.owners_process import InstanceQueues
    from tests.sim.owners_world import OwnersInstance, OwnersWorld

SHARE: Final = 0.4  # of all seeds
TWO: Final = 0.25  # of these
CONFIGURED: Final = 0.3
AT_HOME: Final = 0.7


class LocalQueues:
    """homes: instances that have one at first. at_ms: when they change. others: so many queues more
    than one a message may be in."""

    def __init__(self, world: OwnersWorld, seed: int) -> None:
        self._world, self._rng = world, Random(f"local {seed}")
        rng = self._rng
        share = rng.random() < SHARE
        count = (2 if rng.random() < TWO else 1) if share else 0
        self.homes = rng.sample([*world.instances], count)
        self.others = max(0, count - 1)
        self.at_ms = {home: rng.randint(1_000, 4_800) for home in self.homes}
        self._configured = count > 0 and rng.random() < CONFIGURED
        self._made: set[str] = set()
        self._changed: set[str] = set()  # by config
        self._asked: set[str] = set()  # of queues that were local then
        self._told: set[str] = set()  # answers of local queues
        self._done: set[Message] = set()

    def configs_of(self, name: str) -> list[QueueConfig]:
        """The config of an instance."""
        if not self.homes:
            return self._world.configs
        if name not in self.homes or not self._configured:
            return []
        return self._world.configs if name in self._changed else [self._local]

    @property
    def _local(self) -> QueueConfig:
        return replace(self._world.configs[0], scope="local", initial_owner="")

    # -- what is seen -------------------------------------------------------------------------

    def said(self, instance: OwnersInstance | None, cid: str) -> None:
        """A consumer says that messages are done: of a queue that is local then, which may be
        another one when that is written."""
        if instance is not None and self._is_local(instance):
            self._asked.add(cid)

    def answered(self, instance: OwnersInstance, answer: Any) -> None:
        """A consumer is sent an answer."""
        if isinstance(answer, q.Settled) and self._is_local(instance):
            self._told.add(answer.cid or "")

    def done(self, messages: set[Message], cid: str) -> bool:
        """They are, says an instance. True: its queue was local when it was asked, or said so; if
        only when it was asked, others hear of it as of what a queue of several instances does."""
        if cid in self._told:
            self._done |= messages
        return cid in self._told or cid in self._asked

    def delivered(self, process: InstanceQueues, message: Message) -> None:
        """A consumer is sent a message."""
        world = self._world
        if len(self.homes) == 1 and message in self._done:
            world.look()
            tied = len(world.accepted.get(message, ())) > 1
            world.demand(tied, f"{message} was done and comes back at {process.instance.name}")

    @staticmethod
    def _is_local(instance: OwnersInstance) -> bool:
        one = instance.queues.queue if instance.queues is not None else None
        return one is not None and one.replicated is None

    # -- what is done -------------------------------------------------------------------------

    def workplace(self, instance: OwnersInstance) -> OwnersInstance:
        """Where a worker goes that may go to this one: mostly there are messages."""
        homes = [each for each in self.homes if self._world.at.now_ms < self.at_ms[each]]
        if homes and self._rng.random() < AT_HOME:
            return self._world.instances[self._rng.choice(homes)]
        return instance

    def step(self) -> None:
        """Some time has passed."""
        for worker in self._world.workers if self.homes else ():
            if worker.at is None:
                worker.go(self._world.instances[self._rng.choice(self.homes)])
        self.go_on()

    def go_on(self) -> None:
        """Makes them, and changes them when it is time."""
        for home in self.homes:
            instance = self._world.instances[home]
            queues = instance.queues
            if queues is not None and queues.queue is not None:
                self._made.add(home)
            if home not in self._made:
                self._make(queues)
            elif self._world.at.now_ms >= self.at_ms[home]:
                self._change(home, instance)

    def _make(self, queues: InstanceQueues | None) -> None:
        if queues is not None and not self._configured:
            keys = to_builtins(self._local)
            queues.ask(s.Define(1, "create", keys.pop("name"), keys))

    def _change(self, home: str, instance: OwnersInstance) -> None:
        if self._configured and home not in self._changed:
            self._changed.add(home)
            instance.kill_queues()
        elif not self._configured and instance.queues is not None and self._is_local(instance):
            config = self._world.configs[0]
            keys = {"scope": config.scope, "initial_owner": config.initial_owner}
            instance.queues.ask(s.Define(2, "alter", config.name, keys))
