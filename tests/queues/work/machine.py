"""The rules that drive a World: what hypothesis may do to a queue, in any order."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.queues.work.model import Message, World
from zbroker.config.queues import QueueConfig
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import MS_NS

CLIENTS = st.sampled_from(["ann", "bob", "cid"])
SMALL = st.integers(0, 3)


class Machine(RuleBasedStateMachine):
    """configs: one of them is chosen for each run. kind: the class of the queue."""

    configs: ClassVar[list[QueueConfig]] = []
    kind: ClassVar[type[Queue]] = Queue
    expiring: ClassVar[bool] = False
    filtered: ClassVar[bool] = False
    world: World

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world = World(data.draw(st.sampled_from(self.configs)), self.kind)

    def some(self, data: st.DataObject) -> set[int]:
        """Positions, mostly of messages."""
        world = self.world
        known = sorted({*world.messages, *world.left, world.next_position + 9})
        return data.draw(st.sets(st.sampled_from(known), max_size=6))

    def member(self, data: st.DataObject, *, lost: bool = False) -> int:
        keys = [key for key, one in self.world.members.items() if one.lost == lost]
        return data.draw(st.sampled_from(keys))

    # -- log ----------------------------------------------------------------------------------

    def message(self, position: int, data: st.DataObject) -> Message:
        config, message = self.world.config, Message(position)
        if config.priority:
            message.priority = data.draw(SMALL)
        if config.group_key:
            message.group = data.draw(st.integers(-1, 2))
        if config.barrier:
            message.barrier = data.draw(st.integers(0, 3)) == 0
        if self.expiring and data.draw(st.booleans()):
            ms = data.draw(st.integers(0, 3_000))
            message.expires = self.world.now.wall_ns + ms * MS_NS
        return message

    @rule(data=st.data(), gaps=st.lists(st.integers(1, 4), min_size=1, max_size=8))
    def publish(self, data: st.DataObject, gaps: list[int]) -> None:
        at, made = self.world.next_position, []
        for gap in gaps:
            made.append(self.message(at, data))
            at += gap
        self.world.publish(made)

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        self.world.land(data.draw(st.sampled_from(self.world.next_units())))

    @precondition(lambda self: self.world.pending)
    @rule()
    def land_all(self) -> None:
        while self.world.pending:
            self.world.land()

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        self.world.refuse(data.draw(st.integers(0, len(self.world.pending) - 1)))

    @precondition(lambda self: self.world.left or self.world.messages)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        world = self.world
        known = sorted({*world.messages, *world.left})
        chosen = data.draw(st.sets(st.sampled_from(known), max_size=3))
        many = [world.messages.get(position) or self.message(position, data) for position in chosen]
        if many:
            world.bring_back([_without_expiry(one, world) for one in many])

    @rule(data=st.data(), from_tables=st.booleans())
    def restart(self, data: st.DataObject, from_tables: bool) -> None:
        self.world.restart(data.draw(st.integers(0, self.world.next_position)), from_tables)

    # -- consumers ----------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.members) < 4)
    @rule(client=CLIENTS, backlog=st.integers(0, 5), data=st.data())
    def join(self, client: str, backlog: int, data: st.DataObject) -> None:
        every = data.draw(st.sampled_from([0, 1, 2, 3, 1_000])) if self.filtered else 0
        key = self.world.join(client, backlog, every)
        self.world.come_again(key, self.some(data))

    @precondition(lambda self: any(not one.lost for one in self.world.members.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.leave(self.member(data))

    @precondition(lambda self: any(not one.lost for one in self.world.members.values()))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.world.lose(self.member(data))

    @rule(data=st.data())
    def offer(self, data: st.DataObject) -> None:
        keys = sorted(self.world.members)
        no_credit = data.draw(st.frozensets(st.sampled_from(keys), max_size=1)) if keys else ()
        self.world.offer(frozenset(no_credit))

    @rule()
    def offer_to_all(self) -> None:
        self.world.offer()

    @rule()
    def keep_up(self) -> None:
        for key, one in self.world.members.items():
            if one.held and not one.lost:
                self.world.settle(key, set(one.held), "ack")
        self.world.offer()

    # -- what they say ------------------------------------------------------------------------

    @rule(
        data=st.data(),
        verb=st.sampled_from(["ack", "ack", "release", "reject", "extend"]),
        delay_ms=st.sampled_from([0, 0, 10, 5_000]),
        lease_ms=st.sampled_from([0, 1, 20_000]),
    )
    def settle(self, data: st.DataObject, verb: str, delay_ms: int, lease_ms: int) -> None:
        world, holds = self.world, [key for key, one in self.world.members.items() if one.held]
        key: int | None = None
        if holds and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(holds))
            positions = data.draw(st.sets(st.sampled_from(sorted(world.members[key].held))))
            key = key if not world.members[key].lost else None
        else:
            positions = self.some(data)
        kwargs: dict[str, Any] = {"delay_ms": delay_ms} if verb == "release" else {}
        if verb == "extend":
            kwargs = {"lease_ms": lease_ms}
        if verb == "reject":
            kwargs = {"reason": data.draw(st.sampled_from(["", "bad"]))}
        world.settle(key, positions, verb, **kwargs)

    @rule(data=st.data(), leased=st.booleans())
    def purge(self, data: st.DataObject, leased: bool) -> None:
        before = data.draw(st.integers(0, self.world.next_position))
        self.world.purge(before, leased)

    @rule(data=st.data())
    def unreadable(self, data: st.DataObject) -> None:
        self.world.unreadable(self.some(data))

    @rule(ms=st.sampled_from([1, 5, 1_000, 40_000]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


def _without_expiry(message: Message, world: World) -> Message:
    """What comes back expires no more, unless it is still here."""
    if message.position in world.messages:
        return Message(message.position, message.priority, message.group, message.barrier)
    message.expires = None
    return message
