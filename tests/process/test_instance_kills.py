"""The whole instance is killed in the middle of archive, compress, remove, repair and export.

A publisher goes on all the while. The next start finishes or undoes what was half done: the log is
what was acknowledged, from the oldest segment that was to stay, and every copy that has its name is
whole. 200 kills with scripts/test-all, a few with scripts/test.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.process.admin_broker import BODY_BYTES, AdminBroker
from tests.process.load import until
from tests.torture.tracing import tell
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.limits import MIB

pytestmark = [pytest.mark.process, pytest.mark.timeout(3_600)]

ACTIONS = ("archive", "compress", "export", "repair", "remove")
BATCH = 25  # messages between two flushes
ROUND_BYTES = 3 * MIB  # published before each action
KEPT_SEGMENTS = 2  # sealed ones that a removal leaves
TRICKLE_S = 0.05  # between two batches from then on, so that the log stays small
COMMAND_S = 120.0
CONTROL_MAX = 8  # records of the broker's own at the start of a segment


class Entry(NamedTuple):
    position: int
    data: bytes


class Writer:
    """Publishes until it is stopped. acked: what is persisted; asked: what may be, after it."""

    def __init__(self, url: str, name: str) -> None:
        self.acked: list[bytes] = []
        self.asked: list[bytes] = []
        self._client = connect(url, name, timeout=COMMAND_S)
        self._name = name.encode()
        self._rng = random.Random(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.asked = [self._body(len(self.acked) + n) for n in range(BATCH)]
            with suppress(ZBrokerError):  # closed after the kill
                for body in self.asked:
                    self._client.publish("t", body, timeout=COMMAND_S)
                self._client.flush(COMMAND_S)
                self.acked += self.asked
                self.asked = []
            if len(self.acked) * BODY_BYTES > ROUND_BYTES:
                self._stop.wait(TRICKLE_S)

    def _body(self, number: int) -> bytes:
        """Half of it can be compressed away."""
        half = self._rng.randbytes(BODY_BYTES // 2)
        return b"%s:%d:%s%s" % (self._name, number, half, b"." * (BODY_BYTES // 2))

    def close(self) -> None:
        self._stop.set()
        self._client.close(flush=False)
        self._thread.join(COMMAND_S)
        assert not self._thread.is_alive()


def admin(data: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(data), *words]


class Begun(NamedTuple):
    """What was under way when the instance was killed."""

    action: int = 0  # its number in the log of actions
    command: subprocess.Popen[bytes] | None = None
    keeps: int = 0  # the oldest position that must stay
    through: int = 0  # the last segment that is to go


class Trial:
    """One data directory through many kills."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.data, self.out = directory / "data", directory / "out"
        self.rng = random.Random(seed)
        self.log: list[Entry] = []
        self.moments = dict.fromkeys(ACTIONS, 0.5)  # kills come within these seconds
        self.hits: Counter[str] = Counter()
        self.removed = 0  # messages
        self.bench = AdminBroker(self.data)

    def close(self) -> None:
        self.bench.broker.close()

    def round(self, number: int) -> None:
        what = ACTIONS[number % len(ACTIONS)]
        with self._writing(f"writer-{number}") as writer:
            self.bench.wait(
                lambda: len(writer.acked) * BODY_BYTES > ROUND_BYTES, "published", COMMAND_S
            )
            pids = self.bench.broker.pids  # asked now: a removal is over in milliseconds
            begun = self._begin(what)
            self._moment(what)
            hit = self._kill(begun, pids)
        self.bench.broker.close()
        self.bench = AdminBroker(self.data)
        hit |= self._was_cut(begun)
        self.hits[what] += hit
        self.moments[what] *= 1.15 if hit else 0.8
        self._judge(writer, begun)
        self._judge_copy(what, begun)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Writer]:
        writer = Writer(self.bench.broker.url, name)
        try:
            yield writer
        finally:
            writer.close()

    def _begin(self, what: str) -> Begun:
        sealed = [s for s in self.bench.segments() if not s["open"]]
        if what in ("export", "repair"):
            shutil.rmtree(self.out, ignore_errors=True)
            return Begun(command=self._command(what, sealed[-1]["serial"]))
        through = sealed[-1 - (KEPT_SEGMENTS if what == "remove" else 0)]["serial"]
        status, reported = self.bench.ask("POST", f"/journal/{what}", through=through)
        assert status == 200, reported
        keeps = min(s["first"] for s in sealed if s["serial"] > through) if what == "remove" else 0
        return Begun(reported["id"], keeps=keeps, through=through if what == "remove" else 0)

    def _command(self, what: str, serial: int) -> subprocess.Popen[bytes]:
        words = ["--output", str(self.out)] + (["--segment", str(serial)] * (what == "repair"))
        command = subprocess.Popen(
            admin(self.data, "journal", what, *words),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        part = self.out.with_name("out.part")
        until(lambda: part.exists() or command.poll() is not None, f"{what} has begun")
        return command

    def _moment(self, what: str) -> None:
        threading.Event().wait(self.rng.uniform(0, self.moments[what]))

    def _kill(self, begun: Begun, pids: dict[str, int]) -> bool:
        """All of it at once. Returns: whether a command was killed before its end, or a removal
        before the last file was gone.
        """
        supervisor, *processes = sorted(pids.items(), key=lambda pair: pair[0] != "supervisor")
        cut = False
        if begun.command is not None:
            cut = begun.command.poll() is None
            begun.command.kill()
            begun.command.wait()
        os.kill(supervisor[1], signal.SIGKILL)
        for _, pid in processes:
            with suppress(ProcessLookupError):  # the supervisor takes them along
                os.kill(pid, signal.SIGKILL)
        names = [name for folder in self.bench.files().values() for name in folder]
        return cut or any(int(name.split(".")[0]) <= begun.through for name in names)

    def _was_cut(self, begun: Begun) -> bool:
        """Whether the killed action had not come to its end, as the next start tells."""
        if not begun.action or begun.through:
            return False
        self.bench.wait(lambda: self._result(begun) not in ("", "running"), "the action is ended")
        return self._result(begun) != "done"

    def _result(self, begun: Begun) -> str:
        _, reported = self.bench.ask("GET", f"/actions/{begun.action}")
        return str((reported or {}).get("result", ""))

    def _judge(self, writer: Writer, begun: Begun) -> None:
        """The log is what was acknowledged, and at most the unanswered batch after it."""
        self.bench.wait(self._is_tidy, "nothing half done is left")
        self._verified(self.data)
        found = self._replay()
        first = self._first()
        stays = begun.keeps or (self.log[0].position if self.log else 1)
        assert first <= stays, f"the log begins at {first}, what is at {stays} was to stay"
        assert found[0].position - first <= CONTROL_MAX, "messages at the beginning are gone"
        must = [entry.data for entry in self.log] + writer.acked
        gone = must.index(found[0].data)
        self.removed += gone
        must = must[gone:]
        there = [entry.data for entry in found]
        assert there[: len(must)] == must, f"{len(must)} were acknowledged, {len(there)} are there"
        assert there[len(must) :] == writer.asked[: len(there) - len(must)], "no one published that"
        self.log = found

    def _is_tidy(self) -> bool:
        files = self.bench.files()
        names = [name.split(".")[0] for folder in files.values() for name in folder]
        parts = list(self.data.glob("*/*.part*"))
        return not parts and len(names) == len(set(names))

    def _first(self) -> int:
        """The oldest position; the admin of a busy machine may have to be asked again."""
        segments: list[dict[str, Any]] = []

        def reported() -> object:
            segments.extend(self.bench.segments())
            return segments

        self.bench.wait(reported, "segments")
        return int(segments[0]["first"])

    def _replay(self) -> list[Entry]:
        with connect(self.bench.broker.url, timeout=COMMAND_S) as client:
            subscription = client.subscribe("t", since="epoch", until="now")
            return [Entry(m.position, bytes(m.data)) for m in subscription]

    def _verified(self, data: Path) -> None:
        command = admin(data, "journal", "verify")
        reported = subprocess.run(command, check=False, capture_output=True, timeout=COMMAND_S)
        assert reported.returncode == 0, (reported.stdout + reported.stderr).decode()

    def _judge_copy(self, what: str, begun: Begun) -> None:
        """A copy that has its name is whole; the same command once more makes one."""
        if begun.command is None:
            return
        if not self.out.exists():
            sealed = [s for s in self.bench.segments() if not s["open"]]
            command = self._command(what, sealed[-1]["serial"])
            assert command.wait(COMMAND_S) == 0
        self._verified(self.out)
        assert not self.out.with_name("out.part").exists()
        # the killed one holds the log for a while: removals shall not have to wait for that
        hold = {"who": f"{what}-{begun.command.pid}", "what": "", "position": 1, "ttl_s": 0}
        assert self.bench.ask("POST", "/journal/hold", **hold)[0] == 200


def kill_in_the_middle(directory: Path, kills: int, seed: int) -> dict[str, Any]:
    trial = Trial(directory, seed)
    try:
        for number in range(kills):
            trial.round(number)
        return {**trial.hits, "removed": trial.removed}
    finally:
        trial.close()


@pytest.mark.long
def test_an_instance_killed_in_the_middle_of_each_action(tmp_path: Path) -> None:
    kill_in_the_middle(tmp_path, len(ACTIONS), seed=1)


@pytest.mark.long
def test_an_instance_killed_two_hundred_times(tmp_path: Path) -> None:
    hits = kill_in_the_middle(tmp_path, 200, seed=2)
    tell(f"killed in the middle: {hits}")
    assert all(hits.get(what, 0) >= (1 if what == "remove" else 5) for what in ACTIONS), hits
    assert hits["removed"] > 0
