"""zbroker/admin/metrics.py: what Prometheus reads."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.admin.link_rows import link
from tests.admin.queue_rows import SECOND_NS, row
from zbroker.admin import metrics
from zbroker.admin.link_alarms import LinkObservation
from zbroker.wire.queue_surveys import QueueCounters, QueueRow

STATUS = {
    "state": "ready",
    "alarms": [{"code": "disk_80"}],
    "security": {"on": True, "access_version": 1, "problem": ""},
    "processes": [
        {"room": "supervisor", "state": "ready", "restarts": 0, "uptime_s": 9},
        {"room": "journal", "state": "starting", "restarts": 2, "uptime_s": 1},
    ],
}
STATS: dict[str, dict[str, Any]] = {
    "supervisor": {},
    "journal": {
        "persisted": 90, "bytes": 1_000, "bytes_written": 70, "sync_ms": 1.5, "durability": "disk",
        "refused": 3,
    },
    "ingest": {"messages": 40, "clients": 3, "errors": 9, "error_too_large": 2, "error_zzz": 1,
               "error_yyy": 1, "refused_keys": 5, "cut_silent": 6, "connections": 4},
    "delivery": {"messages_out": 7, "clients": 1, "subscriptions": 2, "lag_max": 11},
    "delivery-2": {"messages_out": 8, "clients": 2, "subscriptions": 1, "lag_max": 4},
}  # fmt: skip
BOUNDED = {"room", "door", "code", "state", "queue", "link", "origin"}

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(processes: dict[str, dict[str, Any]] = STATS, **status: Any) -> Found:
    return samples(metrics.text(processes, STATUS | status, {"forbidden": 4}))


def of_queues(*rows: QueueRow) -> Found:
    return samples(metrics.text({}, STATUS, {}, rows, 100 * SECOND_NS))


def samples(reported: bytes) -> Found:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reported.decode())
        for sample in family.samples
    }


def one(found: Found, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_numbers_of_listeners_are_reported_by_process() -> None:
    found = read()
    assert one(found, "zbroker_messages_in_total", room="ingest") == 40
    assert one(found, "zbroker_messages_out_total", room="delivery-2") == 8
    assert one(found, "zbroker_clients", room="ingest") == 3
    assert one(found, "zbroker_subscriptions", room="delivery") == 2
    assert one(found, "zbroker_lag_max_messages", room="delivery") == 11


def test_numbers_of_the_log() -> None:
    found = read()
    assert one(found, "zbroker_log_persisted_position") == 90
    assert one(found, "zbroker_log_bytes") == 1_000
    assert one(found, "zbroker_written_bytes_total") == 70
    assert one(found, "zbroker_sync_seconds") == 0.0015


def test_refusals_are_reported_by_code() -> None:
    found = read()
    assert one(found, "zbroker_errors_total", door="ingest", code="too_large") == 2
    assert one(found, "zbroker_refused_total", door="ingest", code="keys") == 5
    assert one(found, "zbroker_cut_total", door="ingest", code="silent") == 6
    assert one(found, "zbroker_http_refused_total", code="forbidden") == 4


def test_a_code_that_is_none_of_ours_is_no_label() -> None:
    assert one(read(), "zbroker_errors_total", door="ingest", code="other") == 2


def test_states_and_alarms() -> None:
    found = read()
    assert one(found, "zbroker_state", state="ready") == 1
    assert one(found, "zbroker_state", state="starting") == 0
    assert one(found, "zbroker_room_ready", room="journal") == 0
    assert one(found, "zbroker_room_restarts", room="journal") == 2
    assert one(found, "zbroker_alarm", code="disk_80") == 1
    assert one(read(state="failing"), "zbroker_state", state="other") == 1


def test_a_broken_access_file_is_reported() -> None:
    assert one(read(), "zbroker_access_file_problem") == 0
    broken = {"on": True, "access_version": 1, "problem": "line 3"}
    assert one(read(security=broken), "zbroker_access_file_problem") == 1


def test_what_grows_is_a_counter() -> None:
    text = metrics.text(STATS, STATUS, {}).decode()
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert types["zbroker_messages_in"] == "counter"
    assert types["zbroker_written_bytes"] == "counter"
    assert types["zbroker_clients"] == "gauge"
    assert set(types.values()) == {"counter", "gauge"}


@pytest.mark.parametrize("processes", [STATS, {}, {"ingest": {"messages": "?"}}])
def test_labels_are_bounded(processes: dict[str, dict[str, Any]]) -> None:
    found = read(processes)
    assert {label for _, labels in found for label, _ in labels} <= BOUNDED
    assert all(name.startswith("zbroker_") for name, _ in found)


def test_queues_are_reported_by_name() -> None:
    one_row = row("work", depth=5, ready=2, leased=3, acked=9, bytes=70, oldest_ns=97 * SECOND_NS)
    found = of_queues(one_row, row('o"d\\d\n', dead=2))
    assert one(found, "zbroker_queues") == 2
    assert one(found, "zbroker_queue_depth", queue="work") == 5
    assert one(found, "zbroker_queue_leased", queue="work") == 3
    assert one(found, "zbroker_queue_acked_total", queue="work") == 9
    assert one(found, "zbroker_queue_log_bytes", queue="work") == 70
    assert one(found, "zbroker_queue_oldest_seconds", queue="work") == 3
    assert one(found, "zbroker_queue_dead_total", queue='o"d\\d\n') == 2
    assert one(found, "zbroker_queue_oldest_seconds", queue='o"d\\d\n') == 0
    assert {label for _, labels in found for label, _ in labels} <= BOUNDED


def test_without_queues_only_their_number_is_reported() -> None:
    assert [name for name, _ in of_queues() if name.startswith("zbroker_queue")] == [
        "zbroker_queues"
    ]


def test_queues_with_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "QUEUES_MAX", 2)
    found = of_queues(*(row(name) for name in "cab"))
    reported = {dict(labels)["queue"] for name, labels in found if name == "zbroker_queue_depth"}
    assert (reported, one(found, "zbroker_queues")) == ({"a", "b"}, 3)


def test_the_listener_of_queues_tells_its_peers() -> None:
    found = read({"queues": {"clients": 2, "connections": 3, "error_unknown_queue": 4}})
    assert one(found, "zbroker_clients", room="queues") == 2
    assert one(found, "zbroker_connections", room="queues") == 3
    assert one(found, "zbroker_errors_total", door="queues", code="unknown_queue") == 4


def test_every_counter_of_a_queue_is_a_metric() -> None:
    assert {name for _, name, _ in metrics.QUEUE_COUNTERS} == set(QueueCounters.__struct_fields__)


def test_links_are_reported_by_destination() -> None:
    rows = [
        link("b", lag=7, on_the_way_bytes=70, downgraded=True),
        link("c", state="paused", paused=True, stopped={"a.1": "fork", "a.2": "gap"}),
    ]
    seen = LinkObservation(rows, 1, log_bytes={"b": 500})
    found = samples(metrics.text({}, STATUS, {}, links=seen))
    for name, of_b, of_c in (
        ("up", 1, 0), ("lag", 7, 0), ("on_the_way_bytes", 70, 0), ("paused", 0, 1),
        ("downgraded", 1, 0), ("stopped_origins", 0, 2), ("log_bytes", 500, 0),
    ):  # fmt: skip
        assert one(found, f"zbroker_replication_{name}", link="b") == of_b
        assert one(found, f"zbroker_replication_{name}", link="c") == of_c
    assert {label for _, labels in found for label, _ in labels} <= BOUNDED


def test_distributed_transactions_are_counted_by_state() -> None:
    def shown(prepared: int, since_s: int) -> Found:
        numbers = {
            "branches_prepared": prepared,
            "branches_decided": 2,
            "branches_since_s": since_s,
        }
        numbers["branches_since_s"] = since_s
        reported = metrics.text({"journal": numbers}, STATUS, {}, now_ns=100 * SECOND_NS)
        return samples(reported)

    found = shown(3, 40)
    assert one(found, "zbroker_branches", state="prepared") == 3
    assert one(found, "zbroker_branches", state="decided") == 2
    assert one(found, "zbroker_branch_oldest_seconds") == 60
    assert one(shown(0, 0), "zbroker_branch_oldest_seconds") == 0
    assert one(shown(1, 101), "zbroker_branch_oldest_seconds") == 0, "a clock was set back"


def test_missing_ranges_are_counted_by_origin_also_without_destinations() -> None:
    missing = {f"a.{n}": n for n in range(1, metrics.ORIGINS_MAX + 3)}
    found = samples(metrics.text({}, STATUS, {}, links=LinkObservation(missing=missing)))
    shown = {key: n for key, n in found.items() if key[0].endswith("origin_missing_ranges")}
    assert len(shown) == metrics.ORIGINS_MAX
    assert min(shown.values()) == 3, "those that have most"
    assert one(found, "zbroker_replication_missing_ranges") == sum(missing.values())
    assert {label for _, labels in found for label, _ in labels} <= BOUNDED


def test_without_links_there_are_no_metrics_of_them() -> None:
    assert not [name for name, _ in read() if name.startswith("zbroker_replication")]
