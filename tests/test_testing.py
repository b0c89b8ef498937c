"""zbroker/testing.py: what its fixtures give to the tests of a user, and what they leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import zbroker.client
import zbroker.local  # noqa: F401 - an inner run must not be the first one to import it

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
USE = 'pytest_plugins = ["zbroker.testing"]\n'


@pytest.mark.process
def test_one_broker_serves_all_tests_and_is_gone_after_them(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(USE)
    pytester.makepyfile("""
        import os, pytest
        from pathlib import Path
        from zbroker.errors import Closed

        clients, topics = [], []

        @pytest.mark.parametrize("text", ["", "$ü/ *", "x" * 300])
        def test_a_message_is_read_back(zbroker_client, zbroker_topic, text):
            bookmark = zbroker_client.publish(zbroker_topic, text.encode()).wait(timeout=10)
            found = zbroker_client.subscribe(zbroker_topic, since="epoch", until=bookmark)
            assert [message.data for message in found] == [text.encode()]
            clients.append(zbroker_client)
            topics.append(zbroker_topic)

        def test_each_had_its_own(zbroker_broker):
            assert len({client.name for client in clients}) == len(set(topics)) == 3
            for client in clients:
                with pytest.raises(Closed):
                    client.publish("a", b"")

        def test_a_failing_test_is_only_that(zbroker_client, zbroker_topic):
            zbroker_client.publish(zbroker_topic, b"")
            assert False

        def test_the_broker_is_still_there(zbroker_broker):
            Path("pids").write_text(" ".join(map(str, zbroker_broker.pids.values())))
            Path("data").write_text(str(zbroker_broker.data_dir))
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, failed=1)
    pids = [int(pid) for pid in (pytester.path / "pids").read_text().split()]
    assert len(pids) == 6
    assert not any(map(psutil.pid_exists, pids))
    assert not Path((pytester.path / "data").read_text()).exists()


@pytest.mark.process
def test_the_settings_are_those_of_the_users_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        USE
        + """
import pytest

@pytest.fixture(scope="session")
def zbroker_settings():
    return {"record": [{"topic": "orders"}]}
"""
    )
    pytester.makepyfile("""
        def test_only_orders_are_recorded(zbroker_client):
            receipts = [zbroker_client.publish(topic, b"") for topic in ("orders", "noise")]
            zbroker_client.flush(timeout=10)
            assert [receipt.recorded for receipt in receipts] == [True, False]
    """)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_only_who_asks_for_the_fixtures_imports_pytest() -> None:
    code = "import sys, zbroker, zbroker.client, zbroker.local; sys.exit('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 0


def test_without_a_broker_nothing_is_started(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(USE)
    pytester.makepyfile("""
        def test_names_are_new_for_each_use(zbroker_topic, request):
            assert zbroker_topic.startswith("test_names_are_new_for_each_use-")
            assert "zbroker_broker" not in request.fixturenames
    """)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
