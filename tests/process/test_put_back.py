"""Logs that were put back from a copy, or are not there: no old place means something else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def admin(data: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(data), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def publish(client: Client, topic: str, count: int, tag: str) -> None:
    for number in range(count):
        client.publish(topic, f"{tag}{number}".encode())
    client.flush(20)


def everything(client: Client, topic: str, since: str) -> list[bytes]:
    found = client.subscribe(topic, since=since, until="now")
    return [bytes(message.data) for message in found]


def copied(data: Path, how: str) -> Path:
    """A copy of the log that is put in the place of the data directory."""
    copy = data.with_name("copy")
    if how == "export":
        admin(data, "journal", "export", "--output", str(copy))
    else:
        copy.mkdir()
        shutil.copy(data / "instance.json", copy)
        shutil.copytree(data / "journal", copy / "journal")
    return copy


@pytest.mark.parametrize("how", ["export", pytest.param("cp", marks=pytest.mark.long)])
def test_places_of_what_a_restore_lost_are_not_taken_for_new_ones(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker, connect(broker.url, "p") as client:
        publish(client, "t", 100, "old")
        if how == "export":
            copy = copied(data, how)
    if how == "cp":
        copy = copied(data, how)
    with LocalBroker(data) as broker, connect(broker.url, "p") as client:
        publish(client, "t", 60, "lost")
        lost = client.subscribe("t", since="epoch", until="now")
        assert len(list(lost)) == 160
        before = broker.status()["journal"]["generation"]
    shutil.rmtree(data)
    copy.rename(data)
    if how == "cp":
        reported = json.loads(admin(data, "journal", "new-generation", "--json"))
        assert reported["generation"] == before
    with LocalBroker(data) as broker, connect(broker.url, "other") as client:
        assert broker.status()["journal"]["generation"] > before
        publish(client, "t", 80, "new")
        new = [f"new{number}".encode() for number in range(80)]
        assert everything(client, "t", lost.vector) == new, "what was lost hides nothing new"
    with LocalBroker(data) as broker, connect(broker.url, "reader") as client:
        assert everything(client, "t", "epoch")[100:] == new
        assert everything(client, "t", lost.vector) == new


def empty_elsewhere(data: Path) -> dict[str, Any]:
    (data.parent / "elsewhere").mkdir()
    return {"journal": {"directory": str(data.parent / "elsewhere")}}


def wiped(data: Path) -> dict[str, Any]:
    shutil.rmtree(data / "journal")
    return {}


@pytest.mark.parametrize("change", [empty_elsewhere, wiped])
def test_an_empty_journal_directory_where_a_log_was_is_refused(tmp_path: Path, change: Any) -> None:
    """Also without index and tables, which may be deleted at any time."""
    data = tmp_path / "data"
    with LocalBroker(data) as broker, connect(broker.url, "p") as client:
        publish(client, "t", 10, "old")
    settings = change(data)
    for cache in ("index", "queues"):
        shutil.rmtree(data / cache, ignore_errors=True)
    with pytest.raises(ZBrokerError, match="tail_damaged"):
        LocalBroker(data, settings=settings)
