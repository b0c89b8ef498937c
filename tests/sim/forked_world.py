"""An instance whose disk is set back while the host that has its newest messages is away, and is
forgotten: the generation is closed without them. The host returns, and has them taken again.

A person looks at the links now and then, and runs `replication fork` where one says so: on the
owner of the name, sometimes twice, while processes die, links are cut and the power fails.

Safety and liveness as in many_world: what was acknowledged before, on whichever disk, is on all
instances in the end, and a subscriber that fails over by its vector sees each message once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.sim import forked_bugs
from tests.sim.many_world import Instance, InstanceJournal, ManyWorld
from tests.sim.two_nodes import Message, Violation
from zbroker.engine import events as ev
from zbroker.engine.effects import Answer
from zbroker.engine.events import Gone
from zbroker.ids import Origin
from zbroker.journal.core import JournalCore
from zbroker.wire.internal import Located
from zbroker.wire.replicas import ChangeLink, LinkAction

LOOKS_MS: Final = 700  # between two looks of the person
OPERATOR: Final = b"operator"


class ForkedJournal(InstanceJournal):
    """A journal that may have a bug."""

    def plant_core(self, core: JournalCore) -> None:
        super().plant_core(core)
        if self.world.bug in forked_bugs.JOURNALS:
            forked_bugs.JOURNALS[self.world.bug](core)

    def answer(self, effect: Answer) -> Gone | None:
        if isinstance(effect.message, Located):
            forked_bugs.located(self.world.bug, effect.message)
        return super().answer(effect)


class ForkedInstance(Instance):
    """An instance of this world."""

    journal_of = ForkedJournal


class ForkedWorld(ManyWorld):
    """One seed's history. forks: that were asked for. kept: what the host alone had."""

    instance_of = ForkedInstance

    def __init__(self, seed: int, bug: str = "") -> None:
        super().__init__(seed, bug, Random(seed).choice((2, 3, 3)))
        for name, instance in self.instances.items():
            instance.destinations = [other for other in self.instances if other != name]
        self.owner, self.host = self.instances["a"], self.instances["b"]
        self.sync_needed = self.rng.choice((0, 0, 1))
        self.away = False
        self.forks: set[tuple[str, str]] = set()
        self.kept: set[Message] = set()

    def run(self) -> None:
        for instance in self.instances.values():
            instance.start()
        self.live(1_500, faults=False)
        self.owner.keep_image()
        self.write_a_tail()
        self.set_back()
        self.live(self.rng.choice((3_000, 5_000)), faults=self.rng.random() < 0.5)
        self.away = False
        self.at.after(LOOKS_MS, self.look)
        self.live(4_000, faults=True)
        self.heal()
        self.verdict()

    # -- a history ----------------------------------------------------------------------------

    def live(self, ms: int, *, faults: bool) -> None:
        """Programs go on."""
        end = self.at.now_ms + ms
        while self.at.now_ms < end:
            self.act(faults=faults)
            for name, instance in self.instances.items():
                if not (self.away and name == "b") and self.rng.random() < 0.3:
                    instance.start()
            for one in self.subscribers:
                one.step()
            self.at.run_until(self.at.now_ms + self.rng.choice((5, 20, 60, 150)))

    def act(self, *, faults: bool) -> None:
        up = [i for i in self.instances.values() if i.journal is not None]
        instance = self.rng.choice(up or [self.owner])
        publisher = self.rng.choice(self.publishers)
        acts: list[tuple[int, Callable[[], object]]] = [
            (20, lambda: self.publish(publisher)),
            (6, lambda: self.fail_over(publisher)),
            (8, self.move_subscriber),
            (2, lambda: self.state(instance)),
        ]
        if faults:
            acts += [
                (3, instance.die_soon), (2, instance.kill_replication), (1, instance.kill_delivery),
                (2, lambda: instance.kill_journal(power=self.rng.random() < 0.5)),
                (3, self.cut), (5, self.cuts.clear),
            ]  # fmt: skip
        self.rng.choices(acts, [weight for weight, _ in acts])[0][1]()

    def fail_over(self, publisher: Any) -> None:
        publisher.leave()
        up = [i for i in self.instances.values() if i.journal is not None]
        if up:
            self.rng.choice(up).open(publisher)

    def write_a_tail(self) -> None:
        """Messages of the owner that the host gets; the third one gets some of them, or none."""
        third = [name for name in self.instances if name not in "ab"]
        self.cuts |= {pair for c in third for n in "ab" for pair in ((n, c), (c, n))}
        for publisher in self.publishers:
            publisher.leave()
            self.owner.open(publisher)
        end = self.at.now_ms + self.rng.choice((500, 1_000))
        while self.at.now_ms < end:
            self.publish(self.rng.choice(self.publishers))
            for one in self.subscribers:
                if one.at is not None and one.at.name not in "ab":
                    one.fail_over(self.rng.choice([self.owner, self.host]))
                one.step()
            self.at.run_until(self.at.now_ms + 50)
            if self.rng.random() < 0.03:
                self.cuts.clear()
        for publisher in self.publishers:
            publisher.leave()
        self.at.run_until(self.at.now_ms + self.rng.choice((0, 100, 1_500)))

    def set_back(self) -> None:
        """The host is away, then the owner's disk is set back; the host is called gone for good."""
        host, self.away = self.host, True
        host.kill_journal(power=True)
        host.kill_replication()
        host.kill_delivery()
        self.owner.restore(empty=False)
        self.cuts.clear()
        # of what its program still has, or another instance took, too, no one knows the old name
        others = [one for one in self.instances.values() if one not in (host, self.owner)]
        again = {(p.id, sequence) for p in self.publishers for sequence, _ in p.unacked}
        self.misplaced |= again.union(*(one.durable().messages for one in others))
        held = host.durable()
        self.kept = held.messages - self.owner.durable().messages
        # the host took some before the owner did, since no acknowledgement had come: it brings them
        # by its own name, and that they are the same as those of the lost name is known only there
        names = [{m for m, at in held.origins if at.instance == o.id} for o in (host, self.owner)]
        self.misplaced |= self.kept.intersection(*names)
        self.at.after(400, self.forget)

    def forget(self) -> None:
        """A person does, again and again, until the host is back."""
        if self.away:
            self.ask(self.owner, "forget", "b")
            self.at.after(LOOKS_MS, self.forget)

    def look(self) -> None:
        """Where a link to the owner of a name says `fork`, that one takes what the other has."""
        for holder in self.instances.values():
            links = holder.replication.core.outgoing.values() if holder.replication else ()
            for link in links:
                for origin, code in link.stopped.items():
                    owner = self.instances[link.link]
                    if code == "fork" and origin.instance == owner.id:
                        self.ask(owner, "fork", holder.name, _text(origin))
        if self.rng.random() < 0.1:
            self.ask(self.owner, "fork", "nobody", _text(Origin(self.owner.id, 1)))
        self.at.after(LOOKS_MS, self.look)

    def ask(self, at: Instance, what: LinkAction, link: str, origin: str = "") -> None:
        if at.replication is not None:
            for _ in range(self.rng.choice((1, 1, 2))):
                question = ChangeLink(1, what, link, origin=origin)
                at.replication.sources.put(ev.Asked(OPERATOR, question))
            if what == "fork" and link != "nobody":
                self.forks.add((at.name, origin))

    # -- the end ------------------------------------------------------------------------------

    def verdict(self) -> None:
        super().verdict()
        for instance in self.instances.values():
            lost = self.kept - set(instance.held())
            self.demand(not lost, f"{instance.name} lacks {sorted(lost)[:3]} of the host")


def _text(origin: Origin) -> str:
    return f"{origin.instance:016x}.{origin.generation}"


__all__ = ["ForkedWorld", "Violation"]
