"""How payloads are shown: by the type that [[record]] of the config gives their topic."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zbroker import formats
from zbroker.cli.journal.matching import whole
from zbroker.cli.journal.rows import MessageRow, message_row
from zbroker.clock import format_time
from zbroker.control.target import Target

TOPICS_MAX: Final = 10_000  # whose types are remembered
_READABLE: Final = frozenset({"auto", "json", "binary"})  # text or base64 says all there is

_TEXTS: Final = frozenset({"auto", "json", "nvfix", "fix", "xml"})  # bytes that people write

_encode: Final = msgspec.json.Encoder().encode


class PayloadRenderer:
    """Rows and lines of messages. An instance that is known by its URL only has type "auto"."""

    def __init__(self, target: Target) -> None:
        records = () if target.url else target.config().record
        self._rules = [
            (whole(one.topic) if one.regex else one.topic.__eq__, one.payload_type)
            for one in records
        ]
        self._known: dict[str, str] = {}

    def row(self, message: MessageRow) -> dict[str, Any]:
        """A message with stable keys; `value` is the payload by its type where that says more."""
        row = message_row(message)
        type_ = self.type_of(message.topic)
        if type_ not in _READABLE:
            row["value"] = formats.show(type_, message.data)
        return row

    def line(self, message: MessageRow) -> bytes:
        """A message for a person: position, time, topic, payload."""
        head = f"{message.position} {format_time(message.time_ns)} {message.topic} "
        return head.encode() + self.text(message) + b"\n"

    def text(self, message: MessageRow) -> bytes:
        """A payload in one line. Text is shown as it was published: grep looks in that."""
        type_, data = self.type_of(message.topic), bytes(message.data)
        if type_ in _TEXTS and is_text(data):
            return data.replace(b"\n", b"\\n")
        return _encode(formats.show(type_, data))

    def type_of(self, topic: str) -> str:
        """The message type of a topic: of the first rule that fits."""
        known = self._known.get(topic)
        if known is None:
            fitting = (type_ for fits, type_ in self._rules if fits(topic))
            known = next(fitting, "auto")
            if len(self._known) < TOPICS_MAX:
                self._known[topic] = known
        return known


def is_text(data: bytes) -> bool:
    """True if they are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
