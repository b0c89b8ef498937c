"""Publishes: checked, packed, and forwarded to the journal or, if not recorded, to delivery. Pure.

Where everything is recorded (`recording` None) the journal checks `prev`; else Chain does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zbroker.engine.effects import Answer
from zbroker.errors import ClientError
from zbroker.exchanges.router import QueueSet
from zbroker.ingest import checks
from zbroker.ingest.acks import Acks, persisted
from zbroker.ingest.chain import AckRequest, WaitingBatch
from zbroker.ingest.checks import PACKED_SLACK_BYTES, PublishChecks
from zbroker.ingest.clients import ClientConnection
from zbroker.ingest.contract import PublishLimits
from zbroker.ingest.full_queue_gate import FullQueueGate
from zbroker.ingest.links import AppendLink, LiveLink
from zbroker.ingest.packer import Burst, PublishRun, has_extra
from zbroker.ingest.routing import Routed, Routing, returned
from zbroker.ingest.splitter import BatchPart, Contents, Splitter
from zbroker.recording import Recording
from zbroker.wire import internal as i
from zbroker.wire import messages as m

_NOTHING: Final[list[str]] = []


class Publishing:
    """Publishes of all clients, until they leave ingest."""

    def __init__(
        self, limits: PublishLimits, link: AppendLink, live: LiveLink, recording: Recording | None
    ) -> None:
        self.acks = Acks()
        self.routing = Routing()
        self.messages = 0
        self._type_of = (recording or Recording([])).type_of
        self.contents: Contents | None = None  # where content decides
        self._limits, self._link, self._live = limits, link, live
        #: the most that a packed body has without its compression
        self._plain_bytes = max(limits.batch_bytes, limits.message_bytes) + PACKED_SLACK_BYTES
        self._kind = recording.kind if recording is not None else None
        self.full = FullQueueGate(self._kind)
        self._splitter: Splitter | None = None
        if recording is not None:
            self._splitter = Splitter(recording, self._plain_bytes)
            self.contents = self._splitter.contents if recording.by_content else None
        self._checks = PublishChecks(
            limits.message_bytes, limits.batch_bytes, limits.publisher_time
        )

    def publish(
        self, burst: Burst, client: ClientConnection, publish: m.Publish, body: bytes | None
    ) -> None:
        """Takes one publish. Raises: ClientError; then nothing of it was taken."""
        if self._goes_on(burst, client, publish, body):
            return
        if client.state != "live":
            raise ClientError("not_ready", "the logon of this connection is not answered yet")
        if body is None:
            raise ClientError("bad_frame", "a publish has a body frame after its header")
        self._checks.check(publish, body)
        if publish.stage is not None:
            self._check_stage(client, publish)
        if client.permit is not None:
            checks.check_permitted(client.permit, publish, body, self._type_of, self._plain_bytes)
        if publish.mandatory:
            self._check_mandatory(publish)
        routed = self.routing.route(publish)
        self._check_window(burst, client, len(body))
        self._check_full(client, publish, routed)
        self.routing.count(routed)
        plain = self._is_plain(client, publish, routed)
        if publish.prev is None:
            publish.prev = client.used.before(publish.seq)
        if client.chain is not None:
            client.chain.follow(publish.seq, publish.count or 1, publish.prev)
        client.used.use(publish.seq, publish.seq + (publish.count or 1) - 1)
        self.messages += publish.count or 1
        _processed(burst, client, publish)
        if publish.count is None:
            self._single(burst, client, publish, body, routed.single, plain=plain)
        else:
            self._packed(burst, client, publish, body, routed)

    def _goes_on(
        self, burst: Burst, client: ClientConnection, publish: m.Publish, body: bytes | None
    ) -> bool:
        """Takes one that is like the one before it, as most are. False: check all of it."""
        run = burst.runs.get(client.rid)
        if run is None or body is None:
            return False
        size = len(body)
        if (
            not run.is_next(publish)
            or size > self._limits.message_bytes
            or not run.has_space(size, self._limits.batch_bytes)
            or client.window_used + run.bytes + size > self._limits.window_bytes
            or not self._link.up
        ):
            client.used.use(run.seq, run.last)
            return False
        self.messages += 1
        run.append(body)
        return True

    def _is_plain(self, client: ClientConnection, publish: m.Publish, routed: Routed) -> bool:
        """Whether what was checked of it holds for all that are like it, until the burst ends."""
        return (
            publish.count is None and publish.crc is None and publish.time_ns is None
            and not has_extra(publish) and not publish.mandatory
            and (publish.ack is None or "processed" not in publish.ack)
            and self._kind is None and client.chain is None and client.permit is None
            and routed.single is None and not self.full.rows
            and publish.seq == client.used.newest + 1
        )  # fmt: skip

    def _check_stage(self, client: ClientConnection, publish: m.Publish) -> None:
        """Raises: ClientError bad_field, topic_not_recorded, not_entitled."""
        if publish.count is None:
            raise ClientError("bad_field", "only packed messages can be staged")
        topics = _topics(publish)
        if client.permit is not None:
            checks.check_staged(client.permit, topics)
        self._check_recorded(topics, "it cannot be staged")

    def _check_mandatory(self, publish: m.Publish) -> None:
        """Raises: ClientError bad_field, topic_not_recorded."""
        if publish.stage is not None:
            reason = "key `mandatory` does not go with `stage`: nothing is in a queue before the "
            raise ClientError("bad_field", f"{reason}commit")
        self._check_recorded(_topics(publish), "no queue gets it, and `mandatory` cannot be")

    def _check_recorded(self, topics: Sequence[str], why: str) -> None:
        other = [topic for topic in topics if self._kind is not None and not self._kind(topic)]
        if other:
            text = f"{other[0]!r} is not recorded, or not all of it: {why}"
            raise ClientError("topic_not_recorded", text)

    def _check_window(self, burst: Burst, client: ClientConnection, size: int) -> None:
        """Raises: ClientError window_full, not_ready."""
        run = burst.runs.get(client.rid)
        used = client.window_used + (run.bytes if run is not None else 0)
        if used and used + size > self._limits.window_bytes:
            text = f"{used} bytes wait for their ack, at most {self._limits.window_bytes} may"
            raise ClientError("window_full", text)
        if self._link.full and not self._link.up:
            raise ClientError("not_ready", "the journal is restarting")

    def _check_full(self, client: ClientConnection, publish: m.Publish, routed: Routed) -> None:
        """Raises: ClientError queue_full; of what was sent before never, it may be in a log."""
        if self.full.rows and not publish.resent and publish.seq > client.used.newest:
            self.full.check(publish, routed)

    def _single(
        self, burst: Burst, client: ClientConnection, publish: m.Publish, body: bytes,
        found: QueueSet | None, *, plain: bool,
    ) -> None:  # fmt: skip
        run = burst.runs.get(client.rid)
        recorded = True if self._kind is None else self._kind(publish.topic or "")
        most = self._limits.batch_bytes
        if run is not None and run.recorded is recorded and run.fits(publish, body, most, found):
            run.add(publish, body, found)
        else:
            self.end_run(burst, client)
            run = PublishRun(publish, body, recorded=recorded, found=found)
            burst.runs[client.rid] = run
        run.like = publish if plain else None
        if plain:
            publish.prev = None  # one that says none follows this one

    def end_run(self, burst: Burst, client: ClientConnection) -> None:
        """Sends the single publishes of this turn on their way."""
        run = burst.runs.pop(client.rid, None)
        if run is None or client.state != "live":
            return
        client.used.use(run.seq, run.last)
        entry, body = run.entry(client.publisher, client.session)
        ask = AckRequest(run.ask, run.cid, run.processed, returned=run.returned)
        if run.recorded:
            self._forward(client, entry, body, ask)
        elif run.recorded is None and self._splitter is not None:
            self._send(burst, client, self._splitter.split(entry, body, run.payloads), ask)
        else:
            self._pass(burst, client, entry, body, ask)

    def _packed(
        self, burst: Burst, client: ClientConnection, publish: m.Publish, body: bytes,
        routed: Routed,
    ) -> None:  # fmt: skip
        self.end_run(burst, client)
        assert publish.count is not None
        topics = _topics(publish)
        crc = publish.crc if publish.crc is not None else self._checks.crc(body)
        entry = i.Entry(
            client.publisher, client.session, publish.seq, publish.count, publish.prev, crc,
            publish.codec, topics, publish.time_ns, publish.columns, stage=publish.stage or "",
            routes=routed.column,
        )  # fmt: skip
        asked = publish.ack or _NOTHING
        ask = AckRequest(
            "persisted" in asked, publish.cid, "processed" in asked, publish.seq,
            returned(publish, routed),
        )  # fmt: skip
        if self._splitter is None:
            self._forward(client, entry, body, ask)
        else:
            self._send(burst, client, self._splitter.split(entry, body), ask)

    def _send(
        self, burst: Burst, client: ClientConnection, parts: list[BatchPart], ask: AckRequest
    ) -> None:
        for part in parts:
            if part.recorded:
                self._forward(client, part.entry, part.body, ask)
            else:
                self._pass(burst, client, part.entry, part.body, ask)

    def _forward(
        self, client: ClientConnection, entry: i.Entry, body: bytes, ask: AckRequest
    ) -> None:
        client.messages += entry.count
        if client.chain is not None:
            client.chain.link(entry)
        self.acks.forwarded(self._link.append(entry, body), client, entry, len(body), ask)

    def _pass(
        self, burst: Burst, client: ClientConnection, entry: i.Entry, body: bytes, ask: AckRequest
    ) -> None:
        assert client.chain is not None
        assert self._kind is not None
        client.messages += entry.count
        if client.chain.passes(entry):
            self._live.take(entry, body)
        last = entry.seq + entry.count - 1
        never = [topic for topic in entry.topics if self._kind(topic) is not None]
        filtered = (entry.seq, last) if len(never) < len(entry.topics) else None
        waiting = WaitingBatch(
            client.last_ordinal, ask.seq or entry.seq, last, never, filtered, len(body), ask,
            client.chain.epoch,
        )  # fmt: skip
        burst.effects += self.acks.passed(client, client.chain, waiting)

    def numbers(self) -> dict[str, int]:
        """Messages to exchanges, those that go to no queue, that a full queue refused, and what is
        not recorded."""
        routing = self.routing
        routed = {"routed": routing.routed, "unroutable": routing.unroutable}
        full = {"queue_full": self.full.refused} if self.full.refused else {}
        return {**(routed if routing.routed else {}), **full, **self.unrecorded()}

    def unrecorded(self) -> dict[str, int]:
        """Messages that went to delivery only, how many did not get there, and what filters did."""
        if self._splitter is None:
            return {}
        counts = {"unrecorded": self._live.passed, "live_dropped": self._live.dropped}
        if self.contents is not None:
            counts |= {"filtered": self.contents.filtered, "unreadable": self.contents.unreadable}
        return counts

    def flush(
        self, burst: Burst, client: ClientConnection, flush: m.Flush, durability: str | None
    ) -> None:
        """Answered once everything before it is settled."""
        self.end_run(burst, client)
        if self.acks.waits(client):
            client.flushes.append((client.last_ordinal, flush.cid))
        else:
            burst.effects.append(Answer(client.rid, persisted(client, durability, flush.cid)))


def _processed(burst: Burst, client: ClientConnection, publish: m.Publish) -> None:
    if publish.ack is not None and "processed" in publish.ack:
        ack = m.Ack("processed", publish.cid, seq=publish.seq)
        burst.effects.append(Answer(client.rid, ack))


def _topics(publish: m.Publish) -> list[str]:
    return publish.topics if publish.topics is not None else [publish.topic or ""]
