"""A message that is in no log, and whether a filter takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zbroker.filters import Payloads, Test


class AloneMessage(NamedTuple):
    """Its properties: it has no log time and no bookmark."""

    reported_topic: str
    headers: Mapping[str, object]
    reported_key: bytes | None

    def topic(self, _i: int) -> str:
        return self.reported_topic

    def time_ns(self, _i: int) -> int:
        return 0

    def bookmark(self, _i: int) -> str:
        return ""

    def header(self, _i: int, name: str) -> object:
        return self.headers.get(name)

    def key(self, _i: int) -> bytes | None:
        return self.reported_key


def takes(
    test: Test,
    data: bytes,
    topic: str = "",
    headers: Mapping[str, object] | None = None,
    key: bytes | None = None,
) -> bool:
    """True if the message matches."""
    about = AloneMessage(topic, headers or {}, key)
    return bool(test.picks(Payloads(test._type, [data]), [0], about))
