"""What the workloads share: a broker on a real disk, payloads, rounds, medians, the result."""

from __future__ import annotations

import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import psutil
import zmq

import zbroker

if TYPE_CHECKING:  # versions before it are measured, too
    from zbroker.local import Settings

PAYLOAD_BYTES: Final = 100
STATS_WAIT_S: Final = 10.0
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
PEERS: Final = ("NATS JetStream", "Redis Streams", "RabbitMQ", "Kafka")


@dataclass
class Result:
    """One line of the table: broker and limit, each the values of all rounds."""

    name: str
    unit: str
    ours: list[float]
    limit: list[float]
    limit_name: str
    target: str
    lower_is_better: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How much of the limit is reached: median of the rounds' own ratios."""
        pairs = zip(self.ours, self.limit, strict=True)
        return statistics.median(
            (limit / ours if self.lower_is_better else ours / limit) for ours, limit in pairs
        )

    def as_json(self) -> dict[str, Any]:
        """Stable keys for the result file."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": statistics.median(self.ours),
            "limit": statistics.median(self.limit),
            "limit_name": self.limit_name,
            "share_of_limit": self.ratio,
            "target": self.target,
            "rounds": self.ours,
            "limit_rounds": self.limit,
            **self.notes,
        }


@dataclass(frozen=True)
class Written:
    """What the journal did between two looks at its statistics."""

    messages: int
    groups: int
    bytes: int

    @property
    def group_bytes(self) -> int:
        """Mean size of a group."""
        return self.bytes // max(self.groups, 1)

    def notes(self) -> dict[str, Any]:
        """For the result; each group is one fdatasync."""
        return {
            "groups": self.groups,
            "group_bytes": self.group_bytes,
            "fdatasyncs_per_million": round(self.groups * 1e6 / max(self.messages, 1)),
        }


@dataclass(frozen=True)
class Setup:
    """How much is measured, and where. measured: the peers that were."""

    directory: Path
    rounds: int
    messages: int
    random: random.Random = field(default_factory=lambda: random.Random(7))
    tell: Callable[[str], None] = print
    measured: set[str] = field(default_factory=set)

    @contextmanager
    def broker(self, more: Settings | None = None) -> Iterator[zbroker.LocalBroker]:
        """A broker with the default settings, but for its ports, on the disk that is measured.

        more: tables of settings over them.
        """
        data_dir = Path(tempfile.mkdtemp(prefix="broker-", dir=self.directory))
        settings = {"journal": {"segment_size": "256MiB"}, **(more or {})}
        try:
            with zbroker.LocalBroker(data_dir, settings=settings) as broker:
                yield broker
        finally:
            shutil.rmtree(data_dir, ignore_errors=True)

    def each_round(self, what: str) -> Iterator[int]:
        """The numbers of the rounds, given as they begin."""
        for number in range(self.rounds):
            self.tell(f"{what}, round {number + 1} of {self.rounds}")
            yield number


def payloads(count: int, size: int = PAYLOAD_BYTES) -> list[bytes]:
    """`count` payloads that differ from each other."""
    filler = random.Random(1).randbytes(size + 1_000)
    return [b"%012d" % i + filler[i % 1_000 : i % 1_000 + size - 12] for i in range(count)]


def checksum(bodies: list[bytes], first_sequence: int) -> int:
    """What a reader must come to that adds a byte of each message and its sequence."""
    count = len(bodies)
    return sum(body[11] for body in bodies) + count * first_sequence + count * (count - 1) // 2


def sum_of_messages(batch: Any) -> int:
    """What `checksum` is of a batch of messages."""
    total = 0
    for message in batch:
        total += message.data[11] + message.sequence
    return total


def sum_of_columns(batch: Any) -> int:
    """The same, by the buffers of its record batch.

    What Arrow makes of columns for others imports pandas, which takes 0.2 s.
    """
    import numpy as np

    columns, rows = batch.to_arrow(), len(batch)
    payloads = np.frombuffer(columns["payload"].buffers()[2], np.uint8)
    sequences = np.frombuffer(columns["sequence"].buffers()[1], np.int64)
    first = int(sequences[0])  # all together are more than 64 bits hold
    bytes_sum = int(payloads.reshape(rows, -1)[:, 11].sum())
    return bytes_sum + first * rows + int((sequences - first).sum())


def journal_stats(broker: zbroker.LocalBroker) -> dict[str, int]:
    """The counters of the journal's process: messages, groups, bytes_written."""
    stats: dict[str, int] = broker.status()["journal"]
    return stats


