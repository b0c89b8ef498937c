"""`zbroker-admin journal dump` shows what was written."""

from __future__ import annotations

import json
import subprocess
from array import array
from pathlib import Path
from typing import get_args

import pytest
import zstandard
from click.testing import CliRunner
from msgspec.msgpack import encode
from pyroaring import BitMap64

from tests.cli.journals import (
    PUBLISHER,
    SECOND_NS,
    TIME_NS,
    Maker,
    flip,
    run,
    ten_batches,
)
from zbroker.cli.admin_main import main
from zbroker.cli.journal import rows as shown
from zbroker.exchanges import Exchange, ExchangeRow, exchange_rows
from zbroker.log import format as f
from zbroker.log import queue_records as r
from zbroker.log import records
from zbroker.log import records as q
from zbroker.log.point_records import PointId, SharedPointRecord
from zbroker.server.spawn import command
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Columns


def dumped(maker: Maker, *arguments: str) -> list[dict]:
    result = run(maker, "dump", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_message_has_position_topic_bookmark_time_data(maker: Maker) -> None:
    maker.batch([b"one", b"\xff\x00", "ä".encode()])
    assert dumped(maker) == [
        {"position": 1, "topic": "orders", "bookmark": f"{PUBLISHER}|1|",
         "time": "20231114T221321Z", "data": "one"},
        {"position": 2, "topic": "orders", "bookmark": f"{PUBLISHER}|2|",
         "time": "20231114T221321Z", "data_base64": "/wA="},
        {"position": 3, "topic": "orders", "bookmark": f"{PUBLISHER}|3|",
         "time": "20231114T221321Z", "data": "ä"},
    ]  # fmt: skip


def test_control_records_say_their_kind(maker: Maker) -> None:
    record = b"\x82\xa4name\xa5maker\xa9principal\xa3joe"
    maker.batch([b""], kind=f.KIND_PUBLISHER, body=record, topics=[])
    maker.batch([b""], kind=f.KIND_NOOP, body=b"\x01", topics=[])
    maker.batch([b""], kind=77, body=b"x")
    rows = dumped(maker)
    assert [row["kind"] for row in rows] == ["publisher", "noop", "77"]
    assert (rows[0]["name"], rows[0]["principal"]) == ("maker", "joe")
    assert rows[1]["data"] == "\x01"


def test_a_state_snapshot_is_summed_up(maker: Maker) -> None:
    maker.state()
    [row] = dumped(maker)
    assert (row["kind"], row["through"], row["part"], row["last"]) == ("state", 1, 0, True)
    assert row["folds"]["publishers"] == 0


@pytest.mark.parametrize(
    ("kind", "record", "reported"),
    [
        (f.KIND_POINT, records.PointRecord("end", "a.1.2"), {"name": "end", "vector": "a.1.2"}),
        (
            f.KIND_SHARED_POINT,
            SharedPointRecord("end", 7, "a.1.2", [PointId(9, 1, 3)], 5),
            {"kind": "shared_point", "covers": "a.1.2", "ends": [[9, 1, 3]], "by": f"{5:016x}"},
        ),
        (f.KIND_PURGE, records.PurgeRecord("q", "a.1.2"), {"queue": "q", "vector": "a.1.2"}),
    ],
)
def test_points_and_purges_say_what_they_mean(maker: Maker, kind: int, record, reported) -> None:
    maker.batch([b""], kind=kind, body=records.encode(record), topics=[])
    [row] = dumped(maker)
    assert row.items() >= reported.items()


def test_definitions_of_queues_are_shown(maker: Maker) -> None:
    for record in (
        q.DefinitionRecord("work", 1, "admin", 5, definition={"topic": "t"}),
        q.DefinitionRecord("work", 1),
    ):
        maker.batch([b""], kind=f.KIND_WIRING, body=q.encode(record), topics=[])
    made, deleted = dumped(maker)
    reported = {"kind": "wiring", "name": "work", "life": 1, "source": "admin", "created": 5}
    assert made.items() >= reported.items()
    assert made["definition"] == {"topic": "t"}
    assert deleted["definition"] is None


def test_facts_of_queues_are_shown_with_runs_of_positions(maker: Maker) -> None:
    where = q.pack_positions(BitMap64([1, 2, 3, 9]))
    many = q.pack_positions(BitMap64(range(0, 400, 2)))
    facts = [
        q.MessagesGone(where, "rejected"),
        q.Failed(where, "cancelled", 7, 3),
        q.Horizon(9),
        q.Noted(many),
    ]
    maker.batch([b""], kind=f.KIND_QUEUE, body=q.encode(q.QueueRecord("work", 1, 2, 3, facts)))
    [row] = dumped(maker)
    reported = {"kind": "queue", "queue": "work", "life": 1, "by": f"{2:016x}", "unit": 3}
    assert row.items() >= reported.items()
    runs = [[1, 4], [9, 10]]
    assert row["facts"][:3] == [
        {"fact": "gone", "why": "rejected", "positions": runs},
        {"fact": "failed", "why": "cancelled", "due_ns": 7, "delay_ms": 3, "positions": runs},
        {"fact": "horizon", "position": 9},
    ]
    assert row["facts"][3]["positions"] == [[n, n + 1] for n in range(0, 400, 2)]


def test_records_of_replicated_queues_name_messages_by_origin(maker: Maker) -> None:
    life, where = r.QueueDeclaration(7, 9, 1), [r.OriginSet(9, 1, [5, 2, 3, 1])]
    made = r.ReplicatedDefinition("work", life, r.Version(2, 8, 1), begins=[r.VectorEntry(8, 1, 4)])
    gone = r.OutcomesRecord("work", life, 2, 3, r.packed([r.OriginsGone(where)]))
    moved = r.OutcomesRecord("work", life, 2, 4, r.packed([r.Moved(where, 8, 1)]))
    for kind, record in (
        (f.KIND_DEFINITION, made), (f.KIND_OUTCOMES, gone), (f.KIND_OWNERSHIP, moved),
    ):  # fmt: skip
        maker.batch([b""], kind=kind, body=q.encode(record), topics=[])
    rows = dumped(maker)
    assert [row["kind"] for row in rows] == ["definition", "outcomes", "ownership"]
    assert {row["life"] for row in rows} == {"0000000000000009.1.7"}
    assert rows[0]["begins"] == ["0000000000000008.1.4"]
    runs = {"0000000000000009.1": [[5, 7], [10, 11]]}
    assert rows[1]["facts"] == [{"fact": "gone", "where": runs, "why": "acked"}]
    assert rows[2]["facts"] == [{
        "fact": "moved", "where": runs, "to": f"{8:016x}", "number": 1, "takeover": False,
        "seen": False, "back": False,
    }]  # fmt: skip


def test_a_purge_of_all_instances_is_shown_as_a_vector(maker: Maker) -> None:
    life, covered = r.QueueDeclaration(7, 9, 1), [r.VectorEntry(8, 1, 4)]
    record = r.OutcomesRecord("work", life, 2, 3, r.packed([r.Purged([], covered)]))
    maker.batch([b""], kind=f.KIND_OUTCOMES, body=q.encode(record), topics=[])
    [row] = dumped(maker)
    vector = ["0000000000000008.1.4"]
    assert row["facts"] == [{"fact": "purged", "where": {}, "covered": vector}]


def test_every_fact_has_a_name() -> None:
    assert {*get_args(q.AnyFact)} == {*shown.FACTS}
    assert {*get_args(r.AnyQueueFact)} == {*shown.QUEUE_FACTS}


def test_records_of_exchanges_show_their_rows(maker: Maker) -> None:
    life, first = r.QueueDeclaration(7, 9, 1), r.Version(1, 9, 1)
    made = ExchangeRow("events", life, first, Exchange("events", "topic"))
    record = exchange_rows.record_of([made])
    maker.batch([b""], kind=f.KIND_EXCHANGE, body=q.encode(record), topics=[])
    [row] = dumped(maker)
    assert (row["kind"], row["by"]) == ("exchange", f"{0:016x}")
    assert row["rows"] == [{
        "row": "exchange", "name": "events", "life": [7, 9, 1], "version": [1, 9, 1],
        "definition": {"name": "events", "kind": "topic"},
    }]  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"junk", q.encode(q.QueueRecord("work", 1, 2, 3, [q.MessagesGone(b"\xc1")]))]
)
def test_facts_that_cannot_be_read_are_shown_as_bytes(maker: Maker, body: bytes) -> None:
    maker.batch([b""], kind=f.KIND_QUEUE, body=body, topics=[])
    [row] = dumped(maker)
    assert row["kind"] == "queue"
    assert "facts" not in row
    assert {"data", "data_base64"} & row.keys()


