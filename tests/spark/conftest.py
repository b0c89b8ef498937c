"""One Spark session for all tests of this folder: starting one takes longer than most of them.

And a log for each test, to be filled.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.logs import JournalMaker
from zbroker.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs package pyspark")
    running = session(
        "tests",
        "local[2,4]",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    yield running
    running.stop()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalMaker]:
    made = JournalMaker(tmp_path / "journal")
    yield made
    made.close()
