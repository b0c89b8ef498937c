"""A client of zbroker that is made by hand: it needs pyzmq and msgpack, nothing of zbroker.

docs/howto/write-a-client.md shows it in parts and says why. Copy it, or write it in your language.
"""

# -- connection ----------------------------------------------------------------------------------

import random
import re
import secrets
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import zmq

HEARTBEAT_S = 5.0  # the broker is lost when nothing is heard from it for two of these
ANSWER_S = 5.0  # how long to wait for the answer to a logon
NAME_S = 30.0  # a process of yours that froze keeps its name for some seconds
LATER = {"not_ready", "disk_full", "window_full", "too_many", "internal"}  # ask again later

Map = dict[str, Any]
Keys = tuple[bytes, bytes, bytes]  # the broker's public key, your public key, your secret key


class Refused(Exception):
    """The broker refuses, and asking again would not help."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(f"{code}: {reason} ({hint})")
        self.code = code


def refused(said: Map) -> Refused:
    return Refused(said["code"], said["reason"], said.get("hint", ""))


class Connection:
    """One ZeroMQ socket to one endpoint of the broker."""

    def __init__(self, url: str, keys: Keys | None) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.sndhwm = 0  # the window limits what is in flight, not a number of frames
        self.socket.ipv6 = True
        self.socket.heartbeat_ivl = int(500 * HEARTBEAT_S)  # also while your program is busy
        self.socket.heartbeat_timeout = int(2000 * HEARTBEAT_S)
        if keys is not None:
            self.socket.curve_serverkey = keys[0]
            self.socket.curve_publickey, self.socket.curve_secretkey = keys[1:]
        self.socket.connect(url)
        self.heard = self.sent = time.monotonic()

    def send(self, command: Map, *body: bytes) -> None:
        self.socket.send_multipart([msgpack.packb(command), *body])
        self.sent = time.monotonic()

    def receive(self, wait_s: float = 0.0) -> tuple[Map, bytes] | None:
        """The next answer and its body; None if none came in time."""
        if not self.socket.poll(int(1000 * wait_s)):
            return None
        header, *body = self.socket.recv_multipart()
        self.heard = time.monotonic()
        return msgpack.unpackb(header), body[0] if body else b""

    def ask(self, command: Map, wait_s: float = ANSWER_S) -> Map | None:
        """The answer to a command that has a `cid`; None if none came in time."""
        self.send(command)
        deadline = time.monotonic() + wait_s
        while answer := self.receive(max(0.0, deadline - time.monotonic())):
            if answer[0].get("cid") == command["cid"]:
                return answer[0]
        return None

    @property
    def is_lost(self) -> bool:
        """Look only after everything that waits was received."""
        return time.monotonic() - self.heard > 2 * HEARTBEAT_S

    def beat(self) -> None:
        """A broker that was restarted answers this with `not_logged_on`."""
        if time.monotonic() - self.sent > HEARTBEAT_S / 2:
            self.send({"cmd": "heartbeat"})

    def close(self) -> None:
        self.socket.close()


@dataclass(frozen=True)
class Identity:
    """URL of the broker and name of the client. `instance` is the same while your object lives."""

    url: str
    client: str
    keys: Keys | None = None
    instance: str = ""


def log_on(url: str, logon: Map, keys: Keys | None) -> tuple[Connection, Map] | None:
    """A connection and the answer to its logon; None: try again later. Raises: Refused."""
    connection = Connection(url, keys)
    said = connection.ask({"cmd": "logon", "cid": "logon", "heartbeat_s": HEARTBEAT_S, **logon})
    if said is not None and said["cmd"] == "ack":
        return connection, said
    connection.close()
    if said is None or said["code"] in LATER:
        return None
    raise refused(said)


def enter(who: Identity, which: str) -> tuple[Connection, Map]:
    """Logs on at `ingest`, `delivery` or `queues`; tries until it is in. Raises: Refused."""
    since, pause_s = time.monotonic(), 0.1
    while True:
        try:
            found = _try_to_enter(who, which)
        except Refused as error:
            if error.code != "name_in_use" or time.monotonic() - since > NAME_S:
                raise
            found = None
        if found is not None:
            return found
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # many clients must not come at once
        pause_s = min(2 * pause_s, 5.0)


def _try_to_enter(who: Identity, which: str) -> tuple[Connection, Map] | None:
    logon = {"client": who.client, "instance": who.instance, "version": 1}
    found = log_on(who.url, logon, who.keys)
    if found is None or which == "ingest":
        return found
    ingest, hello = found
    ingest.ask({"cmd": "logoff", "cid": "logoff"}, 1.0)  # all it was needed for is the token
    ingest.close()
    there = hello["endpoints"].get(which)
    if there is None:
        return None  # zbroker 0.1.0 may say so while it starts
    host = who.url.partition("//")[2].rpartition(":")[0]
    return log_on(there.replace("//*:", f"//{host}:"), {"token": hello["token"]}, who.keys)


def identity(url: str, client: str, keys: Keys | None = None) -> Identity:
    return Identity(url, client, keys, secrets.token_hex(8))


def read_key(path: str, which: str = "public") -> bytes:
    """A key of a file that `zbroker-admin key new` wrote: 40 characters of Z85."""
    found = re.search(rf'^\s*{which}-key\s*=\s*"(.{{40}})"', Path(path).read_text(), re.MULTILINE)
    assert found, f"{path} has no {which} key"
    return found[1].encode()


# -- publisher -----------------------------------------------------------------------------------


@dataclass
class Kept:
    """A message that is not known to be durable."""

    prev: int  # the sequence issued before it
    topic: str
    payload: bytes

    @property
    def size(self) -> int:
        return len(self.payload) + 8  # the broker counts the frame around it, too


class Publisher:
    """Publishes under a name: each message gets into the log once and in order, or is refused.

    Call one of the methods at least every second; none of them is for two threads at a time.
    """

    def __init__(self, who: Identity) -> None:
        self.who = who
        self.unacked: dict[int, Kept] = {}  # by sequence, rising
        self.unsent: deque[int] = deque()  # the end of them that is not sent in this round
        self.refused: list[tuple[int, str]] = []  # given up: sequence and code
        self.last = self.prev = -1  # the newest sequence, and what the next message follows
        self.recorded = 0  # up to here the broker said that it is durable
        self.in_flight = self.window = 0  # bytes
        self.barrier: str | None = None  # cid of the flush that ends a round
        self.is_over = False  # that flush was answered
        self.high = 0  # what the log held of us when it ended
        self.tries = 0  # rounds without progress
        self.is_asking = False  # after a refusal for now: one message asks whether it goes on
        self.resume = 0.0  # nothing is sent before this time
        self.connection: Connection | None = None
        self._connect()

    def publish(self, topic: str, payload: bytes) -> int:
        """Takes a message, and returns its sequence; waits while the window is full."""
        while self.unsent:
            self.turn(0.1)
        self.last += 1
        self.unacked[self.last] = Kept(self.prev, topic, payload)
        self.prev = self.last
        self.unsent.append(self.last)
        self.turn()
        return self.last

    def flush(self) -> None:
        """Waits until all is durable, or refused for good."""
        while self.unacked:
            self.turn(0.1)

    def close(self) -> None:
        self.flush()
        self.connection.ask({"cmd": "logoff", "cid": "logoff"}, 1.0)
        self.connection.close()

    def turn(self, wait_s: float = 0.0) -> None:
        """Receives what waits, and does what is due."""
        answer = self.connection.receive(wait_s)
        while answer is not None:
            self._handle(answer[0])
            answer = self.connection.receive()
        if self.connection.is_lost:
            self._connect()
        if self.is_over:
            self._new_round(self.high)
        self._send_more()
        self.connection.beat()

    def _connect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection, hello = enter(self.who, "ingest")
        self.window = hello["window_bytes"]
        if self.last < 0:
            self.last = self.prev = hello["seq"]
        if hello["seq"] > self.last:
            raise Refused("session_ended", "another program published under this name")
        self._check_holds(hello["seq"])
        self._settle(hello["acked"])
        self.tries, self.is_asking, self.resume = 0, False, 0.0
        self._new_round(hello["seq"])  # of which the broker drops what it has already

    def _check_holds(self, high: int) -> None:
        if high < self.recorded:
            text = f"the log ends at {high}, and {self.recorded} was acknowledged"
            raise Refused("broker_behind", text, "was an old copy of it put back?")

    def _new_round(self, high: int) -> None:
        """Everything that is unacknowledged is sent once more, in order."""
        self.barrier, self.is_over = None, False
        self.unsent, self.in_flight = deque(self.unacked), 0
        for first in list(self.unacked)[:1]:
            self.unacked[first].prev = min(self.unacked[first].prev, high)
        if not self.unacked:
            self.prev = min(self.prev, high)

    def _send_more(self) -> None:
        if self.barrier is not None or time.monotonic() < self.resume:
            return
        while self.unsent:
            sequence = self.unsent[0]
            kept = self.unacked[sequence]
            if self.in_flight and (self.is_asking or self.in_flight + kept.size > self.window):
                break
            self.connection.send(
                {"cmd": "publish", "topic": kept.topic, "seq": sequence, "prev": kept.prev,
                 "ack": ["persisted"]},
                kept.payload,
            )  # fmt: skip
            self.unsent.popleft()
            self.in_flight += kept.size

    def _handle(self, said: Map) -> None:
        if said["cmd"] == "ack":
            if said["type"] == "persisted" or "unrecorded" in said:
                self._settle(said["seq"], recorded=said["type"] == "persisted")
            if self.barrier is not None and said.get("cid") == self.barrier:
                self.is_over = True
        elif said["cmd"] == "error":
            self._handle_error(said)

    def _settle(self, through: int, *, recorded: bool = True) -> None:
        """Everything up to sequence `through` is settled: it need not be kept."""
        if recorded:
            self.recorded = max(self.recorded, through)
        while self.unacked and (first := next(iter(self.unacked))) <= through:
            kept = self.unacked.pop(first)
            self.tries, self.is_asking = 0, False
            if self.unsent and self.unsent[0] == first:
                self.unsent.popleft()
            else:
                self.in_flight -= kept.size

    def _handle_error(self, said: Map) -> None:
        code, sequence = said["code"], said.get("seq")
        if code == "not_logged_on":
            self._connect()
        elif sequence is None or code in ("session_ended", "auth_failed"):
            raise refused(said)
        else:
            high = self.last
            if code == "sequence_gap":
                high = said["high"]
                self._check_holds(high)
            elif code not in LATER:
                self._give_up(sequence, code)
            self._end_round(high, later=code in LATER)

    def _give_up(self, sequence: int, code: str) -> None:
        """Refused for good. Its sequence is never used again; the next message gets its `prev`."""
        dropped = self.unacked.pop(sequence, None)
        if dropped is None:
            return
        self.refused.append((sequence, code))
        behind = next((n for n in self.unacked if n > sequence), None)
        if behind is None:
            self.prev = dropped.prev
        else:
            self.unacked[behind].prev = dropped.prev

    def _end_round(self, high: int, *, later: bool) -> None:
        """The broker refuses every message that was sent after a refused one. Once a flush is
        answered, all of these refusals have come: only then one new round begins."""
        if self.barrier is not None:
            return
        self.high = high
        self.tries += 1
        self.is_asking = later or self.tries > 1
        if self.is_asking:
            self.resume = time.monotonic() + min(0.05 * 2**self.tries, 1.0)
        self.barrier = f"flush-{secrets.token_hex(4)}"
        self.unsent.clear()
        self.connection.send({"cmd": "flush", "cid": self.barrier})


# -- subscriber ----------------------------------------------------------------------------------


@dataclass
class Message:
    topic: str
    payload: bytes
    publisher: int  # up to 2**64 - 1
    sequence: int
    position: int
    deliveries: int = 1  # of a queue: one with more than 1 may have been seen before
    credit: int = 0  # of a queue: what is given back once this one is handled


_CRC = [0] * 256
for number in range(256):
    value = number
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    _CRC[number] = value


def crc32c(data: bytes) -> int:
    """Slow: take a library that uses the instruction of your processor."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def messages_of(said: Map, body: bytes) -> Iterator[Message]:
    """The messages of a `msg` or a `job` that count. Its body was not compressed: see `codecs`."""
    if "crc" in said and crc32c(body) != said["crc"]:
        raise Refused("bad_checksum", "a batch was changed on its way")
    payloads, columns = msgpack.unpackb(body), said.get("columns", {})
    first = said.get("skip", 0)
    take = said.get("take", len(payloads) - first)
    topics = said.get("topics") or [said["topic"]]
    for at in range(first, first + take):
        (topic,) = (
            struct.unpack_from("<H", columns["index"], 2 * at) if "index" in columns else (0,)
        )
        more = at - first
        if "offset" in columns:  # they are not consecutive
            (more,) = struct.unpack_from("<I", columns["offset"], 4 * at)
        message = Message(
            topics[topic], payloads[at], said["publisher"], said["seq"] + more,
            said["position"] + more,
        )  # fmt: skip
        if "deliveries" in said:
            (message.deliveries,) = struct.unpack_from("<H", said["deliveries"], 2 * (at - first))
        yield message


