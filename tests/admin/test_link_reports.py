"""/replication: what its process reports, as JSON; what it is asked to change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admin.link_rows import FakeReplication, link, source
from tests.admin.queue_rows import Clock
from zbroker.admin.link_alarms import GRACE_MS, NO_LINKS
from zbroker.admin.link_reports import SEGMENTS_MS, STALE_MS, LinkReports, LinkWatch
from zbroker.admin.retention import Copy, SegmentView
from zbroker.config.replication import DestinationConfig
from zbroker.errors import Bug, ClientError, StorageError
from zbroker.limits import U63_MAX
from zbroker.wire.replicas import ChangeLink, LinkChanged, MissingRange
from zbroker.wire.replication import OriginPosition

KEYS = {
    "name", "direction", "state", "instance", "to", "mode", "paused", "downgraded", "by_hand",
    "unanswered", "forgotten",
    "mark", "lag", "on_the_way_bytes", "log_bytes", "stopped", "problem",
    "address", "topics", "filter",
}  # fmt: skip
SUMMARY_KEYS = {
    "destinations", "up", "sources", "lag", "paused", "downgraded", "stopped", "needed",
    "open_generations",
}  # fmt: skip
TO = ["tcp://10.0.0.2:9104"]
RAW = Copy(archived=False, packed=False, bytes=100)
SEGMENTS = [
    SegmentView(1, (RAW,), 100, end=11, first=1),
    SegmentView(2, (RAW,), 100, end=41, first=11),
    SegmentView(3, (RAW,), 100, end=71, first=41),
    SegmentView(4, (RAW,), 100, first=71, is_open=True),
]


class Bench:
    def __init__(self, *rows: Any, on: bool = True) -> None:
        self.process = FakeReplication(*rows, on=on)
        self.clock = Clock()
        self.looks = 0
        self.broken = False
        self.watch = LinkWatch(self.process.link, self.clock, self._segments)
        destinations = [DestinationConfig("b", TO, mode="sync"), DestinationConfig("c", TO)]
        self.links = LinkReports(self.process.link, self.watch, destinations if on else [])

    def _segments(self) -> list[SegmentView]:
        self.looks += 1
        if self.broken:
            raise StorageError("disk_error", "it cannot be read")
        return SEGMENTS

    def all(self) -> dict[str, Any]:
        found = self.links.all()
        assert json.loads(json.dumps(found)) == found
        return found

    def look(self, ms: int = 0) -> None:
        """A second goes by, or another time."""
        self.clock.ms += ms
        self.watch.look()

    def post(self, what: str, name: str = "b", **body: object) -> dict[str, Any]:
        return self.links.post(name, what, json.dumps(body).encode())


# -- what is --------------------------------------------------------------------------------------


def test_links_are_reported_destinations_first() -> None:
    found = Bench(source(), link("c", mode="async"), link()).all()
    assert [(one["direction"], one["name"]) for one in found["links"]] == [
        ("out", "b"), ("out", "c"), ("in", "b"),
    ]  # fmt: skip
    assert all(set(one) == KEYS for one in found["links"])
    assert (found["replicates"], found["persisted"]) == (True, 90)
    assert (found["needed"], found["through"]) == (1, 90)
    assert found["origins"] == [
        {"origin": "000000000000000a.5", "position": 89, "topics": "", "since": 0},
        {"origin": "000000000000000b.6", "position": 40, "topics": "", "since": 0},
    ]


def test_what_older_topics_left_out_is_missing() -> None:
    changed = OriginPosition(11, 6, 40, 7, begins=21)
    state = OriginPosition(12, 6, 40, 0, begins=31)
    bench = Bench(link(topics=["orders"], filter="/n > 1"))
    bench.process.origins = [changed, state]
    bench.process.ranges = [MissingRange(12, 6, 1, 30, "state")]
    found = bench.all()
    assert (found["links"][0]["topics"], found["links"][0]["filter"]) == (["orders"], "/n > 1")
    assert found["origins"][0]["topics"] == "0000000000000007"
    assert [(row["origin"][-3:], row["last"], row["why"]) for row in found["missing"]] == [
        ("c.6", 30, "state"), ("b.6", 20, "topics"),
    ]  # fmt: skip


def test_a_link_says_where_it_goes() -> None:
    row = source(address="10.0.0.2:40112", lag=7)
    first, second = Bench(link(), row).all()["links"]
    assert (first["to"], first["instance"], first["address"]) == (TO, "000000000000000b", None)
    assert (second["to"], second["mark"], second["on_the_way_bytes"]) == ([], None, None)
    assert (second["address"], second["lag"]) == ("10.0.0.2:40112", 7)


def test_a_destination_that_never_answered_has_no_instance() -> None:
    (found,) = Bench(link(state="down", instance=0)).all()["links"]
    assert found["instance"] == ""


def test_nothing_is_waited_for_without_a_position() -> None:
    bench = Bench(link())
    bench.process.needed, bench.process.through = 0, U63_MAX
    assert (bench.all()["needed"], bench.all()["through"]) == (0, None)
    bench.process.needed = None
    assert (bench.all()["needed"], bench.all()["through"]) == (None, None)


def test_an_instance_that_does_not_replicate_has_no_links() -> None:
    bench = Bench(on=False)
    found = bench.all()
    assert (found["replicates"], found["links"], found["needed"]) == (False, [], None)
    assert bench.links.summary() == {}
    bench.look()
    assert bench.watch.seen().rows == []
    assert bench.process.asked == []
    with pytest.raises(ClientError, match="does not replicate") as caught:
        bench.post("pause")
    assert caught.value.code == "not_found"


def test_a_silent_process_is_not_ready() -> None:
    bench = Bench()
    bench.process.silent = True
    for ask in (bench.all, lambda: bench.post("pause")):
        with pytest.raises(ClientError) as caught:
            ask()
        assert caught.value.code == "not_ready"


def test_a_query_is_refused() -> None:
    with pytest.raises(ClientError, match="bad_field"):
        Bench().links.all("name=b")


# -- what is kept of the log ----------------------------------------------------------------------


@pytest.mark.parametrize(("mark", "kept"), [(1, 300), (10, 300), (11, 200), (41, 100), (71, 0)])
def test_sealed_segments_from_the_mark_on_are_kept(mark: int, kept: int) -> None:
    bench = Bench(link(mark=mark, lag=90 - mark))
    bench.look()
    (found,) = bench.all()["links"]
    assert found["log_bytes"] == kept


def test_segments_are_not_looked_at_where_nothing_is_lacking() -> None:
    bench = Bench(link(), source())
    bench.look()
    assert bench.looks == 0
    assert [one["log_bytes"] for one in bench.all()["links"]] == [0, None]


def test_segments_are_looked_at_seldom() -> None:
    bench = Bench(link(mark=11, lag=79))
    for ms in (0, SEGMENTS_MS - 1, 1):
        bench.look(ms)
    assert bench.looks == 2


def test_segments_that_cannot_be_read_cost_their_number_only() -> None:
    bench = Bench(link(mark=11, lag=79))
    bench.broken = True
    bench.look()
    assert bench.watch.seen().log_bytes == {"b": 0}


# -- what is watched ------------------------------------------------------------------------------


def test_the_summary_is_of_the_last_look() -> None:
    bench = Bench(
        link(downgraded=True, lag=5),
        link("c", state="paused", paused=True, lag=7, stopped={"b.6": "fork"}), source(),
    )  # fmt: skip
    assert set(bench.links.summary()) == SUMMARY_KEYS
    assert bench.links.summary()["up"] is None
    bench.look()
    assert bench.links.summary() == {
        "destinations": 2, "up": 1, "sources": 1, "lag": 7, "paused": 1, "downgraded": 1,
        "stopped": 1, "needed": 1, "open_generations": 0,
    }  # fmt: skip


def test_missing_ranges_are_counted_by_origin() -> None:
    bench = Bench(link())
    bench.process.ranges = [
        MissingRange(0xA, 5, 1, 9, "state"), MissingRange(0xA, 5, 20, 30, "skipped"),
        MissingRange(0xB, 6, 4, 4, "skipped"),
    ]  # fmt: skip
    bench.look()
    assert bench.watch.seen().missing == {"000000000000000a.5": 2, "000000000000000b.6": 1}


def test_what_is_old_is_not_reported() -> None:
    bench = Bench(link())
    bench.look()
    bench.process.silent = True
    bench.look(STALE_MS - 1)
    assert bench.watch.seen().rows
    bench.look(1)
    assert bench.watch.seen() == NO_LINKS
    assert bench.links.summary()["up"] is None


def test_who_is_not_known_yet_is_asked_for_at_once() -> None:
    """The newest look of each second may be from before a link has greeted."""
    bench = Bench(link(instance=0))
    bench.look()
    bench.process.rows = [link(instance=0xB)]
    for instances, asked in [(set(), 1), ({0xB}, 2), ({0xB}, 2), ({0xB, 0xC}, 3)]:
        assert bench.watch.naming(instances) == bench.watch.newest()
        assert len(bench.process.asked) == asked
    bench.process.silent = True
    assert [row.instance for row in bench.watch.naming({0xC}).rows] == [0xB], "as far as is known"
    bench.clock.ms += STALE_MS
    assert bench.watch.naming({0xB}) is None


def test_a_link_is_down_since_it_was_seen_so() -> None:
    bench = Bench(link(state="down"))
    for ms in (0, 3_000, 4_000):
        bench.look(ms)
    assert bench.watch.seen().down_ms == {"b": 7_000}
    bench.process.rows = [link(state="greeting")]
    bench.look(1_000)
    assert bench.watch.seen().down_ms == {"b": 8_000}, "a Hello is no session"
    bench.process.rows = [link(state="finding")]
    bench.look()
    assert bench.watch.seen().down_ms == {}


def test_an_origin_counts_as_stopped_once_that_lasts() -> None:
    bench = Bench(link(stopped={"b.6": "disk_full"}))
    bench.look()
    for second in range(1, GRACE_MS // 1_000 + 1):
        assert bench.watch.seen().stopped == {"b": {}}
        bench.process.rows = [link(stopped={"b.6": "disk_full"} if second % 2 else {})]
        bench.look(1_000)
    assert bench.watch.seen().stopped == {"b": {"b.6": "disk_full"}}, "it is tried in between"
    bench.process.rows = [link()]
    bench.look(GRACE_MS)
    assert bench.watch.seen().stopped == {"b": {}}


# -- what shall be --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pause", "resume", "downgrade", "upgrade"])
def test_a_change_is_passed_on(what: Any) -> None:
    bench = Bench(link())
    assert bench.post(what) == {"link": "b", "dry_run": False, "text": "done"}
    assert bench.post(what, dry_run=True)["dry_run"]
    assert bench.process.asked == [ChangeLink(0, what, "b"), ChangeLink(0, what, "b", dry_run=True)]


def test_what_the_process_refuses_is_an_error() -> None:
    bench = Bench(link())
    bench.process.changed = LinkChanged(0, code="not_found", reason="there is no destination 'x'")
    with pytest.raises(ClientError, match="no destination") as caught:
        bench.post("pause", "x")
    assert caught.value.code == "not_found"


def test_a_body_with_something_else_is_refused() -> None:
    bench = Bench(link())
    with pytest.raises(ClientError, match="bad_field"):
        bench.post("pause", link="c")
    with pytest.raises(Bug):
        bench.post("fly")
    assert bench.process.asked == []
