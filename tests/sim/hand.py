"""A publisher without the library, as docs/howto/write-a-client.md builds one, but without `prev`.

It sends on while answers are on their way, goes back to what was refused, sends again what no one
answers, and logs on again where its session or connection ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.net import Pipe
from zbroker.errors import TEMPORARY
from zbroker.wire import codec
from zbroker.wire import messages as m

if TYPE_CHECKING:
    from tests.sim.world import App, World

INGEST = "tcp-ingest"
AGAIN_MS = 8  # after a refusal
QUIET_MS = 400  # without an answer all of it goes again


class HandNode:
    """One life of the application; the same face as ClientNode."""

    def __init__(self, world: World, app: App) -> None:
        self.world = world
        self.app = app
        self.ended: Exception | None = None
        self.inbox: list[int] = []  # numbers that wait for the first logon
        self.numbers: dict[int, int] = {}  # sequence -> number, until it is settled; rising
        self.sequence = 0
        self.alive, self.logged_on = True, False
        self._instance = f"{app.name}-{next(world.incarnations)}"
        self._heard_ms = world.at.now_ms
        self._back: int | None = None  # send again from this sequence on
        self.pipe: Pipe | None = world.net.dealer(
            Pipe(INGEST, self._on_frame, on_lost=self._on_lost, on_connected=self._log_on)
        )
        self._turn()

    def publish(self, messages: int) -> None:
        """The application hands over `messages`; they are sent at once, whatever was refused."""
        for _ in range(messages):
            self.inbox.append(self.app.sent)
            self.app.sent += 1
        self._send_inbox()

    def die(self) -> None:
        """No one knows what became of the messages without an answer."""
        self.alive = False
        self.app.lost |= {*self.numbers.values(), *self.inbox}
        if self.pipe is not None:
            self.world.net.close(self.pipe)

    def _log_on(self) -> None:
        self.logged_on = False
        self._heard_ms = self.world.at.now_ms
        self._put(m.Logon(self.app.name, self._instance, "logon", heartbeat_s=0.2), None)

    def _on_lost(self) -> None:
        self.logged_on = False

    def _turn(self) -> None:
        if not self.alive:
            return
        now_ms = self.world.at.now_ms
        if self.logged_on:
            self._put(m.Heartbeat(), None)
        if now_ms - self._heard_ms > QUIET_MS:
            self._heard_ms = now_ms
            if not self.logged_on:
                self._log_on()
            elif self.numbers:
                self._back = 0
        if self._back is not None and self.logged_on and self.world.rng.random() < 0.5:
            first, self._back = self._back, None
            for sequence in [s for s in self.numbers if s >= first]:
                self._publish(sequence)
        self.world.at.after(AGAIN_MS, self._turn)

    def _on_frame(self, frame: bytes) -> None:
        answer = codec.ANSWERS.decode(frame)
        if isinstance(answer, m.Ack):
            self._heard_ms = self.world.at.now_ms
            if answer.cid == "logon":
                self._logged_on(answer)
            elif answer.type == "persisted":
                self._settle(answer.seq or 0)
        elif isinstance(answer, m.Error):
            self._refused(answer)

    def _logged_on(self, answer: m.Ack) -> None:
        self.logged_on = True
        self._settle(answer.seq or 0)
        self.sequence = max(self.sequence, answer.seq or 0)
        self._back = None
        for sequence in list(self.numbers):
            self._publish(sequence)
        self._send_inbox()

    def _refused(self, error: m.Error) -> None:
        if error.code in ("not_logged_on", "session_ended", "name_in_use"):
            self.logged_on = False  # and logs on again when it was quiet for a while
        elif error.code in TEMPORARY or error.code == "sequence_gap":
            first = error.seq or 0
            if error.code == "sequence_gap" and error.high is not None:
                first = min(first, error.high + 1)
            self._back = first if self._back is None else min(first, self._back)

    def _settle(self, sequence: int) -> None:
        for settled in [s for s in self.numbers if s <= sequence]:
            self.app.acked.add(self.numbers.pop(settled))

    def _send_inbox(self) -> None:
        while self.logged_on and self.inbox:
            self.sequence += self.world.rng.choice((1, 1, 1, 3))
            self.numbers[self.sequence] = self.inbox.pop(0)
            self._publish(self.sequence)

    def _publish(self, sequence: int) -> None:
        topic = f"t{self.world.rng.randrange(3)}"
        publish = m.Publish(sequence, topic, ack=["persisted"])
        self._put(publish, b"%d" % self.numbers[sequence])

    def _put(self, command: Any, body: bytes | None) -> None:
        if self.pipe is not None:
            self.world.net.send(self.pipe, (codec.encode(command), body))
