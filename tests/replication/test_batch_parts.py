"""The part of a batch that a link with topics carries."""

from __future__ import annotations

from array import array

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from tests.replication.build import HERE
from zbroker.checksums import crc32c
from zbroker.exchanges import BoundQueue, Routes, route_column
from zbroker.link_topics import LinkTopics
from zbroker.log.format import (
    COLUMN_ORIGIN_TIME,
    COLUMN_ROUTES,
    FLAG_UNIT,
    FLAG_ZSTD,
    KIND_NOOP,
    KIND_PUBLISH,
    KIND_STAGED,
    KIND_TIE,
    OF_ALL_TOPICS,
    Batch,
)
from zbroker.log.queue_records import QueueDeclaration
from zbroker.replication.batch_parts import PARTS_MAX, UNIT_PARTS_MAX, wanted_parts
from zbroker.replication.link_filter import LinkFilter
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

ORDERS = LinkTopics(["orders"])
TIMES = array("q", [11, 12, 13, 14, 15, 16])


def mixed(letters: str = "ootoot", /, **more: object) -> Batch:
    """Six messages at positions 101 to 106 and sequences 51 to 56: o is an order, t a trade."""
    names = list(dict.fromkeys(letters))
    said = {"o": "orders", "t": "trades", "x": "orders.x"}
    body = bodies.pack([b"%d" % n for n in range(len(letters))])
    columns = Columns(
        index=array("H", map(names.index, letters)).tobytes(),
        time=array("q", [11 + n for n in range(len(letters))]).tobytes(),
    )
    made = Batch(
        KIND_PUBLISH, 1_001, 77, 1, 51, 50, len(letters), 16, [said[name] for name in names], body,
        crc32c(body), len(body), 0, 0, *HERE, 101, columns,
    )  # fmt: skip
    return replace(made, **more)


def payloads(batch: Batch) -> list[bytes]:
    found = msgspec.msgpack.decode(bytes(batch.body), type=list[bytes])
    assert batch.body_crc == crc32c(batch.body)
    assert batch.body_length == len(batch.body)
    assert len(found) == batch.count
    return found


def places(batch: Batch) -> tuple[int, int, int, int]:
    return batch.position, batch.origin_position, batch.sequence, batch.prev


def test_a_batch_of_wanted_topics_goes_as_it_is() -> None:
    batch = mixed("oooo")
    assert wanted_parts(batch, ORDERS) == [batch]


def test_a_part_has_the_routes_of_its_messages() -> None:
    queues = tuple(BoundQueue(name, QueueDeclaration(7, 1, 1)) for name in "abc")
    routes = Routes(queues, ((0,), (1, 2), ()), array("H", [0, 1, 2, 0, 0, 1]))
    batch = mixed(extra=[(COLUMN_ROUTES, route_column.encode(routes))])
    first, second = wanted_parts(batch, ORDERS)
    found = [route_column.decode(dict(one.extra)[COLUMN_ROUTES], 2) for one in (first, second)]
    assert [found[0].queues_of(at) for at in (0, 1)] == [[queues[0]], [*queues[1:]]]
    assert found[1].queues == queues[:1]  # nothing is said of messages that do not go
    assert wanted_parts(mixed("oooooo", extra=batch.extra), ORDERS)[0].extra == batch.extra


def test_a_batch_of_other_topics_does_not_go() -> None:
    assert wanted_parts(mixed("tttt"), ORDERS) == []


def test_each_run_of_wanted_messages_is_a_batch_at_its_place() -> None:
    first, second = wanted_parts(mixed(), ORDERS)
    assert (places(first), payloads(first)) == ((1_001, 101, 51, 50), [b"0", b"1"])
    assert (places(second), payloads(second)) == ((1_004, 104, 54, 53), [b"3", b"4"])
    assert first.topics == second.topics == ["orders"]
    assert first.columns == Columns(time=TIMES[:2].tobytes())
    assert (first.log_time, second.log_time) == (12, 15)
    assert first.content_crc == second.content_crc == mixed().body_crc


def test_what_does_not_count_is_no_part() -> None:
    """Of a batch that fell into holes, only the middle counts."""
    cut = mixed(skip=1, cut=2, position=1_002, origin_position=102, sequence=52, prev=51)
    first, second = wanted_parts(cut, ORDERS)
    assert (places(first), payloads(first)) == ((1_002, 102, 52, 51), [b"1"])
    assert (places(second), payloads(second)) == ((1_004, 104, 54, 53), [b"3"])


def test_topics_of_messages_that_do_not_count_do_not_go() -> None:
    (part,) = wanted_parts(mixed("toot", skip=1, cut=1, sequence=52), ORDERS)
    assert part.topics == ["orders"]
    assert payloads(part) == [b"1", b"2"]
    assert wanted_parts(mixed("ott", skip=1, sequence=52), ORDERS) == []


def test_several_wanted_topics_keep_their_index() -> None:
    first, _ = wanted_parts(mixed("oxtx"), LinkTopics(["orders*"]))
    assert first.topics == ["orders", "orders.x"]
    assert bodies.topic_indexes(first.columns, 2).tolist() == [0, 1]  # type: ignore[attr-defined]


