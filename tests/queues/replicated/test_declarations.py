"""Lives of one name that meet: the same queue everywhere, in whatever order the records come."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from zbroker.ids import Origin
from zbroker.log.queue_records import QueueDeclaration, ReplicatedDefinition, VectorEntry, Version
from zbroker.queues.replicated.declarations import QueueView, ReplicatedDefinitions

A, B = Origin(1, 1), Origin(2, 1)
FIRST, SECOND = QueueDeclaration(100, *A), QueueDeclaration(200, *B)


def made(
    life: QueueDeclaration = FIRST, number: int = 1, by: Origin = A,
    begins: dict[Origin, int] | None = None, **definition: Any,
) -> ReplicatedDefinition:  # fmt: skip
    where = [VectorEntry(*origin, at) for origin, at in (begins or {}).items()]
    return ReplicatedDefinition("q", life, Version(number, *by), "config", where, definition)


def ended(life: QueueDeclaration, number: int = 9) -> ReplicatedDefinition:
    return ReplicatedDefinition("q", life, Version(number, *A))


def views(*records: ReplicatedDefinition) -> QueueView | None:
    """What comes of them, which is the same in every order."""
    found = []
    for order in permutations(records):
        known = ReplicatedDefinitions()
        for record in order:
            known.learn(record)
        found.append(known.view("q"))
    assert all(view == found[0] for view in found)
    return found[0]


def test_the_earlier_life_is_the_queue() -> None:
    view = views(made(FIRST), made(SECOND, by=B))
    assert view is not None
    assert (view.life, view.lives) == (FIRST, frozenset({FIRST, SECOND}))
    assert (view.declaration, view.declarations) == (100, frozenset({100, 200}))


def test_of_two_lives_of_one_moment_the_lower_instance_is_the_queue() -> None:
    view = views(made(QueueDeclaration(100, *B)), made(QueueDeclaration(100, *A)))
    assert view is not None
    assert view.life.instance == A.instance


def test_the_highest_version_over_both_lives_is_the_definition() -> None:
    view = views(made(FIRST, 2, lease=1), made(SECOND, 3, B, lease=2), made(FIRST, 3, A, lease=3))
    assert view is not None
    assert view.definition == {"lease": 2}


def test_it_begins_at_the_lower_position_of_each_origin() -> None:
    view = views(made(FIRST, begins={A: 50, B: 7}), made(SECOND, begins={A: 40, B: 9}))
    assert view is not None
    assert view.begins == {A: 40, B: 7}


def test_an_origin_that_one_life_does_not_name_begins_with_its_log() -> None:
    view = views(made(FIRST, begins={A: 50}), made(SECOND, begins={}))
    assert view is not None
    assert view.begins == {}


def test_a_deletion_ends_the_life_that_it_names() -> None:
    view = views(made(FIRST), made(SECOND, lease=2), ended(FIRST))
    assert view is not None
    assert (view.life, view.lives) == (SECOND, frozenset({SECOND}))
    assert views(made(FIRST), made(SECOND), ended(FIRST), ended(SECOND)) is None


def test_a_queue_of_that_name_that_is_made_again_is_another_life() -> None:
    known = ReplicatedDefinitions()
    known.learn(made(FIRST))
    known.learn(ended(FIRST))
    life = known.next_life("q", B, wall_ns=1)  # the clock was set back
    assert life > FIRST
    assert known.next_version("q", B) == (10, *B)


def test_a_change_has_a_version_of_its_own_and_begins_as_before() -> None:
    known = ReplicatedDefinitions()
    known.learn(made(FIRST, begins={A: 50}))
    record = known.altered("q", {"lease": 9}, "admin", B)
    assert known.learn(record)
    view = known.view("q")
    assert view is not None
    assert (view.definition, view.begins, view.life) == ({"lease": 9}, {A: 50}, FIRST)


def test_a_deletion_names_all_lives() -> None:
    known = ReplicatedDefinitions()
    known.learn(made(FIRST))
    known.learn(made(SECOND))
    for record in known.ended("q", "admin", A):
        assert known.learn(record)
    assert known.view("q") is None


def test_a_record_that_is_known_changes_nothing() -> None:
    known = ReplicatedDefinitions()
    assert known.learn(made(FIRST))
    assert not known.learn(made(FIRST))