def test_columns_give_topic_and_time_of_each_message(maker: Maker) -> None:
    times = [TIME_NS, TIME_NS + SECOND_NS, TIME_NS + 2 * SECOND_NS]
    columns = Columns(array("H", [1, 0, 1]).tobytes(), array("q", times).tobytes())
    maker.batch([b"a", b"b", b"c"], topics=["x", "y"], columns=columns)
    rows = dumped(maker)
    assert [row["topic"] for row in rows] == ["y", "x", "y"]
    assert [row["time"][-3:] for row in rows] == ["20Z", "21Z", "22Z"]


def test_key_headers_and_expires_are_shown_where_they_are(maker: Maker) -> None:
    columns = Columns(
        keys=encode([b"k", b"\xff", None]), headers=encode([{"a": b"\xff", "b": 1.5}, {}, None]),
        expiry=array("q", [TIME_NS, 0, 0]).tobytes(),
    )  # fmt: skip
    maker.batch([b"a", b"b", b"c"], columns=columns)
    first, second, third = dumped(maker)
    assert (first["key"], first["expires"]) == ("k", "20231114T221320Z")
    assert first["headers"] == {"a": {"base64": "/w=="}, "b": 1.5}
    assert second["key_base64"] == "/w=="
    assert {"key", "headers", "expires"}.isdisjoint(second.keys() | third.keys())


