"""What an operator is warned of while it can still be mended, with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.process.load import until
from tests.process.secured import Secured
from zbroker.cli.admin_main import main
from zbroker.client import connect
from zbroker.local import LocalBroker

pytestmark = pytest.mark.process

T = 30.0


def alarms(broker: LocalBroker) -> dict[str, Any]:
    return {alarm["code"]: alarm for alarm in broker.status()["alarms"]}


def test_a_forgotten_queue_that_keeps_retention_from_working(tmp_path: Path) -> None:
    """One message that nobody takes holds back all that comes behind it."""
    settings: Any = {
        "journal": {"segment_size": "1MiB"},
        "retention": {"max_bytes": "2MiB", "every": "1s"},
        "queue": [{"name": "forgotten", "topic": "rare"}],
    }
    with LocalBroker(tmp_path / "data", settings=settings) as broker:
        with connect(broker.url, "feed") as client:
            client.publish("rare", b"1")
            client.publish_many("busy", [bytes(10_000)] * 600)
            client.flush(timeout=T)
        until(lambda: "queue_holds" in alarms(broker), "the alarm", T)
        found = alarms(broker)["queue_holds"]
        assert "queue forgotten needs the log" in found["what"]
        told = CliRunner().invoke(main, ["--data-dir", str(broker.data_dir), "check"])
        assert (told.exit_code, "queue_holds" in told.stdout) == (1, True)
        told = CliRunner().invoke(main, ["--data-dir", str(broker.data_dir), "doctor"])
        assert (told.exit_code, "queue_holds: [retention]" in told.stdout) == (1, True)
        broker.ask("/queues/forgotten/purge", {"all": True})
        until(lambda: "queue_holds" not in alarms(broker), "the end of the alarm", T)


def test_an_access_file_that_cannot_be_used(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "s", {"pricer": ["everything"]}, "")
    with secured.broker as broker:
        data = str(broker.data_dir)
        text = secured.access.read_text()
        secured.write("[principal.pricer]\nkeys = 3\n")
        until(lambda: "access_file" in alarms(broker), "the alarm", T)
        told = CliRunner().invoke(main, ["--data-dir", data, "check"])
        assert (told.exit_code, "access_file" in told.stdout) == (2, True)
        secured.write(text)
        until(lambda: "access_file" not in alarms(broker), "the end of the alarm", T)
