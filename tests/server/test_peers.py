"""zbroker/server/peers.py: who is logged on at a listener that takes tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import KEY_A, KEY_B, code_of, rules
from zbroker.access.core import Access
from zbroker.limits import FRAMES_MAX, HEARTBEAT_MS
from zbroker.server.peers import (
    Peer,
    Peers,
    Received,
    admit,
    check_key,
    decode,
    made_by_zeromq,
    welcome,
)
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.token import Token, make

KEY = b"k" * 32
RID = b"\0abcd"
NOW_S = 1_000.0
OFF = Access.off()


def _token(**more: Any) -> Token:
    return Token(
        **{
            "name": "ann", "principal": "ann", "instance": "i", "session": 1,
            "expires_s": int(NOW_S) + 60, "key": "", **more,
        }
    )  # fmt: skip


def _proves(
    token: str, rid: bytes = RID, key: str = "", access: Access = OFF,
    peers: Peers[Peer] | None = None,
) -> Token:  # fmt: skip
    command = m.ListenerLogon(token, "1")
    at = Peers(Peer) if peers is None else peers
    at.access = access
    return at.token_of(command, Received(rid, [], False, key), KEY, NOW_S)


# -- commands ---------------------------------------------------------------------------------


def test_a_command_is_one_frame() -> None:
    frame = codec.encode(q.Cancel("s"))
    assert decode(codec.QUEUES, Received(RID, [frame])) == q.Cancel("s")
    for received in (Received(RID, []), Received(RID, [frame] * 2), Received(RID, [frame], True)):
        assert code_of(lambda received=received: decode(codec.QUEUES, received)) == "bad_frame"


def test_a_flood_of_frames_is_not_counted() -> None:
    with pytest.raises(Exception, match=f"more than {FRAMES_MAX}"):
        decode(codec.QUEUES, Received(RID, [b"x"] * FRAMES_MAX, True))


# -- who somebody is --------------------------------------------------------------------------


def test_a_token_proves_who_somebody_is() -> None:
    assert _proves(make(KEY, _token())) == _token()


def test_a_token_of_another_instance_proves_nothing() -> None:
    assert code_of(lambda: _proves(make(b"x" * 32, _token()))) == "auth_failed"


def test_a_token_that_is_too_old_proves_nothing() -> None:
    assert code_of(lambda: _proves(make(KEY, _token(expires_s=int(NOW_S) - 1)))) == "auth_failed"


def test_a_token_counts_for_the_key_that_it_was_made_for() -> None:
    access = rules("q")
    said = make(KEY, _token(key=KEY_A))
    assert _proves(said, key=KEY_A, access=access).principal == "ann"
    assert code_of(lambda: _proves(said, key=KEY_B, access=access)) == "auth_failed"
    assert code_of(lambda: _proves(said, key=KEY_B)) == "auth_failed", "also without rules"


def test_a_token_ends_with_the_right_to_its_name() -> None:
    for name, code in (("ann", None), ("ann-2", None), ("client-7", None), ("bob", "not_entitled")):
        said = make(KEY, _token(name=name, key=KEY_A))
        if code is None:
            assert _proves(said, key=KEY_A, access=rules("q")).name == name
        else:
            assert code_of(lambda said=said: _proves(said, key=KEY_A, access=rules("q"))) == code


def test_a_token_ends_when_an_operator_disconnects_its_client() -> None:
    peers: Peers[Peer] = Peers(Peer)
    peers.logon(RID, _token(), None, 0)
    assert peers.disconnect("ann", 3) == [RID]
    assert peers.disconnect("eve", 0) == [], "0 ends no tokens"
    for name, known, code in (
        ("ann", 2, "auth_failed"), ("ann", 3, None), ("ann-2", 0, None), ("eve", 0, None),
    ):  # fmt: skip
        said = make(KEY, _token(name=name, disconnects=known))
        if code is None:
            assert _proves(said, peers=peers).name == name
        else:
            assert code_of(lambda said=said: _proves(said, peers=peers)) == code


def test_rules_that_forget_a_principal_admit_it_no_more() -> None:
    token = _token(key=KEY_A)
    admit(rules("q"), token, KEY_A)
    assert code_of(lambda: admit(Access([], {}), token, KEY_A)) == "auth_failed"


@pytest.mark.parametrize(
    ("rid", "fine"),
    [(RID, True), (b"", False), (b"mine!", False), (b"\0abc", False), (b"\0abcde", False)],
)
def test_a_routing_id_is_not_chosen_by_the_client(rid: bytes, fine: bool) -> None:
    assert made_by_zeromq(rid) == fine
    if not fine:
        assert code_of(lambda: _proves(make(KEY, _token()), rid)) == "auth_failed"


def test_each_command_comes_with_the_key_of_the_logon() -> None:
    peer = Peers(Peer).logon(RID, _token(key=KEY_A), None, 0)
    check_key(peer, KEY_A)
    assert code_of(lambda: check_key(peer, KEY_B)) == "auth_failed"


# -- a listener -----------------------------------------------------------------------------------


def test_a_logon_is_answered_with_the_interval_of_heartbeats() -> None:
    peers = Peers(Peer)
    asked = welcome(peers.logon(RID, _token(), 2.5, 0), "1")
    assert (asked.type, asked.cid, asked.version, asked.heartbeat_s) == (
        "processed", "1", m.VERSION, 2.5,
    )  # fmt: skip
    assert welcome(peers.logon(RID, _token(), None, 0), None).heartbeat_s == HEARTBEAT_MS / 1_000


def test_who_comes_and_who_leaves_is_reported() -> None:
    peers = Peers(Peer)
    one = peers.logon(RID, _token(), None, 0)
    assert peers == {RID: one}
    peers.leave(RID)
    peers.logon(RID, _token(), None, 0)
    assert (peers.came, peers.left) == ([RID, RID], [RID])


def test_a_silent_peer_is_found() -> None:
    peers, silent, due = Peers(Peer), [], []
    peers.logon(RID, _token(), 1, 0)
    for now_ms in range(500, 2_501, 500):
        found = peers.beats(now_ms, drained=True)
        silent += found[0]
        due += found[1]
    assert RID in silent
    assert RID in due
