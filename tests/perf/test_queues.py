"""Claims about how shared work is counted, and about what the queue workloads publish."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from perf import backlog, queue_peers
from perf.__main__ import shown, table
from perf.backlog import Payload, payload
from perf.brokers.server import Server, program
from perf.consumers import Consumers, Round, Taken, check, consumers, rate
from perf.harness import PAYLOAD_BYTES, Result, checksum, payloads


def taken(count: int = 0, total: int = 0, first: float = 0.0, last: float = 0.0) -> Taken:
    return Taken(count, total, first, last, 0.0)


def test_the_rate_counts_from_the_first_delivery_to_the_last_durable_ack() -> None:
    assert rate([taken(30, first=10.5, last=11.0), taken(70, first=10.0, last=12.0)]) == 50


def test_a_consumer_that_got_nothing_does_not_start_the_clock() -> None:
    assert rate([taken(100, first=10.0, last=11.0), taken(last=10.9)]) == 100


def test_all_messages_once_are_accepted() -> None:
    bodies = payloads(10)
    parts = [
        sum(body[11] + 5 + at for at, body in enumerate(bodies) if at % 2 == n) for n in (0, 1)
    ]
    check([taken(5, total) for total in parts], checksum(bodies, 5), 10)


@pytest.mark.parametrize(("count", "total"), [(9, 100), (10, 101), (11, 100)])
def test_a_missing_or_doubled_message_is_reported(count: int, total: int) -> None:
    with pytest.raises(AssertionError):
        check([taken(count, total)], 100, 10)


def test_payloads_are_json_of_about_the_stated_size() -> None:
    for number in (0, 7, 1_299_999):
        data = msgspec.json.encode(payload(number))
        assert msgspec.json.decode(data, type=Payload).n == number
        assert PAYLOAD_BYTES - 10 <= len(data) <= PAYLOAD_BYTES + 5


def test_chunks_are_every_number_once() -> None:
    bodies = [body for chunk in backlog._chunks(3, backlog.CHUNK + 9) for body in chunk]
    numbers = [msgspec.json.decode(body, type=Payload).n for body in bodies]
    assert numbers == list(range(3, backlog.CHUNK + 9))


def no_fill(_server: Server, _bodies: list[bytes]) -> None:
    """Nothing."""


def test_each_consumer_of_a_peer_can_get_its_share() -> None:
    server = Server(1, dict)
    for count in queue_peers.COUNTS:
        peer = queue_peers.Peer(
            "x", server, count, no_fill, count_up, cast(Any, None), queue_peers.MESSAGES_SYNCED
        )
        assert peer.backlog * count <= peer.messages


def test_a_server_that_is_not_there_is_not_found() -> None:
    assert program("no-such-server-anywhere") is None


def test_notes_may_be_words() -> None:
    assert shown({"server": "v2", "messages": 20_000}) == "(server v2, messages 20,000)"


def test_the_title_tells_how_many_rounds_there_were() -> None:
    def result(rounds: int) -> Result:
        return Result("x", "s", [1.0] * rounds, [1.0] * rounds, "raw", "")

    assert "medians of 3 rounds" in str(table([result(3), result(3)]).title)
    assert "medians of 1 to 3 rounds" in str(table([result(3), result(1)]).title)


def count_up(this: Round, number: int, each: int) -> Taken:
    """A consumer that takes `each` messages of sum 2 at a time."""
    this.begin()
    while not this.over:
        this.took(each, 2)
    this.first = 1.0 + number
    return this.ended()


def fail(_this: Round, _number: int) -> Taken:
    raise ValueError("no broker")


@pytest.mark.process
def test_consumers_work_until_all_together_have_what_is_wanted() -> None:
    with consumers(2) as pool:
        for _ in range(2):  # the processes stay
            pool.begin(count_up, 2, 1_000, 10)
            found = pool.end(2)
            # each may add once more than is wanted before it looks
            assert 1_000 <= sum(one.messages for one in found) < 1_020
            assert sum(one.total for one in found) == sum(one.messages for one in found) // 5


@pytest.mark.process
def test_a_consumer_that_fails_ends_the_round() -> None:
    with consumers(1) as pool, pytest.raises(RuntimeError, match="no broker"):
        pool.begin(fail, 1, 10)


@pytest.mark.process
def test_processes_end_also_when_one_was_killed() -> None:
    pool = Consumers(2)
    members = [process for _, process in pool._members]
    members[0].kill()
    members[0].join(10)
    pool.close()
    assert not any(process.is_alive() for process in members)
