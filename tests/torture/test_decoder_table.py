"""Every place that decodes bytes says whose they are, and what bounds their size, depth and types.

A decoder that is not in the table fails this test: before it is added, say who sends what it reads.
msgspec bounds the depth everywhere (a thousand levels, then an error); types are those of the
decoder, and where they are open ("any") the table says what keeps that from being slow.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
CALLS: Final = frozenset({"Decoder", "convert", "decode", "decompress", "load", "loads", "unpackb"})
MODULES: Final = frozenset({"json", "msgpack", "msgspec", "pickle", "tomllib", "zstandard"})


class Place(NamedTuple):
    """How many decoders a file has; whose bytes they read; what bounds size and types."""

    count: int
    of: str  # "anybody", "clients", "operators", "broker" (its own files and processes), "user"
    bound: str


SEGMENT: Final = "checksums; bodies of control records are typed and written by the journal"
OWN_FILE: Final = "a small file that this user's broker or tool wrote"
TABLES: Final = "tables of the queues process; typed, read again from the log if they are not"

TABLE: Final = {
    # frames of anybody who reaches a listener
    "zbroker/wire/codec.py": Place(22, "anybody", "64 KiB; typed; of what is refused cid alone"),
    "zbroker/wire/bodies.py": Place(
        8, "clients", "announced count and size are compared before; binaries, scalars in headers"
    ),
    "zbroker/wire/stages.py": Place(2, "clients", "the size of a body; lists of texts and structs"),
    "zbroker/wire/token.py": Place(1, "anybody", "2 KiB, its HMAC is checked before; typed"),
    "zbroker/server/peers.py": Place(1, "anybody", "64 KiB; a decoder of wire/codec.py"),
    "zbroker/ingest/stage_commits.py": Place(1, "clients", "a decoder of wire/stages.py"),
    "zbroker/server/admin_endpoint.py": Place(1, "broker", "a decoder of wire/surveys.py"),
    "zbroker/client/link.py": Place(1, "broker", "answers of the broker; typed"),
    # payloads
    "zbroker/formats/decoder.py": Place(
        4, "clients", "a message; any, but no map whose keys are chosen to collide"
    ),
    "zbroker/filters/payloads.py": Place(4, "clients", "a message; any, see formats/decoder.py"),
    "zbroker/filters/projection.py": Place(2, "clients", "a message that was decoded before"),
    "zbroker/filters/content_filter.py": Place(
        3, "clients", "named fields only; see formats/decoder.py"
    ),
    # what other instances send
    "zbroker/journal/first_state.py": Place(
        10, "clients", "a state of 64 MiB, from a peer with the right; typed, each row bounded"
    ),
    "zbroker/exchanges/exchange_rows.py": Place(
        2, "clients", "a record of a peer with the right; typed, arguments are scalars, bounded"
    ),
    "zbroker/queues/exchange_lists.py": Place(1, "clients", "32 KiB; four texts and a number"),
    # HTTP, and what operators write
    "zbroker/cli/binding.py": Place(1, "user", "an argument of the command; scalars"),
    "zbroker/control/log_comparison.py": Place(1, "operators", "answers of admins; typed"),
    "zbroker/admin/requests.py": Place(3, "operators", "64 KiB, the body of a request; typed"),
    "zbroker/config/tree.py": Place(1, "operators", "a value of a file or a request; typed"),
    "zbroker/toml_source.py": Place(3, "operators", "1 MiB, a file that is named; typed"),
    "zbroker/config/toml_writer.py": Place(1, "operators", "what was read"),
    "zbroker/definitions/validation.py": Place(1, "operators", "what was read; typed"),
    # between the processes of one instance, over sockets in a directory of mode 0700
    "zbroker/wire/queue_surveys.py": Place(2, "broker", "64 KiB; typed"),
    "zbroker/wire/surveys.py": Place(3, "broker", "64 KiB; typed"),
    "zbroker/admin/process_link.py": Place(1, "broker", "typed"),
    "zbroker/supervisor/children.py": Place(1, "broker", "typed"),
    "zbroker/supervisor/zygote.py": Place(2, "broker", "typed; its own command line"),
    # the broker's own files
    "zbroker/journal/conflicts.py": Place(1, "broker", SEGMENT),
    "zbroker/log/inventory.py": Place(1, "broker", SEGMENT),
    "zbroker/log/generations.py": Place(1, "broker", SEGMENT),
    "zbroker/journal/named_records.py": Place(3, "broker", SEGMENT),
    "zbroker/log/owner.py": Place(1, "broker", OWN_FILE),
    "zbroker/log/records.py": Place(12, "broker", SEGMENT),
    "zbroker/log/point_records.py": Place(
        2, "clients", "a record of a peer with the right; typed, names and vectors are bounded"
    ),
    "zbroker/log/references.py": Place(1, "broker", SEGMENT),
    "zbroker/log/queue_records.py": Place(
        6, "clients", "a record of a peer with the right; typed, sets are bounded as they are built"
    ),
    "zbroker/replication/snapshot_rows.py": Place(3, "broker", SEGMENT),
    "zbroker/journal/snapshot.py": Place(4, "broker", SEGMENT),
    "zbroker/log/summaries.py": Place(1, "broker", SEGMENT),
    "zbroker/cli/journal/rows.py": Place(2, "broker", SEGMENT),
    "zbroker/known_log.py": Place(1, "broker", OWN_FILE),
    "zbroker/admin/answers.py": Place(1, "broker", OWN_FILE),
    "zbroker/admin/audit_format.py": Place(1, "broker", OWN_FILE),
    "zbroker/admin/history.py": Place(2, "broker", OWN_FILE),
    "zbroker/admin/journal_link.py": Place(1, "broker", OWN_FILE),
    "zbroker/ingest/ports.py": Place(1, "broker", OWN_FILE),
    "zbroker/supervisor/directory.py": Place(1, "broker", OWN_FILE),
    "zbroker/queues/replicated/early_facts.py": Place(1, "broker", TABLES),
    "zbroker/queues/replicated/origin_runs.py": Place(1, "broker", TABLES),
    "zbroker/queues/replicated/ownership.py": Place(1, "broker", TABLES),
    "zbroker/queues/replicated/origin_facts.py": Place(1, "broker", TABLES),
    "zbroker/queues/replicated/replicated_queue.py": Place(1, "broker", TABLES),
    "zbroker/queues/replicated/replicated_replayable.py": Place(1, "broker", TABLES),
    "zbroker/queues/work/message_locks.py": Place(2, "broker", TABLES),
    "zbroker/queues/stand_ins.py": Place(1, "broker", TABLES),
    "zbroker/wire/disconnects.py": Place(2, "broker", OWN_FILE),
    # tools and clients, of what their own broker or user wrote
    "zbroker/cli/completion.py": Place(1, "broker", OWN_FILE),
    "zbroker/control/contexts.py": Place(2, "user", "the user's own file; typed"),
    "zbroker/cli/doctor/case.py": Place(1, "broker", OWN_FILE),
    "zbroker/control/target.py": Place(3, "broker", "answers of the admin that was asked"),
    "zbroker/client/branches.py": Place(1, "user", "an xid that the program gives; typed, bounded"),
    "zbroker/client/bookmark_stores/format.py": Place(1, "user", "checksum; typed"),
    "zbroker/client/publisher/mapped_queue.py": Place(2, "user", "a store of the same process"),
    "zbroker/local.py": Place(1, "broker", OWN_FILE),
    "zbroker/spark/jobs/export.py": Place(1, "user", "the marks of its own export; typed"),
    "zbroker/spark/jobs/units.py": Place(1, "user", "the marks of its own export; typed"),
    "zbroker/spark/plan_runner.py": Place(1, "user", "parts of a plan, from the driver of one job"),
    "zbroker/demo/aggregate.py": Place(2, "user", "the demo's own messages; typed"),
    "zbroker/demo/check.py": Place(2, "user", "the demo's own messages"),
    "zbroker/demo/place.py": Place(1, "user", OWN_FILE),
    "zbroker/demo/sides.py": Place(2, "user", "the demo's own messages; typed"),
    "zbroker/demo/worker.py": Place(2, "user", "the demo's own messages; typed"),
}


def _origin(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def decoders_in(source: str) -> list[int]:
    """The lines that decode, or make a decoder; calls, and references as `msgspec.json.decode`."""
    return [
        node.lineno for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in CALLS and _origin(node) in MODULES
    ]  # fmt: skip


def found() -> Counter[str]:
    counts: Counter[str] = Counter()
    for path in sorted(ROOT.glob("zbroker/**/*.py")):
        counts[str(path.relative_to(ROOT))] += len(decoders_in(path.read_text()))
    return +counts


def test_every_decoder_is_in_the_table() -> None:
    assert found() == Counter({name: place.count for name, place in TABLE.items()})


@pytest.mark.parametrize("name", [name for name, place in TABLE.items() if place.of == "anybody"])
def test_what_anybody_may_send_is_typed(name: str) -> None:
    """A decoder without a type builds whatever is sent: maps with keys that make it slow."""
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".Decoder"):
            assert node.args, f"line {node.lineno}"
            assert "Any" not in ast.unparse(node.args[0]).replace("AnyA", "").replace("AnyQ", "")
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("msgpack.decode"):
            assert any(word.arg == "type" for word in node.keywords), f"line {node.lineno}"


def test_the_search_finds_decoders() -> None:
    assert decoders_in("import msgspec\nx = msgspec.msgpack.decode(b)\n") == [2]
    assert decoders_in("import json\nread = json.loads\n") == [2]
    assert decoders_in("text.decode()\n") == []
