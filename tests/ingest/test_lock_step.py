"""Whether publishers wait for each acknowledgement."""

from __future__ import annotations

from tests.ingest.rig import HERE, JOURNAL, Rig, item, made
from zbroker.cpus import ANY_CPU
from zbroker.ingest.contract import PublishLimits
from zbroker.ingest.core import SPIN_FOR_RECEIPT
from zbroker.ingest.lock_step import MESSAGES_MAX, PROMPT_NS, LockStep
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.replicas import Replicated

ENOUGH = 100  # bursts after which the mean is what they all were


class Bursts:
    """Bursts of `messages` each, `gap_ns` after the ack of the one before."""

    def __init__(self) -> None:
        self.step, self.now_ns = LockStep(), 10**18

    def come(
        self, count: int, gap_ns: int = 0, *, messages: int = 1, outstanding: bool = False
    ) -> bool:
        for _ in range(count):
            self.step.acknowledged(self.now_ns)
            self.now_ns += gap_ns
            self.step.published(messages, self.now_ns, outstanding=outstanding)
        return self.step.lasts


def test_nothing_is_in_lock_step_at_first() -> None:
    assert not Bursts().come(10)


def test_one_message_after_each_acknowledgement_is_lock_step() -> None:
    assert Bursts().come(ENOUGH, PROMPT_NS)


def test_messages_that_come_late_are_not() -> None:
    assert not Bursts().come(ENOUGH, PROMPT_NS + 1)


def test_messages_while_others_are_outstanding_are_not() -> None:
    assert not Bursts().come(ENOUGH, outstanding=True)


def test_many_messages_at_once_are_not() -> None:
    assert Bursts().come(ENOUGH, messages=MESSAGES_MAX)
    assert not Bursts().come(ENOUGH, messages=MESSAGES_MAX + 1)


def test_a_pause_does_not_end_it() -> None:
    bursts = Bursts()
    bursts.come(ENOUGH)
    assert bursts.come(1, 10 * PROMPT_NS)


def test_a_steady_rate_that_is_prompt_now_and_then_is_not() -> None:
    bursts, lasted = Bursts(), False
    for _ in range(ENOUGH):
        bursts.come(7)
        lasted = bursts.come(3, outstanding=True) or lasted
    assert not lasted


# -- how long ingest spins --------------------------------------------------------------------


class Spinning(Rig):
    """A core that may spin for 100 us, and one publisher."""

    def __init__(self, spin_us: int = 100, *, replicated: bool = False) -> None:
        limits = PublishLimits(1_000, 2_000, 10_000, 3)
        super().__init__(made(limits, spin_us=spin_us, replicated=replicated))
        self.turn(item(b"\0aaaa", m.Logon("p", "x", "1"), None))
        self.sequence = 0

    def publish(self) -> None:
        """One message; it is not acknowledged yet."""
        self.sequence += 1
        self.turn(item(b"\0aaaa", m.Publish(self.sequence, "t", ack=["persisted"]), b"data"))
        self.tick()

    def acknowledge(self) -> None:
        """All of them."""
        self.settle(*(i.ReceiptItem(number, 5, one.seq) for number, one, _ in self.appended))
        self.appended.clear()
        self.tick()


def test_ingest_spins_while_messages_come_in_lock_step() -> None:
    bench = Spinning()
    for _ in range(ENOUGH):
        bench.publish()
        during = bench.pace_us
        bench.acknowledge()
    assert (during, bench.pace_us) == (100 * SPIN_FOR_RECEIPT, 100)


def test_ingest_stays_where_it_is_meanwhile_and_tells_the_journal() -> None:
    bench = Spinning()
    for _ in range(ENOUGH):
        bench.publish()
        bench.acknowledge()
    assert (bench.cpu, bench.append_cpu) == (HERE, HERE)
    for _ in range(ENOUGH):
        bench.publish()
        bench.publish()
        bench.acknowledge()
    assert (bench.cpu, bench.append_cpu) == (ANY_CPU, ANY_CPU)


def test_with_a_synchronous_destination_each_counts_from_its_acknowledgement() -> None:
    """The journal's receipt comes earlier, and acknowledges nothing."""
    bench = Spinning(replicated=True)
    bench.hear(Replicated(JOURNAL, 1, 1))
    for position in range(1, ENOUGH):
        bench.publish()
        bench.settle(
            *(i.ReceiptItem(number, position, one.seq) for number, one, _ in bench.appended)
        )
        bench.appended.clear()
        bench.tick(bench.now_ms + 2)
        during = bench.pace_us
        [ack] = bench.hear(Replicated(JOURNAL, position + 1, 1))
        assert isinstance(ack, m.Ack)
    assert (during, bench.cpu) == (100 * SPIN_FOR_RECEIPT, HERE)


def test_without_spinning_it_runs_anywhere() -> None:
    bench = Spinning(spin_us=0)
    for _ in range(ENOUGH):
        bench.publish()
        bench.acknowledge()
    assert (bench.pace_us, bench.cpu, bench.append_cpu) == (0, ANY_CPU, ANY_CPU)


def test_ingest_does_not_spin_while_more_is_under_way() -> None:
    bench = Spinning()
    bench.publish()
    for _ in range(ENOUGH):
        bench.publish()
        assert bench.pace_us == 0
        if len(bench.appended) == 2:
            bench.acknowledge()
            bench.publish()
    assert bench.core.stats()["messages"] > ENOUGH


def test_what_is_no_message_changes_nothing() -> None:
    bench = Spinning()
    for _ in range(ENOUGH):
        bench.publish()
        bench.acknowledge()
    for _ in range(ENOUGH):
        bench.now_ms += 100
        bench.turn(item(b"\0aaaa", m.Heartbeat(), None))
        bench.tick()
    assert bench.pace_us == 100
