"""Random histories of one publisher by hand, ingest, and a model of the journal that refuses for a
time and is restarted. With `prev` and without: acks come in order, what an ack covers and is
recorded is in the log, and the journal finds a gap only after something that it refused. One topic
is recorded by its content.

Histories with the client library, a real journal and disk: tests/sim/recording_world.py.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from tests.ingest.rig import MINE, Reported, Rig, item
from zbroker.config import RecordConfig
from zbroker.engine.effects import JOURNAL, Reconnect, Say
from zbroker.ingest.contract import Effect, IngestSettings, PublishLimits
from zbroker.ingest.core import IngestCore
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m

SEEDS = int(os.environ.get("ZB_SEEDS", "30"))
A = b"\0aaaa"
RECORDING = Recording(
    [
        RecordConfig("r.*", regex=True),
        RecordConfig("c", type="json", filter="/n > 0"),
    ]
)


def is_recorded(topic: str, sequence: int) -> bool:
    """What `RECORDING` means for the payloads of this file."""
    return topic[0] == "r" or (topic == "c" and sequence % 3 == 0)


class Journal:
    """What zbroker.journal.sessions promises, for one publisher."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.incarnation = 1
        self.log: list[bytes] = []
        self.durable = self.high = 0  # durable: of the log; what is above may be lost
        self.sequences: list[int] = []
        self.refused = False  # something was, in this session

    def judge(self, ordinal: int, entry: i.Entry, body: bytes) -> i.ReceiptItem:
        last = entry.seq + entry.count - 1
        if last <= self.high:
            return i.ReceiptItem(ordinal, 1, last, entry.count)
        if entry.prev is not None and entry.prev > self.high:
            assert self.refused, f"a gap before {entry.seq} that nothing explains"
            return i.ReceiptItem(ordinal, 0, self.high, 0, "sequence_gap", "")
        if self.rng.random() < 0.1:
            self.refused = True
            return i.ReceiptItem(ordinal, 0, self.high, 0, "disk_full", "")
        for n, payload in enumerate(bodies.unpack(body, None, entry.count, 1 << 20)):
            if entry.seq + n > self.high:
                self.log.append(payload)
                self.sequences.append(entry.seq + n)
        self.high = last
        return i.ReceiptItem(ordinal, 1, last)

    def restart(self) -> None:
        """What was not synced is gone; so is what it refused to whom."""
        del self.log[self.durable :], self.sequences[self.durable :]
        self.high = self.sequences[-1] if self.sequences else 0
        self.incarnation += 1


def payload(topic: str, sequence: int) -> bytes:
    """Of topic c one in three is recorded."""
    return b'{"n":%d,"of":%d}' % (sequence % 3 == 0, sequence) if topic == "c" else b"%d" % sequence


class Publisher:
    """Follows docs/howto/write-a-client.md."""

    def __init__(self, rng: Random, *, chained: bool) -> None:
        self.rng = rng
        self.chained = chained
        self.topics: dict[int, str] = {}
        self.unacked: list[tuple[int, int, int]] = []  # first, last, prev
        self.acked = 0
        self.refused = self.resent = False

    def issue(self) -> Received:
        prev = max(self.topics, default=0)
        first = prev + self.rng.choice([1, 1, 1, 4])
        count = self.rng.choice([0, 1, 2, 5])  # 0: a single publish
        last = first + max(count, 1) - 1
        for sequence in range(first, last + 1):
            self.topics[sequence] = self.rng.choice(["r1", "r2", "u1", "u2", "c", "c"])
        self.unacked.append((first, last, prev))
        return self.item(first, last, prev, packed=count > 0)

    def item(self, first: int, last: int, prev: int, *, packed: bool = True) -> Received:
        publish = m.Publish(first, prev=prev if self.chained else None, ack=["persisted"])
        payloads = [payload(self.topics[seq], seq) for seq in range(first, last + 1)]
        if not packed:
            publish.topic = self.topics[first]
            return item(A, publish, payloads[0])
        names = [self.topics[sequence] for sequence in range(first, last + 1)]
        publish.topics, publish.count = sorted(set(names)), len(names)
        index = b"".join(publish.topics.index(name).to_bytes(2, "little") for name in names)
        publish.columns = m.Columns(index)
        return item(A, publish, bodies.pack(payloads))

    def again(self) -> list[Received]:
        self.refused, self.resent = False, True
        return [self.item(*one) for one in self.unacked]

    def hear(self, answer: m.Ack) -> None:
        assert answer.seq is not None
        # what comes again is answered again
        assert answer.seq > self.acked or self.resent, "acks go back"
        self.acked = max(self.acked, answer.seq)
        self.unacked = [one for one in self.unacked if one[1] > self.acked]


