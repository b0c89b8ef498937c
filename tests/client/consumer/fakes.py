"""The fake broker with a queues listener: one queue of the model, by the clock on the wall."""

from __future__ import annotations

import time

from tests.client.consumer.listener_model import QueueListener
from tests.client.fakes import FakeBroker
from zbroker.wire import codec
from zbroker.wire import messages as m


class QueueBroker(FakeBroker):
    """keep: what is settled is not durable yet. most: messages that are offered together."""

    def __init__(self, **kind):
        self.listener = QueueListener(**{"lease_ms": 30_000, "backlog": 64, **kind})
        self.keep = False
        self.named = True  # the logon answer names the queues listener
        self.most = 4
        self._known = set()
        self._began = time.monotonic()
        super().__init__()

    def publish(self, count=1):
        """So many messages enter the queue."""
        self.do(lambda: [self.listener.publish() for _ in range(count)])

    @property
    def acked(self):
        return [position for position, why in sorted(self.listener.gone.items()) if why == "acked"]

    def commands(self, kind):
        return [each for each in list(self.listener.commands) if type(each) is kind]

    # -- in its thread ------------------------------------------------------------------------

    def _bind(self):
        self._endpoints.setdefault("queues", "tcp://127.0.0.1:*")
        super()._bind()

    def _forget(self):
        super()._forget()
        for rid in self._known:
            self.listener.lose(rid)
        self._known = set()

    def _logged_on(self, command):
        answer = super()._logged_on(command)
        if self.named:
            answer.endpoints["queues"] = self._endpoints["queues"]
        return answer

    def _feed(self):
        super()._feed()
        listener, socket = self.listener, self._sockets.get("queues")
        listener.pass_time(int((time.monotonic() - self._began) * 1_000) - listener.now)
        while socket is not None and socket.poll(0):
            rid, *frames = socket.recv_multipart()
            if not self.deaf:
                self._on_queues(rid, codec.decode(codec.QUEUES, frames[0]))
        while listener.pending and not self.keep:
            listener.commit()
        if socket is None:
            return
        listener.offer(self.most)
        while listener.down:
            rid, answer, body = listener.down.pop(0)
            if rid in self._known or isinstance(answer, m.Error):
                self._answer("queues", rid, answer, body)

    def _on_queues(self, rid, command):
        if isinstance(command, m.ListenerLogon):
            if command.token != self.token:
                self._answer("queues", rid, m.Error("auth_failed", "old", cid=command.cid))
                return
            self._known.add(rid)
        elif rid not in self._known:
            cid = getattr(command, "cid", None)
            self._answer("queues", rid, m.Error("not_logged_on", "who are you", cid=cid))
            return
        self.listener.handle(rid, command)
