"""Answers to publishers about the batches that were taken from them: made, merged, paced. Pure.

    recorded     forwarded --receipt--> one merged `persisted` per client, or a refusal alone
    unrecorded   passed on --everything before it settled--> one merged `processed`

Both in the order of their publisher's sequences, so an ack with `seq` always means: everything up
to it is settled. After a refused batch the unrecorded ones of the session are refused too.

Acks that are due to one client at the end of a turn are merged:

    settled   1r 2r 3u 4u 5r 6u     acks   processed 4, persisted 5, processed 6

`persisted` always has the sequence of a recorded message, and names runs of mandatory messages up
to it that went to no queue. Topics that are not recorded are named
before an ack of later messages, so that no client takes them for recorded; so are the sequences
that a filter kept out of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from zbroker.engine.effects import Answer
from zbroker.errors import TEMPORARY
from zbroker.ingest.chain import AckRequest, Chain, WaitingBatch
from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.ingest.contract import Effect
from zbroker.ingest.replication_gate import Outstanding
from zbroker.limits import FILTERED_RUNS_MAX, UNRECORDED_NAMED_MAX
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.messages import Ack, Error

RUN_BYTES: Final = 16  # of a run in an ack


class PendingBatch(Struct):
    """A forwarded batch: its client, and the answer that its publisher asked for."""

    client: ClientConnection
    seq: int
    last: int
    bytes: int
    ask: AckRequest
    epoch: int = 0


class Acks:
    """Batches that wait for their receipt, by ordinal; unrecorded ones after them, by client."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingBatch] = {}

    def forwarded(
        self, ordinal: int, client: ClientConnection, entry: i.Entry, size: int, ask: AckRequest
    ) -> None:
        """A batch of `size` bytes is on its way; it counts in its client's window."""
        client.window_used += size
        client.last_ordinal = ordinal
        last = entry.seq + entry.count - 1
        epoch = client.chain.epoch if client.chain is not None else 0
        self._pending[ordinal] = PendingBatch(client, ask.seq or entry.seq, last, size, ask, epoch)

    def passed(self, client: ClientConnection, chain: Chain, waiting: WaitingBatch) -> list[Answer]:
        """Settles a batch that went to delivery, once everything before it is settled."""
        if self.waits(client):
            client.window_used += waiting.bytes
            chain.waiting.append(waiting)
            return []
        due = DueAcks(client)
        _settle_passed(client, waiting, due)
        return due.sends(None)

    def waits(self, client: ClientConnection) -> bool:
        """True if something of this client is not settled."""
        return client.last_ordinal in self._pending

    def settle(
        self, settled: list[tuple[Outstanding, i.ReceiptItem]], durability: str | None
    ) -> list[Answer]:
        """Answers to the clients whose batches these are."""
        sends: list[Answer] = []
        due: dict[bytes, DueAcks] = {}
        for out, item in settled:
            pending = self._pending.pop(out.ordinal)
            client = pending.client
            client.window_used -= pending.bytes
            if item.code:
                if client.rid in due:
                    sends += due.pop(client.rid).sends(durability)
                sends.append(_refused(pending, item, chained=out.entry.prev is not None))
            else:
                _accepted(pending, due, item.duplicate)
            if client.chain is not None and client.chain.waiting:
                sends += _settle_waiting(client, out.ordinal, due, durability)
            if client.flushes and (answers := _flushed(client, out.ordinal, durability)):
                if client.rid in due:  # a flush that is answered has had all acks before it
                    sends += due.pop(client.rid).sends(durability)
                sends += answers
        for one in due.values():
            if one.client.state == "live":
                sends += one.sends(durability)
        return sends

    def check(self, clients: Iterable[ClientConnection]) -> None:
        """Asserts what is always true."""
        for client in clients:
            waiting = client.chain.waiting if client.chain is not None else ()
            used = sum(p.bytes for p in self._pending.values() if p.client is client)
            assert client.window_used == used + sum(one.bytes for one in waiting)
            assert not waiting or self.waits(client), "no receipt would settle it"
            assert client.recorded <= client.acked


def persisted(client: ClientConnection, durability: str | None, cid: str | None) -> m.Ack:
    """Everything recorded of this client up to its highest settled sequence is durable."""
    return m.Ack("persisted", cid, seq=client.recorded or client.found, durability=durability)


def _accepted(pending: PendingBatch, due: dict[bytes, DueAcks], duplicate: int) -> None:
    client = pending.client
    returned = _returned(pending) if pending.ask.returned else []
    client.acked = max(client.acked, pending.last)
    client.recorded = max(client.recorded, pending.last)
    client.used.settled(pending.last)
    if client.chain is not None:
        client.chain.settled(pending.last)
    asked = pending.ask.persisted or bool(returned)
    if asked or client.rid in due:
        mine = due.setdefault(client.rid, DueAcks(client))
        mine.returned(returned)
        mine.recorded(duplicate if pending.ask.persisted else 0, asked=asked)


