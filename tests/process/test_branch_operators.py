"""`zbroker-admin transaction` with a real broker: branches that are left are decided by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.load import until
from tests.process.raw import Raw
from tests.process.secured import token_of
from zbroker.cli.admin_main import main
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T: Final = 30.0
COMMITTED, ROLLED_BACK = "7:a%3Ab:broker", "7:second:"
XIDS: Final = {COMMITTED: [7, "a:b", "broker"], ROLLED_BACK: [7, "second", ""]}


class Endpoints:
    """Where a raw client connects."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker

    def endpoints(self) -> dict[str, str]:
        found: dict[str, str] = self._broker.status()["endpoints"]
        return found


def run(broker: LocalBroker, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["--data-dir", str(broker.data_dir), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(broker: LocalBroker) -> dict[str, dict[str, Any]]:
    found = json.loads(run(broker, "transaction", "ls", "--json"))
    return {row["xid"]: row for row in found["transactions"]}


def prepare(broker: LocalBroker, client: zbroker.Client) -> None:
    """A program that prepares two branches, each with one message of the queue, and dies."""
    at: Any = Endpoints(broker)
    with Raw(at, None, "queues") as raw:
        assert raw.ask({"cmd": "logon", "token": token_of(client)})["cmd"] == "ack"
        begun = raw.ask({"cmd": "attach_session", "session": "billing", "cid": "a"})
        raw.send({"cmd": "consume", "sid": "s", "queue": "orders", "holder": "h", "backlog": 2})
        jobs: list[dict[str, Any]] = []
        while len(jobs) < 2:
            answer = raw.get()
            assert answer, "two messages come"
            if answer["cmd"] == "job":
                jobs += [answer] * answer.get("count", 1)
        first, generation = jobs[0]["position"], broker.ask("/journal")["generation"]
        for number, xid in enumerate(XIDS.values(), 1):
            accepted = ["orders", "h", generation, [first + number - 1, first + number]]
            raw.send({
                "cmd": "prepare_transaction", "session": "billing", "epoch": begun["epoch"],
                "number": number, "xid": xid, "accepts": [accepted], "cid": "p",
            })  # fmt: skip
        for _ in XIDS:
            answer = raw.get()
            assert (answer["cmd"], answer["accepted"]) == ("branch_prepared", 1), answer


def test_what_a_transaction_manager_left_is_decided_by_hand(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"queues": {"branch_alarm": "1s"}}
    with (
        LocalBroker(tmp_path / "data", settings=settings) as broker,
        zbroker.connect(broker.url, name="a") as client,
    ):
        client.declare_queue("orders", timeout=T)
        client.publish_many("orders", [b"1", b"2"])
        client.flush(timeout=T)
        prepare(broker, client)
        found = rows(broker)
        assert {xid: (row["state"], row["locked"]) for xid, row in found.items()} == dict.fromkeys(
            XIDS, ("prepared", 1)
        )
        principal = ["--principal", found[COMMITTED]["principal"]]
        assert f"xid={COMMITTED} state=prepared" in run(broker, "transaction", "ls")

        browsed = broker.ask("/queues/orders/browse?state=locked")["messages"]
        position = str(browsed[0]["position"])
        why = run(broker, "queue", "explain", "orders", "--position", position)
        assert COMMITTED in why
        until(lambda: "transaction_in_doubt" in alarms(broker), "the alarm is raised", T)

        dry = run(broker, "transaction", "commit", COMMITTED, *principal, "--dry-run")
        assert dry.startswith(f"{COMMITTED}: would be committed (dry run)")
        run(broker, "transaction", "commit", COMMITTED, *principal, "--yes")
        run(broker, "transaction", "rollback", ROLLED_BACK, *principal, "--yes")
        states = {xid: row["state"] for xid, row in rows(broker).items()}
        assert states == {COMMITTED: "committed", ROLLED_BACK: "rolled_back"}
        with client.consume("orders") as consumer:
            [again] = consumer.fetch(1, timeout=T)
            assert (again.data, again.redelivered) == (b"2", True)
            again.ack()
        until(lambda: "transaction_in_doubt" not in alarms(broker), "the alarm is over", T)

        for xid in XIDS:
            run(broker, "transaction", "forget", xid, *principal, "--yes")
        assert rows(broker) == {}
        audited = [one["what"] for one in broker.ask("/audit?limit=20")["entries"]]
        assert "POST /transactions/commit xid principal dry_run" in audited


def alarms(broker: LocalBroker) -> set[str]:
    return {alarm["code"] for alarm in broker.status()["alarms"]}
