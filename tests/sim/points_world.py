"""Three to five instances with a replicated queue, on which operators set and remove points.

The world of owners_world.py: links are cut, processes die at any effect, the power fails. At any
instance points are set, moved and removed, by few names, also as places in one log. A new instance
is not in it (tests.journal.test_first_state).

Safety: in the end a point is there if its record is in some log and no record ends it; all
instances have the same ones, each name means the same one, and what an operator was told lasts. A
place of a point has no message before it that the point does not cover.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.sim import points_bugs
from tests.sim.owners_world import OwnersInstance, OwnersWorld
from tests.sim.seeds import plant
from zbroker.ids import parse_vector
from zbroker.log.format import KIND_SHARED_POINT
from zbroker.log.point_records import PointId, decoded_point
from zbroker.wire import queue_surveys as s

NAMES: Final = ("eod", "noon", "x")
FIRST_CID: Final = 1_000  # of questions about points


class PointsInstance(OwnersInstance):
    """An instance whose processes may have a planted bug."""

    world: PointsWorld

    def start(self) -> None:
        journal, queues = self.journal, self.queues
        super().start()
        if self.journal is not None and self.journal is not journal:
            plant(points_bugs.JOURNAL, self.world.bug, self.journal.core)
        if self.queues is not None and self.queues is not queues:
            plant(points_bugs.QUEUES, self.world.bug, self.queues.core)


class PointsWorld(OwnersWorld):
    """One seed's history. asked: what operators asked, by number."""

    instance_of = PointsInstance
    instances: dict[str, PointsInstance]  # type: ignore[assignment]

    def __init__(self, seed: int, bug: str = "") -> None:
        super().__init__(seed, bug)
        self.chance = Random(seed)
        self.asked: dict[int, tuple[PointsInstance, Any]] = {}
        self.places: dict[tuple[str, str], s.Points] = {}  # by instance and name, in the end
        self._read_to: dict[str, int] = {}
        self.made: dict[PointId, tuple[str, int, str]] = {}  # name, number, vector
        self.over: set[PointId] = set()

    # -- operators ----------------------------------------------------------------------------

    def step(self) -> None:
        super().step()
        chance, here = self.chance, self.chance.choice([*self.instances.values()])
        if chance.random() > 0.3:
            return
        name = chance.choice(NAMES)
        asks: list[Any] = [s.SetPoint(0, name), s.RemovePoint(0, name), s.SetPoint(0, name, 1)]
        self._ask(here, chance.choices(asks, (10, 7, 1))[0])

    def _ask(self, here: PointsInstance, ask: Any) -> None:
        if here.queues is not None:
            ask.cid = FIRST_CID + len(self.asked)
            self.asked[ask.cid] = here, ask
            here.queues.ask(ask)

    def told(self, answer: Any) -> None:
        super().told(answer)
        if answer.cid not in self.asked or answer.code:
            return
        here, ask = self.asked[answer.cid]
        self._read_points()
        if isinstance(ask, s.SetPoint) and not ask.at:
            found = {one for one, (name, _, covers) in self.made.items()
                     if (name, covers) == (ask.name, answer.vector)}  # fmt: skip
            self.demand(bool(found), f"{ask.name} was set at {here.name}, and is in no log")
            self.events.append("point set")
        elif isinstance(ask, s.RemovePoint):
            self.events.append("point removed")
        elif isinstance(ask, s.AskPoints):
            self.places[here.name, ask.name] = answer

    def _read_points(self) -> None:
        """What became durable of them, anywhere."""
        for instance in self.instances.values():
            for batch in instance.batches(self._read_to.get(instance.name, 0)):
                self._read_to[instance.name] = batch.end_position
                if batch.kind != KIND_SHARED_POINT:
                    continue
                record = decoded_point(bytes(batch.body))
                assert record is not None
                self.over |= {*record.ends}
                if record.covers:
                    made = PointId(*batch.origin, batch.origin_position)
                    self.made[made] = record.name, record.number, record.covers

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        super().heal()
        self._read_points()
        expected = {one: said for one, said in self.made.items() if one not in self.over}
        self.wait(lambda: self._agree(expected), f"points differ: {expected}")
        if expected:
            self.events.append("points are left")
        for name in {name for name, _, _ in expected.values()}:
            for instance in self.instances.values():
                self._ask(instance, s.AskPoints(0, name))
            self.wait(lambda name=name: self._answered(name), f"{name} is not found everywhere")  # type: ignore[misc]
            self._look_at(name)

    def _agree(self, expected: dict[PointId, tuple[str, int, str]]) -> bool:
        """Journals and queues processes have these, and mean the same ones."""
        meant = {
            name: max((number, one) for one, (of, number, _) in expected.items() if of == name)[1]
            for name, _, _ in expected.values()
        }
        for instance in self.instances.values():
            if instance.journal is None or instance.queues is None:
                return False
            shared = instance.journal.core.commit.sessions.named.shared
            rows = {row.id: (row.name, row.number, row.covers) for row in shared.rows()}
            if rows != expected or any(shared.meant(name).id != meant[name] for name in meant):  # type: ignore[union-attr]
                return False
            known = instance.queues.core.manager.points
            said = {row.name: row.covers for row in known.values() if row.shared}
            if said != {name: expected[one][2] for name, one in meant.items()}:
                return False
        return True

    def _answered(self, name: str) -> bool:
        return all((instance, name) in self.places for instance in self.instances)

    def _look_at(self, name: str) -> None:
        """Nothing is before its place that it does not cover."""
        self.look()
        names: dict[Any, list[Any]] = {}
        for origin_position, message in self._names.items():
            names.setdefault(message, []).append(origin_position)
        for instance in self.instances.values():
            [row] = self.places[instance.name, name].rows
            vector = parse_vector(row.covers)
            for position, message in self.named(instance).items():
                covered = any(at <= vector.get(origin, 0) for origin, at in names[message])
                self.demand(
                    covered or position >= row.position,
                    f"{name}: {message} is before it at {instance.name}, and not covered",
                )