def test_a_damaged_column_is_a_gap(maker: Maker) -> None:
    maker.batch([b"a", b"b"], columns=Columns(keys=encode([b"k"])))
    maker.batch([b"c"])
    result = run(maker, "dump")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert "columns.keys" in rows[0]["gap"]["why"]
    assert rows[1]["data"] == "c"


def test_skipped_messages_do_not_count(maker: Maker) -> None:
    maker.batch([b"a", b"b", b"c"], skip=2)
    maker.batch([b"d"])
    rows = dumped(maker)
    assert [(row["position"], row["data"]) for row in rows] == [(1, "c"), (2, "d")]
    assert [row["bookmark"] for row in rows] == [f"{PUBLISHER}|1|", f"{PUBLISHER}|2|"]


def test_compressed_bodies_are_shown_plain(maker: Maker) -> None:
    body = zstandard.compress(pack([b"a" * 1000, b"b"]))
    maker.batch([b"", b""], body=body, flags=f.FLAG_ZSTD)
    assert [row["data"] for row in dumped(maker)] == ["a" * 1000, "b"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), range(1, 31)),
        (("--from", "5"), range(5, 31)),
        (("--to", "5"), range(1, 5)),
        (("--from", "5", "--to", "9"), range(5, 9)),
        (("--from", "9", "--to", "5"), ()),
        (("--from", "31"), ()),
        (("--from", "1000"), ()),
        (("--from", "0", "--limit", "2"), (1, 2)),
        (("--limit", "0"), ()),
        (("--json", "--from", "29"), (29, 30)),
    ],
)
def test_from_is_shown_but_not_to(maker: Maker, arguments, expected) -> None:
    ten_batches(maker)
    assert [row["position"] for row in dumped(maker, *arguments)] == list(expected)


def test_headers_show_batches_and_where_they_are(maker: Maker) -> None:
    ten_batches(maker)
    rows = dumped(maker, "--headers", "--from", "4", "--limit", "3")
    assert [(row["position"], row["end"]) for row in rows] == [(4, 7), (7, 10), (10, 13)]
    batch = maker.batches[1]
    assert (rows[0]["offset"], rows[0]["body_bytes"]) == (batch.offset, batch.body_length)
    assert "data" not in rows[0]


