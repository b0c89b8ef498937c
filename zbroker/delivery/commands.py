"""Clients' commands as they come: frames to structs, and what a refusal of one names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zbroker.delivery.effects import Counts, Send
from zbroker.errors import ClientError
from zbroker.limits import FRAMES_MAX
from zbroker.wire import codec
from zbroker.wire import messages as m


class Received(NamedTuple):
    """One command as it came: who sent it, its frames, and whether there were more than allowed.

    key: the CURVE key of its connection, "" without.
    """

    rid: bytes
    frames: Sequence[bytes | memoryview]
    over: bool = False
    key: str = ""


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
    if error.code == "sid_in_use":
        return None
    return command.sid if isinstance(command, m.Subscribe | m.Flow | m.Unsubscribe) else None


def refusal(
    counts: Counts, rid: bytes, error: ClientError, cid: str | None, sid: str | None = None
) -> Send:
    """The answer to a command that is not served, counted."""
    counts.errors += 1
    return Send(rid, codec.encode(m.Error(error.code, error.reason, error.hint, cid, sid)))