def _returned(pending: PendingBatch) -> list[tuple[int, int]]:
    """Runs that are reported now. Messages that the log had before this session, or that are
    settled already, may have gone by other routes: those of their first batch hold."""
    client = pending.client
    after = max(client.logged, client.recorded)
    return [(max(first, after + 1), last) for first, last in pending.ask.returned if last > after]


def _refused(pending: PendingBatch, item: i.ReceiptItem, *, chained: bool) -> Answer:
    client, chain = pending.client, pending.client.chain
    if chain is not None and pending.epoch == chain.epoch and (chained or item.code in TEMPORARY):
        chain.broken(item.high, client.acked)
    cid, seq = pending.ask.cid, pending.seq
    return Answer(client.rid, m.Error(item.code, item.reason, cid=cid, seq=seq, high=item.high))


def _settle_waiting(
    client: ClientConnection, ordinal: int, due: dict[bytes, DueAcks], durability: str | None
) -> list[Answer]:
    """Unrecorded batches that came after this ordinal, up to the next recorded one."""
    sends: list[Answer] = []
    chain = client.chain
    assert chain is not None
    while chain.waiting and chain.waiting[0].after <= ordinal:
        waiting = chain.waiting.popleft()
        client.window_used -= waiting.bytes
        if waiting.epoch == chain.epoch:
            _settle_passed(client, waiting, due.setdefault(client.rid, DueAcks(client)))
            continue
        if client.rid in due:
            sends += due.pop(client.rid).sends(durability)
        if client.state == "live":
            sends.append(_after_refused(client, chain, waiting))
    return sends


def _settle_passed(client: ClientConnection, waiting: WaitingBatch, due: DueAcks) -> None:
    client.acked = max(client.acked, waiting.last)
    if waiting.ask.any:
        runs = [waiting.filtered] if waiting.filtered is not None else ()
        due.passed(client.acked, waiting.topics, runs)


def _after_refused(client: ClientConnection, chain: Chain, waiting: WaitingBatch) -> Answer:
    """The refusal of an unrecorded batch, since a batch before it was refused."""
    reason = f"a batch before {waiting.seq} was refused"
    cid, seq = waiting.ask.cid, waiting.seq
    return Answer(client.rid, m.Error("sequence_gap", reason, cid=cid, seq=seq, high=chain.handled))


def _flushed(client: ClientConnection, ordinal: int, durability: str | None) -> list[Answer]:
    done = [cid for wanted, cid in client.flushes if wanted <= ordinal]
    client.flushes = [(wanted, cid) for wanted, cid in client.flushes if wanted > ordinal]
    return [Answer(client.rid, persisted(client, durability, cid)) for cid in done]


class UnrecordedNames(Struct):
    """Topics of unrecorded messages up to `seq`, and runs of sequences that a filter kept out."""

    seq: int = 0
    topics: dict[str, None] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, seq: int, topics: Iterable[str], runs: Iterable[tuple[int, int]]) -> None:
        """Names a batch after the others."""
        self.seq = seq
        self.topics.update(dict.fromkeys(topics))
        for first, last in runs:
            if self.runs and self.runs[-1][1] + 1 == first:
                self.runs[-1] = (self.runs[-1][0], last)
            else:
                self.runs.append((first, last))

    def acks(self) -> Iterator[Ack]:
        """As many acks as it takes to name everything, at least one."""
        topics, runs = iter(self.topics), iter(self.runs)
        left = True
        while left:
            names = list(islice(topics, UNRECORDED_NAMED_MAX))
            some = list(islice(runs, FILTERED_RUNS_MAX))
            left = len(names) == UNRECORDED_NAMED_MAX or len(some) == FILTERED_RUNS_MAX
            yield Ack("processed", seq=self.seq, unrecorded=names, filtered=_packed(some))


def _packed(runs: Sequence[tuple[int, int]]) -> bytes | None:
    return struct.pack(f"<{2 * len(runs)}Q", *chain(*runs)) if runs else None


def runs_of(packed: bytes | None) -> list[tuple[int, int]]:
    """The runs of sequences in an ack: first and last of each."""
    return [*struct.iter_unpack("<2Q", packed)] if packed else []


