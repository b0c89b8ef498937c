"""Runs the blocks of one page: its program in a process of its own, shell blocks beside it.

The page's default ports are replaced by those of a LocalBroker on ./zbroker-data of a scratch
directory; in what is printed they are put back.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT, Page, shell_lines
from zbroker.local import LocalBroker

PROGRAM_S: Final = 300.0  # of one block that hangs; Spark needs seconds, more on a busy machine
SHELL_S: Final = 300.0  # likewise

#: reads {page, line, text} per line of stdin, runs the text, answers {printed, error}
_DRIVER: Final = """
def _drive():
    import contextlib, io, json, os, sys, traceback

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "zbroker":
                raise ImportError("this program does without zbroker")

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1] == "without":
        sys.meta_path.insert(0, Finder())
    for line in sys.stdin:
        block = json.loads(line)
        printed, failed = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(printed):
                text = chr(10) * (block["line"] - 1) + block["text"]
                exec(compile(text, block["page"], "exec"), sys.modules["__main__"].__dict__)
        except BaseException:
            failed = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": failed}) + chr(10))
        answers.flush()

_drive()
"""


class Place:
    """A scratch directory with a broker on ./zbroker-data, and the page's ports as they are here.

    Commands of the page are this source tree's, whether or not it is installed. more: what else the
    page names, and what it is here.
    """

    def __init__(
        self, directory: Path, broker: LocalBroker, more: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        reported = broker.status()["endpoints"]
        self._real = {
            default: reported[listener].partition("://")[2]
            for default, listener in (
                ("127.0.0.1:9101", "ingest"),
                ("127.0.0.1:9102", "delivery"),
                ("127.0.0.1:9105", "admin"),
            )
        } | dict(more or {})
        programs = directory / "bin"
        programs.mkdir()
        for name, module in (("zbroker", "main"), ("zbroker-admin", "admin_main")):
            program = programs / name
            program.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -P -m zbroker.cli.{module} "$@"\n'
            )
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(directory / "settings"),
        }

    def here(self, text: str) -> str:
        """`text` of a page with the ports of this broker."""
        for default, real in self._real.items():
            text = text.replace(default, real)
        return text

    def as_reported(self, printed: str) -> str:
        """What was printed here, as the page has it."""
        for default, real in self._real.items():
            printed = printed.replace(real, default)
        return printed.replace(str(self.directory), ".")

    def shell(self, text: str) -> str:
        """Runs a `sh` block; what it printed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(shell_lines(text))],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SHELL_S,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return self.as_reported(done.stdout)


class Program:
    """The `python` blocks of one page, which continue one another."""

    def __init__(self, place: Place, *, without_zbroker: bool) -> None:
        self._place = place
        how = "without" if without_zbroker else "with"
        self._errors = (place.directory / "stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _DRIVER, how],
            cwd=place.directory,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, page: Page, line: int, text: str) -> str:
        """Runs one block; what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        block = {"page": page.name, "line": line, "text": self._place.here(text)}
        self._process.stdin.write(json.dumps(block) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], PROGRAM_S)[0]:
            raise AssertionError(f"{page.name}:{line}: not done after {PROGRAM_S} s")
        answer = self._process.stdout.readline()
        assert answer, f"{page.name}:{line}: the program ended\n{self._said()}"
        reported = json.loads(answer)
        assert not reported["error"], reported["error"]
        return self._place.as_reported(reported["printed"])

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        """Ends it: at the end of its input, or else at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(SHELL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
