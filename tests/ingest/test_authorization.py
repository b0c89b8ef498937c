"""Who may log on as whom, and publish what: by key, password, client name, topic and content."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.ingest.rig import item
from tests.ingest.test_core import A, B, Bench, error
from zbroker.access.core import NOT_ACCEPTED, Access
from zbroker.access.format import parse
from zbroker.config import RecordConfig
from zbroker.ingest.logons import PENALTY_MAX_MS, PENALTY_MIN_MS, VERIFYING_MAX
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import messages as m

ANN, BOB, DESK = "a" * 40, "b" * 40, "d" * 40
HASH = "scrypt$16384$8$1$c2FsdHNhbHRzYWx0c2FsdA==$" + "A" * 43 + "="
PEOPLE = f"""
[principal.ann]
keys = ["{ANN}"]
roles = ["feed"]
[principal.bob]
keys = ["{BOB}"]
[principal.carol]
keys = ["{DESK}"]
password = "{HASH}"
roles = ["feed"]
[principal.dave]
keys = ["{DESK}"]
password = "{HASH}"
"""
FEED = """
[[role.feed.allow]]
actions = ["publish"]
topics = ["open"]
[[role.feed.allow]]
actions = ["publish"]
topics = ["half"]
filter = "/n < 5"
"""


def rules(text: str = PEOPLE + FEED) -> Access:
    return parse(text, "access.toml")


@pytest.fixture
def listener() -> Bench:
    return Bench(access=rules(), clients=100)


def logon(name: str, key: str, rid: bytes = A, instance: str = "x", **given: str) -> Received:
    command = m.Logon(name, instance, "1", credentials=given or None)
    return item(rid, command, None, key=key)


def publish(seq: int, topic: str, data: bytes, key: str = ANN, rid: bytes = A) -> Received:
    return item(rid, m.Publish(seq, topic, prev=seq - 1), data, key=key)


def payload(n: int) -> bytes:
    return b'{"n": %d}' % n


# -- who --------------------------------------------------------------------------------------


def test_a_key_stands_for_its_principal(listener: Bench) -> None:
    [answer] = listener.turn(logon("ann", ANN))
    assert isinstance(answer, m.Ack)
    (client,) = listener.core.clients.by_rid.values()
    assert (client.principal, client.key) == ("ann", ANN)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (logon("eve", "e" * 40), "auth_failed"),
        (logon("eve", ""), "auth_failed"),
        (logon("ann", BOB), "not_entitled"),
        (logon("ann", ANN, user="bob"), "auth_failed"),
        (logon("carol", DESK), "auth_failed"),
        (logon("carol", DESK, user="carol"), "auth_failed"),
    ],
)
def test_others_are_refused(listener: Bench, command: Received, code: str) -> None:
    assert error(listener.turn(command)).code == code
    assert len(listener.core.clients) == 0


def test_a_command_counts_only_with_the_key_of_the_logon(listener: Bench) -> None:
    listener.turn(logon("ann", ANN))
    assert error(listener.turn(publish(1, "open", b"x", BOB))).code == "auth_failed"
    assert listener.turn(publish(1, "open", b"x")) == []
    assert len(listener.appended) == 1


def test_a_password_is_looked_at_beside_the_turn(listener: Bench) -> None:
    assert listener.turn(logon("carol", DESK, user="carol", password="right")) == []
    (asked,) = listener.asked
    assert (asked.password, asked.hashed) == ("right", HASH)
    assert "right" not in repr(asked)
    [answer] = listener.verified(asked.number, good=True)
    assert isinstance(answer, m.Ack)


def test_wrong_passwords_cost_more_and_more_time(listener: Bench) -> None:
    wait = PENALTY_MIN_MS
    while wait < PENALTY_MAX_MS:
        listener.turn(logon("carol", DESK, user="carol", password="wrong"))
        reported = listener.verified(listener.asked[-1].number, good=False)
        assert (error(reported).code, error(reported).reason) == ("auth_failed", NOT_ACCEPTED)
        listener.now_ms += wait - 1
        asked = len(listener.asked)
        again = logon("carol", DESK, user="carol", password="right")
        assert "wait" in error(listener.turn(again)).reason
        assert len(listener.asked) == asked, "no one looks at it"
        listener.now_ms += 1
        wait *= 2


def test_wrong_passwords_for_one_user_keep_no_other_out() -> None:
    """Whoever has a shared key could lock out all its users, when the wait was by key."""
    listener = Bench(access=rules(), clients=100)
    listener.turn(logon("dave", DESK, user="dave", password="guess"))
    listener.verified(listener.asked[-1].number, good=False)
    assert listener.turn(logon("carol", DESK, B, user="carol", password="right")) == []
    [answer] = listener.verified(listener.asked[-1].number, good=True)
    assert isinstance(answer, m.Ack)


def test_one_password_of_a_connection_is_looked_at_at_once(listener: Bench) -> None:
    guess = logon("dave", DESK, user="dave", password="guess")
    assert listener.turn(guess) == []
    assert error(listener.turn(logon("dave", DESK, user="x", password="guess"))).code == "too_many"
    assert len(listener.asked) == 1


def test_one_principal_cannot_take_all_places() -> None:
    listener = Bench(access=rules(), clients=100, clients_per_principal=2)
    for n in range(2):
        assert isinstance(listener.turn(logon(f"bob-{n}", BOB, b"\0%4d" % n))[0], m.Ack)
    assert error(listener.turn(logon("bob-2", BOB, b"\0more"))).code == "too_many"
    assert isinstance(listener.turn(logon("ann", ANN))[0], m.Ack)
    listener.gone(b"\0%4d" % 0)
    assert isinstance(listener.turn(logon("bob-2", BOB, b"\0more"))[0], m.Ack), (
        "there is room again"
    )


def test_no_one_takes_over_the_session_of_another_principal(listener: Bench) -> None:
    """Its `instance` can be read by admin_read; only the same principal may replace it by that."""
    listener.turn(logon("client-7", ANN, instance="mine"))
    reported = listener.turn(logon("client-7", BOB, B, instance="mine"))
    assert reported == [m.Heartbeat()], "the holder is probed, not replaced"
    (client,) = listener.core.clients.by_rid.values()
    assert client.principal == "ann"


def test_no_one_learns_by_the_answer_who_there_is(listener: Bench) -> None:
    """Somebody who is not there takes as long, and gets the same answer, as a wrong password."""
    reported = []
    for at, user in enumerate(("carol", "nobody", "nobody")):
        assert listener.turn(logon("x", DESK, user=user, password="wrong")) == []
        reported.append(error(listener.verified(at + 1, good=False)))
        assert "wait" in error(listener.turn(logon("x", DESK, user=user, password="wrong"))).reason
        listener.now_ms += PENALTY_MAX_MS
    assert len({(one.code, one.reason, one.hint) for one in reported}) == 1


def test_the_number_of_passwords_under_way_is_bounded(listener: Bench) -> None:
    for n in range(VERIFYING_MAX):
        listener.turn(logon("carol", DESK, b"\0%4d" % n, user="carol", password="x"))
    reported = listener.turn(logon("carol", DESK, user="carol", password="x"))
    assert error(reported).code == "too_many"


def test_rules_that_change_while_a_password_is_looked_at_count(listener: Bench) -> None:
    listener.turn(logon("carol", DESK, user="carol", password="right"))
    listener.entitle(rules(f'[principal.bob]\nkeys = ["{BOB}"]'))
    reported = listener.verified(listener.asked[0].number, good=True)
    assert error(reported).code == "auth_failed"


# -- what -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "data", "good"),
    [
        ("open", b"anything", True),
        ("half", payload(4), True),
        ("half", payload(5), False),
        ("half", b"no JSON", False),
        ("shut", payload(1), False),
        ("opened", payload(1), False),
    ],
)
def test_what_may_be_published(listener: Bench, topic: str, data: bytes, good: bool) -> None:
    listener.turn(logon("ann", ANN))
    reported = listener.turn(publish(1, topic, data))
    assert [one.code for one in reported if isinstance(one, m.Error)] == (
        [] if good else ["not_entitled"]
    )
    assert len(listener.appended) == good


@given(
    st.lists(st.tuples(st.sampled_from(["open", "half", "shut"]), st.integers(0, 9)), min_size=1)
)
def test_a_batch_goes_whole_or_not_at_all(rows: list[tuple[str, int]]) -> None:
    listener = Bench(access=rules())
    listener.turn(logon("ann", ANN))
    names = sorted({topic for topic, _ in rows})
    index = array("H", [names.index(topic) for topic, _ in rows]).tobytes()
    command = m.Publish(
        1, None if len(names) > 1 else names[0], names if len(names) > 1 else None, len(rows), 0,
        columns=m.Columns(index=index) if len(names) > 1 else None,
    )  # fmt: skip
    body = msgspec.msgpack.encode([payload(n) for _, n in rows])
    if len(body) > 2_000:
        return
    reported = listener.turn(item(A, command, body, key=ANN))
    good = all(topic == "open" or (topic == "half" and n < 5) for topic, n in rows)
    assert len(listener.appended) == good
    assert [one.code for one in reported if isinstance(one, m.Error)] == (
        [] if good else ["not_entitled"]
    )


def test_who_may_not_stage_does_not_learn_what_is_recorded() -> None:
    listener = Bench(access=rules(), recording=Recording([RecordConfig("open")]))
    listener.turn(logon("ann", ANN))
    command = m.Publish(1, "shut", count=1, prev=0, stage="one")
    refused = error(listener.turn(item(A, command, msgspec.msgpack.encode([b"x"]), key=ANN)))
    assert refused.code == "not_entitled"


BY_HEADER = PEOPLE + FEED.replace("/n < 5", "HEADER('desk') IN ('fx', 7)")


@pytest.mark.parametrize(
    ("headers", "good"),
    [({"desk": "fx"}, True), ({"desk": 7}, True), ({"desk": "eq"}, False), ({}, False),
     (None, False), ({"desk": b"fx"}, False), ({"other": "fx"}, False)],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_filter_on_a_header_says_what_may_be_published(
    headers: dict[str, object] | None, good: bool, packed: bool
) -> None:
    listener = Bench(access=rules(BY_HEADER))
    listener.turn(logon("ann", ANN))
    raw = {name: Raw(msgspec.msgpack.encode(value)) for name, value in (headers or {}).items()}
    command, body = m.Publish(1, "half", prev=0, headers=raw), b"{}"
    if packed:
        rows = msgspec.msgpack.encode([{"desk": "fx"}, headers])
        command = m.Publish(1, "half", prev=0, count=2, columns=m.Columns(headers=rows))
        body = msgspec.msgpack.encode([b"{}"] * 2)
    reported = listener.turn(item(A, command, body, key=ANN))
    assert [one.code for one in reported if isinstance(one, m.Error)] == (
        [] if good else ["not_entitled"]
    )


# -- rules that change ------------------------------------------------------------------------


def test_what_is_taken_away_counts_at_once(listener: Bench) -> None:
    listener.turn(logon("ann", ANN))
    assert listener.entitle(rules(PEOPLE + FEED.replace("open", "other"))) == []
    assert error(listener.turn(publish(1, "open", b"x"))).code == "not_entitled"


def test_who_is_not_known_any_more_is_informed_and_gone(listener: Bench) -> None:
    listener.turn(logon("ann", ANN))
    listener.turn(logon("bob", BOB, B))
    reported = listener.entitle(rules(f'[principal.bob]\nkeys = ["{BOB}"]'))
    assert error(reported).code == "auth_failed"
    assert [client.name for client in listener.core.clients.by_rid.values()] == ["bob"]
    assert error(listener.turn(publish(1, "open", b"x"))).code == "not_logged_on"


def test_a_name_that_is_taken_away_ends_who_has_it(listener: Bench) -> None:
    listener.turn(logon("ann-2", ANN))
    changed = PEOPLE.replace('roles = ["feed"]', 'roles = ["feed"]\nnames = ["ann"]', 1) + FEED
    assert error(listener.entitle(rules(changed))).code == "not_entitled"
    assert len(listener.core.clients) == 0


def test_a_contested_name_goes_to_no_one_who_lost_his_key_meanwhile(listener: Bench) -> None:
    listener.turn(logon("ann", ANN, instance="old"))
    listener.turn(logon("ann", ANN, B, instance="new"))  # the holder is probed
    only_bob = rules(f'[principal.bob]\nkeys = ["{BOB}"]')
    reported = [*listener.entitle(only_bob), *listener.tick(0)]
    assert [one.code for one in reported if isinstance(one, m.Error)] == ["auth_failed"] * 2
    assert len(listener.core.clients) == 0
