"""Ids are text in JSON: half of all publishers have one above 2**63; readers round from 2**53."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.journal.test_conflicts import conflict, keep
from tests.cli.journals import INSTANCE, PUBLISHER, Maker, run
from tests.json_ids import SAFE_MAX, rounded
from zbroker.log import format as f
from zbroker.log.records import MessagesGone, QueueRecord, encode
from zbroker.wire.bodies import pack


def filled(place: Path) -> Maker:
    """A log with every kind of row that names somebody: messages, a name, a queue, a hole."""
    assert PUBLISHER > SAFE_MAX
    assert INSTANCE > SAFE_MAX
    maker = Maker(place)
    maker.batch([b""], kind=f.KIND_PUBLISHER, body=b"\x82\xa4name\xa5maker\xa9principal\xa3joe")
    maker.batch([b"a", b"b"])
    by = QueueRecord("work", 1, (1 << 62) - 1, 1, [MessagesGone(b"\x92\x01\x02")])
    maker.batch([b""], kind=f.KIND_QUEUE, body=encode(by), topics=[])
    maker.sequence += 10
    maker.batch([b"c"], prev=maker.sequence - 2)
    return maker


def test_every_tool_of_the_journal_writes_ids_as_text(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    keep(maker, conflict(5, pack([b"a", b"b"])))
    commands = [
        ("dump", "--json"), ("dump", "--json", "--headers"), ("grep", "a", "--json"),
        ("search", "2", "--json"), ("conflicts", "--json"), ("verify", "--json"),
        ("info", "--json"), ("ls", "--json"),
    ]  # fmt: skip
    for command in commands:
        result = run(maker, *command)
        text = result.stdout
        assert text, (command, result.output)
        try:
            found = [json.loads(text)]
        except ValueError:
            found = [json.loads(line) for line in text.splitlines()]
        assert list(rounded(found)) == [], command


def test_a_header_has_publisher_and_origin_as_text(tmp_path: Path) -> None:
    lines = run(filled(tmp_path), "dump", "--headers", "--json").stdout.splitlines()
    row = json.loads(lines[1])
    assert row["publisher"] == str(PUBLISHER)
    assert row["origin"] == [f"{INSTANCE:016x}", 1, row["position"]]


def test_a_hole_names_its_publisher_as_text(tmp_path: Path) -> None:
    found = json.loads(run(filled(tmp_path), "verify", "--json").stdout)
    assert [hole["publisher"] for hole in found["holes"]] == [str(PUBLISHER)]


def test_too_large_an_id_is_noticed() -> None:
    assert list(rounded({"a": [{"b": 1 << 53}], "sequence": 1 << 60})) == [".a[].b"]
