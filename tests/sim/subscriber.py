"""A subscriber of everything in the recording world: a client by hand, which begins again whenever
its connection ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.delivery.world import expand
from tests.sim.delivery_process import DELIVERY, KEY, DeliveryNode
from tests.sim.net import Pipe
from zbroker.wire import codec, token
from zbroker.wire import messages as m

if TYPE_CHECKING:
    from tests.sim.recording_world import RecordingWorld

TURN_MS = 20
PATIENCE_MS = 2_000  # without an answer it begins again
NAME = "reader"

Recorded = tuple[int, str, bytes]  # position, topic, payload


@dataclass
class SimSubscription:
    """got: what came of the log; live: what is not recorded, with publisher and sequence."""

    sid: str
    node: DeliveryNode
    bookmark: str | None
    start: int | None = None  # None: it is not answered yet
    ended: str = ""  # the code of its error
    got: list[Recorded] = field(default_factory=list)
    live: list[tuple[int, int, str, bytes]] = field(default_factory=list)

    def expected(self, recorded: list[Recorded]) -> list[Recorded]:
        """All that it should get of this log."""
        if self.start is None:
            return []
        return [one for one in recorded if one[0] >= self.start]


class SubscriberNode:
    """It is never killed; its connection is."""

    def __init__(self, world: RecordingWorld) -> None:
        self.world = world
        self.subscriptions: list[SimSubscription] = []
        self._pipe: Pipe | None = None
        self._heartbeat_s = world.rng.choice((None, 0.3))
        self._begun_ms = self._beat_ms = 0
        self.connect()
        self._turn()

    @property
    def newest(self) -> SimSubscription | None:
        """The one that goes on; None: there is none."""
        one = self.subscriptions[-1] if self.subscriptions else None
        return None if one is None or one.ended or one.start is None else one

    def connect(self) -> None:
        """A new connection; what was on its way on the old one is lost."""
        if self._pipe is not None:
            self.world.net.close(self._pipe)
        for one in self.subscriptions[-1:]:
            one.ended = one.ended or "cut"
        self._begun_ms = self.world.at.now_ms
        pipe = Pipe(
            DELIVERY,
            lambda frame: self._arrived(*frame),
            lambda: self.connect() if pipe is self._pipe else None,
            lambda: self._logon(),
        )  # fmt: skip
        self._pipe = self.world.net.dealer(pipe)

    def _logon(self) -> None:
        said = token.Token(NAME, "", "i", 1, 1 << 40)
        self._send(m.ListenerLogon(token.make(KEY, said), "logon", self._heartbeat_s))

    def _send(self, command: m.ClientCommand) -> None:
        assert self._pipe is not None
        self.world.net.send(self._pipe, codec.encode(command))

    def _subscribe(self) -> None:
        rng, node = self.world.rng, self.world.delivery
        assert node is not None, "it has answered the logon"
        one = SimSubscription(f"s{len(self.subscriptions)}", node, rng.choice((None, "0")))
        self.subscriptions.append(one)
        self._send(
            m.Subscribe(
                one.sid, ".*", "subscribe", regex=True, bookmark=one.bookmark,
                credit=rng.choice((1, 200, 1 << 20)),
            )
        )  # fmt: skip

    def _arrived(self, header: bytes, body: bytes | None) -> None:
        answer = codec.ANSWERS.decode(header)
        if isinstance(answer, m.Msg):
            assert body is not None
            self._message(answer, bytes(body))
        elif isinstance(answer, m.Ack) and answer.cid == "logon":
            if self.world.delivery is not None:
                self._subscribe()
        elif isinstance(answer, m.Ack) and answer.cid == "subscribe":
            self.subscriptions[-1].start = answer.position
        elif isinstance(answer, m.Error):
            self.world.refused.append(answer.code)
            self.connect()

    def _message(self, msg: m.Msg, body: bytes) -> None:
        one = self.subscriptions[-1]
        self.world.demand(msg.sid == one.sid, f"{msg.sid} has ended, and gets messages")
        for seen in expand(msg, body):
            if seen.position:
                one.got.append((seen.position, seen.topic, seen.data))
            else:
                one.live.append((seen.publisher, seen.seq, seen.topic, seen.data))
        self._send(m.Flow(one.sid, 1_000 + len(body)))

    def _turn(self) -> None:
        now_ms = self.world.at.now_ms
        if self.newest is None and now_ms - self._begun_ms > PATIENCE_MS:
            self.connect()
        if self.newest is not None and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + int((self._heartbeat_s or 10.0) * 500)
            self._send(m.Heartbeat())
        self.world.at.after(TURN_MS, self._turn)