class History(Rig):
    """One seed."""

    def __init__(self, seed: int, *, chained: bool) -> None:
        limits = PublishLimits(1 << 20, 1 << 20, 1 << 20, 3)
        super().__init__(IngestCore(IngestSettings(limits, MINE, RECORDING)))
        self.rng = Random(seed)
        self.journal = Journal(self.rng)
        self.publisher = Publisher(self.rng, chained=chained)
        self.wire: deque[tuple[int, int, i.Entry, bytes]] = deque()  # to the journal
        self.receipts: deque[i.JournalReceipt] = deque()
        self.tick()
        self.welcome()
        self.turn(item(A, m.Logon("p", "x", "1"), None))

    def welcome(self) -> None:
        self.hear(i.Welcome(self.journal.incarnation, MINE, 9, 1, 1 << 20, "disk", 1, 1, 1))

    def take(self, effects: Sequence[Effect]) -> list[Reported]:
        for message in super().take(effects):
            self.answer(message)
        return []

    def reconnected(self, effect: Reconnect) -> None:
        if effect.link == JOURNAL:
            self.wire.clear()
            self.receipts.clear()

    def said(self, say: Say) -> list[Reported]:
        append = say.message
        if not isinstance(append, i.Append):
            return super().said(say)
        self.wire += (
            (append.incarnation, append.ordinal + n, entry, bytes(say.bodies[n]))
            for n, entry in enumerate(append.entries)
        )
        return []

    def opened(self, asked: i.Open) -> i.Opened:
        return i.Opened(asked.cid, "p", 42, 100)

    def answer(self, message: Reported) -> None:
        publisher = self.publisher
        if isinstance(message, m.Error):
            assert message.code in ("disk_full", "sequence_gap"), message
            publisher.refused = True
        elif isinstance(message, m.Ack) and message.token is None:
            publisher.hear(message)
            durable = set(self.journal.sequences[: self.journal.durable])
            for sequence, topic in publisher.topics.items():
                if sequence <= publisher.acked and is_recorded(topic, sequence):
                    assert sequence in durable, f"{sequence} was acknowledged and is lost"

    def step(self) -> None:
        self.now_ms += 1
        roll = self.rng.random()
        if roll < 0.45:
            items = [self.publisher.issue() for _ in range(self.rng.randint(1, 4))]
            self.turn(*items)
        elif roll < 0.70:
            self.commit(self.rng.randint(1, 8))
        elif roll < 0.90 and self.receipts:
            self.hear(self.receipts.popleft())
        elif roll < 0.95 and self.publisher.refused:
            self.turn(*self.publisher.again())
        elif roll > 0.98:
            self.restart()

    @property
    def under_way(self) -> bool:
        return bool(self.wire or self.receipts)

    def commit(self, count: int) -> None:
        """A group: judged, synced, receipted."""
        items = []
        for _ in range(min(count, len(self.wire))):
            incarnation, ordinal, entry, body = self.wire.popleft()
            if incarnation == self.journal.incarnation:
                items.append(self.journal.judge(ordinal, entry, body))
        if items and self.rng.random() < 0.05:
            self.restart()  # before the sync
            return
        self.journal.durable = len(self.journal.log)
        if items:
            self.receipts.append(i.JournalReceipt(self.journal.incarnation, 1, items))

    def restart(self) -> None:
        self.journal.restart()
        self.hear(i.Watermarks(self.journal.incarnation, 9, 1, 1, 1, 1, 1, 0))
        self.tick(self.now_ms + 2_000)
        self.welcome()

    def heal(self) -> None:
        """No more refusals: everything is acknowledged in the end."""
        self.journal.rng = Random()
        self.journal.rng.random = lambda: 1.0  # type: ignore[method-assign]
        self.restart()
        for _ in range(1_000):
            if not self.publisher.unacked:
                return
            self.commit(1_000)
            while self.receipts:
                self.hear(self.receipts.popleft())
            if not self.under_way:
                self.turn(*self.publisher.again())
        raise AssertionError(f"never acknowledged: {self.publisher.unacked}")

    def verdict(self) -> None:
        topics = self.publisher.topics
        wanted = [n for n, topic in topics.items() if is_recorded(topic, n)]
        assert self.journal.sequences == wanted
        assert self.journal.log == [payload(topics[sequence], sequence) for sequence in wanted]


@pytest.mark.parametrize("chained", [True, False])
def test_no_history_breaks_a_promise(chained: bool) -> None:
    for seed in range(SEEDS):
        history = History(seed, chained=chained)
        try:
            for _ in range(200):
                history.step()
            history.heal()
            history.verdict()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, chained={chained}: {error}") from error


def test_a_decoder_of_the_model_reads_what_clients_pack() -> None:
    assert bodies.unpack(msgspec.msgpack.encode([b"1"]), None, 1, 100) == [b"1"]
