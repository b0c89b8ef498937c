"""Which delivery worker a connection is given."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from zbroker import config
from zbroker.ingest.clients import ClientConnection, ClientRegistry, Spread, endpoints_for, missing

PROCESSES = ("delivery", "delivery-2")
KNOWN = {"ingest": "i", "delivery": "d1", "delivery-2": "d2", "queues": "q", "admin": "a"}


def client(rid: int, name: str) -> ClientConnection:
    return ClientConnection(b"\0%04d" % rid, name, "x", None, None, 0)


def test_a_logon_names_one_delivery_listener() -> None:
    others = {"queues": "q", "admin": "a"}
    assert endpoints_for(0, PROCESSES, KNOWN) == {"delivery": "d1", **others}
    assert endpoints_for(1, PROCESSES, KNOWN) == {"delivery": "d2", **others}


def test_a_worker_that_has_not_started_is_stood_in_for() -> None:
    assert endpoints_for(1, PROCESSES, {"delivery": "d1"}) == {"delivery": "d1"}
    assert endpoints_for(0, PROCESSES, {"delivery-2": "d2"}) == {"delivery": "d2"}
    assert endpoints_for(0, PROCESSES, {"admin": "a"}) == {"admin": "a"}


def test_the_listeners_of_one_worker_are_as_ever() -> None:
    assert endpoints_for(0, ("delivery",), {"ingest": "i", "delivery": "d"}) == {"delivery": "d"}


def test_clients_that_come_by_turns_are_not_put_in_one_place() -> None:
    spread = Spread(2)
    joined = [(spread.join(f"publisher-{n}"), spread.join(f"subscriber-{n}")) for n in range(100)]
    assert all({one, other} == {0, 1} for one, other in joined)
    assert min(Counter(subscriber for _, subscriber in joined).values()) > 25


def test_a_connection_that_logs_on_again_keeps_its_worker() -> None:
    clients = ClientRegistry(workers=3)
    others = [client(n, f"c{n}") for n in range(7)]
    for one in others:
        clients.add(one)
    for one in others:
        again = client(int(one.rid[1:]), one.name)
        clients.add(again)
        assert again.worker == one.worker
        clients.check()


@given(
    st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 20)))
)
def test_workers_get_as_many_connections_each(
    workers: int, events: list[tuple[bool, int, int]]
) -> None:
    """Names and connections come, change places and go."""
    clients = ClientRegistry(workers)
    for comes, rid, name in events:
        if comes:
            one = client(rid, f"c{name}")
            before = Counter(c.worker for c in clients.by_rid.values())
            known = clients.by_rid.get(one.rid)
            replaced = clients.add(one)
            if known is not None:
                assert one.worker == known.worker
            else:
                assert before[one.worker] == min(before[worker] for worker in range(workers))
            if replaced is not None and replaced.rid != one.rid:
                clients.remove(replaced)
                clients.by_name[one.name] = one
        elif one := clients.by_rid.get(b"\0%04d" % rid):  # type: ignore[assignment]
            clients.remove(one)
        clients.check()


def test_every_other_listener_of_the_config_is_missing_until_it_is_known() -> None:
    free = "tcp://127.0.0.1:0"
    settings = config.parse("", "z.toml", {"delivery.workers": 2, "listen.queues": free})
    assert missing(settings, {}) == ["delivery", "delivery-2", "queues", "admin"]
    known = dict.fromkeys(("ingest", "delivery", "queues"), "tcp://127.0.0.1:1")
    assert missing(settings, known) == ["delivery-2", "admin"]
    assert missing(settings, {**known, "delivery-2": "", "admin": ""}) == []
