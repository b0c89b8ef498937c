"""Clients' commands as they come: frames to structs, and what a refusal of one names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zbroker.delivery.effects import Counts, Send
from zbroker.errors import ClientError
from zbroker.limits import FRAMES_MAX
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.bodies import CODEC_ZSTD


class Received(NamedTuple):
    """One command as it came: who sent it, its frames, and whether there were more than allowed."""

    rid: bytes
    frames: Sequence[bytes | memoryview]
    over: bool = False


def decode(received: Received) -> m.DeliveryCommand:
    """The command in one message. Raises: ClientError."""
    if received.over or len(received.frames) != 1:
        count = f"more than {FRAMES_MAX}" if received.over else len(received.frames)
        raise ClientError("bad_frame", f"a command of this door is one frame; this one has {count}")
    command: m.DeliveryCommand = codec.decode(codec.DELIVERY, received.frames[0])
    return command


def cid_of(command: m.DeliveryCommand | None, frames: Sequence[bytes | memoryview]) -> str | None:
    """The cid that a refusal carries, also of a command that could not be decoded."""
    if command is None:
        return codec.cid_of(frames[0]) if frames else None
    return None if isinstance(command, m.Flow | m.Heartbeat) else command.cid


def sid_of(command: m.DeliveryCommand | None, error: ClientError) -> str | None:
    """The sid that a refusal names: an error with a sid ends it, so not the one that is in use."""
    if error.code == "sid_in_use" or not isinstance(command, m.Subscribe | m.Flow | m.Unsubscribe):
        return None
    return command.sid


def takes_zstd(options: dict[str, Any]) -> bool:
    """Reads the options of a subscription. Raises: ClientError bad_field."""
    for key in options:
        if key != "codecs":
            raise ClientError("bad_field", f"option {key[:64]!r} is not spoken here")
    codecs = options.get("codecs", [])
    if not isinstance(codecs, list) or not all(isinstance(name, str) for name in codecs):
        raise ClientError("bad_field", "option `codecs` is a list of names")
    return CODEC_ZSTD in codecs


def wants_unrecorded(command: m.Subscribe) -> bool:
    """True if it wants messages of topics that are not recorded too."""
    if command.unrecorded is None:
        return command.bookmark is None and command.until is None
    return command.unrecorded


def check_recorded(command: m.Subscribe, recording: Recording) -> None:
    """Raises: ClientError topic_not_recorded, if nothing could ever come."""
    if not command.regex and not wants_unrecorded(command) and not recording(command.topic):
        raise ClientError("topic_not_recorded", f"topic {command.topic!r} is not recorded")


def refusal(
    counts: Counts, rid: bytes, error: ClientError, cid: str | None, sid: str | None = None
) -> Send:
    """The answer to a command that is not served, counted."""
    counts.errors += 1
    return Send(rid, codec.encode(m.Error(error.code, error.reason, error.hint, cid, sid)))


def unknown_sid(sid: str) -> ClientError:
    """The refusal of a command for a subscription that never was."""
    return ClientError("unknown_sid", f"no subscription {sid[:64]!r} on this connection")
