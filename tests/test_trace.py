"""tools/trace: every process of a broker is traced, and the calls of each are counted."""

from __future__ import annotations

import pytest

from tools.trace.__main__ import BEFORE, Stage, median, table, trace

CALLS = """\
1 7 log/disk.py write
1 8 client/core.py tick
1 7 log/disk.py write
1 8 client/core.py wait
1 7 log/writer.py Writer.write
2 7 log/disk.py write
3 7 log/disk.py write
3 7 log/disk.py sync
"""


def test_the_repetition_with_the_median_number_of_calls_counts() -> None:
    assert median(CALLS) == Stage(calls=2, functions=2, files=1, switches=0)


def test_file_switches_are_counted_within_a_thread() -> None:
    first = "".join(line for line in CALLS.splitlines(keepends=True) if line.startswith("1"))
    assert median(first) == Stage(calls=5, functions=4, files=3, switches=1)


def test_the_table_has_the_figures_of_before_in_brackets() -> None:
    assert "| client | 1 (305) | 2 (147) | 3 (19) | 4 (122) |" in table(
        "spark", {"client": Stage(1, 2, 3, 4)}
    )


@pytest.mark.process
@pytest.mark.parametrize("workload", ["publish", "ack"])
def test_a_running_broker_is_traced_in_all_its_processes(workload: str) -> None:
    stages = trace(workload, windows=1)
    assert list(stages) == list(BEFORE[workload])
    assert all(20 < stage.functions <= stage.calls for stage in stages.values())
    assert all(5 < stage.files <= stage.switches for stage in stages.values())