def bytes_of(said: Map, body: bytes) -> int:
    """What a batch costs of the credit, and what is given back once it is handled."""
    columns = said.get("columns", {})
    return len(body) + len(columns.get("keys", b"")) + len(columns.get("headers", b""))


class Subscriber:
    """Iterates over the recorded messages of a topic, each once, in the order of the log.

    at: where to begin; "0" is the start of the log. Afterwards it is the place after the last
    message that you were done with, that is, when you asked for the next one: a vector, with an
    entry for each instance that took messages first. Store it to go on there in another process,
    also at another instance that replicates. wishes: other keys of `subscribe`: `filter` ...
    """

    def __init__(self, who: Identity, topic: str, at: str = "0", **wishes: object) -> None:
        self.who, self.topic, self.start, self.wishes = who, topic, at, wishes
        self.connection: Connection | None = None
        self.origin: list[int] = []
        self.seen: dict[str, int] = {}  # "<instance>.<generation>": the last position there
        if "." in at and "T" not in at:  # a vector, and not a time
            self._raise(at)

    @property
    def at(self) -> str:
        """The place after the last message."""
        return ",".join(f"{line}.{at}" for line, at in self.seen.items()) or self.start

    def _raise(self, vector: str) -> None:
        for entry in vector.split(","):
            line, _, position = entry.rpartition(".")
            self.seen[line] = max(self.seen.get(line, 0), int(position))

    def __iter__(self) -> Iterator[Message]:
        self._connect()
        try:
            while True:
                answer = self.connection.receive(HEARTBEAT_S / 4)
                if answer is None and self.connection.is_lost:
                    self._connect()
                elif answer is not None and answer[0]["cmd"] == "msg":
                    yield from self._handle_messages(*answer)
                elif answer is not None and answer[0]["cmd"] == "error":
                    self._handle_error(answer[0])
                elif answer is not None and "vector" in answer[0]:
                    if answer[0]["type"] != "processed" or "T" not in self.start:
                        self._raise(answer[0]["vector"])  # also where nothing matched
                    if answer[0].get("ended"):
                        return
                self.connection.beat()
        finally:
            self.close()

    def _connect(self) -> None:
        self.close()
        self.connection, hello = enter(self.who, "delivery")
        self.origin = hello["origin"]
        self.connection.send({
            "cmd": "subscribe", "cid": "s", "sid": "s", "topic": self.topic, "bookmark": self.at,
            "credit": 1 << 20, "options": {"codecs": []}, **self.wishes,
        })  # fmt: skip

    def _handle_messages(self, said: Map, body: bytes) -> Iterator[Message]:
        instance, generation, first = said.get("origin") or [*self.origin, said["position"]]
        line = f"{instance:016x}.{generation}"
        for message in messages_of(said, body):
            yield message
            self.seen[line] = first + message.position - said["position"]
        self.connection.send({"cmd": "flow", "sid": "s", "bytes": bytes_of(said, body)})

    def _handle_error(self, said: Map) -> None:
        if said["code"] not in LATER | {"not_logged_on", "bookmark_pending"}:
            raise refused(said)
        time.sleep(0.2)
        self._connect()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


