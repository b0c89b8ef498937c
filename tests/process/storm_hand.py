"""A publisher without a library: a DEALER that sends each message once to five times.

Whatever goes wrong, it logs on again, learns how far the log is, and sends the rest again.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgpack
import msgspec
import zmq

from zbroker.log.format import Batch

TIMES_MAX: Final = 5
AGAIN_MAX: Final = 2
WINDOW: Final = 50  # messages on the way
UNDER_WAY_BYTES: Final = 256 * 1_024  # well within what the broker takes
ANSWER_MS: Final = 1_000
PATIENCE_S: Final = 60.0
REST_S: Final = 0.05  # between two windows: leave the cores to the others
PAUSE_S: Final = 0.05  # before the next logon


class Trouble(Exception):
    """No answer, or a refusal: begin again."""


class Hand:
    """One connection after the other, under one name."""

    def __init__(self, url: str, name: str) -> None:
        self.duplicates = 0  # that the broker said it dropped
        self.refusals: list[str] = []
        self._url, self._name = url, name
        self._instance = os.urandom(4).hex()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._logons = 0

    def log_on(self) -> int:
        """A new connection. Returns: the highest sequence that is in the log."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._logons += 1
            self._socket.close(linger=0)
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.connect(self._url)
            self.say(
                {"cmd": "logon", "client": self._name, "instance": self._instance, "version": 1,
                 "cid": str(self._logons)}
            )  # fmt: skip
            try:
                return int(self._answer("processed").get("seq") or 0)
            except Trouble:
                assert time.monotonic() < deadline, f"no logon: {self.refusals[-3:]}"
                time.sleep(PAUSE_S)

    def say(self, command: dict[str, Any], *frames: bytes) -> None:
        self._socket.send_multipart([msgpack.packb(command), *frames])

    def settled(self, through: int) -> None:
        """Waits until everything up to that sequence is persisted. Raises: Trouble."""
        while int(self._answer("persisted")["seq"]) < through:
            pass

    def flushed(self) -> int:
        """Waits until everything that was said is settled: 0 is left. Raises: Trouble."""
        self.say({"cmd": "flush", "cid": "flush"})
        while self._answer("persisted").get("cid") != "flush":
            pass
        return 0

    def counted(self, duplicates: int) -> None:
        """Waits until the broker said that it dropped so many. Raises: Trouble."""
        while self.duplicates < duplicates:
            self._answer("persisted")
        assert self.duplicates == duplicates

    def close(self) -> None:
        self.say({"cmd": "logoff"})
        self._socket.close(linger=ANSWER_MS)
        self._context.term()

    def _answer(self, kind: str) -> dict[str, Any]:
        while True:
            if not self._socket.poll(ANSWER_MS):
                raise Trouble("no answer")
            answer: dict[str, Any] = msgpack.unpackb(self._socket.recv_multipart()[0])
            if answer["cmd"] == "error":
                self.refusals.append(f"{answer['code']}: {answer['reason']}")
                raise Trouble(answer["code"])
            self.duplicates += answer.get("duplicate", 0)
            if answer.get("type") == kind:
                return answer


class Stutter:
    """Publishes 1, 2, 3, ... in a thread, each of them `times(n)` times."""

    def __init__(self, url: str, name: str, seed: int) -> None:
        self.hand = Hand(url, name)
        self.persisted = 0
        self.errors: list[BaseException] = []
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            end = self.hand.log_on()
            while not self._stop.is_set():
                end = self._window(end)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.hand.close()

    def _window(self, behind: int) -> int:
        """Sends the next ones. Returns: up to where the log has everything."""
        try:
            for number in stuttered(behind, self._rng):
                self.hand.say(
                    {"cmd": "publish", "seq": number, "prev": number - 1, "topic": "hand",
                     "ack": ["persisted"]}, b"%d" % number,
                )  # fmt: skip
            self.hand.settled(behind + WINDOW)
        except Trouble:
            return self.hand.log_on()
        self.persisted = max(self.persisted, behind + WINDOW)
        self._stop.wait(REST_S)
        return behind + WINDOW

    def finish(self) -> int:
        """Stops, so that the name is free. Returns: how many messages are persisted, at least."""
        self.close()
        assert not self._thread.is_alive()
        assert not self.errors, self.errors
        return self.persisted

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)


def stuttered(behind: int, rng: random.Random) -> Iterator[int]:
    """The next WINDOW numbers, each 1 to TIMES_MAX times, the first time in order."""
    for number in range(behind + 1, behind + WINDOW + 1):
        yield number
        for _ in range(rng.randrange(TIMES_MAX)):
            yield rng.randint(behind + 1, number)


def sent_again(url: str, name: str, batches: Sequence[Batch], rng: random.Random) -> int:
    """Everything a publisher has in the log, once or twice more.

    Returns: how many messages that was, of which the broker said that it dropped each.
    """
    hand, sent, under_way = Hand(url, name), 0, 0
    try:
        high = hand.log_on()
        assert high == batches[-1].sequence + batches[-1].taken - 1
        for batch in batches:
            for _ in range(rng.randint(1, AGAIN_MAX)):
                hand.say(*_published(batch))
                sent += batch.count
                under_way += len(batch.body)
            if under_way > UNDER_WAY_BYTES:
                under_way = hand.flushed()
        hand.counted(sent)
    finally:
        hand.close()
    return sent


def _published(batch: Batch) -> tuple[dict[str, Any], bytes]:
    """The command that brought it, as far as the broker looks at it."""
    command: dict[str, Any] = {
        "cmd": "publish", "seq": batch.sequence - batch.skip, "count": batch.count,
        "crc": batch.body_crc, "ack": ["persisted"],
    }  # fmt: skip
    if len(batch.topics) == 1:
        command["topic"] = batch.topics[0]
    else:
        command["topics"] = batch.topics
    if batch.columns is not None:
        command["columns"] = msgspec.to_builtins(batch.columns, builtin_types=(bytes,))
    return command, bytes(batch.body)
