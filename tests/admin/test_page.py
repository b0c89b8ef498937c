"""docs/reference/admin.md says what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.admin import (
    test_branches,
    test_client_reports,
    test_link_reports,
    test_queues,
    test_topics,
)
from tests.admin.link_rows import link
from tests.admin.queue_rows import row
from zbroker.admin import core, metrics
from zbroker.admin.alarms import COUNTERS as ALARM_COUNTERS
from zbroker.admin.audit_format import AuditEntry
from zbroker.admin.link_alarms import LinkObservation
from zbroker.admin.rates import SERIES

PAGE = Path(__file__).parents[2].joinpath("docs/reference/admin.md").read_text()
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)]


def example(key: str) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [each for each in EXAMPLES if key in each]
    return found


GETS = [core.HEALTH, *core.READS, "/queues/NAME", *(f"/queues/NAME/{w}" for w in core.QUEUE_READS)]
POSTS = [
    *core.WRITES, *(f"/queues/NAME/{what}" for what in core.QUEUE_WRITES), *core.LINK_PATHS
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path"), [*(("GET", path) for path in GETS), *(("POST", path) for path in POSTS)]
)
def test_every_path_has_a_row(method: str, path: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{method} /")]
    assert any(f"`{path}`" in row or f"`{method} {path}`" in row for row in rows)


@pytest.mark.parametrize("code", sorted(core.REFUSED))
def test_every_refusal_has_a_row(code: str) -> None:
    assert re.search(rf"^\| 40\d \| `{code}` \|", PAGE, re.MULTILINE)


def test_examples_have_the_keys_that_are_reported() -> None:
    assert set(example("recorded")) == test_topics.KEYS
    assert set(example("door")) == test_client_reports.KEYS
    assert list(example("series")["series"]) == [*SERIES]
    assert set(example("oldest_s")) == test_queues.QUEUE_KEYS
    assert set(example("oldest_s")["rates"]) == test_queues.RATE_KEYS
    assert set(example("on_the_way_bytes")) == test_link_reports.KEYS
    assert set(example("xid")) == set(test_branches.KEYS)
    assert list(example("outcome")) == [*AuditEntry.__struct_encode_fields__]


def test_every_metric_has_a_row() -> None:
    processes: dict[str, dict[str, Any]] = {
        "journal": dict.fromkeys(
            [key for _, key, _ in (*metrics.JOURNAL_COUNTERS, *metrics.JOURNAL_GAUGES)], 1
        )
        | {"sync_ms": 1, "branches_prepared": 0, "branches_decided": 0, "branches_since_s": 0},
        "ingest": {
            key: 1 for _, key, _ in (*metrics.COUNTERS["ingest"], *metrics.GAUGES["ingest"])
        },
        "delivery": {
            key: 1 for _, key, _ in (*metrics.COUNTERS["delivery"], *metrics.GAUGES["delivery"])
        },
    }
    status = {"state": "ready", "alarms": [], "security": {}, "processes": []}
    links = LinkObservation([link()], missing={"00000000000000a0.1": 1})
    reported = metrics.text(processes, status, {}, [row()], links=links).decode()
    names = {line.split()[2] for line in reported.splitlines() if line.startswith("# TYPE")}
    rows = set(re.findall(r"^\| `(zbroker_\w+)[{`]", PAGE, re.MULTILINE))
    assert rows == names


LINK_ALARMS = (
    "sync_unreachable", "origin_stopped", "link_downgraded", "link_down", "link_paused", "link_lag",
)  # fmt: skip


@pytest.mark.parametrize("key", sorted(test_link_reports.SUMMARY_KEYS))
def test_a_number_of_all_links_is_named(key: str) -> None:
    [said] = re.findall(r"`replication` of `/status` is .*\n.*\n", PAGE)
    assert f"`{key}`" in said


@pytest.mark.parametrize(
    "state", ["down", "greeting", "finding", "sending", "paused", "opening", "receiving"]
)
def test_a_state_of_a_link_has_a_row(state: str) -> None:
    assert f"| `{state}` |" in PAGE


@pytest.mark.parametrize(
    "code",
    [*ALARM_COUNTERS, *LINK_ALARMS, "queue_size", "queue_idle", "queue_elsewhere", "dead_letters"],
)
def test_an_alarm_has_a_row(code: str) -> None:
    assert f"| `{code}` |" in PAGE
