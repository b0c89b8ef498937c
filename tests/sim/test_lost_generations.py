"""A reader has seen a generation that no instance knows: it was lost with the only disk that had
it, and its number is above all that follow, since the clock of that host was an hour ahead."""

from __future__ import annotations

import pytest

from tests.sim.many_subscribers import Subscriber
from tests.sim.many_world import Instance, ManyWorld
from zbroker.ids import EPOCH, Origin


class Faithful(Subscriber):
    """It is at one instance, whatever that answers."""

    home: Instance

    def fail_over(self, instance: Instance, *, restarts: bool = False) -> None:
        super().fail_over(self.home, restarts=restarts)


class LostGeneration:
    """Instances a to c; b is cut off, reboots with a wrong clock, and loses its disk."""

    def __init__(self, links: dict[str, list[str]]) -> None:
        self.world = world = ManyWorld(1, instances=len(links))
        for name, instance in world.instances.items():
            instance.destinations, instance.skew_s = links[name], 0
        self.host, self.publisher = world.instances["b"], world.publishers[0]
        self.reader = Faithful(world, 0)
        self.reader.bookmark, self.reader.fully = EPOCH, False
        world.subscribers = [self.reader]
        self.moves("a")
        self.passes(3_000)

    def moves(self, name: str) -> None:
        self.reader.home = self.world.instances[name]
        self.reader.fail_over(self.reader.home)

    def passes(self, ms: int) -> None:
        world = self.world
        end_ms = world.at.now_ms + ms
        while world.at.now_ms < end_ms:
            for instance in world.instances.values():
                instance.start()
            world.at.run_until(world.at.now_ms + 100)
            self.reader.step()

    def publishes(self, at: Instance) -> None:
        self.publisher.leave()
        at.open(self.publisher)
        self.passes(500)
        self.world.publish(self.publisher)
        self.passes(1_000)

    def generation(self) -> int:
        assert self.host.journal is not None
        return self.host.journal.core.commit.generation

    def lose(self) -> int:
        """Returns the generation that is lost; the reader has seen messages of it."""
        world, host = self.world, self.host
        self.publishes(host)
        others = [name for name in world.instances if name != host.name]
        world.cuts = {pair for one in others for pair in ((one, host.name), (host.name, one))}
        host.kill_journal(power=True)
        host.skew_s = 3_600
        self.moves(host.name)
        self.passes(3_000)
        self.publishes(host)
        lost = self.generation()
        assert Origin(host.id, lost) in self.reader._feed.passed
        host.skew_s = 0
        host.restore(empty=True)
        world.cuts.clear()
        return lost


PAIR = {"a": ["b"], "b": ["a"]}
STAR = {"a": ["b", "c"], "b": ["a"], "c": ["a"]}


@pytest.mark.seed("002-29")
@pytest.mark.parametrize(
    ("links", "at"), [(PAIR, "b"), (PAIR, "a"), (STAR, "c")], ids=["its own", "a peer", "a far one"]
)
def test_its_reader_goes_on(links: dict[str, list[str]], at: str) -> None:
    history = LostGeneration(links)
    lost = history.lose()
    history.moves(at)
    history.passes(10_000)
    history.publishes(history.host)
    history.passes(10_000)
    held = set(history.world.instances["a"].held())
    assert history.publisher.unacked == []
    assert len(held) > 1
    assert history.reader.lacks(held) == set()
    assert history.generation() > lost
