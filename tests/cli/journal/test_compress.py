"""`zbroker-admin journal compress`; what it shares with archive is in test_archive.py."""

from __future__ import annotations

import json

import zstandard

from tests.cli.admins import FakeAdmin
from tests.cli.journal.test_archive import ROWS, messages, names
from tests.cli.journals import Maker, admin, run, segments


def test_compressed_segments_stay_part_of_the_log(maker: Maker) -> None:
    segments(maker, 3)
    before = messages(maker)
    original = (maker.directory / "0000000001.journal").read_bytes()
    result = run(maker, "compress", "--all-sealed", "--json")
    assert json.loads(result.stdout)["result"] == "done"
    assert names(maker.directory) == [
        "0000000001.journal.zst", "0000000002.journal.zst", "0000000003.journal",
    ]  # fmt: skip
    assert messages(maker) == before
    packed = (maker.directory / "0000000001.journal.zst").open("rb")
    with packed, zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as got:
        assert got.read() == original


def test_compressed_ones_are_not_compressed_again(maker: Maker) -> None:
    segments(maker, 3)
    assert run(maker, "compress", "--through", "1").exit_code == 0
    reported = json.loads(run(maker, "compress", "--through", "2", "--json").stdout)
    assert [row["serial"] for row in reported["serials"]] == [2]
    assert reported["skipped"] == [{"serial": 1, "reason": "it is compressed"}]


def test_a_running_instance_is_asked(fake: FakeAdmin) -> None:
    fake.answers["GET /journal"] = {"segments": ROWS}
    fake.answers["POST /journal/compress"] = {"id": None, "serials": [], "skipped": []}
    result = admin(fake.data, "journal", "compress", "--all-sealed")
    assert result.exit_code == 0, result.output
    assert fake.reported == [("/journal/compress", {"through": 3, "dry_run": False})]
    assert "nothing to do" in result.stdout
