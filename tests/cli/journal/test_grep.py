"""`zbroker-admin journal grep`."""

from __future__ import annotations

import json
from array import array

import pytest
import zstandard

from tests.cli.journals import PUBLISHER, Maker, admin, flip, run, segments, ten_batches
from zbroker.cli.journal.grep import LogSearch, MessageCriteria
from zbroker.log import format as f
from zbroker.log.reader import Log
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Columns


def found(maker: Maker, *arguments: str) -> list[int]:
    result = run(maker, "grep", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["position"] for line in result.stdout.splitlines()]


def some(maker: Maker) -> None:
    maker.batch([b'{"id": 1}', b'{"id": 2}'], topics=["orders"])
    columns = Columns(array("H", [1, 0, 1]).tobytes(), None)
    maker.batch([b"Alpha", b"beta", b"gamma 1"], topics=["x", "trades.eu"], columns=columns)
    maker.batch([b"x", b"alphabet", b"z"], topics=["trades.us"], skip=1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7]),
        (("id",), [1, 2]),
        (("alpha",), [6]),
        (("alpha", "-i"), [3, 6]),
        (("x",), []),  # the first of the last batch does not count
        ((r'"id": \d', "--regex"), [1, 2]),
        (("^b", "--regex"), [4]),
        (("(", "--limit", "1"), []),
        (("--topic", "orders"), [1, 2]),
        (("--topic", "trades.eu"), [3, 5]),
        (("--topic", "trades.*"), [3, 5, 6, 7]),
        (("--topic", "trades"), []),
        (("a", "--topic", "trades.*"), [3, 5, 6]),
        (("--publisher", "maker"), [1, 2, 3, 4, 5, 6, 7]),
        (("--publisher", str(PUBLISHER), "--topic", "x"), [4]),
        (("--publisher", "other"), []),
        (("--since", "3", "--until", "6"), [3, 4, 5]),
        (("--topic", "trades.*", "--since", "5", "--until", "7"), [5, 6]),
        (("--limit", "2"), [1, 2]),
    ],
)
def test_what_is_found(maker: Maker, arguments: tuple[str, ...], expected: list[int]) -> None:
    some(maker)
    assert found(maker, *arguments) == expected
    if "--limit" not in arguments:
        counted = run(maker, "grep", "--count", *arguments)
        assert counted.stdout == f"{len(expected)}\n"


@pytest.mark.parametrize("arguments", [("(", "--regex"), ("--topic", "(")])
def test_a_pattern_that_is_none_is_a_usage_error(maker: Maker, arguments) -> None:
    some(maker)
    result = run(maker, "grep", *arguments)
    assert result.exit_code == 2
    assert "cannot be used" in result.stderr


def test_a_person_gets_a_line_per_message(maker: Maker) -> None:
    some(maker)
    lines = run(maker, "grep", "--limit", "3").stdout.splitlines()
    assert lines[0] == '1 20231114T221321Z orders {"id": 1}'
    assert lines[2] == "3 20231114T221323Z trades.eu Alpha"


def test_damaged_ranges_are_an_error_and_named(maker: Maker) -> None:
    ten_batches(maker)
    batch = maker.batches[4]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "grep", "9.")
    assert result.exit_code == 1
    assert "positions 13 to 15 could not be read" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["28", "29", "30"]


def test_bodies_that_cannot_match_are_not_read(maker: Maker) -> None:
    """A rare topic in a large log: the body of a damaged batch of another topic is never missed."""
    ten_batches(maker)
    maker.batch([b"here"], topics=["rare"])
    batch = maker.batches[4]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "grep", "--topic", "rare")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("31 ")
    counted = run(maker, "grep", "--topic", "orders", "--count")
    assert counted.stdout == "30\n"


def test_archived_segments_are_searched(maker: Maker) -> None:
    segments(maker, 3)
    everything = found(maker)
    data = maker.directory.parent
    assert admin(data, "journal", "archive", "--all-sealed").exit_code == 0
    assert admin(data, "journal", "compress", "--through", "1").exit_code == 0
    assert found(maker) == everything
    assert found(maker, "--topic", "orders") == everything


def test_neighbours_are_read_together(maker: Maker) -> None:
    ten_batches(maker)
    maker.close()
    log = Log(maker.directory)
    reads: list[int] = []
    real = log.read
    log.read = lambda cursor, limit, size: reads.append(1) or real(cursor, limit, size)
    search = LogSearch(log, MessageCriteria(topic="orders"), (1, 31))
    assert len(list(search.messages())) == 30
    assert len(reads) == 1


def test_segments_whose_summary_has_no_such_topic_are_not_read(maker: Maker) -> None:
    segments(maker, 3)
    maker.batch([b"here"], topics=["rare"])
    segments(maker, 6)
    position = next(b.position for b in maker.batches if b.topics == ["rare"])
    data = maker.directory.parent
    assert admin(data, "journal", "archive", "--all-sealed").exit_code == 0
    log = Log(maker.directory, data / "archive")
    walked: list[tuple[int, int]] = []
    real = log.headers
    log.headers = lambda cursor, end: walked.append((cursor.position, end)) or real(cursor, end)
    search = LogSearch(log, MessageCriteria(topic="rare"), (1, log.end()))
    walked.clear()
    assert [message.position for message in search.messages()] == [position]
    starts = [cursor.position for cursor in log.starts]
    assert walked == [(starts[2], starts[3]), (starts[5], log.end())]  # and the open one
    assert found(maker, "--topic", "rare") == [position]
    assert run(maker, "grep", "--topic", "orders", "--count").stdout == f"{maker.sequence - 2}\n"


def test_a_summary_of_a_damaged_segment_rules_nothing_out(maker: Maker) -> None:
    """What could not be read when it was made may be what is looked for."""
    segments(maker, 3)
    flip(maker, 1, maker.batches[3].offset + 20)
    data = maker.directory.parent
    assert admin(data, "journal", "archive", "--through", "1").exit_code == 0
    result = run(maker, "grep", "--topic", "rare")
    assert result.exit_code == 1
    assert "could not be read" in result.stderr


def test_compressed_bodies_are_looked_into(maker: Maker) -> None:
    body = zstandard.compress(pack([b"needle " + b"a" * 1000, b"b" * 1000]))
    maker.batch([b"", b""], body=body, flags=f.FLAG_ZSTD)
    assert found(maker, "needle") == [1]


def test_what_is_shown_is_found_again(maker: Maker) -> None:
    """Text is shown as it was published, not as JSON that looks nicer."""
    some(maker)
    for line in run(maker, "grep").stdout.splitlines():
        position, _, _, shown = line.split(" ", 3)
        assert int(position) in found(maker, shown)