@pytest.mark.parametrize("arguments", [(), ("--headers",)])
def test_an_empty_journal_dumps_nothing(maker: Maker, arguments) -> None:
    assert dumped(maker, *arguments) == []


def test_a_damaged_range_is_a_line_and_an_error(maker: Maker) -> None:
    ten_batches(maker)
    batch = maker.batches[4]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "dump", "--from", "11", "--to", "18")
    assert result.exit_code == 1
    assert "1 ranges could not be read" in result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row.get("position") for row in rows] == [11, 12, None, 16, 17]
    assert rows[2]["gap"]["first"] == 13
    assert rows[2]["gap"]["end"] == 16


def test_a_body_that_is_not_what_it_says_is_a_gap(maker: Maker) -> None:
    maker.batch([b"", b""], body=b"not msgpack")
    maker.batch([b"good"])
    result = run(maker, "dump")
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert (rows[0]["gap"]["first"], rows[0]["gap"]["end"]) == (1, 3)
    assert rows[1]["data"] == "good"


def test_without_a_journal_the_exit_code_is_not_found(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data-dir", str(tmp_path), "journal", "verify"])
    assert result.exit_code == 3
    assert "there is no journal" in result.stderr


def test_only_messages_of_a_topic_are_shown(maker: Maker) -> None:
    maker.batch([b""], kind=f.KIND_NOOP, body=b"", topics=[])
    maker.batch([b"a", b"b"], topics=["orders"])
    maker.batch([b"c"], topics=["orders.eu"])
    maker.batch([b"d"], topics=["trades"])
    assert [row["data"] for row in dumped(maker, "--topic", "orders")] == ["a", "b"]
    assert [row["data"] for row in dumped(maker, "--topic", "orders.*")] == ["a", "b", "c"]
    assert [row["topics"] for row in dumped(maker, "--topic", "trades", "--headers")] == [
        ["trades"]
    ]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("5", "8", [5, 6, 7]),
        ("20231114T221327Z", "20231114T221333Z", [7, 8, 9, 10, 11, 12]),
        (f"{PUBLISHER}|5|", f"{PUBLISHER}|7|", [6, 7]),
        ("epoch", f"{PUBLISHER}|2|", [1, 2]),
        ("28", "now", [28, 29, 30]),
        ("-1h", None, []),
    ],
)
def test_points_are_those_of_subscriptions(maker: Maker, since, until, expected) -> None:
    ten_batches(maker)
    arguments = ["--since", since, *(["--until", until] if until else [])]
    assert [row["position"] for row in dumped(maker, *arguments)] == expected


@pytest.mark.parametrize("point", ["yesterday", "1|2", "20239999T000000Z", "-5w"])
def test_a_point_that_is_none_is_a_usage_error(maker: Maker, point: str) -> None:
    ten_batches(maker)
    result = run(maker, "dump", "--since", point)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) <= 4


def test_a_bookmark_that_is_not_in_the_log_is_not_found(maker: Maker) -> None:
    ten_batches(maker)
    result = run(maker, "dump", "--since", f"{PUBLISHER}|99|")
    assert result.exit_code == 3
    assert "does not hold" in result.stderr


def test_a_payload_is_shown_by_the_type_of_its_topic(maker: Maker, tmp_path: Path) -> None:
    maker.batch([b"35=D\x0155=ABC\x01"], topics=["fix.orders"])
    config = tmp_path / "zbroker.toml"
    record = '[[record]]\ntopic = "fix.*"\nregex = true\ntype = "fix"\n'
    config.write_text(f'[instance]\ndata_dir = "{maker.directory.parent}"\n{record}')
    maker.close()
    result = CliRunner().invoke(main, ["-c", str(config), "journal", "dump"])
    row = json.loads(result.stdout)
    assert row["value"] == {"35": "D", "55": "ABC"}
    assert row["data"] == "35=D\x0155=ABC\x01"


def test_no_one_has_to_read_to_the_end(maker: Maker) -> None:
    for _ in range(20):
        maker.batch([b"x" * 900] * 100)
    maker.close()
    given = ["--data-dir", str(maker.directory.parent), "journal", "dump"]
    process = subprocess.Popen(
        command("zbroker.cli.admin_main", *given), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
