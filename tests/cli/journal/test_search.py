"""`zbroker-admin journal search` finds one message."""

from __future__ import annotations

import json

import pytest

from tests.cli.journals import PUBLISHER, Maker, admin, flip, run, segments, ten_batches
from zbroker.log import format as f


@pytest.mark.parametrize("point", ["14", f"{PUBLISHER}|14|", "20231114T221333Z"])
def test_a_message_is_found_by_every_kind_of_point(maker: Maker, point: str) -> None:
    ten_batches(maker)
    result = run(maker, "search", point, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    batch = maker.batches[4]
    assert (found["serial"], found["offset"]) == (1, batch.offset)
    assert found["batch"]["position"] == 13
    wanted = 13 if "T" in point else 14  # times are those of whole batches here
    assert found["position"] == wanted
    assert found["bookmark"] == f"{PUBLISHER}|{wanted}|"
    assert found["data"] == f"4.{wanted - 13}" * 20


def test_a_message_in_the_archive_is_found_there(maker: Maker) -> None:
    segments(maker, 3)
    data = maker.directory.parent
    assert admin(data, "journal", "archive", "--through", "1").exit_code == 0
    assert admin(data, "journal", "compress", "--through", "1").exit_code == 0
    found = json.loads(run(maker, "search", "2", "--json").stdout)
    assert found["file"] == str(data / "archive" / "0000000001.journal.zst")
    assert found["data"].startswith("2")


def test_a_control_record_has_a_kind(maker: Maker) -> None:
    maker.batch([b""], kind=f.KIND_NOOP, body=b"", topics=[])
    assert "noop" in run(maker, "search", "1").stdout


@pytest.mark.parametrize("point", ["99", f"{PUBLISHER}|99|", "7|1|"])
def test_what_is_not_there_is_not_found(maker: Maker, point: str) -> None:
    ten_batches(maker)
    result = run(maker, "search", point)
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1


def test_a_message_in_a_damaged_place_is_a_gap(maker: Maker) -> None:
    ten_batches(maker)
    batch = maker.batches[4]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "search", "14")
    assert result.exit_code == 1
    assert "positions 13 to 15" in result.stderr
