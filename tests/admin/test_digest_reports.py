"""Digests of a log on disk, in slices; also what zbroker/admin/content_digests.py says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.journals import INSTANCE, PUBLISHER, Maker
from tests.control.compared_logs import published
from zbroker.admin import digest_reports
from zbroker.admin.content_digests import PRIME, ContentDigests
from zbroker.admin.digest_reports import DigestReports, scope_of
from zbroker.admin.requests import DigestsQuery
from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.log.format import KIND_POINT
from zbroker.paths import Paths
from zbroker.wire.bodies import pack

ORIGIN = f"{INSTANCE:016x}.1"


class Clock:
    """A slice is over after the first block."""

    def __init__(self, step_ms: int = 0) -> None:
        self.now_ms, self.step_ms = 0, step_ms

    def mono_ms(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms

    def wall_ns(self) -> int:
        return 0


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """A log of 4 MiB in several segments."""
    monkeypatch.setattr("os.setpriority", lambda *_: None)  # the thread is that of the tests
    made = Maker(tmp_path)
    for n in range(40):
        made.batch([b"%d" % n + bytes(50_000), b"y" * 50_000])
    made.batch([b""], kind=KIND_POINT, body=b"x", topics=[])
    made.batch([b"last"])
    return made


def reports(maker: Maker, clock: Clock | None = None) -> DigestReports:
    data = maker.directory.parent
    paths = Paths(data, maker.directory, data / "archive", INSTANCE)
    return DigestReports(paths, lambda: maker.writer.position, clock or Clock())


def test_a_log_is_read_in_slices(maker: Maker) -> None:
    made, query, value, messages, answers = reports(maker, Clock(500)), DigestsQuery(), 0, 0, 0
    whole = reports(maker).answer(query)
    found: dict[str, Any] = {"done": False, "next": {"position": 0, "serial": 0, "offset": 0}}
    while not found["done"]:
        found = made.answer(DigestsQuery(**found["next"]))
        answers += 1
        for one in found["ranges"]:
            value = (value + int(one["digest"], 16)) % PRIME
            messages += one["messages"]
    (one,) = whole["ranges"]
    assert answers > 2
    assert (one["origin"], one["first"], one["last"]) == (ORIGIN, 1, 82)
    assert (one["messages"], f"{value:032x}") == (81, one["digest"])
    assert messages == 81
    assert (whole["persisted"], whole["log_start"], whole["damaged"]) == (83, 1, [])


def test_one_position_is_a_message(maker: Maker) -> None:
    asked = DigestsQuery(size=1, origin=ORIGIN, first=3, end=5)
    first, second = reports(maker).answer(asked)["ranges"]
    body = pack([b"1" + bytes(50_000), b"y" * 50_000])
    message = {
        "publisher": f"{PUBLISHER:016x}", "sequence": 3, "crc": crc32c(body), "tie": False,
        "position": 3,
    }  # fmt: skip
    assert first["message"] == message
    assert second["message"] == message | {"sequence": 4, "position": 4}
    assert (first["range"], first["until"]) == (3, 5)


def test_nothing_that_is_not_durable_is_read(maker: Maker) -> None:
    found = reports(maker).answer(DigestsQuery(limit=1_000))
    assert found["next"]["position"] == 83
    assert reports(maker).answer(DigestsQuery(position=900))["done"]


def test_a_damaged_header_is_reported(maker: Maker) -> None:
    place = next(maker.directory.glob("*1.journal"))
    data = bytearray(place.read_bytes())
    data[maker.batches[3].offset + 20] ^= 1
    place.write_bytes(data)
    found = reports(maker).answer(DigestsQuery())
    assert found["damaged"] == [[7, 9]]
    assert found["ranges"][0]["messages"] == 79


def test_an_answer_has_a_bounded_number_of_ranges(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClientError, match="too many"):
        reports(maker).answer(DigestsQuery(size=1))
    with pytest.raises(ClientError, match="too many"):
        reports(maker).answer(DigestsQuery(size=1, origin=ORIGIN, end=5_000))
    monkeypatch.setattr(digest_reports, "RANGES_MAX", 1)
    assert not reports(maker).answer(DigestsQuery(size=1_024))["done"]


@pytest.mark.parametrize("asked", [{"origin": "x.1"}, {"origin": "1"}, {"seed": "0x"}])
def test_a_wrong_query_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(ClientError):
        scope_of(DigestsQuery(**asked))


def test_logs_of_before_replication_have_nothing_to_compare() -> None:
    digests = ContentDigests(1_024, b"s")
    digests.take([published(5, origin=(0, 0))], 1)
    assert not digests.found


def test_digests_of_parts_add_up_to_that_of_the_whole() -> None:
    for count in (1, 2, 1_023, 2_000, 65_000):
        whole, parts = ContentDigests(1 << 20, b"s"), ContentDigests(1 << 20, b"s")
        whole.take([published(5, count)], 1)
        for part in (published(5), published(6, count - 1, skip=1)):
            parts.take([part], 1)
        assert [one.value for one in whole.found.values()] == [
            one.value for one in parts.found.values()
        ]


def test_contents_that_are_remembered_are_bounded() -> None:
    digests = ContentDigests(1 << 20, b"s")
    digests.take([published(n, crc=n) for n in range(1, 3_000)], 1)
    again = ContentDigests(1 << 20, b"s")
    for n in range(2_999, 0, -1):
        again.take([published(n, crc=n)], 1)
    (one,), (other,) = digests.found.values(), again.found.values()
    assert one.value == other.value
