"""Rounds of several sides: a process for each turn, its samples, and what of the machine they had.

One broker runs at a time. The samples of all rounds go into one result file, from which tables,
plots and the page about performance are made (`perf.comparison`, `perf.plots`, `perf.page`).
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from perf import brokers, limits
from perf.harness import environment
from perf.round_plan import Plan, Task, fits, order
from perf.sides import ROOT, Side

TURN_S: Final = 900.0  # a turn that takes longer is ended
RAW_PAGE: Final = 4_096
RAW_WRITES: Final = 300
Sample = dict[str, Any]


def measure(
    sides: Sequence[Side], plan: Plan, directory: Path, cache: Path, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The content of a result file."""
    by_name = {side.name: side for side in sides}
    samples: list[Sample] = []
    kit = _kit(directory)
    compiled = {side.tree for side in sides}
    for tree in compiled:  # else the first turn of a version compiles it
        subprocess.run([str(sides[0].python), "-m", "compileall", "-q", str(tree / "zbroker")],
                       check=False, stdout=subprocess.DEVNULL)  # fmt: skip
    about = {**about_machine(directory), "versions": versions(sides, cache)}
    begun, longest_s = time.monotonic(), 0.0
    for number in range(plan.rounds):
        round_begun = time.monotonic()
        if not fits(round_begun - begun, longest_s, plan.limit_s):
            tell(f"no time for round {number + 1} of {plan.rounds}")
            break
        samples += _raw(directory, number)
        for name in order(list(by_name), number):
            tell(f"round {number + 1} of {plan.rounds}: {name}")
            samples += turn(by_name[name], plan, number, directory, cache, kit)
        longest_s = max(longest_s, time.monotonic() - round_begun)
    return {
        "about": about,
        "plan": plan.as_json(),
        "sides": {side.name: side.as_json() for side in sides},
        "samples": samples,
    }


def _kit(directory: Path) -> Path:
    """A directory that has nothing but this `perf`, to be found before a version's own."""
    kit = directory / "kit"
    kit.mkdir()
    (kit / "perf").symlink_to(ROOT / "perf")
    return kit


def turn(
    side: Side, plan: Plan, number: int, directory: Path, cache: Path, kit: Path
) -> list[Sample]:  # fmt: skip
    """The samples of one side in one round; where its process ends early, with the reason."""
    task = Task(
        side.name, side.kind, number, str(directory), str(cache), str(side.tree), plan.as_json()
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(kit), str(side.tree)])}
    process = subprocess.Popen(
        [str(side.python), "-m", "perf.turn"], cwd=kit, env=env, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, errors = process.communicate(json.dumps(asdict(task)), timeout=TURN_S)
        why = f"exit code {process.returncode}: {errors.strip()[-500:]}"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it stops its broker
        out, _ = process.communicate()
        why = f"not done after {TURN_S:.0f} s"
    found = list(parsed(out))
    if process.returncode:
        found.append({"side": side.name, "round": number, "workload": "turn", "failed": why})
    return found


def parsed(out: str) -> Iterator[Sample]:
    """The lines that are samples; clients of peers print other ones."""
    for line in out.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _raw(directory: Path, number: int) -> Iterator[Sample]:
    """What the disk gives in this round."""
    taken = limits.synced_writes(directory, RAW_PAGE, RAW_WRITES)
    yield {
        "side": "machine", "round": number, "workload": "raw synced 4 KiB write", "metric": "p50",
        "value": statistics.median(taken) * 1e3, "unit": "ms", "lower": True,
    }  # fmt: skip


def about_machine(directory: Path) -> dict[str, Any]:
    """What the figures depend on; no name or place of the machine."""
    found = environment(directory)
    found.pop("command")
    found.pop("zbroker")
    return {**found, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": _processor()}


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def versions(sides: Sequence[Side], cache: Path) -> dict[str, dict[str, str]]:
    """Of each side's server and client."""
    found = {}
    for side in sides:
        if side.kind == brokers.OURS:
            found[side.name] = {"commit": side.commit}
        else:
            found[side.name] = brokers.KINDS[side.kind].load().versions(cache)
    return found
