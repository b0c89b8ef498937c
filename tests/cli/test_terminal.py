"""What others wrote cannot command the terminal (zbroker/cli/terminal.py)."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

import zbroker
from zbroker.cli import show, terminal
from zbroker.client import connect
from zbroker.local import LocalBroker

ROOT = Path(zbroker.__file__).parents[1]
#: title, clear screen, clipboard, colour, C1, C1 as a byte, carriage return, bidi, bell, delete
ATTACKS = [
    b"\x1b]0;OWNED\x07", b"\x1b[2J", b"\x1b]52;c;aGk=\x07", b"\x1b[31mred", "\x9b31m".encode(),
    b"\x9b31m", b"\rfake", "\u202eevil\u2066".encode(), b"\x07", b"\x7f", b"\x00",
]  # fmt: skip
CONTROLS = [
    b"\x1b]", b"\x1b[2J", b"\x1b[31mred", b"\xc2\x9b", b"\xe2\x80\xae", b"\x07", b"\rfake"
]  # fmt: skip
HARMLESS = ["plain", "two\twords\n", "ünïcode ☃ 漢字", '{"a": 1}']


class Tty(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@contextmanager
def on_tty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tty]:
    """stdout is a terminal, and guarded."""
    made = Tty(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", made)
    with terminal.guarded():
        yield made
    assert sys.stdout is made


def written(screen: Tty) -> bytes:
    screen.flush()
    raw: Any = screen.buffer
    found: bytes = raw.getvalue()
    return found


def is_safe(data: bytes) -> bool:
    return terminal.safe(data.decode()) == data.decode()


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_gets_through(monkeypatch: pytest.MonkeyPatch, attack: bytes) -> None:
    with on_tty(monkeypatch) as screen:
        sys.stdout.buffer.write(attack + b"\n")
        sys.stdout.write(attack.decode("utf-8", "replace"))
        click.echo(attack)
        click.echo(attack.decode("utf-8", "replace"))
        show.as_json({"data": attack.decode("utf-8", "replace")})
    assert is_safe(written(screen))


@pytest.mark.parametrize("text", HARMLESS)
def test_text_is_written_as_it_is(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with on_tty(monkeypatch) as screen:
        sys.stdout.write(text)
        sys.stdout.buffer.write(text.encode())
    assert written(screen) == 2 * text.encode()


def test_json_means_the_same_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_tty(monkeypatch) as screen:
        show.as_json({"a": "\x1b[31m\u202e"})
    assert json.loads(written(screen)) == {"a": "\x1b[31m\u202e"}


def test_in_a_pipe_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", made)
    with terminal.guarded():
        assert sys.stdout is made


@pytest.mark.parametrize("value", ["\x1b[31mred", "[/nope]", "[bold red]x[/]", "\u202e"])
def test_a_table_shows_what_others_wrote_as_text(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    with on_tty(monkeypatch) as screen:
        show.table(show.columns("topic:0"), [{"topic": value}])
    reported = written(screen).decode()
    assert terminal.safe(value) in reported
    assert value == terminal.safe(value) or value not in reported


def test_only_what_draws_writes_past_the_guard() -> None:
    """Every console of rich is on `raw`: on a guarded stream its own colours would be escaped, and
    who draws has to ask `safe` for what others wrote."""
    found = []
    for path in sorted((ROOT / "zbroker/cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("__stdout__", "__stderr__"):
                found.append(f"{path.name}: {node.attr}")
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Console":
                on = [ast.unparse(word.value) for word in node.keywords if word.arg == "file"]
                if not on or "raw(sys.std" not in on[0]:
                    found.append(f"{path.name}:{node.lineno}: Console on {on}")
    assert found == []


def on_a_terminal(*arguments: str) -> bytes:
    """What a program writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    program, *rest = arguments
    module = {"zbroker": "main", "zbroker-admin": "admin_main"}[program]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", f"zbroker.cli.{module}", *rest],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(theirs)
    reported = b""
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            reported += piece
        assert process.wait(60) == 0, reported
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return reported


@pytest.mark.process
def test_payloads_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    queue = {"name": "work", "topic": "t"}
    with LocalBroker(tmp_path / "data", settings={"queue": [queue]}) as broker:
        data = ["--data-dir", str(tmp_path / "data")]
        with connect(broker.url, "[/nope]") as client:
            for attack in ATTACKS:
                client.publish("t", attack, headers={"h": attack}).wait(timeout=10)
            client.publish("[/nope]", b"x").wait(timeout=10)
            with client.subscribe("t", filter="/a = '\x1b]0;OWNED\x07'"):
                commands = [
                    ("zbroker", "sub", broker.url, "t", "--since", "epoch", "--until", "now"),
                    ("zbroker", "sub", broker.url, "t", "--since", "epoch", "--until", "now",
                     "--json"),
                    ("zbroker", "consume", broker.url, "work", "--wait", "1"),
                    ("zbroker-admin", *data, "queue", "browse", "work", "--data"),
                    ("zbroker-admin", *data, "journal", "dump"),
                    ("zbroker-admin", *data, "journal", "grep", "e"),
                    ("zbroker-admin", *data, "topic", "ls"),
                    ("zbroker-admin", *data, "client", "ls"),
                    ("zbroker-admin", *data, "subscription", "ls"),
                    ("zbroker-admin", *data, "status"),
                ]  # fmt: skip
                for command in commands:
                    reported = on_a_terminal(*command)
                    assert [one for one in CONTROLS if one in reported] == [], (command, reported)
                assert b"[/nope]" in on_a_terminal("zbroker-admin", *data, "topic", "ls")