class MergedAcks:
    """Acks of one client that are as few as can be: no other answer comes in between."""

    __slots__ = ("_after", "_before", "_duplicate", "_durability", "_returned", "_seq")

    def __init__(self) -> None:
        self._seq: int | None = None  # of the newest recorded message; None: no `persisted` is due
        self._duplicate = 0
        self._returned: list[tuple[int, int]] = []  # runs up to `_seq`
        self._durability: str | None = None
        self._before: UnrecordedNames | None = None  # unrecorded messages before `_seq`
        self._after: UnrecordedNames | None = None

    def persisted(self, seq: int, duplicate: int) -> None:
        """Recorded messages up to `seq` are durable."""
        self._seq = seq
        self._duplicate += duplicate
        after, self._after = self._after, None
        if self._before is None:
            self._before = after
        elif after is not None:
            self._before.add(after.seq, after.topics, after.runs)

    def returned(self, runs: Iterable[tuple[int, int]]) -> None:
        """These went to no queue; `persisted` is called next."""
        self._returned += runs

    def passed(self, seq: int, topics: Iterable[str], runs: Iterable[tuple[int, int]]) -> None:
        """Messages up to `seq` that are not recorded are settled."""
        if self._after is None:
            self._after = UnrecordedNames()
        self._after.add(seq, topics, runs)

    def acks(self) -> list[Ack]:
        """All of them, in the order of the sequences."""
        acks = [*self._before.acks()] if self._before is not None else []
        if self._seq is not None:
            acks += self._persisted(self._seq)
        return [*acks, *self._after.acks()] if self._after is not None else acks

    def _persisted(self, seq: int) -> Iterator[Ack]:
        """One, or as many as it takes to name what was returned, each up to what it names."""
        runs = self._returned
        while len(runs) > FILTERED_RUNS_MAX:
            some, runs = runs[:FILTERED_RUNS_MAX], runs[FILTERED_RUNS_MAX:]
            upto = some[-1][1]
            yield Ack("persisted", seq=upto, durability=self._durability, returned=_packed(some))
        yield Ack(
            "persisted", seq=seq, durability=self._durability, duplicate=self._duplicate,
            returned=_packed(runs),
        )  # fmt: skip


class DueAcks(MergedAcks):
    """The acks that one client gets at the end of a turn."""

    __slots__ = ("client",)

    def __init__(self, client: ClientConnection) -> None:
        super().__init__()
        self.client = client

    def recorded(self, duplicate: int, *, asked: bool) -> None:
        """A recorded batch is settled; an ack that is due anyway covers it even if not asked."""
        if asked or self._seq is not None:
            self.persisted(self.client.recorded, duplicate if asked else 0)

    def sends(self, durability: str | None) -> list[Answer]:
        """All of them, in the order of the sequences."""
        self._durability = durability
        return [Answer(self.client.rid, ack) for ack in self.acks()]


class AckPacer:
    """Merged acks of clients that asked for them at an interval, not with each commit.

    settled --no ack for an interval--> sent
            --else--> waits for the end of the interval, or for an answer that must not come before
    """

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._waits: dict[bytes, ClientConnection] = {}
        self._wanted = False  # if no client asked for it, `pace` does nothing

    def begin(self, client: ClientConnection, interval_s: float | None) -> None:
        """A client logs on."""
        client.ack_interval_ms = int((interval_s or 0) * 1_000)
        self._wanted = self._wanted or client.ack_interval_ms > 0

    def pace(self, effects: list[Effect]) -> list[Effect]:
        """The part of `effects` that is performed now, in its order."""
        if not self._wanted:
            return effects
        now: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Answer):
                now.append(effect)
                continue
            client = self._clients.by_rid.get(effect.rid)
            if client is None or not client.ack_interval_ms:
                now.append(effect)
                continue
            if isinstance(effect.message, Ack) and _is_merged(effect.message):
                _merge(client.acks, effect.message)
                self._waits[client.rid] = client
            else:
                if isinstance(effect.message, Ack | Error):
                    now += self._released(client)
                now.append(effect)
        return now

    def due(self, now_ms: int) -> list[Effect]:
        """Acks that were held back for long enough."""
        effects: list[Effect] = []
        for client in list(self._waits.values()):
            if client.state == "ended":
                del self._waits[client.rid]
            elif _due_ms(client) <= now_ms:
                effects += self._released(client)
                client.ack_sent_ms = now_ms
        return effects

    def next_wake_ms(self) -> int | None:
        """When `due` returns acks."""
        return min(map(_due_ms, self._waits.values())) if self._waits else None

    def _released(self, client: ClientConnection) -> list[Effect]:
        self._waits.pop(client.rid, None)
        acks, client.acks = client.acks, []
        return [Answer(client.rid, ack) for ack in acks]


def _due_ms(client: ClientConnection) -> int:
    return 0 if client.ack_sent_ms is None else client.ack_sent_ms + client.ack_interval_ms


def _is_merged(ack: Ack) -> bool:
    """An ack of all up to its `seq`, and no answer to one command."""
    return ack.cid is None and (ack.type == "persisted" or ack.unrecorded is not None)


def _merge(waiting: list[Ack], ack: Ack) -> None:
    """Adds an ack; the later of two `persisted` ones in a row covers both."""
    if not waiting or not waiting[-1].type == ack.type == "persisted":
        waiting.append(ack)
        return
    before = waiting[-1]
    returned = (before.returned or b"") + (ack.returned or b"")
    if before.returned and len(returned) > RUN_BYTES * FILTERED_RUNS_MAX:
        waiting.append(ack)
    else:
        duplicate = ack.duplicate + before.duplicate
        waiting[-1] = replace(ack, duplicate=duplicate, returned=returned or None)
