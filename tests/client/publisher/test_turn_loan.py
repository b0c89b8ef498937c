"""zbroker/client/publisher/turn_loan.py: which thread has the turns of a publisher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.client.fakes import WAIT_S, wait_until
from zbroker.client.link import ClientLink
from zbroker.client.publisher import loop, publisher, turn_loan
from zbroker.errors import StorageError, ZBrokerError


@pytest.fixture(autouse=True)
def senders(monkeypatch):
    """The threads that sent something, in order. Handlers of the test runner are not in the way."""
    threads = []
    send = ClientLink.send

    def noted(self, command, body=None):
        threads.append(threading.get_ident())
        send(self, command, body)

    monkeypatch.setattr(ClientLink, "send", noted)
    monkeypatch.setattr(turn_loan, "may_borrow", lambda _thread: True)
    return threads


def lent(client):
    """Publishes one by one until the turns are lent to this thread."""

    def published():
        client.publish("a", b"warm").wait(WAIT_S)
        return client._publisher._loan.borrower

    wait_until(published)


@pytest.fixture
def patient(monkeypatch):
    """The turns stay where they are until somebody wants them, on a slow machine as well."""
    monkeypatch.setattr(turn_loan, "LOAN_MS", 60_000)
    monkeypatch.setattr(loop, "PART_MS", 60_000)


def data_of(broker):
    return [row[3] for row in broker.log if row[3] != b"warm"]


def test_a_thread_that_waits_for_each_receipt_sends_by_itself(broker, client, senders, patient):
    lent(client)
    senders.clear()
    client.publish("a", b"1").wait(WAIT_S)
    assert senders == [threading.get_ident()]
    assert data_of(broker) == [b"1"]


def test_messages_that_are_not_waited_for_are_sent_by_the_io_thread(
    broker, client, senders, patient
):
    lent(client)
    senders.clear()
    receipts = [client.publish("a", b"%d" % n) for n in range(100)]
    client.flush(WAIT_S)
    assert [receipt.persisted for receipt in receipts] == [True] * 100
    assert data_of(broker) == [b"%d" % n for n in range(100)]
    assert threading.get_ident() in senders[:1], "the first one goes at once"
    assert threading.get_ident() not in senders[1:]


def test_a_thread_that_flushes_after_each_few_sends_by_itself(broker, client, senders, patient):
    lent(client)
    senders.clear()
    for n in range(20):
        client.publish("a", b"%d" % n)
        client.flush(WAIT_S)
    assert {*senders} == {threading.get_ident()}
    assert data_of(broker) == [b"%d" % n for n in range(20)]


def test_what_is_staged_leaves_with_a_flush_as_one_batch(broker, client, senders, patient):
    lent(client)
    client._publisher.stage("token")
    sent = len(senders)
    receipts = [client.publish("a", b"%d" % n) for n in range(10)]
    client.flush(WAIT_S)
    assert all(receipt.persisted for receipt in receipts)
    assert data_of(broker) == [b"%d" % n for n in range(10)]
    assert len(senders) == sent + 1


def test_what_is_staged_and_waited_for_leaves_at_once(broker, client, monkeypatch):
    monkeypatch.setattr(publisher, "HOLD_MS", 60_000)
    client._publisher.stage("token")
    for n in range(20):
        assert client.publish("a", b"%d" % n).wait(WAIT_S)


def test_what_is_staged_and_not_waited_for_leaves_after_a_while(broker, client):
    client._publisher.stage("token")
    for n in range(3):
        receipt = client.publish("a", b"%d" % n)
        wait_until(lambda receipt=receipt: receipt.done)


def test_a_message_after_what_was_staged_leaves_at_once(broker, client, monkeypatch):
    monkeypatch.setattr(publisher, "HOLD_MS", 60_000)
    for _ in range(20):
        client._publisher.stage("token")
        client.publish("a", b"1")
        client.flush(WAIT_S)
        client._publisher.stage(None)
        receipt = client.publish("a", b"2")
        wait_until(lambda receipt=receipt: receipt.done)


@pytest.fixture
def whole_turns(client, monkeypatch):
    """The threads that had whole turns, in order."""
    turns, turn = [], client._publisher._have_turn

    def whole(ready):
        turns.append(threading.get_ident())
        return turn(ready)

    monkeypatch.setattr(client._publisher, "_have_turn", whole)
    return turns


def test_a_message_is_sent_and_acknowledged_without_a_whole_turn(
    broker, client, senders, patient, whole_turns
):
    lent(client)
    client.publish("a", b"a whole one comes first").wait(WAIT_S)
    whole_turns.clear()
    for n in range(20):
        assert client.publish("a", b"%d" % n).wait(WAIT_S)
    assert whole_turns == []


def test_while_there_are_parts_a_whole_turn_is_had_in_time(broker, client, whole_turns):
    lent(client)
    whole_turns.clear()

    def published():
        client.publish("a", b"1").wait(WAIT_S)
        return len(whole_turns) > 3

    wait_until(published)


def test_a_receipt_is_done_without_a_wait_for_it(broker, client):
    lent(client)
    receipt = client.publish("a", b"1")
    wait_until(lambda: receipt.done)
    assert receipt.persisted


def test_a_callback_is_called_without_a_wait_for_its_receipt(broker, client, patient):
    lent(client)
    called = threading.Event()
    client.publish("a", b"1").add_done_callback(lambda _: called.set())
    assert called.wait(WAIT_S)


def test_a_wait_for_the_turns_of_the_caller_ends_in_time(broker, client, patient):
    lent(client)
    broker.hold = True
    receipt = client.publish("a", b"1")
    with pytest.raises(ZBrokerError, match="timeout"):
        receipt.wait(0.001)
    broker.release()
    receipt.wait(WAIT_S)


def test_a_slow_broker_is_waited_for_by_the_io_thread(broker, client):
    lent(client)
    broker.hold = True
    receipt = client.publish("a", b"1")

    def release():
        wait_until(lambda: not client._publisher._loan.borrower)
        broker.release()

    releasing = threading.Thread(target=release)
    releasing.start()
    receipt.wait(WAIT_S)
    releasing.join(WAIT_S)
    assert receipt.persisted


def test_threads_that_each_wait_do_not_wait_for_each_other(broker, client, patient):
    def work(number):
        for n in range(100):
            client.publish(f"t{number}", b"%d" % n).wait(WAIT_S)

    lent(client)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for number in range(4):
        mine = [row[3] for row in broker.log if row[2] == f"t{number}"]
        assert mine == [b"%d" % n for n in range(100)]


def test_a_second_thread_takes_the_turns_from_one_that_waits(broker, client, patient):
    lent(client)
    broker.hold = True
    second = []

    def publish():
        wait_until(lambda: client._publisher._loan.lock.locked())
        second.append(client.publish("a", b"2"))
        wait_until(lambda: second[0].sequence)
        broker.release()

    publishing = threading.Thread(target=publish)
    publishing.start()
    client.publish("a", b"1").wait(WAIT_S)
    publishing.join(WAIT_S)
    second[0].wait(WAIT_S)
    assert data_of(broker) == [b"1", b"2"]


def test_a_failure_in_the_turn_of_a_caller_ends_the_client(broker, client, monkeypatch, patient):
    lent(client)
    error = StorageError("disk_error", "it broke")
    monkeypatch.setattr(client._publisher.store, "append", lambda _: (_ for _ in ()).throw(error))
    with pytest.raises(ZBrokerError, match="it broke"):
        client.publish("a", b"1").wait(WAIT_S)
    with pytest.raises(ZBrokerError, match="it broke"):
        client.publish("a", b"2", timeout=WAIT_S)


def test_a_child_of_a_caller_that_has_the_turns_hears_of_the_fork(broker, client, patient):
    lent(client)
    receipt = client.publish("a", b"1")
    pid = os.fork()
    if not pid:
        code = 1
        try:
            receipt.wait(WAIT_S)
        except ZBrokerError as error:
            code = 0 if error.code == "forked" else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    receipt.wait(WAIT_S)
    assert data_of(broker) == [b"1"]


SCRIPT = """
    import signal, sys, threading
    from tests.client.fakes import WAIT_S, FakeBroker, wait_until
    from zbroker.client import connect
    from zbroker.client.publisher.loop import IOThread
    from zbroker.client.publisher.turn_loan import may_borrow

    turn, here = IOThread._have_turn, threading.get_ident()
    armed = False

    def cut(self, ready):
        global armed
        if armed and threading.get_ident() == here:
            armed = False
            signal.raise_signal(signal.SIGINT)  # Ctrl-C in the middle of a turn of the main thread
        return turn(self, ready)

    IOThread._have_turn = cut
    with FakeBroker() as broker, connect(broker.url, "a", timeout=WAIT_S) as client:
        caught = sent = 0
        while caught < 5:
            armed = client._publisher._loan.borrower
            sent += 1
            try:
                client.publish("a", b"%d" % sent).wait(WAIT_S)
            except KeyboardInterrupt:
                caught += 1
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        client.flush(WAIT_S)
        assert [row[3] for row in broker.log] == [b"%d" % n for n in range(1, sent + 1)]
        assert may_borrow(here)
        signal.signal(signal.SIGTERM, lambda *_: client.close())
        assert not may_borrow(here)
        assert may_borrow(here + 1)
        wait_until(lambda: not client._publisher._loan.borrower)
        for n in range(50):
            client.publish("b", b"1").wait(WAIT_S)
            assert not client._publisher._loan.borrower
"""


def test_ctrl_c_in_a_turn_of_the_main_thread_loses_nothing_and_handlers_keep_turns_away():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        timeout=60, capture_output=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, "")
