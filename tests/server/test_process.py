"""zbroker/server/process.py: where log lines go."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import zbroker
from zbroker.clock import SystemClock
from zbroker.config import LogConfig
from zbroker.errors import ConfigError
from zbroker.server.process import configure_logs

ROOT = Path(zbroker.__file__).parents[1]


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
    configure_logs(LogConfig(), "journal")
    logging.getLogger("journal").warning("it is %s", "late")
    assert capsys.readouterr().err.endswith(" W journal: it is late\n")


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogConfig(level="error"), "journal")
    logging.getLogger("journal").warning("quiet")
    assert capsys.readouterr().err == ""


def test_json_is_one_object_per_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    configure_logs(LogConfig(format="json", file=str(path)), "journal")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("journal").exception("bad")
    (line,) = path.read_text().splitlines()
    found = json.loads(line)
    assert (found["level"], found["room"], found["message"]) == ("error", "journal", "bad")
    assert "two\nlines" in found["traceback"]


def logged(path: Path, *call: Any, **more: Any) -> dict[str, Any]:
    configure_logs(LogConfig(format="json", file=str(path)), "journal")
    logging.getLogger("journal").info(*call, **more)
    found: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    return found


def test_a_line_of_json_has_a_time_with_a_zone(tmp_path: Path) -> None:
    told = logged(tmp_path / "log", "x")["time"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told)
    assert abs(datetime.fromisoformat(told).timestamp() - SystemClock().wall_ns() / 1e9) < 3600


def test_a_line_of_json_has_its_code_and_its_numbers(tmp_path: Path) -> None:
    text = "journal.removed: segments up to %(through)d are gone, %(bytes)d bytes"
    found = logged(tmp_path / "log", text, {"through": 20, "bytes": 94666752})
    assert found["message"] == "journal.removed: segments up to 20 are gone, 94666752 bytes"
    assert (found["code"], found["through"], found["bytes"]) == ("journal.removed", 20, 94666752)


def test_a_line_of_json_has_the_values_of_a_note(tmp_path: Path) -> None:
    values = {"through": 20, "message": "its own"}
    found = logged(tmp_path / "log", "%s: %s", "a.b", "to 20", extra={"values": values})
    assert (found["code"], found["message"], found["through"]) == ("a.b", "a.b: to 20", 20)


def test_what_a_note_names_has_a_name() -> None:
    notes = [
        (f"{path.name}:{node.lineno}", function, node)
        for path in sorted((ROOT / "zbroker").rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Note", "e.Note")
    ]
    assert len(notes) > 15
    nameless = [
        place
        for place, function, note in notes
        if not _is_constant(note.args[1], function)
        and len(note.args) < 4
        and all(keyword.arg != "values" for keyword in note.keywords)
    ]
    assert nameless == []


def _is_constant(text: ast.expr, function: ast.FunctionDef) -> bool:
    """Also a variable that only constants are assigned to."""
    if not isinstance(text, ast.Name):
        return isinstance(text, ast.Constant)
    assigned = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and text.id in [ast.unparse(t) for t in node.targets]
    ]
    return bool(assigned) and all(isinstance(value, ast.Constant) for value in assigned)


def test_a_line_without_a_code_says_so(tmp_path: Path) -> None:
    assert logged(tmp_path / "log", "%s: %d things", "a.b", 3)["code"] == "a.b"
    assert logged(tmp_path / "log", "nothing to look for: %s", "x")["code"] == ""
    assert logged(tmp_path / "log", "ready", extra={"code": "supervisor.ready"})["code"] == (
        "supervisor.ready"
    )


def test_what_a_line_names_does_not_hide_its_own_keys(tmp_path: Path) -> None:
    found = logged(tmp_path / "log", "a.b: %(level)s", {"level": "x"})
    assert (found["level"], found["message"]) == ("info", "a.b: x")


def test_numbers_of_a_line_with_a_code_have_names() -> None:
    """Else a program has to take them out of the message again."""
    calls = {"debug", "info", "warning", "error", "exception"}
    nameless = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "zbroker").rglob("*.py"))
        if "client" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in calls and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        if re.match(r"[a-z_]+\.[a-z0-9_]+: ", node.args[0].value)
        if re.search(r"%[.\d]*[df]", node.args[0].value)
    ]
    assert nameless == []


def test_a_log_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    configure_logs(LogConfig(file=str(path)), "journal")
    logging.getLogger("journal").info("after")
    assert path.read_text().startswith("before\n")


def test_a_file_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`log\.file`"):
        configure_logs(LogConfig(file=str(tmp_path / "none" / "log")), "journal")