class Processes(Protocol):
    """A broker, ours or another one."""

    @property
    def pids(self) -> dict[str, int]:
        """The ids of its processes, by name."""
        ...


class Cpu:
    """Processor time of each process of a broker and of this one: what noise changes least."""

    def __init__(self, broker: Processes) -> None:
        self._pids = {"client": os.getpid(), **broker.pids}
        self._before = self._seconds()

    def _seconds(self) -> dict[str, float]:
        found = {}
        for name, pid in self._pids.items():
            with suppress(psutil.NoSuchProcess):  # a helper of a peer that has ended
                used = psutil.Process(pid).cpu_times()
                found[name] = used.user + used.system
        return found

    def per_message_us(self, count: int) -> dict[str, float]:
        """Microseconds for each of `count` messages since this was made."""
        now = self._seconds()
        used = {name: round((now[name] - self._before[name]) / count * 1e6, 2) for name in now}
        return {name: us for name, us in used.items() if us}


@contextmanager
def writing(broker: zbroker.LocalBroker, messages: int) -> Iterator[Callable[[], Written]]:
    """What is written within; asked afterwards, it waits until the journal reported `messages`."""
    before = settled(broker)

    def written() -> Written:
        deadline = time.monotonic() + STATS_WAIT_S
        while (after := journal_stats(broker))["messages"] - before["messages"] < messages:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the journal counts {after}, {messages} more than {before} were published"
                )
            time.sleep(0.1)
        difference = {
            key: after[key] - before[key] for key in ("messages", "groups", "bytes_written")
        }
        return Written(difference["messages"], difference["groups"], difference["bytes_written"])

    yield written


def _counters(broker: zbroker.LocalBroker) -> dict[str, int]:
    """Without what others do to the disk."""
    stats = journal_stats(broker)
    return {key: value for key, value in stats.items() if not key.startswith(("free", "disk"))}


def settled(broker: zbroker.LocalBroker) -> dict[str, int]:
    """The counters once they do not change: processes report them twice a second."""
    last: dict[str, int] = {}
    deadline = time.monotonic() + STATS_WAIT_S
    while not (now := _counters(broker)) or now != last:
        if time.monotonic() > deadline:
            raise TimeoutError("the journal's counters go on changing")
        last = now
        time.sleep(1.1)
    return last


# -- where and with what ----------------------------------------------------------------------


def file_system(directory: Path) -> str:
    """The type of the file system of `directory`."""
    path = directory.resolve()
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    kinds = (mounts[str(place)] for place in (path, *path.parents) if str(place) in mounts)
    return str(next(kinds))


def check_disk(directory: Path) -> str:
    """The file system, unless it is in memory.

    Raises: SystemExit.
    """
    kind = file_system(directory)
    if kind in IN_MEMORY:
        raise SystemExit(
            f"{directory} is in memory ({kind}): name a place on a disk with --directory"
        )
    return kind


def environment(directory: Path) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "zbroker": zbroker.__version__,
        "python": platform.python_version(),
        "pyzmq": zmq.pyzmq_version(),
        "libzmq": zmq.zmq_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "file_system": file_system(directory),
        "durability": "disk: fdatasync before every ack",
        "load_before": os.getloadavg()[0],
        "command": " ".join(sys.argv),
    }
