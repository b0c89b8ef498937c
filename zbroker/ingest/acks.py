"""What publishers are told of the batches that were taken for them. Pure.

    recorded     forwarded --receipt--> one merged `persisted` per client, or a refusal alone
    unrecorded   passed on --everything before it settled--> one merged `processed`

Both in the order of their publisher's sequences, so an ack with `seq` always means: everything up
to it is settled. Behind a refused batch the unrecorded ones of the session are refused too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zbroker.engine.effects import Answer
from zbroker.errors import TEMPORARY
from zbroker.ingest.ack_merger import DueAcks
from zbroker.ingest.chain import AckRequest, Chain, WaitingBatch
from zbroker.ingest.clients import ClientConnection
from zbroker.ingest.link import Outstanding
from zbroker.wire import internal as i
from zbroker.wire import messages as m


@dataclass(slots=True)
class PendingBatch:
    """A forwarded batch: whose it is and what its publisher wants to hear."""

    client: ClientConnection
    seq: int
    last: int
    bytes: int
    ask: AckRequest
    epoch: int = 0


class Acks:
    """Batches that wait for their receipt, by ordinal; unrecorded ones behind them, by client."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingBatch] = {}

    def forwarded(
        self, ordinal: int, client: ClientConnection, entry: i.Entry, size: int, ask: AckRequest
    ) -> None:
        """A batch of `size` bytes is on its way; it takes room in its client's window."""
        client.window_used += size
        client.last_ordinal = ordinal
        last = entry.seq + entry.count - 1
        epoch = client.chain.epoch if client.chain is not None else 0
        self._pending[ordinal] = PendingBatch(client, ask.seq or entry.seq, last, size, ask, epoch)

    def passed(self, client: ClientConnection, chain: Chain, waiting: WaitingBatch) -> list[Answer]:
        """An unrecorded batch was passed on: it is settled once everything before it is."""
        if self.waits(client):
            client.window_used += waiting.bytes
            chain.waiting.append(waiting)
            return []
        told = DueAcks(client)
        _passed(client, waiting, told)
        return told.sends(None)

    def waits(self, client: ClientConnection) -> bool:
        """True if something of this client is not settled."""
        return client.last_ordinal in self._pending

    def settle(
        self, settled: list[tuple[Outstanding, i.ReceiptItem]], durability: str | None
    ) -> list[Answer]:
        """Answers to the clients whose batches these are."""
        sends: list[Answer] = []
        told: dict[bytes, DueAcks] = {}
        for out, item in settled:
            pending = self._pending.pop(out.ordinal)
            client = pending.client
            client.window_used -= pending.bytes
            if item.code:
                if client.rid in told:
                    sends += told.pop(client.rid).sends(durability)
                sends.append(_refused(pending, item, chained=out.entry.prev is not None))
            else:
                _accepted(pending, told, item.duplicate)
            if client.chain is not None and client.chain.waiting:
                sends += _settle_waiting(client, client.chain, out.ordinal, told, durability)
            if client.flushes:
                sends += _flushed(client, out.ordinal, durability)
        for one in told.values():
            if one.client.state == "live":
                sends += one.sends(durability)
        return sends

    def check(self, clients: Iterable[ClientConnection]) -> None:
        """Asserts what is always true."""
        for client in clients:
            waiting = client.chain.waiting if client.chain is not None else ()
            used = sum(p.bytes for p in self._pending.values() if p.client is client)
            assert client.window_used == used + sum(one.bytes for one in waiting)
            assert not waiting or self.waits(client), "nobody would settle it"
            assert client.recorded <= client.acked


def persisted(client: ClientConnection, durability: str | None, cid: str | None) -> m.Ack:
    """Everything recorded of this client up to its highest settled sequence is durable."""
    return m.Ack("persisted", cid, seq=client.recorded or client.found, durability=durability)


def _accepted(pending: PendingBatch, told: dict[bytes, DueAcks], duplicate: int) -> None:
    client = pending.client
    client.acked = max(client.acked, pending.last)
    client.recorded = max(client.recorded, pending.last)
    client.used.settled(pending.last)
    if client.chain is not None:
        client.chain.settled(pending.last)
    if pending.ask.persisted or client.rid in told:
        told.setdefault(client.rid, DueAcks(client)).recorded(
            duplicate, asked=pending.ask.persisted
        )


def _refused(pending: PendingBatch, item: i.ReceiptItem, *, chained: bool) -> Answer:
    client, chain = pending.client, pending.client.chain
    if chain is not None and pending.epoch == chain.epoch and (chained or item.code in TEMPORARY):
        chain.broken(item.high, client.acked)
    cid, seq = pending.ask.cid, pending.seq
    return Answer(client.rid, m.Error(item.code, item.reason, cid=cid, seq=seq, high=item.high))


def _settle_waiting(
    client: ClientConnection,
    chain: Chain,
    ordinal: int,
    told: dict[bytes, DueAcks],
    durability: str | None,
) -> list[Answer]:
    """Unrecorded batches that came behind this ordinal, up to the next recorded one."""
    sends: list[Answer] = []
    while chain.waiting and chain.waiting[0].behind <= ordinal:
        waiting = chain.waiting.popleft()
        client.window_used -= waiting.bytes
        if waiting.epoch == chain.epoch:
            _passed(client, waiting, told.setdefault(client.rid, DueAcks(client)))
            continue
        if client.rid in told:
            sends += told.pop(client.rid).sends(durability)
        if client.state == "live":
            sends.append(_left_behind(client, chain, waiting))
    return sends


def _passed(client: ClientConnection, waiting: WaitingBatch, told: DueAcks) -> None:
    client.acked = max(client.acked, waiting.last)
    if waiting.ask.any:
        told.unrecorded(waiting.topics, waiting.filtered)


def _left_behind(client: ClientConnection, chain: Chain, waiting: WaitingBatch) -> Answer:
    """An unrecorded batch: something before it in its session was refused."""
    reason = f"what came before {waiting.seq} was refused"
    cid, seq = waiting.ask.cid, waiting.seq
    return Answer(client.rid, m.Error("sequence_gap", reason, cid=cid, seq=seq, high=chain.handled))


def _flushed(client: ClientConnection, ordinal: int, durability: str | None) -> list[Answer]:
    done = [cid for wanted, cid in client.flushes if wanted <= ordinal]
    client.flushes = [(wanted, cid) for wanted, cid in client.flushes if wanted > ordinal]
    return [Answer(client.rid, persisted(client, durability, cid)) for cid in done]
