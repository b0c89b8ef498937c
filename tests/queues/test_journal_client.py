"""zbroker/queues/journal_client.py: what the journal says, and what it is sent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.queues.bench import HERE, JOURNAL, PROCESS, Bench, bench, replayable, work
from zbroker.engine.effects import ForgetBlocks, Progress, Ready, Reconnect, Say
from zbroker.engine.events import Asked
from zbroker.ids import EPOCH, format_vector
from zbroker.log.format import KIND_PURGE
from zbroker.log.reader import Extent
from zbroker.log.records import PURGE
from zbroker.queues.effects import Effect, ListSegments, Load, Segments, TablesLoaded
from zbroker.queues.journal_client import HOLDS_MS, LET_GO_MS
from zbroker.queues.snapshots import Snapshots
from zbroker.wire.internal import Confirm, Hello, Holds, Welcome
from zbroker.wire.queue_surveys import Define
from zbroker.wire.units import AskNamed, CommitUnits


def new(**more: Any) -> Bench:
    """A process that no journal has welcomed yet."""
    return Bench(work(), welcome=False, **more)


def welcome(at: Bench, journal: int = JOURNAL) -> list[Effect]:
    extent = at.log_start, at.persisted, at.persisted
    said = Welcome(journal, PROCESS, *HERE, 0, "disk", *extent, [], at.generations)
    return list(at.core.handle(said, at.now))


def tick(at: Bench, ms: int = 0) -> list[Effect]:
    at.now = replace(at.now, mono_ms=at.now.mono_ms + ms)
    return list(at.core.tick(at.now, drained=True))


def said(effects: list[Effect], kind: type) -> list[Any]:
    return [
        one.message for one in effects if isinstance(one, Say) and isinstance(one.message, kind)
    ]


def of(effects: list[Effect], *kinds: type) -> list[type]:
    return [type(one) for one in effects if isinstance(one, kinds)]


def test_hello_is_what_a_new_process_says_first() -> None:
    first, second, *_ = tick(new())
    assert first == Reconnect("journal")
    assert second == Say("journal", Hello("queues", PROCESS, number=1))


def test_a_new_journal_may_have_other_bytes_and_is_asked_what_is_defined() -> None:
    at = new()
    assert of(welcome(at), ForgetBlocks, Reconnect) == [ForgetBlocks, Reconnect]
    assert said(tick(at), AskNamed) == [AskNamed(0, JOURNAL)]
    assert welcome(at) == [], "it welcomed this process before"
    assert of(welcome(at, JOURNAL + 1), ForgetBlocks) == [ForgetBlocks]


def test_messages_of_a_generation_that_clients_do_not_know_name_it() -> None:
    """It began between the Welcome and the answer with the definitions, and clients were told the
    one before: places of a vector would be of another origin than at other instances."""
    at = new()
    welcome(at)
    at.origin = HERE._replace(generation=HERE.generation + 1)
    at.raised.append((at.origin.generation, at.position))
    at.core.handle(at._watermarks(), at.now)
    [load] = at.core.handle(at.named(AskNamed(0, JOURNAL)), at.now)
    assert isinstance(load, Load)
    assert (load.here, load.announced) == (at.origin, HERE)


def test_queues_begin_when_their_tables_are_loaded() -> None:
    at = new()
    welcome(at)
    assert at.core.handle(at.named(AskNamed(0, JOURNAL)), at.now) == [
        Load(HERE, at.persisted, at.manager.history, HERE)
    ]
    assert not at.manager.known
    assert of(tick(at), Ready, Progress) == [Progress]
    assert at.core.handle(TablesLoaded({}), at.now) == ()
    assert at.manager.known
    at.run()
    assert of(tick(at), Ready, Progress) == [], "it was said"


def test_a_queue_of_the_config_is_made_before_the_process_is_ready() -> None:
    """Or retention could remove messages that belong to it, as no queue holds them yet."""
    at = new()
    welcome(at)
    at.core.handle(at.named(AskNamed(0, JOURNAL)), at.now)
    at.core.handle(TablesLoaded({}), at.now)
    effects = tick(at)
    assert not at.manager.running, "its definition is on its way into the log"
    assert of(effects, Ready, Progress) == [Progress]
    assert [one.lowest for one in said(effects, Holds)] == [0], "all of the log"


def test_the_journal_hears_nothing_before_the_queues_are_known() -> None:
    at = new()
    welcome(at)
    assert said(tick(at, 10 * HOLDS_MS), Holds) == []


def test_the_journal_hears_on_each_beat_what_is_needed_and_confirmed() -> None:
    at = bench()
    assert said(tick(at, HOLDS_MS - 1), Holds) == []
    effects = tick(at, 1)
    [holds], [confirm] = said(effects, Holds), said(effects, Confirm)
    assert (holds.incarnation, holds.log_start) == (JOURNAL, at.log_start)
    assert confirm == Confirm(JOURNAL, at.manager.commits.confirmed)
    assert said(tick(at), Holds) == []


def test_the_journal_hears_at_once_that_the_new_log_start_is_known() -> None:
    at = bench()
    at.many(3)
    at.log_start = 2
    at.turn.hear(at._watermarks())
    effects = tick(at)
    assert [one.log_start for one in said(effects, Holds)] == [2]
    assert [one for one in effects if isinstance(one, ListSegments)] == [ListSegments(let_go=True)]


def test_all_of_the_log_is_needed_before_the_definition_of_a_new_queue_leaves() -> None:
    """It may begin anywhere; what is needed without it was said up to a beat ago."""
    at = Bench()
    at.many(3)
    at.core.handle(Asked(b"admin", Define(1, "create", "q", {"topic": "t"})), at.now)
    journal = [one.message for one in tick(at) if isinstance(one, Say)]
    [needs] = [one for one in journal if isinstance(one, Holds)]
    [commit] = [one for one in journal if isinstance(one, CommitUnits)]
    assert needs.lowest == 0
    assert journal.index(needs) < journal.index(commit)


def test_files_are_let_go_from_time_to_time() -> None:
    at = bench()
    tick(at, LET_GO_MS)
    found = [one for one in tick(at, HOLDS_MS) if isinstance(one, ListSegments)]
    assert found == [ListSegments(let_go=False)]
    found = [one for one in tick(at, LET_GO_MS) if isinstance(one, ListSegments)]
    assert found == [ListSegments(let_go=True)]


SEGMENT = 100  # bytes of each


def _filled(max_hold: int, segments: int = 5) -> tuple[Bench, list[Extent]]:
    """Each segment has a message of the queue and nine of another topic."""
    at, log = bench(replayable(max_hold=max_hold)), []
    for _ in range(segments):
        log.append(Extent(at.position, SEGMENT))
        at.many(1)
        at.many(9, topic="other")
    return at, log


def _release(at: Bench, log: list[Extent]) -> None:
    at.turn.hear(Segments(log))
    at.run()


def _here(at: Bench) -> list[int]:
    return list(at.manager.running["q"].queue.here)


def _purges(at: Bench) -> list[str]:
    return [PURGE.decode(one.body).vector for one in at.log if one.kind == KIND_PURGE]


@pytest.mark.seed("003-34")
@pytest.mark.parametrize(
    ("max_hold", "kept"), [(500, 5), (499, 4), (300, 3), (299, 2), (100, 1), (1, 1)]
)
def test_a_queue_lets_go_of_whole_segments_up_to_its_bound(max_hold: int, kept: int) -> None:
    at, log = _filled(max_hold)
    _release(at, log)
    assert _here(at) == [extent.first for extent in log[-kept:]]
    held = at.holds(0)
    assert held.lowest == log[-kept].first, "the journal may remove what was let go"


def test_without_a_bound_nothing_goes() -> None:
    at, log = _filled(0)
    _release(at, log)
    assert len(_here(at)) == 5
    assert not _purges(at)


def test_a_queue_from_the_tables_needs_the_log_before_anything_is_done_with_it() -> None:
    """Told at once, since a journal that heard of no need may remove segments."""
    at = bench(work())
    oldest = at.many(3)[0]
    saved = Snapshots().take(at.manager).many
    needed, said = [], at._said

    def said_now(effect: Say) -> Any:
        if isinstance(effect.message, Holds):
            needed.append(effect.message.lowest)
        return said(effect)

    at._said = said_now  # type: ignore[method-assign]
    at.restart(saved)
    assert needed[0] == oldest


def test_what_other_topics_wrote_counts() -> None:
    at = bench(replayable(max_hold=200))
    first = at.position
    at.many(1)
    log = [Extent(first, SEGMENT)]
    for _ in range(2):
        log.append(Extent(at.position, SEGMENT))
        at.many(10, topic="other")
    _release(at, log)
    assert _here(at) == []
    assert at.holds(0).lowest == at.position


def test_it_is_an_ordinary_purge_and_written_once() -> None:
    at, log = _filled(300)
    at.holding = True
    _release(at, log)
    _release(at, log)  # it is on its way
    at.land()
    _release(at, log)
    assert _purges(at) == [format_vector({HERE: log[2].first - 1})]
    [note] = [note for note in at.notes if note.name == "queues.released"]
    assert "2 messages" in note.text
    at.consume(since=at.bookmark(log[0].first))
    assert at.last().code == "bookmark_expired"
    at.consume(since=EPOCH)
    assert at.got() == [extent.first for extent in log[2:]]


def test_a_consumer_that_was_to_get_some_of_it_is_ended() -> None:
    at, log = _filled(300)
    at.consume(since=EPOCH, credit=0)
    _release(at, log)
    assert at.last().code == "bookmark_expired"


def test_it_goes_on_as_the_log_grows() -> None:
    at, log = _filled(300)
    _release(at, log)
    log.append(Extent(at.position, SEGMENT))
    more = at.many(1)
    _release(at, log)
    assert _here(at) == [log[3].first, log[4].first, *more]
    assert len(_purges(at)) == 2


def test_what_was_let_go_stays_gone_after_a_restart() -> None:
    at, log = _filled(300)
    saved = Snapshots().take(at.manager).many
    _release(at, log)
    left = _here(at)
    at.restart(saved)
    assert _here(at) == left
    at.restart()
    assert _here(at) == left


def test_a_purge_that_was_refused_is_tried_again() -> None:
    at, log = _filled(300)
    at.holding = True
    _release(at, log)
    at.refuse("too_large")
    assert len(_here(at)) == 5
    assert [note.name for note in at.notes if "release" in note.name] == ["queues.release_refused"]
    _release(at, log)
    at.land()
    assert len(_here(at)) == 3


def test_other_queues_keep_what_is_theirs() -> None:
    at = bench(replayable(max_hold=100), replayable("all"), work("work"))
    log = []
    for _ in range(3):
        log.append(Extent(at.position, SEGMENT))
        at.many(10)
    _release(at, log)
    assert len(_here(at)) == 10
    assert len(at.manager.running["all"].queue.here) == 30
    assert len(at.manager.running["work"].queue.here) == 30


def test_a_bound_may_change() -> None:
    at, log = bench(), []
    assert at.ask(Define(1, "create", "r", {"kind": "replayable", "topic": "x"})).code == ""
    for _ in range(3):
        log.append(Extent(at.position, SEGMENT))
        at.many(1, topic="x")
    _release(at, log)
    assert len(at.manager.running["r"].queue.here) == 3
    assert at.ask(Define(2, "alter", "r", {"max_hold": SEGMENT})).code == ""
    _release(at, log)
    assert list(at.manager.running["r"].queue.here) == [log[2].first]
