"""zbroker/client/stage_commits.py: a broker shows what was staged, once, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import zbroker
from tests.process.replaying import kill_process
from zbroker import LocalBroker
from zbroker.client import Commit, Subscription, abort, commit
from zbroker.errors import ZBrokerError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("committing") / "data") as made:
        yield made


def stage(url: str, token: str, topic: str, count: int, start: int = 0) -> None:
    with zbroker.connect(url, name=f"task-{token}", stage=token) as client:
        client.publish_many(topic, [b"%d" % n for n in range(start, start + count)])


def after(live: Subscription, count: int = 1) -> list[bytes]:
    """The next ones."""
    found = [live.next(timeout=10) for _ in range(count)]
    return [message.data for message in found if message is not None]


def read(url: str, topic: str) -> list[bytes]:
    with (
        zbroker.connect(url) as client,
        client.subscribe(topic, since="epoch", until="now") as subscription,
    ):
        return [message.data for message in subscription]


def test_a_transaction_is_seen_by_subscribers_when_it_is_committed(
    broker: LocalBroker,
) -> None:
    url = broker.url
    with zbroker.connect(url) as client, client.subscribe("seen", since="now") as live:
        stage(url, "one", "seen", 3)
        stage(url, "two", "seen", 2, 3)
        client.publish("seen", b"before").wait()
        assert after(live) == [b"before"]
        done = commit(url, "seen-app", 1, [("one", 3), ("two", 2)])
        assert after(live, 5) == [b"0", b"1", b"2", b"3", b"4"]
        assert done.count == 5
    assert read(url, "seen") == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_each_has_a_bookmark_of_its_own_to_go_on_from(broker: LocalBroker) -> None:
    url = broker.url
    stage(url, "marks", "marks", 2_500)
    commit(url, "marks-app", 1, [("marks", 2_500)])
    with zbroker.connect(url) as client:
        with client.subscribe("marks", since="epoch", until="now") as subscription:
            messages = list(subscription)
        assert len({message.bookmark for message in messages}) == 2_500
        with client.subscribe("marks", since=messages[1_777].bookmark, until="now") as subscription:
            assert [m.data for m in subscription] == [b"%d" % n for n in range(1_778, 2_500)]


def test_a_commit_that_is_said_again_is_done_already(broker: LocalBroker) -> None:
    url = broker.url
    stage(url, "again", "again", 2)
    first = commit(url, "again-app", 5, [("again", 2)])
    assert commit(url, "again-app", 5, [("again", 2)]) == Commit(first.position, 2, already=True)
    assert commit(url, "again-app", 4, []) == Commit(0, 0, already=True)
    assert read(url, "again") == [b"0", b"1"]


def kill_processes(broker: LocalBroker) -> None:
    """Others have their places when this returns."""
    for name in ("journal", "ingest", "delivery"):
        kill_process(broker, name)


def test_it_outlives_a_kill_of_every_process(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        stage(broker.url, "one", "t", 2)
        kill_processes(broker)
        first = commit(broker.url, "app", 1, [("one", 2)])
        kill_processes(broker)
        assert commit(broker.url, "app", 1, [("one", 2)]) == Commit(first.position, 2, already=True)
        assert read(broker.url, "t") == [b"0", b"1"]


def test_what_is_aborted_is_unknown(broker: LocalBroker) -> None:
    stage(broker.url, "gone", "gone", 1)
    abort(broker.url, ["gone"])
    with pytest.raises(ZBrokerError) as refused:
        commit(broker.url, "gone-app", 1, [("gone", 1)])
    assert refused.value.code == "stage_unknown"
    assert read(broker.url, "gone") == []


@pytest.mark.parametrize("app", ["$mine", "a" * 201, "\n"])
def test_an_app_has_a_name_like_a_client(broker: LocalBroker, app: str) -> None:
    with pytest.raises(ZBrokerError) as refused:
        commit(broker.url, app, 1, [])
    assert refused.value.code in ("bad_field", "reserved_name")


def test_no_one_there_is_a_time_out() -> None:
    with pytest.raises(ZBrokerError) as refused:
        commit("tcp://127.0.0.1:9", "app", 1, [], timeout=0.3)
    assert refused.value.code == "timeout"


def test_a_token_that_is_too_long_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(ZBrokerError) as refused:
        zbroker.connect(broker.url, stage="x" * 65)
    assert refused.value.code == "bad_field"
