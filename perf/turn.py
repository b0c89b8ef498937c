"""One side in one round: its broker is started, each workload runs once, the broker is stopped.

It runs in a process of its own, so that it can import another version of zbroker and so that a
broker finds the machine as the one before it did. Task in as JSON, samples out as lines of JSON.
What fails is a sample with the reason; the workloads after it still run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import zbroker
from perf import brokers
from perf.arrival_schedule import Arrivals, Schedule, pace
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import consumers, rate
from perf.harness import Cpu, payloads
from perf.latency_histogram import LatencyHistogram
from perf.machine_load import MachineLoad, wait_for_quiet
from perf.round_plan import Task, plan_of

STUCK_S: Final = 90.0
SETTLE_S: Final = 0.3  # from the moment the subscribers are ready
IDLE_S: Final = 1.0  # before its memory is looked at
REST_S: Final = 10.0  # likewise, once all is done
WARM_SHARE: Final = 10
WARM_MIN: Final = 1_000
OUT_OF_TIME: Final = "a subscriber has not got everything in time"

_SPAWN: Final = multiprocessing.get_context("spawn")


def main() -> None:
    """Reads the task from stdin."""
    task = Task(**json.load(sys.stdin))
    _check_version(task)
    kind = brokers.KINDS[task.kind]
    module, place = kind.load(), Path(task.directory) / f"{task.kind}-{task.number}"
    place.mkdir()
    try:
        with module.serve(place, Path(task.cache), kind.sync) as server:
            Turn(task, module, server).run()
    except Exception as error:  # the other sides are still to be measured
        _report(task, workload="start", failed=_reason(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.sync()  # what it left for the disk is not for the next one


def _check_version(task: Task) -> None:
    found = Path(zbroker.__file__).parent.parent
    if found.resolve() != Path(task.tree).resolve():
        raise SystemExit(f"{task.side}: zbroker is that of {found}, not of {task.tree}")


def _report(task: Task, **sample: Any) -> None:
    line = {"side": task.side, "round": task.number, "at": round(time.time()), **sample}  # noqa: TID251
    print(json.dumps(line), flush=True)


class NotMeasuredError(Exception):
    """There is no figure, and this is why; nothing failed."""


def _reason(error: BaseException) -> str:
    if isinstance(error, NotMeasuredError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()[-500:]


class Turn:
    """A broker that runs, and what is measured of it."""

    def __init__(self, task: Task, module: Any, server: Server) -> None:
        self.task, self.module, self.server = task, module, server
        self.plan = plan_of(task.plan)
        kind = brokers.KINDS[task.kind]
        self.count = max(WARM_MIN, int(self.plan.messages * kind.share))
        self.queue_count = max(WARM_MIN, int(self.plan.messages * kind.queue_share))
        self.load = MachineLoad()
        self.published_per_s = float("inf")  # until it was measured
        self._topics = 0

    def run(self) -> None:
        """Everything of the plan that this broker can do."""
        self.report("start", "empty log", self.server.ready_s, "s", lower=True)
        time.sleep(IDLE_S)
        self.memory("idle")
        work: dict[str, Callable[[], None]] = {
            "publish": self.publish, "one": self.one, "live": self.live, "replay": self.replay,
            "steady": self.steady, "queue": self.queue, "fanout": self.fan_out,
        }  # fmt: skip
        self.safely("warm", self.warm)
        for name in self.plan.workloads:
            wait_for_quiet(self.plan.patience_s)
            self.safely(name, work[name])
        self.memory("at the end")
        time.sleep(REST_S)
        self.memory("10 s later")

    def safely(self, workload: str, work: Callable[[], None]) -> None:
        """A failure is reported with its reason, and the next workload runs."""
        self.load = MachineLoad()
        try:
            work()
        except Exception as error:
            _report(self.task, workload=workload, failed=_reason(error))

    def report(
        self, workload: str, metric: str, value: float, unit: str, *, lower: bool = False,
        **notes: Any,
    ) -> None:  # fmt: skip
        """One sample. lower: is better."""
        _report(
            self.task, workload=workload, metric=metric, value=value, unit=unit, lower=lower,
            **self.load.notes(), **notes,
        )  # fmt: skip

    def topic(self, name: str) -> str:
        """A new one."""
        self._topics += 1
        made = f"{name}-{self.task.number}-{self._topics}"
        self.module.make(self.server, made)
        return made

    def can(self, name: str) -> Any:
        """A function of the broker's module, or None."""
        return getattr(self.module, name, None)

    # -- workloads ----------------------------------------------------------------------------

    def warm(self) -> None:
        """Not measured: files are made, and a JVM compiles what it runs."""
        bodies = payloads(max(WARM_MIN, self.count // WARM_SHARE))
        (self.can("warm") or self.module.publish)(self.server, self.topic("warm"), bodies)

    def publish(self) -> None:
        """An open window, by publish() and by publish_many()."""
        bodies = payloads(self.count)
        for name in ("publish", "publish_many"):
            if (call := self.can(name)) is None:
                continue
            topic = self.topic(name.replace("_", ""))
            self.load, cpu = MachineLoad(), Cpu(self.server)
            began, acked = call(self.server, topic, bodies)
            used, reached = cpu.per_message_us(len(bodies)), len(bodies) / (acked - began)
            if name == "publish":
                self.published_per_s = reached
            self.report("publish", f"{name}()", reached, "messages/s", cpu_us=used)
        self.memory("after publishing")

    def one(self) -> None:
        """The next message after the ack of the one before: a closed loop.

        Its p99 is what a program sees that waits; corrected, what one sees that meant to publish
        a message every p50.
        """
        bodies = payloads(self.plan.one_by_one)
        cpu = Cpu(self.server)
        taken = self.module.one(self.server, self.topic("one"), bodies)
        used = cpu.per_message_us(len(bodies))
        plain, corrected = LatencyHistogram(), LatencyHistogram()
        plain.record(taken)
        corrected.record_corrected(taken, statistics.median(taken))
        name = "one at a time"
        self.report(name, "p50", plain.percentile_ms(50), "ms", lower=True, cpu_us=used,
                  histogram=plain.encoded)  # fmt: skip
        self.report(name, "p99", plain.percentile_ms(99), "ms", lower=True,
                  corrected_ms=corrected.percentile_ms(99))  # fmt: skip

    def live(self) -> None:
        """Publishing with one subscriber, until both have everything."""
        if self.can("read") is None:
            return
        bodies, topic = payloads(self.count), self.topic("live")
        with self.subscribers(1, topic, len(bodies)) as ask:
            cpu = Cpu(self.server)
            began, acked = self.module.publish(self.server, topic, bodies)
            used = cpu.per_message_us(len(bodies))
            reader = ask()[0]
        self.check(reader, bodies)
        used["subscriber"] = round(reader["cpu_s"] / len(bodies) * 1e6, 2)
        seconds = max(acked, reader["ended"]) - began
        self.report("live", "publish() and a subscriber", len(bodies) / seconds, "messages/s",
                  cpu_us=used)  # fmt: skip

    def replay(self) -> None:
        """A topic from its beginning, which is in the page cache."""
        if self.can("read") is None or self.can("READS_ONCE"):
            return
        bodies, topic = payloads(self.count), self.topic("replay")
        (self.can("publish_many") or self.module.publish)(self.server, topic, bodies)
        self.read(self.module.read, "one subscriber", topic, bodies)
        if (columns := self.can("read_columns")) is not None:
            self.read(columns, "by columns", topic, bodies)

    def read(self, call: Callable[..., None], metric: str, topic: str, bodies: list[bytes]) -> None:
        """One subscriber from the beginning of a topic to its end."""
        begun: list[float] = []
        reading = Reading(len(bodies), True, lambda: begun.append(time.perf_counter()))
        self.load, cpu = MachineLoad(), Cpu(self.server)
        call(self.server, topic, reading)
        used, reached = cpu.per_message_us(len(bodies)), len(bodies) / (reading.ended - begun[0])
        self.check({"total": reading.total}, bodies)
        self.report("replay", metric, reached, "messages/s", cpu_us=used)

    def steady(self) -> None:
        """Latency of a publisher at each fixed rate to a live subscriber, an open loop."""
        if self.can("paced") is None:
            return
        for rate_s in self.plan.rates:
            self.safely(f"steady {rate_s:,}/s", lambda rate_s=rate_s: self.steady_at(rate_s))

    def steady_at(self, rate_s: int) -> None:
        """One rate; latencies count from when a message was due.

        Raises: NotMeasuredError, for a rate that only lets messages pile up.
        """
        if rate_s > self.published_per_s:
            raise NotMeasuredError("this is more than it publishes at all")
        schedule, topic = Schedule(rate_s, self.plan.steady_s), self.topic("steady")
        with self.subscribers(1, topic, schedule.count, timed=True) as ask:
            cpu = Cpu(self.server)
            self.module.paced(self.server, topic, pace(schedule))
            used = cpu.per_message_us(schedule.count)
            reader = ask()[0]
        used["subscriber"] = round(reader["cpu_s"] / schedule.count * 1e6, 2)
        warm = int(rate_s * self.plan.warm_s)
        due, sent = LatencyHistogram(), LatencyHistogram()
        due.record(reader["from_due"][warm:])
        sent.record(reader["from_sent"][warm:])
        workload, more = f"steady {rate_s:,}/s", {"cpu_us": used, "histogram": due.encoded}
        for percent in (50.0, 99.0):
            since_sent = round(sent.percentile_ms(percent), 3)
            self.report(workload, f"p{percent:g}", due.percentile_ms(percent), "ms", lower=True,
                      since_sent_ms=since_sent, **more)  # fmt: skip
            more = {}

    def queue(self) -> None:
        """Consumers that share work and acknowledge each message."""
        if self.can("consume") is None:
            return
        bodies = payloads(self.queue_count)
        self.module.fill(self.server, bodies)
        with consumers(self.plan.consumers) as pool:
            arguments = (self.server.address, *self.module.CONSUME_ARGUMENTS)
            self.load, cpu = MachineLoad(), Cpu(self.server)
            pool.begin(self.module.consume, self.plan.consumers, len(bodies), *arguments)
            taken = pool.end(self.plan.consumers)
        used = cpu.per_message_us(len(bodies))
        used["consumers"] = round(sum(each.cpu_s for each in taken) / len(bodies) * 1e6, 2)
        found = sum(each.messages for each in taken)
        if found != len(bodies):
            raise ValueError(f"{found} messages were taken, not {len(bodies)}")
        self.report("queue", f"{self.plan.consumers} consumers, ack each", rate(taken),
                  "messages/s", cpu_us=used)  # fmt: skip

    def fan_out(self) -> None:
        """Delivered messages per second, all subscribers together."""
        if self.can("read") is None or self.can("READS_ONCE"):
            return
        bodies, topic = payloads(self.count // 4), self.topic("fan")
        many = self.plan.subscribers
        with self.subscribers(many, topic, len(bodies)) as ask:
            self.load = MachineLoad()
            call = self.can("publish_many") or self.module.publish
            began, _ = call(self.server, topic, bodies)
            readers = ask()
        for reader in readers:
            self.check(reader, bodies)
        seconds = max(reader["ended"] for reader in readers) - began
        self.report("fan-out", f"1 to {many}, in all", many * len(bodies) / seconds, "messages/s")

    def memory(self, when: str) -> None:
        """Of all processes of the broker."""
        found = self.server.memory()
        self.report("memory", when, found["pss_mb"], "MB", lower=True, rss_mb=found["rss_mb"])

    # -- helpers ------------------------------------------------------------------------------

    def check(self, reader: dict[str, Any], bodies: list[bytes]) -> None:
        """Raises: ValueError, unless all came once with sequences in a row.

        Sequences begin anywhere, and those of some brokers are times.
        """
        count = len(bodies)
        left = reader["total"] - sum(body[11] for body in bodies) - count * (count - 1) // 2
        if getattr(self.module, "SEQUENCES", True) and left % count:
            raise ValueError(f"the sum {reader['total']} is not of {count} messages in a row")

    @contextmanager
    def subscribers(
        self, many: int, topic: str, count: int, *, timed: bool = False
    ) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """Processes that read and are ready; asked, what each found."""
        arguments = (self.task.kind, self.server.address, topic, count, timed)
        members = []
        try:
            for _ in range(many):
                pipe, theirs = _SPAWN.Pipe()
                process = _SPAWN.Process(target=_subscribe, args=(theirs, *arguments), daemon=True)
                process.start()
                members.append((pipe, process))
            for pipe, _ in members:
                _receive(pipe)
            time.sleep(SETTLE_S)
            yield lambda: [_receive(pipe) for pipe, _ in members]
        finally:
            for _, process in members:
                process.join(1)
                process.kill()


def _receive(pipe: Any) -> Any:
    if not pipe.poll(STUCK_S):
        raise TimeoutError(OUT_OF_TIME)
    found = pipe.recv()
    if isinstance(found, Exception):
        raise found
    return found


def _subscribe(pipe: Any, kind: str, address: Any, topic: str, count: int, timed: bool) -> None:
    """In the other process: `perf_counter` is the same clock in all processes of a Linux system."""
    begun = 0.0

    def ready() -> None:
        nonlocal begun
        begun = time.process_time()
        pipe.send("ready")

    reading = Reading(count, False, ready, timed)
    with suppress(BrokenPipeError):
        try:
            brokers.KINDS[kind].load().read(Server(address, dict), topic, reading)
        except Exception as error:
            pipe.send(RuntimeError(f"a subscriber failed: {_reason(error)}"))
            return
        pipe.send({
            "total": reading.total, "ended": reading.ended, "cpu_s": time.process_time() - begun,
            **_arrivals(reading.arrivals),
        })  # fmt: skip


def _arrivals(arrivals: Arrivals) -> dict[str, list[float]]:
    return {"from_due": arrivals.from_due, "from_sent": arrivals.from_sent}


if __name__ == "__main__":
    main()
