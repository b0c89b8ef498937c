"""Where a point of all instances is: where its vector leads in this log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal import build
from tests.journal.test_locate import INSTANCE, GenerationLog, NoIndex, Two
from tests.journal.test_shared_points import fold, record
from zbroker.bookmarks.index import Index
from zbroker.ids import Cut, Origin, format_vector
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.effects import Where
from zbroker.journal.locate import Locator
from zbroker.journal.sessions import Sessions
from zbroker.log.point_records import PointId, SharedPointRecord

EOD = "point:eod"


@pytest.fixture
def two() -> Two:
    """Positions: 1 name of q, 2 q, 3-5 p of another instance (10-12 there), 6 q."""
    made = Two()
    made.whole.publish("q", 1)
    made.theirs(1, 3, 0)
    made.whole.publish("q", 2)
    return made


def covers(two: Two, vector: str) -> None:
    fold(two.whole.core.sessions, record(0xA, 3, SharedPointRecord("eod", 1, vector)))


@pytest.mark.parametrize("ours", [2, 6])
@pytest.mark.parametrize("theirs", [0, 11, 12])
@pytest.mark.parametrize("end", [False, True])
def test_it_is_where_its_vector_leads(two: Two, ours: int, theirs: int, *, end: bool) -> None:
    """Also if it names this instance alone: their messages before that place are not before it."""
    vector = two.vector(ours, theirs)
    covers(two, vector)
    assert two.locate(EOD, end=end) == two.locate(vector, end=end)
    assert two.locate(EOD, end=end)[0] == ""


def test_what_is_not_here_yet_is_waited_for(two: Two) -> None:
    covers(two, two.vector(6, 13))
    assert two.locate(EOD)[0] == "bookmark_pending"


def test_an_expired_one_says_what_is_left(two: Two) -> None:
    vector = two.vector(0, 11)
    covers(two, vector)
    assert two.locate(EOD, log_start=5)[0] == "bookmark_expired"
    oldest = two.found.passed
    assert two.locate(vector, log_start=5)[0] == "bookmark_expired"
    assert oldest == two.found.passed != []


@pytest.mark.parametrize("cut", ["at", "behind"])
def test_a_side_of_it_means_nothing(two: Two, cut: Cut) -> None:
    covers(two, two.vector(2, 11))
    core, log = two.whole.core, two.whole.log
    log.refresh()
    where = Where(build.INSTANCE, core.generation, log.first_position, core.persisted)
    locator = Locator(log, NoIndex(), core.sessions)  # type: ignore[arg-type]
    assert locator.locate(1, EOD, where, cut=cut).position == 5


def test_one_that_was_removed_is_unknown(two: Two) -> None:
    covers(two, two.vector(2, 11))
    end = SharedPointRecord("eod", ends=[PointId(0xA, 1, 3)])
    fold(two.whole.core.sessions, record(0xA, 5, end))
    assert two.locate(EOD)[0] == "unknown_point"


def test_a_vector_that_is_to_be_kept_names_closed_generations(tmp_path: Path) -> None:
    """Queues go by it as it is; readers of the log need not say what the journal can put back."""
    sessions = Sessions(INSTANCE)
    locator = Locator(GenerationLog(), Index(tmp_path / "index", INSTANCE), sessions)  # type: ignore[arg-type]
    row = ClosedRow(INSTANCE, 1, 9, 4, 12, 9, 9, -1, 9, -1)
    sessions.origins.closed.copied(INSTANCE, {4: 12})
    sessions.origins.fold_closed_row(row)
    where, vector = Where(INSTANCE, 4, 1, 20), format_vector({Origin(INSTANCE, 4): 15})
    named = {
        closed: [row[1:] for row in locator.locate(1, vector, where, closed=closed).passed]
        for closed in (False, True)
    }
    assert named == {False: [(4, 15)], True: [(4, 15), (1, 9)]}
