"""zbroker/server/token_listener.py: what is the same for the clients of all these listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from zbroker.engine.effects import NoteDisconnected, Send, Tell
from zbroker.ids import Origin
from zbroker.server.peers import Peer, Peers
from zbroker.server.token_listener import ListenerSettings, TokenListener
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.surveys import DISCONNECTED, Disconnect, Disconnected, unknown
from zbroker.wire.token import Token


class _Listener(TokenListener[Peer]):
    """ann is connected twice, bob once."""

    decoder = codec.QUEUES
    sid_ends = ()

    def __init__(self) -> None:
        super().__init__(ListenerSettings(b"k" * 32, 10), Peers(Peer), unknown)
        for rid, name in ((b"ann", "ann"), (b"bob", "bob"), (b"other", "ann")):
            self.connections.logon(rid, Token(name, "", "i", 1, 0), None, 0)

    def gone(self, rid: bytes) -> None:
        self.connections.leave(rid)

    def origin(self) -> Origin | None:
        return None

    def entitle(self, connection: Peer) -> Sequence[Any]:
        return ()


def test_every_connection_of_a_client_is_ended_and_informed() -> None:
    listener = _Listener()
    noted, *sends, answer = listener.answer(b"admin", Disconnect(7, "ann"))
    assert (noted, answer) == (NoteDisconnected("ann", 2), Tell(b"admin", Disconnected(7, 2)))
    assert list(listener.connections) == [b"bob"]
    assert [send.rid for send in sends] == [b"ann", b"other"]
    for send in sends:
        assert isinstance(send, Send)
        error = codec.ANSWERS.decode(send.header)
        assert isinstance(error, m.Error)
        assert (error.code, error.reason, error.sid) == ("session_ended", DISCONNECTED, None)


@pytest.mark.parametrize("client", ["an", ""])
def test_a_client_that_is_not_there_cannot_be_ended(client: str) -> None:
    listener = _Listener()
    effects = listener.answer(b"admin", Disconnect(7, client))
    assert effects == [Tell(b"admin", Disconnected(7, 0))], "the log says nothing of it"
    assert len(listener.connections) == 3
