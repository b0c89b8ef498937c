"""What a refusal of a client's command names."""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.delivery.effects import DeliveryStats
from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import messages as m


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
    counts: DeliveryStats, rid: bytes, error: ClientError, cid: str | None, sid: str | None = None
) -> Send:
    """The answer to a command that is not served, counted."""
    counts.errors += 1
    return Send(rid, codec.encode(m.Error(error.code, error.reason, error.hint, cid, sid)))
