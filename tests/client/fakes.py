"""A broker small enough to do as asked: two ROUTERs in a thread, and a log in a list."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec
import zmq

from tests import waiting
from zbroker.checksums import crc32c
from zbroker.ids import NOW, Origin, format_vector, is_vector, parse_vector, publisher_id
from zbroker.wire import bodies, codec
from zbroker.wire import messages as m

HERE = Origin(0xAB, 1)
WAIT_S = 10.0


def wait_until(done, timeout=WAIT_S):
    """Polls for what another thread or process does; fails loudly."""
    waiting.until(done, "it did not come about", timeout, look_s=0.002)


class FakeBroker:
    """Position i + 1 of the log is `log[i]`: (publisher, sequence, topic, data, time).

    hold: keep acks back. deaf: answer nothing. refusals: codes for the next publishes.
    unrecorded: topics that do not go to the log; they go to plain subscriptions at once.
    """

    def __init__(self):
        self.log = []
        self.high = {}
        self.hold = self.deaf = False
        self.logon_code = ""
        self.refusals = deque()
        self.unrecorded = set()
        self.handled = {}  # publisher -> highest sequence taken in its session
        self.token = "t1"
        self.logons = []
        self.listener_logons = []
        self.beats = []  # the listener, and what a heartbeat asks for
        self.subscribes = []
        self.flows = []
        self.asked = []  # pause, resume, replace
        self.mute = False  # they are not answered
        self.logoffs = 0
        self.window_bytes = 1 << 20
        self.max_message_bytes = 1 << 20
        self.batch_messages = 100
        self.corrupt = False
        self._todo = deque()
        self._context = zmq.Context()
        self._sockets = {}
        self._endpoints = {"ingest": "tcp://127.0.0.1:*", "delivery": "tcp://127.0.0.1:*"}
        self._stop = False
        self._bind()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return self._endpoints["ingest"]

    def do(self, job):
        """Runs `job` in the broker's thread and waits for it."""
        done = threading.Event()
        self._todo.append((job, done))
        assert done.wait(WAIT_S)

    def stop(self):
        """Closes the listeners; the log is kept."""
        self.do(self._unbind)

    def start(self):
        """Opens the listeners again, on the same ports, knowing no one."""
        self.do(self._bind)

    def restart(self):
        self.stop()
        self.start()

    def forget(self):
        """Keeps the connections and forgets who they are."""
        self.do(self._forget)

    def release(self):
        """Sends the acks that were held back."""
        self.hold = False
        self.do(self._ack_all)

    def append(self, topic, data, publisher="other"):
        """Something that somebody else published."""
        pid = publisher_id(publisher)
        self.do(lambda: self._append(pid, topic, data))

    def end_sessions(self, code="session_ended"):
        """Another client took over the name of each."""
        error = m.Error(code, "taken over")
        self.do(lambda: [self._answer("ingest", rid, error) for rid in self._names])

    def close(self):
        self._stop = True
        self._thread.join(WAIT_S)
        self._context.destroy(linger=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- in its thread ------------------------------------------------------------------------

    def _bind(self):
        self._forget()
        for listener, endpoint in self._endpoints.items():
            socket = self._context.socket(zmq.ROUTER)
            socket.setsockopt(zmq.LINGER, 0)
            end = time.monotonic() + WAIT_S
            while True:
                try:
                    socket.bind(endpoint)
                    break
                except zmq.ZMQError:  # the old socket's port is freed a moment later
                    assert time.monotonic() < end
                    time.sleep(0.01)
            self._endpoints[listener] = socket.getsockopt_string(zmq.LAST_ENDPOINT)
            self._sockets[listener] = socket

    def _unbind(self):
        for socket in self._sockets.values():
            socket.close(0)
        self._sockets = {}

    def _forget(self):
        self._names = {}
        self._tokens = set()
        self._subscriptions = {}  # (routing id, sid) -> Taken

    def _run(self):
        while not self._stop:
            poller = zmq.Poller()
            for socket in self._sockets.values():
                poller.register(socket, zmq.POLLIN)
            if self._sockets:
                poller.poll(2)
            else:
                time.sleep(0.002)
            while self._todo:
                job, done = self._todo.popleft()
                job()
                done.set()
            for listener, handle in (("ingest", self._ingest), ("delivery", self._delivery)):
                socket = self._sockets.get(listener)
                while socket is not None and socket.poll(0):
                    rid, *frames = socket.recv_multipart()
                    if not self.deaf:
                        handle(rid, frames)
            self._feed()
        self._unbind()

    def _answer(self, listener, rid, answer, body=None):
        frames = [rid, codec.encode(answer)]
        self._sockets[listener].send_multipart(frames if body is None else [*frames, body])

    def _ingest(self, rid, frames):
        command = codec.decode(codec.INGEST, frames[0])
        cid = getattr(command, "cid", None)
        seq = getattr(command, "seq", None)
        if isinstance(command, m.Logon):
            self.logons.append(command)
            if self.logon_code:
                self._answer("ingest", rid, m.Error(self.logon_code, "because", cid=cid))
            else:
                self._names[rid] = command.client
                self._answer("ingest", rid, self._logged_on(command))
        elif rid not in self._names:
            self._answer("ingest", rid, m.Error("not_logged_on", "who are you", cid=cid, seq=seq))
        elif isinstance(command, m.Publish):
            self._publish(rid, command, frames[1])
        elif isinstance(command, m.Heartbeat):
            self.beats.append(("ingest", command.heartbeat_s))
        elif isinstance(command, m.Logoff):
            self.logoffs += 1
            del self._names[rid]

    def _logged_on(self, command):
        pid = publisher_id(command.client)
        high = self.handled[pid] = self.high.get(pid, 0)
        return m.Ack(
            "processed", command.cid, recording="some" if self.unrecorded else None, seq=high,
            acked=high, publisher=pid, session=len(self.logons),
            origin=tuple(HERE), window_bytes=self.window_bytes, token=self.token,
            max_message_bytes=self.max_message_bytes, max_batch_bytes=1 << 20,
            endpoints={"delivery": self._endpoints["delivery"].replace("127.0.0.1", "*")},
        )  # fmt: skip

    def _publish(self, rid, command, body):
        pid = publisher_id(self._names[rid])
        high = self.high.get(pid, 0)
        assert crc32c(body) == command.crc
        code = self.refusals.popleft() if self.refusals else ""
        if command.prev > self.handled[pid]:
            code = "sequence_gap"
        if code:
            error = m.Error(code, "because", cid=command.cid, seq=command.seq, high=high)
            self._answer("ingest", rid, error)
            return
        self.handled[pid] = max(self.handled[pid], command.seq + command.count - 1)
        columns = command.columns or m.Columns()
        times = bodies.times(columns.time) if columns.time else [None] * command.count
        index = bodies.indexes(columns.index) if columns.index else [0] * command.count
        topics = command.topics or [command.topic]
        data = msgspec.msgpack.decode(body, type=list[bytes])
        for i, item in enumerate(data):
            sequence, topic = command.seq + i, topics[index[i]]
            if topic in self.unrecorded:
                self._pass(pid, sequence, topic, item)
                if not self.hold:
                    ack = m.Ack("processed", seq=sequence, unrecorded=[topic])
                    self._answer("ingest", rid, ack)
            elif sequence > high:
                self.log.append((pid, sequence, topic, item, times[i]))
                self.high[pid] = sequence
        if not self.hold and self.high.get(pid, 0) >= command.seq:
            self._answer("ingest", rid, m.Ack("persisted", seq=self.high[pid]))

    def _pass(self, pid, sequence, topic, item):
        """Something that is not recorded, to who is subscribed now."""
        body = msgspec.msgpack.encode([item])
        for (rid, _), taken in self._subscriptions.items():
            command = taken.command
            plain = command.unrecorded is not False and (command.unrecorded or not command.bookmark)
            if plain and command.topic == topic:
                crc = crc32c(body)
                header = m.Msg(command.sid, pid, sequence, 10**9, 1, topic=topic, crc=crc)
                self._answer("delivery", rid, header, body)

    def _ack_all(self):
        for rid, name in self._names.items():
            pid = publisher_id(name)
            high = self.high.get(pid, 0)
            self._answer("ingest", rid, m.Ack("persisted", seq=high))
            if self.handled[pid] > high:
                names = sorted(self.unrecorded)
                ack = m.Ack("processed", seq=self.handled[pid], unrecorded=names)
                self._answer("ingest", rid, ack)

    def _append(self, pid, topic, data):
        self.high[pid] = self.high.get(pid, 0) + 1
        self.log.append((pid, self.high[pid], topic, data, None))

    def _delivery(self, rid, frames):
        command = codec.decode(codec.DELIVERY, frames[0])
        cid = getattr(command, "cid", None)
        if isinstance(command, m.ListenerLogon):
            if command.token != self.token:
                self._answer("delivery", rid, m.Error("auth_failed", "old token", cid=cid))
                return
            self._tokens.add(rid)
            self.listener_logons.append(command)
            self._answer("delivery", rid, m.Ack("processed", cid, origin=tuple(HERE)))
        elif rid not in self._tokens:
            self._answer("delivery", rid, m.Error("not_logged_on", "who are you", cid=cid))
        elif isinstance(command, m.Heartbeat):
            self.beats.append(("delivery", command.heartbeat_s))
        else:
            self._on_listener(rid, command, cid)

    def _on_listener(self, rid, command, cid):
        if isinstance(command, m.Subscribe):
            self._subscribe(rid, command)
        elif isinstance(command, m.Ranges):
            end = len(self.log) + 1
            ranges = [(1, end, 10)] if end > 1 else []
            self._answer("delivery", rid, m.RangeList(1, HERE.instance, 1, end, ranges, cid))
        elif isinstance(command, m.Flow):
            self.flows.append(command.bytes)
            if (rid, command.sid) in self._subscriptions:
                self._subscriptions[rid, command.sid].credit += command.bytes
        elif isinstance(command, m.Logoff):
            for key in [key for key in self._subscriptions if key[0] == rid]:
                del self._subscriptions[key]
        elif isinstance(command, m.Unsubscribe):
            taken = self._subscriptions.pop((rid, command.sid), None)
            if taken is not None:
                taken.leave()
        else:
            self.asked.append(command)
            if not self.mute:
                self._change(rid, command)

    def _subscribe(self, rid, command):
        self.subscribes.append(command)
        if command.topic == "silent":
            return
        code = {"forbidden": "bookmark_not_found"}.get(command.topic)
        code = "bad_filter" if command.filter == "bad" else code
        if code:
            error = m.Error(code, "no such", cid=command.cid, sid=command.sid)
            self._answer("delivery", rid, error)
            return
        start = {"0": 1, NOW: len(self.log) + 1, None: len(self.log) + 1}.get(command.bookmark)
        if start is None:
            start = self._position(command.bookmark) + 1
        until = self._position(command.until) if command.until else None
        options = command.options or m.Options()
        self._subscriptions[rid, command.sid] = Taken(
            command, start, until, len(self.log) if until is None else until, command.credit,
            options.limit, paused=options.paused,
        )  # fmt: skip
        ack = m.Ack(
            "processed", command.cid, sid=command.sid, position=start, credit=command.credit
        )
        self._answer("delivery", rid, ack)

    def _change(self, rid, command):
        """pause, resume, replace."""
        answer = m.Ack("processed", command.cid)
        sids = [command.sid] if isinstance(command, m.Replace) else command.sids
        if any((rid, sid) not in self._subscriptions for sid in sids):
            answer = m.Error("unknown_sid", "it has ended", cid=command.cid)
        elif isinstance(command, m.Replace):
            taken = self._subscriptions[rid, command.sid]
            if command.filter == "bad":
                answer = m.Error("bad_filter", "column 1", cid=command.cid)
            else:
                taken.replace(command)
                answer.position = taken.position
        else:
            many = [self._subscriptions[rid, sid] for sid in command.sids]
            for taken in many:
                taken.leave()
                taken.paused = isinstance(command, m.Pause)
            if isinstance(command, m.Resume) and len({taken.position for taken in many}) == 1:
                answer.combined = command.sids if len(many) > 1 else None
                for taken in many:
                    taken.shared = many if len(many) > 1 else []
        self._answer("delivery", rid, answer)

    def _position(self, text):
        if is_vector(text):
            return parse_vector(text)[HERE]
        publisher, sequence, _ = text.split("|")
        found = [row[:2] for row in self.log].index((int(publisher), int(sequence)))
        return found + 1

    def _feed(self):
        for (rid, sid), taken in list(self._subscriptions.items()):
            if taken.paused:
                continue
            if not taken.shared:
                while taken.goes_on(len(self.log)):
                    taken.position = self._send_batch(rid, taken)
            elif taken is taken.shared[0]:
                self._feed_shared(rid, taken.shared)
            self._tell(rid, sid, taken)

    def _feed_shared(self, rid, many):
        """One message of the log after the other, to each of them."""
        while all(taken.goes_on(len(self.log)) for taken in many):
            for taken in many:
                taken.position = self._send_batch(rid, taken, 1)

    def _tell(self, rid, sid, taken):
        over = taken.left == 0
        if over or (taken.target is not None and taken.position > taken.target):
            vector = format_vector({HERE: taken.position - 1})
            self._answer("delivery", rid, m.Ack("completed", sid=sid, vector=vector))
            taken.target = None
            if taken.until is not None or over:
                del self._subscriptions[rid, sid]

    def _send_batch(self, rid, taken, at_most=0):
        """One batch of consecutive messages of one publisher; gives the next position."""
        command, position = taken.command, taken.position
        pid, seq = self.log[position - 1][:2]
        rows = []
        end = min(taken.end(len(self.log)), position - 1 + (at_most or self.batch_messages))
        for row in self.log[position - 1 : end]:
            if row[:2] != (pid, seq + len(rows)):
                break
            rows.append(row)
        wanted = [i for i, row in enumerate(rows) if taken.wants(row)]
        if taken.left is not None:
            wanted = wanted[: taken.left]
            taken.left -= len(wanted)
        if wanted:
            body = msgspec.msgpack.encode([rows[i][3] for i in wanted])
            taken.credit -= len(body)
            columns = None
            if len(wanted) < len(rows):
                raw = b"".join((i - wanted[0]).to_bytes(4, "little") for i in wanted)
                columns = m.Columns(offset=raw)
            header = m.Msg(
                command.sid, pid, seq + wanted[0], 10**9, len(wanted), position + wanted[0],
                topic=command.topic, crc=crc32c(body), columns=columns,
            )  # fmt: skip
            self._answer("delivery", rid, header, b"?" + body if self.corrupt else body)
        return position + len(rows)


@dataclass(eq=False)
class Taken:
    """A subscription. `filter`: payloads with this text in them. shared: those of one replay."""

    command: m.Subscribe
    position: int
    until: int | None
    target: int | None
    credit: int
    left: int | None
    paused: bool
    shared: list = field(default_factory=list)

    def leave(self):
        """It has a replay of its own; those that it shared one with go on."""
        if self in self.shared:
            self.shared.remove(self)
        self.shared = []

    def end(self, length):
        return length if self.until is None else self.until

    def goes_on(self, length):
        return self.position <= self.end(length) and self.credit > 0 and self.left != 0

    def wants(self, row):
        content = (self.command.filter or "").encode()
        return row[2] == self.command.topic and content in row[3]

    def replace(self, command):
        if command.topic is not None:
            self.command.topic = command.topic
        if command.filter is not None:
            self.command.filter = command.filter
