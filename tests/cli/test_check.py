"""`zbroker-admin check`: one verdict, in the form that is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.admins import FakeAdmin
from zbroker.cli.admin_main import main
from zbroker.cli.check import verdict
from zbroker.cli.check.verdict import (
    CRITICAL,
    OK,
    UNKNOWN,
    WARNING,
    AdminAnswers,
    HealthLimits,
    HealthVerdict,
    Reason,
    Thresholds,
    Value,
    judge,
)

STATUS: dict[str, Any] = {
    "state": "ready", "clients": 3, "subscriptions": 2, "alarms": [], "processes": [],
    "journal": {"persisted": 100, "sync_ms": 2.5, "bytes": 4096}, "rates": {"messages_in_s": 7.25},
}  # fmt: skip
SUBSCRIPTIONS = {"subscriptions": [{"lag": 50, "lag_s": 1.5}], "silent": []}
SAID = AdminAnswers(STATUS, SUBSCRIPTIONS, {"/j": 40.0})


def alarm(code: str) -> dict[str, str]:
    return {"code": code, "since": "T", "what": "w", "means": "m", "next": "n"}


# -- judging --------------------------------------------------------------------------------------


def test_an_instance_that_is_well_is_ok() -> None:
    verdict = judge(SAID, HealthLimits())
    assert (verdict.code, verdict.reasons) == (OK, ())
    assert verdict.text == "ready, 3 clients, lag 50"


@pytest.mark.parametrize(
    ("change", "limits", "code"),
    [
        ({"state": "starting"}, HealthLimits(), WARNING),
        ({"state": "degraded"}, HealthLimits(), CRITICAL),
        ({"state": "stopping"}, HealthLimits(), CRITICAL),
        ({"state": "dreaming"}, HealthLimits(), UNKNOWN),
        ({"alarms": [alarm("disk_80")]}, HealthLimits(), WARNING),
        ({"alarms": [alarm("queue_holds")]}, HealthLimits(), WARNING),
        ({"alarms": [alarm("disk_full")]}, HealthLimits(), CRITICAL),
        ({"alarms": [alarm("access_file")]}, HealthLimits(), CRITICAL),
        ({"alarms": [alarm("link_down")]}, HealthLimits(), WARNING),
        ({"alarms": [alarm("sync_unreachable")]}, HealthLimits(), CRITICAL),
        ({"replication": {"lag": 9}}, HealthLimits(replication_lag=Thresholds(9)), OK),
        ({"replication": {"lag": 9}}, HealthLimits(replication_lag=Thresholds(8)), WARNING),
        ({"replication": {"lag": 9}}, HealthLimits(replication_lag=Thresholds(1, 8)), CRITICAL),
        ({"replication": {"lag": None}}, HealthLimits(replication_lag=Thresholds(0)), OK),
        ({"replication": {}}, HealthLimits(replication_lag=Thresholds(0)), OK),
        ({"alarms": [alarm("conflicts"), alarm("damage")]}, HealthLimits(), CRITICAL),
        ({}, HealthLimits(lag=Thresholds(49)), WARNING),
        ({}, HealthLimits(lag=Thresholds(50, 50)), OK),
        ({}, HealthLimits(lag=Thresholds(10, 49)), CRITICAL),
        ({}, HealthLimits(lag=Thresholds(None, 49)), CRITICAL),
        ({}, HealthLimits(lag_s=Thresholds(1)), WARNING),
        ({}, HealthLimits(disk=Thresholds(80, 90)), OK),
        ({}, HealthLimits(disk=Thresholds(20, 39.9)), CRITICAL),
        ({}, HealthLimits(sync_ms=Thresholds(2)), WARNING),
        ({}, HealthLimits(clients=Thresholds(2)), WARNING),
    ],
)
def test_what_is_wrong_decides(change: dict[str, Any], limits: HealthLimits, code: int) -> None:
    assert judge(SAID._replace(status=STATUS | change), limits).code == code


def test_alarms_are_warnings_at_most_if_that_is_wanted() -> None:
    said = SAID._replace(status=STATUS | {"alarms": [alarm("disk_full")]})
    assert judge(said, HealthLimits(), warn_alarms=True).code == WARNING


def test_a_worker_that_does_not_answer_is_a_warning() -> None:
    said = SAID._replace(subscriptions={"subscriptions": [], "silent": ["delivery-2"]})
    verdict = judge(said, HealthLimits())
    assert verdict.code == WARNING
    assert "delivery-2" in verdict.reasons[0].text


def test_a_disk_that_cannot_be_seen_is_unknown() -> None:
    assert judge(SAID._replace(disks={}), HealthLimits()).code == UNKNOWN
    assert judge(SAID._replace(disks=None), HealthLimits()).code == OK


def test_the_lag_of_destinations_is_a_value_where_there_are_links() -> None:
    said = SAID._replace(status=STATUS | {"replication": {"lag": 7}})
    values = {value.name: value.value for value in judge(said, HealthLimits()).values}
    assert values["replication_lag"] == 7
    assert "replication_lag" not in {value.name for value in judge(SAID, HealthLimits()).values}


def test_each_disk_is_a_value() -> None:
    values = judge(SAID._replace(disks={"/b": 2.0, "/a": 1.0}), HealthLimits()).values
    assert [(v.name, v.value) for v in values if v.unit == "%"] == [("disk", 1.0), ("disk2", 2.0)]


def test_a_process_that_is_down_is_named() -> None:
    processes = [{"room": "supervisor", "state": "degraded"}, {"room": "ingest", "state": "down"}]
    said = SAID._replace(status=STATUS | {"state": "degraded", "processes": processes})
    assert judge(said, HealthLimits()).reasons[0].detail == "ingest down"


@given(st.lists(st.sampled_from([WARNING, CRITICAL, UNKNOWN])))
def test_the_worst_that_is_known_counts(codes: list[int]) -> None:
    code = HealthVerdict(tuple(Reason(code, "x") for code in codes)).code
    order = [OK, WARNING, UNKNOWN, CRITICAL]
    assert code == max([OK, *codes], key=order.index)


def test_numbers_that_are_missing_are_zero() -> None:
    verdict = judge(
        AdminAnswers({"state": "ready"}, {}, {"/": 1.0}),
        HealthLimits(lag=Thresholds(0), clients=Thresholds(0)),
    )
    assert verdict.code == OK
    assert {v.name: v.value for v in verdict.values if v.name != "disk"} == dict.fromkeys(
        ("clients", "subscriptions", "lag", "lag_s", "sync_ms", "log_bytes", "persisted"), 0
    )


# -- forms ----------------------------------------------------------------------------------------

VERDICT = HealthVerdict(
    (Reason(CRITICAL, "lag 50, over 40", "a|b\nc"), Reason(WARNING, "x")),
    (Value("lag", 50, "", Thresholds(10, 40)), Value("disk", 40.5, "%")),
    "ready",
)


def test_nagios_gets_a_line_with_performance_data() -> None:
    assert verdict.nagios(VERDICT) == [
        "ZBROKER CRITICAL: lag 50, over 40; x | lag=50;10;40;0 disk=40.5%;;;0", "a/b c",
    ]  # fmt: skip
    assert verdict.nagios(HealthVerdict((), (), "ready")) == ["ZBROKER OK: ready"]


def test_json_has_stable_keys() -> None:
    found = json.loads("\n".join(verdict.as_json(VERDICT)))
    assert list(found) == ["state", "code", "text", "reasons", "values"]
    assert (found["state"], found["code"]) == ("critical", 2)
    assert found["values"]["lag"] == {"value": 50, "unit": "", "warning": 10, "critical": 40}


def test_prometheus_can_read_it() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families("\n".join(verdict.prometheus(VERDICT)) + "\n")
    samples = {
        (one.name, one.labels.get("name")): one.value for each in families for one in each.samples
    }
    assert samples == {
        ("zbroker_check_state", None): 2, ("zbroker_check_value", "lag"): 50,
        ("zbroker_check_value", "disk"): 40.5, ("zbroker_check_over", "lag"): 1,
    }  # fmt: skip


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def well(fake: FakeAdmin) -> FakeAdmin:
    fake.answers |= {
        "GET /status": STATUS | {"data_dir": str(fake.data)},
        "GET /subscriptions?limit=1": SUBSCRIPTIONS,
        "GET /journal": {"directory": str(fake.data), "archive_directory": "/nowhere"},
    }
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_an_instance_that_is_well_exits_0(well: FakeAdmin) -> None:
    result = run("--data-dir", str(well.data), "check", "--disk-warning", "100")
    assert result.exit_code == 0
    assert result.stdout.startswith("ZBROKER OK: ready, 3 clients, lag 50 | clients=3;;;0 ")


@pytest.mark.parametrize(
    ("options", "code"), [(["--lag-warning", "5"], 1), (["--lag-critical", "5"], 2)]
)
def test_its_exit_code_is_the_verdict(well: FakeAdmin, options: list[str], code: int) -> None:
    result = run("--data-dir", str(well.data), "check", "--disk-warning", "100", *options)
    assert result.exit_code == code


def test_each_form_can_be_had(well: FakeAdmin) -> None:
    base = ["--data-dir", str(well.data), "check", "--disk-warning", "100"]
    assert json.loads(run(*base, "--format", "json").stdout) == json.loads(
        run(*base, "--json").stdout
    )
    assert run(*base, "--format", "prometheus").stdout.startswith("# HELP")


def test_no_instance_where_there_should_be_one_is_critical(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text("{}")
    result = run("--data-dir", str(tmp_path), "check")
    assert result.exit_code == CRITICAL
    assert result.stdout.startswith("ZBROKER CRITICAL: not_found: no instance runs")


def test_no_instance_where_there_was_none_is_unknown(tmp_path: Path) -> None:
    assert run("--data-dir", str(tmp_path), "check").exit_code == UNKNOWN


def test_a_config_that_is_wrong_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "z.toml").write_text("wrong")
    assert run("-c", str(tmp_path / "z.toml"), "check").exit_code == UNKNOWN


def test_one_that_does_not_know_us_is_unknown(fake: FakeAdmin) -> None:
    (fake.data / "instance.json").write_text("{}")
    fake.readers = {"someone"}
    (fake.data / "run" / "admin-read.token").write_text("else")
    assert run("--data-dir", str(fake.data), "check").exit_code == UNKNOWN


@pytest.mark.parametrize("answer", [{}, {"state": 7}, {"state": "ready", "journal": 3}, []])
def test_an_answer_that_is_none_is_never_ok(fake: FakeAdmin, answer: Any) -> None:
    fake.answers["GET /status"] = answer
    fake.answers["GET /subscriptions?limit=1"] = SUBSCRIPTIONS
    fake.answers["GET /journal"] = {}
    assert run("--data-dir", str(fake.data), "check").exit_code in (CRITICAL, UNKNOWN)


def test_wrong_usage_is_no_critical_instance() -> None:
    assert run("check", "--fly").exit_code == UNKNOWN
    assert run("check", "--disk-warning", "200").exit_code == UNKNOWN
