"""`python -m tools.trace publish|ack|spark`: prints calls, functions, files and file switches."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent.parent
HERE: Final = Path(__file__).resolve().parent
TIMEOUT_S: Final = 300
#: What this tool found at 616ba37, before all processes had one engine; per workload the processes
#: that it passes, in order. The others, which beat and sample beside them, are left out.
BEFORE: Final = {
    "publish": {
        "client": (256, 132, 26, 155),
        "ingest": (172, 83, 19, 115),
        "journal": (113, 81, 18, 71),
        "delivery": (201, 127, 29, 100),
    },
    "ack": {
        "client": (144, 65, 17, 103),
        "queues": (415, 184, 42, 276),
        "journal": (119, 86, 18, 69),
    },
    "spark": {"client": (305, 147, 19, 122)},
}
WINDOWS: Final = 21  # an odd number has a median


class Stage(NamedTuple):
    """How far the work of one process is spread."""

    calls: int
    functions: int
    files: int
    switches: int  # from one file to another, within a thread


def trace(workload: str, tree: Path = ROOT, windows: int = WINDOWS) -> dict[str, Stage]:
    """Runs the workload against the package of `tree`: the stages that it passed."""
    with tempfile.TemporaryDirectory(prefix="zbroker-trace-") as name:
        folder = Path(name)
        (folder / "window").write_bytes(b"\0")
        subprocess.run(
            [sys.executable, "-P", str(HERE / "workloads.py"), workload, name, str(windows)],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE / "hook"),
                "ZB_TRACE": name,
                "ZB_TRACE_TREE": str(tree),
            },
            check=True,
            timeout=TIMEOUT_S,
        )
        processes: dict[str, str] = json.loads((folder / "processes.json").read_text())
        found = {path.stem: path.read_text() for path in folder.glob("*.calls")}
    stages = {}
    for pid, calls in found.items():
        stage = processes.get(pid, "").rstrip("0123456789-")  # there are several delivery workers
        if stage in BEFORE[workload]:
            stages[stage] = median(calls)
    return {stage: stages[stage] for stage in BEFORE[workload] if stage in stages}


def median(calls: str) -> Stage:
    """The repetition with the median number of calls, of lines that the hook wrote."""
    windows: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for line in calls.splitlines():
        window, thread, file, function = line.split(" ", 3)
        windows[window].append((thread, file, function))
    counted = sorted(_count(lines) for lines in windows.values())
    return counted[len(counted) // 2]


def _count(lines: list[tuple[str, str, str]]) -> Stage:
    threads: dict[str, list[str]] = defaultdict(list)
    for thread, file, _ in lines:
        threads[thread].append(file)
    switches = sum(
        before != after for files in threads.values() for before, after in pairwise(files)
    )
    functions = {(file, function) for _, file, function in lines}
    return Stage(len(lines), len(functions), len({file for _, file, _ in lines}), switches)


def table(workload: str, stages: dict[str, Stage]) -> str:
    """The stages beside those of before, in brackets, as Markdown."""
    lines = ["| " + " | ".join(["stage", *Stage._fields]) + " |", "|---" * 5 + "|"]
    for name, stage in stages.items():
        before = BEFORE[workload][name]
        cells = [f"{now} ({then})" for now, then in zip(stage, before, strict=True)]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Traces what the arguments say, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.trace")
    parser.add_argument("workload", choices=BEFORE)
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout; default: this one")
    arguments = parser.parse_args()
    print(table(arguments.workload, trace(arguments.workload, arguments.tree.resolve())))


if __name__ == "__main__":
    main()
