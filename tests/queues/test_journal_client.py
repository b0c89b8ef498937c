"""zbroker/queues/journal_client.py: what the journal says, and what it is told."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.queues.bench import HERE, JOURNAL, ROOM, Bench, bench, work
from zbroker.engine.effects import ForgetBlocks, Progress, Ready, Reconnect, Say
from zbroker.queues.effects import Effect, ListSegments, Load
from zbroker.queues.events import TablesLoaded
from zbroker.queues.journal_client import HOLDS_MS, LET_GO_MS
from zbroker.wire.internal import Confirm, Hello, Holds, Welcome
from zbroker.wire.units import AskNamed


def new(**more: Any) -> Bench:
    """A process that no journal has welcomed yet."""
    return Bench(work(), welcome=False, **more)


def welcome(at: Bench, journal: int = JOURNAL) -> list[Effect]:
    said = Welcome(journal, ROOM, *HERE, 0, "disk", at.floor, at.persisted, at.persisted)
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
    assert second == Say("journal", Hello("queues", ROOM, number=1))


def test_a_new_journal_may_have_other_bytes_and_is_asked_what_is_defined() -> None:
    at = new()
    assert of(welcome(at), ForgetBlocks, Reconnect) == [ForgetBlocks, Reconnect]
    assert said(tick(at), AskNamed) == [AskNamed(0, JOURNAL)]
    assert welcome(at) == [], "it welcomed this process before"
    assert of(welcome(at, JOURNAL + 1), ForgetBlocks) == [ForgetBlocks]


def test_queues_begin_when_their_tables_are_loaded() -> None:
    at = new()
    welcome(at)
    assert at.core.handle(at.named(AskNamed(0, JOURNAL)), at.now) == [Load(HERE, at.persisted)]
    assert not at.manager.known
    assert of(tick(at), Ready, Progress) == [Progress]
    assert at.core.handle(TablesLoaded({}), at.now) == ()
    assert at.manager.known
    at.run()
    assert of(tick(at), Ready, Progress) == [], "it was said"


def test_the_journal_hears_nothing_before_the_queues_are_known() -> None:
    at = new()
    welcome(at)
    assert said(tick(at, 10 * HOLDS_MS), Holds) == []


def test_the_journal_hears_on_each_beat_what_is_needed_and_confirmed() -> None:
    at = bench()
    assert said(tick(at, HOLDS_MS - 1), Holds) == []
    effects = tick(at, 1)
    [holds], [confirm] = said(effects, Holds), said(effects, Confirm)
    assert (holds.incarnation, holds.floor) == (JOURNAL, at.floor)
    assert confirm == Confirm(JOURNAL, at.manager.commits.confirmed)
    assert said(tick(at), Holds) == []


def test_the_journal_hears_at_once_that_the_new_log_start_is_known() -> None:
    at = bench()
    at.many(3)
    at.floor = 2
    at.turn.hear(at._marks())
    effects = tick(at)
    assert [one.floor for one in said(effects, Holds)] == [2]
    assert [one for one in effects if isinstance(one, ListSegments)] == [ListSegments(let_go=True)]


def test_files_are_let_go_from_time_to_time() -> None:
    at = bench()
    tick(at, LET_GO_MS)
    found = [one for one in tick(at, HOLDS_MS) if isinstance(one, ListSegments)]
    assert found == [ListSegments(let_go=False)]
    found = [one for one in tick(at, LET_GO_MS) if isinstance(one, ListSegments)]
    assert found == [ListSegments(let_go=True)]
