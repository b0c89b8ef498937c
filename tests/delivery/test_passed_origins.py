"""What of each origin is before a place in the log: the journal says where, delivery reads on."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.journal.test_locate import Many
from zbroker.delivery import passed_origins
from zbroker.delivery.contract import FindPassed
from zbroker.ids import EPOCH, NOW, Origin, Vector, format_bookmark, format_vector
from zbroker.log.cover import passed
from zbroker.log.records import PointRecord, encode
from zbroker.wire.internal import Located
from zbroker.wire.units import NamedRow


def result(steps: Generator[None, None, Vector]) -> Vector:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Vector = done.value
            return found


def vector_of(located: Located) -> Vector:
    return {Origin(instance, gen): at for instance, gen, at in located.passed}


def before(many: Many, located: Located) -> Vector:
    """What delivery finds."""
    assert 0 < located.passed_at <= located.position
    wanted = FindPassed(1, "c", located.passed_at, located.position, vector_of(located))
    return result(passed_origins.find(many.two.whole.log, wanted))


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_all_that_is_before_a_bookmark(tmp_path: Path, seed: int) -> None:
    many = Many(tmp_path, seed)
    batches = many.two.whole.batches()
    rng = random.Random(seed)
    for batch in rng.sample(many.published, 30):
        value = format_bookmark(batch.publisher, batch.sequence)
        located = many.locator.locate(1, value, many.where)
        if located.code:
            continue  # a name of two messages in this log
        assert before(many, located) == passed(batches, 0, located.position)


def test_it_is_nothing_at_the_begin_and_everything_at_the_end(tmp_path: Path) -> None:
    many = Many(tmp_path, 3)
    end = passed(many.two.whole.batches(), 0, many.where.persisted)
    found = many.locator.locate(1, EPOCH, many.where)
    assert (found.passed, found.passed_at) == ([], 1)
    found = many.locator.locate(1, NOW, many.where)
    assert (vector_of(found), found.passed_at) == (end, found.position)
    assert {Origin(i, g): at for i, g, at in found.at_end} == end


def test_a_vector_is_what_it_says(tmp_path: Path) -> None:
    many = Many(tmp_path, 4)
    one = next(b for b in many.published if b.origin_instance != many.where.instance)
    vector = {one.origin: one.origin_position}
    found = many.locator.locate(1, format_vector(vector), many.where)
    assert (vector_of(found), found.mixed) == (vector, True)
    assert found.passed_at == found.position


def test_a_point_of_this_instance_is_a_place_in_its_log(tmp_path: Path) -> None:
    """Messages of others that are before it are before the point, whatever their origin."""
    many = Many(tmp_path, 5)
    position = many.published[len(many.published) // 2].position
    here = Origin(many.where.instance, many.where.generation)
    record = PointRecord("eod", format_vector({here: position - 1}))
    many.two.whole.core.sessions.named.points.learn(NamedRow("eod", position, encode(record)))
    located = many.locator.locate(1, "point:eod", many.where)
    assert located.position == position
    batches = many.two.whole.batches()
    assert before(many, located) == passed(batches, 0, position)
