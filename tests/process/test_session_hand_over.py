"""Sessions that go on at another instance while both are up, without force."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest

from tests.process.instances import Instances
from tests.process.load import until
from tests.process.test_replicated_queues import depths, publish, started
from tests.process.test_transactions import SYNC, _shown
from zbroker.client import Client, connect
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.session import Session
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

T: Final = 30.0
JOBS: Final = 6


def take(session: Session, count: int) -> list[QueueMessage]:
    """So many jobs, of a consumer that no variable keeps."""
    consumer, jobs = session.consume("work", timeout=T), []
    while len(jobs) < count:
        jobs += consumer.fetch(count - len(jobs), timeout=T)
    return jobs


def commit(session: Session, *jobs: QueueMessage) -> object:
    """Their results, each once. Returns: the name of the transaction."""
    with session.transaction(T) as done:
        for job in jobs:
            session.publish("results", job.data)
            job.ack()
    return done.id


def attached(client: Client, **more: float) -> Session:
    return client.session("billing", session_timeout=60, timeout=T, **more)


@pytest.mark.seed("001-02")
@pytest.mark.seed("001-12")
def test_a_session_is_handed_over_to_another_instance_and_back() -> None:
    """What it committed holds once, what it held comes again, what was open is over."""
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish(at_a, JOBS)
            first = attached(at_a)
            jobs = take(first, JOBS)
            last = commit(first, *jobs[:2])
            until(lambda: depths(a, b) == [JOBS - 2] * 2, "both know what is done")
            left_open = first.transaction(T)
            left_open.__enter__()
            first.publish("results", b"never").wait(T)
            jobs[2].ack()

            with attached(at_b) as second:
                assert (second.last, second.ended_before) == (last, None)
                with pytest.raises(ZBrokerError) as refused:
                    left_open.__exit__(None, None, None)
                assert refused.value.code in ("session_fenced", "transaction_aborted")
                jobs = take(second, JOBS - 2)
                assert {job.data for job in jobs} == {b"%d" % n for n in range(2, JOBS)}
                assert all(job.redelivered for job in jobs)
                last = commit(second, *jobs[:2])

                with attached(at_a) as third:
                    assert third.last == last
                    commit(third, *take(third, JOBS - 4))
            until(lambda: depths(a, b) == [0, 0], "both know that all is done")
            for client in (at_a, at_b):
                assert sorted(_shown(client, "results")) == [b"%d" % n for n in range(JOBS)]
            with suppress(ZBrokerError):  # it is fenced, and so is its consumer
                first.close()
