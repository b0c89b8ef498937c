"""What a refusal of a client's command names. Pure."""

from __future__ import annotations

from zbroker.errors import ClientError
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


def cid_of(command: q.QueuesCommand | None, received: Received) -> str | None:
    """The cid that a refusal carries, also of a command that could not be decoded."""
    if command is None:
        return codec.cid_of(received.frames[0]) if received.frames else None
    return None if isinstance(command, m.Flow | m.Heartbeat) else command.cid


def sid_of(command: q.QueuesCommand | None, error: ClientError) -> str | None:
    """An error with a sid ends it: so not where it is in use, nor for what is about messages."""
    if error.code == "sid_in_use":
        return None
    return command.sid if isinstance(command, q.Consume | q.Cancel | m.Flow) else None
