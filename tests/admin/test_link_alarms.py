"""zbroker/admin/link_alarms.py: what is wrong with links to other instances."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.link_rows import link
from zbroker.admin.alarms import NAMED_MAX
from zbroker.admin.link_alarms import GRACE_MS, NO_LINKS, LinkObservation, is_up, link_findings
from zbroker.wire.replicas import ReplicationRow

LIMIT = 1_000
SYNC = link("b")
ASYNC = link("c", mode="async")
DOWN = link("b", state="down", lag=9)
GONE = link("c", state="down", mode="async", lag=9)
PAUSED = link("b", state="paused", paused=True, lag=9)
WEAK = link("b", downgraded=True)


@pytest.mark.parametrize(
    ("row", "open_generations", "expected"),
    [
        (link("b", unanswered=True), 31, []),
        (link("b", unanswered=True), 32, ["generations_open"]),
        (link("b", unanswered=True, forgotten=True), 32, []),
        (link("b"), 32, []),
    ],
)
def test_generations_that_wait_for_a_host_name_it(
    row: ReplicationRow, open_generations: int, expected: list[str]
) -> None:
    found = link_findings(seen(row, open_generations=open_generations), LIMIT)
    assert [one.code for one in found] == expected
    assert all("forget b" in one.next for one in found)


def seen(*rows: ReplicationRow, needed: int | None = 1, **more: Any) -> LinkObservation:
    down = {row.name: GRACE_MS for row in rows if not is_up(row)}
    return LinkObservation(rows, needed, **{"down_ms": down, **more})


def codes(given: LinkObservation) -> list[str]:
    return [finding.code for finding in link_findings(given, LIMIT)]


def finding(given: LinkObservation, code: str) -> Any:
    (found,) = (one for one in link_findings(given, LIMIT) if one.code == code)
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (NO_LINKS, []),
        (seen(SYNC, ASYNC), []),
        (seen(link(state="finding")), []),
        (seen(DOWN), ["sync_unreachable"]),
        (seen(DOWN, down_ms={"b": GRACE_MS - 1}), []),
        (seen(link(state="greeting")), ["sync_unreachable"]),
        (seen(DOWN, link("d")), ["link_down"]),
        (seen(DOWN, link("d"), needed=2), ["sync_unreachable"]),
        (seen(DOWN, GONE), ["sync_unreachable", "link_down"]),
        (seen(GONE, needed=None), ["link_down"]),
        (seen(link(state="down", downgraded=True), needed=0), ["link_downgraded", "link_down"]),
        (seen(PAUSED), ["sync_unreachable"]),
        (seen(PAUSED, down_ms={"b": 0}), ["sync_unreachable"]),
        (seen(PAUSED, link("d")), ["link_paused"]),
        (seen(link("c", mode="async", paused=True), needed=None), ["link_paused"]),
        (seen(WEAK, needed=0), ["link_downgraded"]),
        (seen(SYNC, stopped={"b": {}}), []),
        (seen(SYNC, stopped={"b": {"a.1": "fork"}}), ["origin_stopped"]),
        (seen(SYNC, log_bytes={"b": LIMIT}), []),
        (seen(SYNC, log_bytes={"b": LIMIT + 1}), ["link_lag"]),
    ],
)
def test_the_table_of_alarms_for_links(given: LinkObservation, expected: list[str]) -> None:
    assert codes(given) == expected


def test_every_alarm_says_what_it_means_and_what_to_do_for_links() -> None:
    all_of_them = [
        *link_findings(
            seen(DOWN, GONE, link("d", downgraded=True), needed=2, log_bytes={"b": LIMIT + 1},
                 stopped={"b": {"a.1": "fork", "a.2": "gap", "c.1": "disk_full"}}), LIMIT
        ),
        *link_findings(seen(PAUSED, needed=0), LIMIT),
    ]  # fmt: skip
    assert [one.code for one in all_of_them] == [
        "sync_unreachable", "origin_stopped", "link_downgraded", "link_down", "link_lag",
        "link_paused",
    ]  # fmt: skip
    assert all(one.what and one.means and one.next for one in all_of_them)


def test_a_synchronous_destination_that_is_away_says_that_publishers_wait() -> None:
    found = finding(seen(DOWN), "sync_unreachable")
    assert found.what == (
        "acknowledgements wait for 1 synchronous destination, and 0 can be reached: no link to b "
        "for 10 s"
    )
    assert found.means.startswith("publishers wait")
    assert "zbroker-admin replication downgrade b" in found.next


def test_a_refusal_is_part_of_why_a_link_is_down() -> None:
    row = link("c", state="down", mode="async", problem="another protocol")
    found = finding(seen(row, needed=None), "link_down")
    assert found.what == "no link to c for 10 s, problem: another protocol"


@pytest.mark.parametrize(
    ("row", "what", "then"),
    [
        (link(downgraded=True), "it lagged for longer than its downgrade_after", "by itself"),
        (link(downgraded=True, by_hand=True), "b is downgraded by hand", "replication upgrade b"),
    ],
)
def test_a_downgrade_says_how_it_ends(row: ReplicationRow, what: str, then: str) -> None:
    found = finding(seen(row, needed=0), "link_downgraded")
    assert what in found.what
    assert then in found.next
    assert "wait for no synchronous destinations" in found.means


def test_a_stopped_origin_says_why_and_what_to_do() -> None:
    fork = finding(seen(SYNC, stopped={"b": {"a.1": "fork"}}), "origin_stopped")
    assert fork.what == "origin a.1 is not sent to b: fork"
    assert "keep both data directories" in fork.next
    gap = finding(seen(SYNC, stopped={"b": {"a.1": "gap"}}), "origin_stopped")
    assert "journal verify" in gap.next
    other = finding(seen(SYNC, stopped={"b": {"a.1": "disk_full"}}), "origin_stopped")
    assert "replication.record_refused" in other.next


def test_the_link_that_lacks_most_is_named_first() -> None:
    rows = [link(f"b{n}", mark=n) for n in range(NAMED_MAX + 2)]
    needs = {row.name: LIMIT + 1 + row.mark for row in rows}
    found = finding(seen(*rows, log_bytes=needs), "link_lag")
    named = found.what.split("; ")
    assert [text.split()[0] for text in named] == ["b4", "b3", "b2", "and"]
    assert named[0] == "b4 lacks 1005 bytes of the log, from position 4 on"
