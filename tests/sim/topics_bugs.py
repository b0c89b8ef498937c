"""Bugs of links with topics or a filter, planted in the simulated instances: a seed finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zbroker.ids import Origin
from zbroker.journal.core import JournalCore
from zbroker.link_topics import LinkTopics
from zbroker.log import records
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, STAYS, Batch
from zbroker.replication.records import Pending
from zbroker.wire.internal import Covered


def _any_row_counts(link: Any) -> None:
    """A mark counts a row of other topics."""
    link.peer.position = lambda origin, _digest: link.peer.any_position(origin)


def _passed_on_as_whole(link: Any) -> None:
    """A copy under some topics goes on over a link of all."""
    link.selection._look_at_own = lambda _origin, _held: None


def _holds_the_mark(link: Any, wanted: Callable[[Batch], bool]) -> None:
    """What did not go there holds the mark, if it is wanted by this."""
    selection = link.selection
    judged = selection.judged

    def with_more(batch: Batch) -> Any:
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        new = last > max(selection._passed.get(origin, 0), selection._holds(origin))
        sent = judged(batch)
        if new and not sent and wanted(batch):
            selection.pending.append(Pending(batch.position, origin, last))
        return sent

    selection.judged = with_more


def _unwanted_holds_the_mark(link: Any) -> None:
    _holds_the_mark(link, lambda batch: batch.kind not in STAYS and bool(batch.topics))


def _after_is_what_was_read(link: Any) -> None:
    """`after` names a record that is not wanted."""
    selection = link.selection
    passes = selection._passes

    def with_chain(batch: Batch, origin: Origin) -> None:
        passes(batch, origin)
        selection._chain[origin] = selection._passed[origin], -1

    selection._passes = with_chain


def _covered_is_what_was_read(link: Any) -> None:
    """It is said to be covered, whatever did not go there from here."""
    selection = link.selection

    def cover(found: dict[Origin, Covered], origin: Origin, last: int) -> None:
        found[origin] = Covered(*origin, link.peer.any_position(origin), last)

    selection._cover = cover


def _unwanted_content_holds_the_mark(link: Any) -> None:
    """What the topics want holds the mark, whatever the filter says of it."""
    may_want = link.selection.may_want
    _holds_the_mark(link, lambda batch: batch.kind == KIND_PUBLISH and may_want(batch))


def _ties_go(link: Any) -> None:
    """A tie goes, whatever its message is."""
    selection = link.selection
    judged = selection.judged

    def with_ties(batch: Batch) -> Any:
        content = selection._content
        selection._content = None if batch.kind == KIND_TIE else content
        sent = judged(batch)
        selection._content = content
        return sent

    selection.judged = with_ties


def _all_filters_are_one(link: Any) -> None:
    """Another filter has the same digest: nothing is declared when it changes."""
    if link.topics.filter:
        link.topics = link.selection._wants = LinkTopics(link.topics.patterns, "/some")


def _no_gap(core: JournalCore) -> None:
    """Other topics count from the beginning on."""
    replicas: Any = core.commit._replicas

    def take_under(origin: Origin, digest: int) -> None:
        seen = replicas._origins.of(origin)
        if seen.digest != digest and origin not in replicas._origins.closed:
            replicas._declare(records.OriginRecord(*origin, digest, 0, seen.position))

    replicas._take_under = take_under


def _is_here_already(core: JournalCore) -> None:
    """A record below the row of its own instance is, whatever the topics of that are."""
    judge: Any = core.commit._replicas._judge

    def unit(link: Any, unit: Any, origin: Origin, seen: Any, *, fits: bool) -> Any:
        return judge._unit(link, unit, origin, seen, fits)

    judge.unit = unit


LINKS: Final[dict[str, Callable[[Any], None]]] = {
    "a mark counts a row of other topics": _any_row_counts,
    "a copy under topics is passed on as whole": _passed_on_as_whole,
    "what is not wanted holds the mark": _unwanted_holds_the_mark,
    "after names what is not wanted": _after_is_what_was_read,
    "what did not go is covered": _covered_is_what_was_read,
    "what a filter leaves out holds the mark": _unwanted_content_holds_the_mark,
    "a tie goes without its message": _ties_go,
    "another filter begins no gap": _all_filters_are_one,
}
JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "other topics begin no gap": _no_gap,
    "what other topics left out is here already": _is_here_already,
}
ALL: Final = (*LINKS, *JOURNALS)
SEED_OF_RARE: Final = {"what other topics left out is here already": 701014}
