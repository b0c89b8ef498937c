"""tools/tidy.py and layers.py: the tree keeps the rules, and each rule catches what breaks it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tidy = _load()
DOC = '"""What it is for."""\n'


def complaints(where: str, text: str) -> list[str]:
    return [what for _, what in tidy.judge(where, text)]


@pytest.mark.parametrize(
    ("where", "text", "part"),
    [
        ("zbroker/ids.py", "x = 1\n", "no docstring"),
        ("tests/test_x.py", "x = 1\n", "no docstring"),
        ("zbroker/ids.py", DOC + "x = 1\n" * 500, "501 lines"),
        ("zbroker/ids.py", DOC + "def f():\n" + "    x = 1\n" * 60, "`f` has 61 lines"),
        ("zbroker/ids.py", DOC + "# TO" + "DO: later\n", "left over"),
        ("zbroker/ids.py", DOC + "breakpoint()\n", "breakpoint"),
        ("zbroker/ids.py", DOC + "print(1)\n", "only the programs print"),
        ("zbroker/delivery/core.py", DOC + "import zmq\n", "pure but imports zmq"),
        ("zbroker/delivery/core.py", DOC + "from os import path\n", "pure but imports os.path"),
        ("zbroker/log/format.py", DOC + "import time\n", "pure but imports time"),
        ("zbroker/ids.py", DOC + "def f():\n    import random\n", "pure but imports random"),
        ("zbroker/queues/work/ready.py", DOC + "import lmdb\n", "pure but imports lmdb"),
        ("zbroker/errors.py", DOC + "import zbroker.ids\n", "may not import zbroker.ids"),
        ("zbroker/wire/codec.py", DOC + "from zbroker import config\n", "zbroker.config"),
        ("zbroker/ingest/core.py", DOC + "from zbroker.delivery.core import X\n", "downward"),
        ("zbroker/ingest/loop.py", DOC + "from zbroker import delivery\n", "downward"),
        ("zbroker/delivery/loop.py", DOC + "from zbroker.queues.core import X\n", "downward"),
        ("zbroker/log/reader.py", DOC + "from zbroker.journal.core import X\n", "downward"),
        ("zbroker/client/sync.py", DOC + "from zbroker.config import X\n", "downward"),
        ("zbroker/new/core.py", DOC, "is in no layer"),
    ],
)
def test_a_broken_rule_is_caught(where: str, text: str, part: str) -> None:
    found = complaints(where, text)
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("zbroker/cli/sub.py", DOC + "print(1)\nfrom zbroker.log.writer import X\n"),
        ("zbroker/delivery/loop.py", DOC + "from zbroker.log.reader import Log\n"),
        ("zbroker/delivery/loop.py", DOC + "from zbroker.delivery import core\nimport zmq\n"),
        ("zbroker/journal/core.py", DOC + "from zbroker.journal.sessions import X\n"),
        ("zbroker/queues/tables.py", DOC + "import lmdb\n"),
        ("zbroker/spark/source.py", DOC + "import zbroker\nfrom zbroker.client import connect\n"),
        ("zbroker/__init__.py", DOC + "from zbroker.client import connect\n"),
        ("tests/__init__.py", ""),
    ],
)
def test_what_is_allowed_is_not_complained_about(where: str, text: str) -> None:
    assert complaints(where, text) == []


def test_every_layer_names_something_that_exists() -> None:
    for name in tidy.LAYERS:
        path = ROOT / name.replace(".", "/")
        if name != "pyspark_zbroker":
            assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_every_file_that_is_called_pure_or_not_exists() -> None:
    named = [f"{folder}/{file}" for folder, many in tidy.PURE_FOLDERS.items() for file in many]
    for where in (*tidy.PURE_PATHS, *named):
        assert (ROOT / where).is_file(), where
