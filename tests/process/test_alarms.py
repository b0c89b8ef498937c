"""What an operator is warned of while it can still be mended, with real processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.process.load import until
from tests.process.secured import Secured
from zbroker.cli.admin_main import main
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = pytest.mark.process

T = 30.0


def is_raised(broker: LocalBroker, alarm: str) -> bool | None:
    """None while the processes are too busy to answer."""
    with suppress(ZBrokerError):
        return alarm in {each["code"] for each in broker.status()["alarms"]}
    return None


def until_printed(broker: LocalBroker, command: str, code: int, text: str) -> None:
    """The command says so soon: on a busy machine a process may answer too late for the first."""

    def printed() -> bool:
        result = CliRunner().invoke(main, ["--data-dir", str(broker.data_dir), command])
        return result.exit_code == code and text in result.stdout

    until(printed, f"{text} of {command}", T)


def test_a_forgotten_queue_that_keeps_retention_from_working(tmp_path: Path) -> None:
    """One message that no one takes holds back all that comes after it."""
    settings: Any = {
        "journal": {"segment_size": "1MiB"},
        "retention": {"max_bytes": "2MiB", "every": "1s"},
        "queue": [{"name": "forgotten", "topic": "rare"}],
    }
    with LocalBroker(tmp_path / "data", settings=settings) as broker:
        with connect(broker.url, "feed") as client:
            client.publish("rare", b"1")
            for _ in range(6):  # a busy machine would put all of it into one group, so one segment
                client.flush(timeout=T)
                client.publish_many("busy", [bytes(10_000)] * 100)
            client.flush(timeout=T)
        until(lambda: is_raised(broker, "queue_holds"), "the alarm", T)
        until_printed(broker, "check", 1, "queue forgotten needs the log")
        until_printed(broker, "doctor", 1, "queue_holds: [retention]")
        broker.ask("/queues/forgotten/purge", {"all": True})
        until(lambda: is_raised(broker, "queue_holds") is False, "the end of the alarm", T)


def test_an_access_file_that_cannot_be_used(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "s", {"pricer": ["everything"]}, "")
    with secured.broker as broker:
        text = secured.access.read_text()
        secured.write("[principal.pricer]\nkeys = 3\n")
        until(lambda: is_raised(broker, "access_file"), "the alarm", T)
        until_printed(broker, "check", 2, "access_file")
        secured.write(text)
        until(lambda: is_raised(broker, "access_file") is False, "the end of the alarm", T)
