"""The filter of a link: which messages of a batch it is true for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from tests.replication.build import HERE
from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.log.format import COLUMN_ORIGIN_TIME, FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.replication.link_filter import LinkFilter, UnpackedBody
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

SECOND_NS = 1_000_000_000


def of(messages: Sequence[bytes], **more: object) -> Batch:
    """A batch of these messages on the topic `t`."""
    body, count = bodies.pack(messages), len(messages)
    made = Batch(
        KIND_PUBLISH, 1_001, 77, 1, 51, 50, count, 16, ["t"], body, crc32c(body), len(body), 0, 0,
        *HERE, 101,
    )  # fmt: skip
    return replace(made, **more)


def numbers(count: int) -> Batch:
    return of([b'{"n": %d}' % n for n in range(count)])


def picks(text: str, batch: Batch, at: Sequence[int] | None = None, **types: str) -> list[int]:
    content = LinkFilter(text, lambda topic: types.get(topic, "auto"))
    places = range(batch.count) if at is None else at
    return content.picks(batch, places, UnpackedBody(batch))


def test_it_is_true_for_some_messages() -> None:
    assert picks("/n > 2", numbers(5)) == [3, 4]


def test_only_the_messages_that_are_asked_for_are_judged() -> None:
    assert picks("/n > 1", numbers(5), [0, 2, 4]) == [2, 4]


def test_a_message_that_is_not_of_its_type_does_not_match() -> None:
    batch = of([b'{"n": 1}', b"no JSON", b'{"n": 3}'])
    assert picks("/n < 5 OR /n IS NULL", batch, t="json") == [0, 2]
    assert picks("TOPIC_NAME() = 't'", batch, t="json") == [0, 1, 2], "it names no field"


def test_each_topic_is_read_by_its_type() -> None:
    index = array("H", [0, 1, 0, 1]).tobytes()
    packed = msgspec.msgpack.encode({"n": 9})
    batch = of(
        [b'{"n": 9}', packed, b'{"n": 1}', packed], topics=["t", "u"], columns=Columns(index=index)
    )
    assert picks("/n = 9", batch, t="json", u="msgpack") == [0, 1, 3]


def test_a_batch_without_the_bytes_that_match_is_not_unpacked() -> None:
    batch = of([b'{"side": "S"}'])
    body = UnpackedBody(batch)
    assert LinkFilter("/side = 'B'").picks(batch, [0], body) == []
    assert "messages" not in vars(body)


def test_a_compressed_batch_is_read() -> None:
    batch = numbers(3)
    packed = zstandard.ZstdCompressor().compress(bytes(batch.body))
    batch = replace(batch, body=packed, body_crc=crc32c(packed), flags=FLAG_ZSTD)
    assert picks("/n >= 1", batch) == [1, 2]


@pytest.mark.parametrize("each", [True, False])
def test_the_time_is_that_at_the_origin(each: bool) -> None:
    """An instance that passes a copy on has other log times, and has to find the same."""
    times = array("q", [SECOND_NS, 2 * SECOND_NS])
    late = array("q", [9 * SECOND_NS, 9 * SECOND_NS]).tobytes()
    original = (COLUMN_ORIGIN_TIME, (times if each else times[1:]).tobytes())
    batch = of([b"{}", b"{}"], log_time=9 * SECOND_NS, extra=[original])
    if each:
        batch = replace(batch, columns=Columns(time=late))
    assert picks("LAST_UPDATED() > 1.5", batch) == ([1] if each else [0, 1])
    assert picks("LAST_UPDATED() > 3", batch) == []


def test_a_body_that_cannot_be_read_is_not_judged() -> None:
    with pytest.raises(ClientError):
        picks("/n = 1", of([b"x"], body=b'no array with "n"'))


def test_what_changes_cannot_be_called() -> None:
    with pytest.raises(ClientError, match="column 5: UNIX_TIMESTAMP cannot be called here"):
        LinkFilter("1 < UNIX_TIMESTAMP()")