# -- consumer ------------------------------------------------------------------------------------

AGAIN_S = 5.0  # what is not answered is asked for again: what is done already is ignored


class Consumer:
    """Iterates over the messages of a queue; you `ack` each one when its work is done.

    Every message is delivered at least once. After a lost connection it may come again.
    """

    def __init__(self, who: Identity, queue: str, backlog: int = 64) -> None:
        self.who, self.queue, self.backlog = who, queue, backlog
        self.held: set[int] = set()  # positions of messages that are ours until they are settled
        self.asked: dict[str, Map] = {}  # by cid: not answered yet
        self.asked_at = time.monotonic()
        self.waiting: deque[Message] = deque()
        self.origin: list[int] = []
        self.connection: Connection | None = None
        self._connect()

    def __iter__(self) -> Iterator[Message]:
        while True:
            while not self.waiting:
                self.turn(HEARTBEAT_S / 4)
            message = self.waiting.popleft()
            if message.position in self.held:  # else it went to another consumer meanwhile
                yield message
            if message.credit:
                self.connection.send({"cmd": "flow", "sid": "c", "bytes": message.credit})

    def ack(self, message: Message) -> None:
        """It is done. Durable when it is answered: see flush()."""
        cid = secrets.token_hex(8)
        ends = [message.position, message.position + 1]  # runs: first, end, first, end ...
        self.asked[cid] = {"cmd": "ack", "cid": cid, "sid": "c", "ends": ends}
        self._ask(cid)
        self.turn()

    def flush(self) -> None:
        """Waits until each `ack` is durable."""
        while self.asked:
            self.turn(0.1)

    def turn(self, wait_s: float = 0.0) -> None:
        """Receives what waits, and does what is due."""
        answer = self.connection.receive(wait_s)
        while answer is not None:
            self._handle(*answer)
            answer = self.connection.receive()
        if self.connection.is_lost:
            self._connect()
        if self.asked and time.monotonic() - self.asked_at > AGAIN_S:
            for cid in self.asked:
                self._ask(cid)
        self.connection.beat()

    def close(self) -> None:
        self.flush()
        self.connection.ask({"cmd": "cancel", "cid": "cancel", "sid": "c"}, 1.0)
        self.connection.close()

    def _connect(self) -> None:
        """Says what it still has, so that this does not go to another consumer."""
        if self.connection is not None:
            self.connection.close()
        self.connection, hello = enter(self.who, "queues")
        if self.origin and hello["origin"] != self.origin:  # another log: an old copy was put back
            self.held.clear()
            self.asked.clear()
        self.origin = hello["origin"]
        holding = [end for position in sorted(self.held) for end in (position, position + 1)]
        self.connection.send({
            "cmd": "consume", "cid": "c", "sid": "c", "queue": self.queue, "holder": "c",
            "backlog": self.backlog, "credit": 1 << 20, "codecs": [], "holding": holding,
            "generation": self.origin[1],
        })  # fmt: skip
        for message in self.waiting:
            message.credit = 0  # of the connection that is gone

    def _handle(self, said: Map, body: bytes) -> None:
        if said["cmd"] == "consuming":
            kept = said.get("kept", [])
            ours = {p for at in range(0, len(kept), 2) for p in range(kept[at], kept[at + 1])}
            self.held &= ours
            for cid in self.asked:
                self._ask(cid)
        elif said["cmd"] == "job":
            messages = list(messages_of(said, body))
            messages[-1].credit = bytes_of(said, body)
            self.waiting += messages
            self.held |= {message.position for message in messages}
        elif said["cmd"] == "settled":
            self._settled(said.get("cid", ""))
        elif said["cmd"] == "error":
            self._handle_error(said)

    def _settled(self, cid: str) -> None:
        done = self.asked.pop(cid, None)
        if done is not None:
            self.held -= set(range(*done["ends"]))

    def _handle_error(self, said: Map) -> None:
        if said["code"] == "not_logged_on":
            self._connect()
        elif said["code"] == "stale_epoch":
            self._settled(said.get("cid", ""))  # the log has other messages there
        elif said["code"] not in LATER:
            raise refused(said)

    def _ask(self, cid: str) -> None:
        self.asked_at = time.monotonic()
        self.connection.send({**self.asked[cid], "generation": self.origin[1]})
