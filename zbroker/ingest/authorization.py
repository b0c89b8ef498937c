"""Whether somebody may publish these messages: by topic, and by content where that decides. Pure.

A batch is taken whole or refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zbroker.access.core import Permit
from zbroker.errors import ClientError
from zbroker.filters import Payloads
from zbroker.ingest.content import About
from zbroker.wire import bodies
from zbroker.wire.messages import Publish


def check(
    permit: Permit, publish: Publish, body: bytes, type_of: Callable[[str], str], max_bytes: int
) -> None:
    """`publish` was checked before. Raises: ClientError not_entitled."""
    topics = publish.topics if publish.topics is not None else [publish.topic or ""]
    verdicts = [permit.verdict(topic) for topic in topics]
    if "no" in verdicts:
        topic = topics[verdicts.index("no")]
        raise ClientError("not_entitled", f"you may not publish on {topic!r}")
    if "some" in verdicts:
        _check_content(permit, publish, topics, _messages(publish, body, max_bytes), type_of)


def check_staged(permit: Permit, topics: Iterable[str]) -> None:
    """Whether staged messages of these topics may be published, now that they are staged or shown.

    Their content is not looked at again when they are shown, so all of it must be permitted.
    Raises: ClientError not_entitled.
    """
    for topic in topics:
        verdict = permit.verdict(topic)
        if verdict == "no":
            raise ClientError("not_entitled", f"you may not publish on {topic!r}")
        if verdict == "some":
            text = f"what you may publish on {topic!r} depends on its content: it cannot be staged"
            raise ClientError("not_entitled", text)


def _messages(publish: Publish, body: bytes, max_bytes: int) -> list[bytes]:
    if publish.count is None:
        return [body]
    return bodies.unpack(body, publish.codec, publish.count, max_bytes)


def _check_content(
    permit: Permit,
    publish: Publish,
    topics: list[str],
    messages: list[bytes],
    type_of: Callable[[str], str],
) -> None:
    column = publish.columns.index if publish.columns is not None else None
    index = bodies.indexes(column) if column is not None else [0] * len(messages)
    about = About(topics, index, publish.columns, publish.time_ns, publish)
    for number, topic in enumerate(topics):
        if permit.verdict(topic) == "some":
            at = [i for i, one in enumerate(index) if one == number]
            good = permit.content(topic).picks(Payloads(type_of(topic), messages), at, about)
            for wrong in sorted(set(at) - set(good))[:1]:
                what = f"message {publish.seq + wrong} on {topic!r}"
                raise ClientError("not_entitled", f"you may not publish what is in {what}")
