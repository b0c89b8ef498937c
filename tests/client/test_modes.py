"""What the client, the commands and the demo make belongs to their user alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import zbroker

ROOT = Path(zbroker.__file__).parent
FOLDERS = ("client", "cli", "demo")
#: files with tables of Spark are for others to read, too: their user's umask says who may
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def wide(source: str) -> list[int]:
    """Lines that make a directory, or create a file by descriptor, without a mode."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, text = node.func.attr, ast.unparse(node)
        if name in ("mkdir", "makedirs"):
            modes = [ast.unparse(word.value) for word in node.keywords if word.arg == "mode"]
            wrong = modes not in (["448"], ["0o700"])
        else:
            wrong = name == "open" and "O_CREAT" in text and "384" not in text
        if wrong:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_directories_and_files_have_the_mode_of_their_user_alone(path: Path) -> None:
    assert wide(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "path.mkdir()",
        "path.mkdir(parents=True, exist_ok=True)",
        "path.mkdir(mode=0o755)",
        "os.makedirs(path)",
        "os.open(path, os.O_RDWR | os.O_CREAT)",
        "os.open(path, os.O_RDWR | os.O_CREAT, 0o644)",
    ],
)
def test_one_without_is_found(source: str) -> None:
    assert wide(source) == [1]