def test_keys_headers_and_times_at_the_origin_go_with_their_messages() -> None:
    batch = mixed()
    assert batch.columns is not None
    keys = msgspec.msgpack.encode([b"k%d" % n for n in range(6)])
    headers = msgspec.msgpack.encode([None, None, None, {"n": 3}, None, None])
    batch = replace(
        batch, columns=replace(batch.columns, keys=keys, headers=headers),
        extra=[(COLUMN_ORIGIN_TIME, TIMES.tobytes())],
    )  # fmt: skip
    first, second = wanted_parts(batch, ORDERS)
    assert first.columns is not None
    assert second.columns is not None
    assert bodies.keys(second.columns.keys or b"", 2) == [b"k3", b"k4"]
    assert first.columns.headers is None
    assert bodies.headers(second.columns.headers or b"", 2) == [{"n": 3}, None]
    assert (COLUMN_ORIGIN_TIME, TIMES[3:5].tobytes()) in second.extra


def test_a_compressed_batch_is_unpacked() -> None:
    batch = mixed()
    packed = zstandard.ZstdCompressor().compress(bytes(batch.body))
    batch = replace(batch, body=packed, body_crc=crc32c(packed), flags=FLAG_ZSTD)
    first, _ = wanted_parts(batch, ORDERS)
    assert (payloads(first), first.flags) == ([b"0", b"1"], 0)


@pytest.mark.parametrize(
    "batch",
    [
        mixed("ot" * (PARTS_MAX + 1)),
        mixed("ot" * (UNIT_PARTS_MAX + 1), flags=FLAG_UNIT),
        mixed(extra=[(99, b"x")]),
        mixed(body=b"no array"),
        mixed(kind=KIND_TIE),
    ],
)
def test_what_cannot_be_cut_goes_as_it_is(batch: Batch) -> None:
    assert wanted_parts(batch, ORDERS) == [batch]


def test_staged_messages_go_when_they_are_committed() -> None:
    assert wanted_parts(mixed("oo", kind=KIND_STAGED), ORDERS) == []


@pytest.mark.parametrize("kind", sorted(OF_ALL_TOPICS))
def test_a_copy_of_topics_has_no_queues(kind: int) -> None:
    """Their records name no topics, and belong to every list otherwise."""
    assert wanted_parts(mixed("oo", kind=kind, topics=[]), ORDERS) == []


def test_what_has_no_topic_belongs_to_every_list() -> None:
    noop = mixed("o", kind=KIND_NOOP, topics=[])
    assert wanted_parts(noop, ORDERS) == [noop]


# -- with a filter ----------------------------------------------------------------------------

CONTENT = LinkFilter("/n IN (1, 2, 5)")
SOME = LinkTopics([], "/n IN (1, 2, 5)")


def numbered(letters: str = "oooooo", /, **more: object) -> Batch:
    """The same, with their number in the payloads."""
    body = bodies.pack([b'{"n":%d}' % n for n in range(len(letters))])
    more = {"body": body, "body_crc": crc32c(body), "body_length": len(body), **more}
    return mixed(letters, **more)


def numbers(parts: list[Batch]) -> list[list[int]]:
    return [[msgspec.json.decode(one)["n"] for one in payloads(part)] for part in parts]


def test_each_run_that_a_filter_is_true_for_is_a_batch_at_its_place() -> None:
    parts = wanted_parts(numbered(), SOME, CONTENT)
    assert numbers(parts) == [[1, 2], [5]]
    assert [places(part) for part in parts] == [(1_002, 102, 52, 51), (1_006, 106, 56, 55)]
    assert {part.content_crc for part in parts} == {numbered().body_crc}


def test_a_filter_judges_messages_of_the_wanted_topics_only() -> None:
    orders = LinkTopics(["orders"], SOME.filter)
    assert numbers(wanted_parts(numbered("oottto"), orders, CONTENT)) == [[1], [5]]


def test_a_batch_that_a_filter_is_true_for_goes_as_it_is() -> None:
    batch = numbered(skip=1, cut=3, sequence=52)
    assert wanted_parts(batch, SOME, CONTENT) == [batch]


def test_a_batch_that_a_filter_is_false_for_does_not_go() -> None:
    assert wanted_parts(mixed(), SOME, CONTENT) == []
    assert wanted_parts(mixed(extra=[(99, b"x")]), SOME, CONTENT) == []


def test_what_a_filter_picked_is_picked_again_as_it_is() -> None:
    """By an instance that passes a copy on."""
    parts = wanted_parts(numbered(), SOME, CONTENT)
    assert [wanted_parts(part, SOME, CONTENT) for part in parts] == [[part] for part in parts]


@pytest.mark.parametrize(
    "batch",
    [
        numbered("o" * 6, extra=[(99, b"x")]),
        mixed(body=b'no array with "n"'),
        mixed("o", kind=KIND_NOOP, topics=[]),
    ],
)
def test_what_a_filter_cannot_cut_goes_as_it_is(batch: Batch) -> None:
    assert wanted_parts(batch, SOME, CONTENT) == [batch]


@pytest.mark.parametrize("kind", [KIND_STAGED, *sorted(OF_ALL_TOPICS)])
def test_stages_and_queues_do_not_go_with_a_filter(kind: int) -> None:
    assert wanted_parts(mixed("oo", kind=kind, topics=[]), SOME, CONTENT) == []
