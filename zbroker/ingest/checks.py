"""What a publish must be, and who may send it, before it may reach the journal. Pure.

Every failure has a code. A batch is taken whole or refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from zbroker.access.core import Permit
from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.filters import Payloads
from zbroker.ids import check_topic
from zbroker.ingest.packer import extra_size, has_extra
from zbroker.ingest.splitter import About
from zbroker.limits import BATCH_TOPICS_MAX, TOPICS_MAX, U63_MAX
from zbroker.topics import TopicCache
from zbroker.wire import bodies
from zbroker.wire.bodies import (
    NO_SCALARS,
    check_columns,
    check_extra_size,
    check_packed,
    is_scalar,
)
from zbroker.wire.messages import Publish

PACKED_SLACK_BYTES: Final = 8  # of a packed body: heads of its array and of one binary, at most 6


class PublishChecks:
    """Checks publishes against the limits of one instance."""

    def __init__(self, message_bytes: int, batch_bytes: int, publisher_time: bool) -> None:
        self._message_bytes, self._batch_bytes = message_bytes, batch_bytes
        self._publisher_time = publisher_time
        self._good_topics = TopicCache(check_topic, TOPICS_MAX)

    def check(self, publish: Publish, body: bytes) -> None:
        """Raises: ClientError bad_field, bad_topic, bad_frame, too_large."""
        last = publish.seq + (publish.count or 1) - 1
        if last > U63_MAX or (publish.prev is not None and publish.prev >= publish.seq):
            raise _bad_field("key `prev` must be below `seq`, both below 2**63")
        if publish.columns is not None:
            if publish.count is None:
                raise _bad_field("key `columns` goes with `count`")
            check_columns(publish.columns, publish.count, len(publish.topics or [""]))
        if has_extra(publish):
            _extra(publish)
        self._topics(publish)
        self._times(publish)
        if publish.codec not in (None, "zstd") or (publish.codec and publish.count is None):
            raise _bad_field("key `codec`: only 'zstd' is known, and only with `count`")
        self._body(publish, body)
        if publish.crc is not None and crc32c(body) != publish.crc:
            raise ClientError("bad_frame", "the body does not have the CRC-32C that key `crc` says")
        if publish.count is not None:
            limit = max(self._batch_bytes, self._message_bytes) + PACKED_SLACK_BYTES
            check_packed(body, publish.count, publish.codec, limit)

    @staticmethod
    def crc(body: bytes) -> int:
        """The CRC that the client left out; it stays with the body up to the subscriber."""
        return crc32c(body)

    def _body(self, publish: Publish, body: bytes) -> None:
        what, limit, size = "a message", self._message_bytes, len(body)
        if publish.count is not None and publish.count > 1:
            limit = self._batch_bytes + PACKED_SLACK_BYTES
            what = "a packed body of several messages"
        elif publish.count == 1 and publish.codec is None:
            size -= _framing(body)
        if size > limit:
            raise ClientError("too_large", f"{what} has at most {limit} bytes, this one {size}")

    def _topics(self, publish: Publish) -> None:
        index = publish.columns.index if publish.columns is not None else None
        if publish.topic is not None and publish.topics is None and index is None:
            self._good_topics[publish.topic]  # raises ClientError bad_topic
            return
        topics = publish.topics
        if publish.topic is not None or not topics or index is None or publish.count is None:
            raise _bad_field("give key `topic`, or `topics` with `count` and `columns.index`")
        if len(topics) > BATCH_TOPICS_MAX:
            raise _bad_field(f"key `topics` has at most {BATCH_TOPICS_MAX} names")
        for topic in topics:
            self._good_topics[topic]  # raises ClientError bad_topic

    def _times(self, publish: Publish) -> None:
        column = publish.columns.time if publish.columns is not None else None
        given = publish.time_ns is not None or column is not None
        if given and not self._publisher_time:
            reason = "a time was given, but this instance gives them (journal.time = 'append')"
            raise _bad_field(reason)
        if self._publisher_time and not given:
            raise _bad_field(
                "key `time_ns` or `columns.time` is missing (journal.time = 'publisher')"
            )
        if publish.time_ns is not None and abs(publish.time_ns) > U63_MAX:
            raise _bad_field("key `time_ns` must fit 64 bits")


def _bad_field(reason: str) -> ClientError:
    return ClientError("bad_field", reason)


def _framing(body: bytes) -> int:
    """Bytes of a packed body of one message that are not the message; of no such body any."""
    array = {0x91: 1, 0xDC: 3, 0xDD: 5}.get(body[0] if body else 0, 0)
    kind = body[array] if len(body) > array else 0
    return array + {0xC4: 2, 0xC5: 3, 0xC6: 5}.get(kind, 0)


def _extra(publish: Publish) -> None:
    """Key, headers and expiry of a single publish."""
    if publish.count is not None:
        reason = "keys `key`, `headers` and `expires_ns` do not go with `count`: use `columns`"
        raise _bad_field(reason)
    if not all(map(is_scalar, (publish.headers or {}).values())):
        raise _bad_field(f"key `headers`: {NO_SCALARS}")
    check_extra_size(extra_size(publish))


def check_permitted(
    permit: Permit, publish: Publish, body: bytes, type_of: Callable[[str], str], max_bytes: int
) -> None:
    """Whether a checked publish is permitted, by topic, and by content where that decides.

    Raises: ClientError not_entitled.
    """
    topics = publish.topics if publish.topics is not None else [publish.topic or ""]
    verdicts = [permit.verdict(topic) for topic in topics]
    if "no" in verdicts:
        raise _forbidden(topics[verdicts.index("no")])
    if "some" not in verdicts:
        return
    messages = [body]
    if publish.count is not None:
        messages = bodies.unpack(body, publish.codec, publish.count, max_bytes)
    index = bodies.topic_indexes(publish.columns, len(messages))
    about = About(topics, index, publish)
    for number, topic in enumerate(topics):
        if verdicts[number] == "some":
            at = [i for i, one in enumerate(index) if one == number]
            good = permit.content(topic).picks(Payloads(type_of(topic), messages), at, about)
            for wrong in sorted(set(at) - set(good))[:1]:
                what = f"message {publish.seq + wrong} on {topic!r}"
                raise ClientError("not_entitled", f"you may not publish what is in {what}")


def _forbidden(topic: str) -> ClientError:
    return ClientError("not_entitled", f"you may not publish on {topic!r}")


def check_staged(permit: Permit, topics: Iterable[str]) -> None:
    """Whether staged messages of these topics may be published, now that they are staged or shown.

    Their content is not looked at again when they are shown, so all of it must be permitted.
    Raises: ClientError not_entitled.
    """
    for topic in topics:
        verdict = permit.verdict(topic)
        if verdict == "no":
            raise _forbidden(topic)
        if verdict == "some":
            text = f"what you may publish on {topic!r} depends on its content: it cannot be staged"
            raise ClientError("not_entitled", text)
