"""zbroker/logs.py: where log lines go."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from zbroker import logs
from zbroker.config import LogConfig
from zbroker.errors import ConfigError


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def test_text_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig(), "journal")
    logging.getLogger("journal").warning("it is %s", "late")
    assert capsys.readouterr().err.endswith(" W journal: it is late\n")


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig(level="error"), "journal")
    logging.getLogger("journal").warning("quiet")
    assert capsys.readouterr().err == ""


def test_json_is_one_object_per_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs.configure(LogConfig(format="json", file=str(path)), "journal")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("journal").exception("bad")
    (line,) = path.read_text().splitlines()
    found = json.loads(line)
    assert (found["level"], found["room"], found["message"]) == ("error", "journal", "bad")
    assert "two\nlines" in found["traceback"]


def test_a_log_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    logs.configure(LogConfig(file=str(path)), "journal")
    logging.getLogger("journal").info("after")
    assert path.read_text().startswith("before\n")


def test_a_file_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`log\.file`"):
        logs.configure(LogConfig(file=str(tmp_path / "none" / "log")), "journal")
