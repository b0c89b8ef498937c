"""`completion` of both programs (zbroker/cli/completion.py, reaching.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.cli.admins import FakeAdmin
from zbroker.cli import admin_main, main
from zbroker.cli.completion import (
    SHELLS,
    complete_exchange,
    complete_link,
    complete_point,
    complete_queue,
    complete_topic,
)
from zbroker.cli.options import complete_context
from zbroker.control import contexts
from zbroker.control.contexts import Context

PROGRAMS = {"zbroker": main.main, "zbroker-admin": admin_main.main}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_shell_gets_its_script(name: str, shell: str) -> None:
    result = CliRunner().invoke(PROGRAMS[name], ["completion", shell])
    assert result.exit_code == 0
    assert f"{shell}_complete" in result.stdout
    assert f"_{name.replace('-', '_').upper()}_COMPLETE" in result.stdout


def test_the_script_for_bash_is_bash() -> None:
    script = CliRunner().invoke(main.main, ["completion", "bash"]).stdout
    bash = shutil.which("bash") or "bash"
    assert subprocess.run([bash, "-n"], input=script.encode(), timeout=30).returncode == 0


def test_an_unknown_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(main.main, ["completion", "csh"]).exit_code == 2


def completed(module: str, words: str) -> set[str]:
    """What bash would get for the last of these words."""
    name = module.replace("main", "zbroker").replace("admin_zbroker", "zbroker-admin")
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    code = f"from zbroker.cli.{module} import main; main(prog_name={name!r})"
    environment = os.environ | {
        variable: "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    return {line.partition(",")[2] for line in done.stdout.splitlines()}


def test_commands_and_options_are_completed() -> None:
    assert completed("admin_main", "zbroker-admin co") == {"context", "completion"}
    assert completed("main", "zbroker pub --ser") == {"--server-key"}


def test_contexts_are_completed() -> None:
    for name in ("here", "there", "far"):
        contexts.save(name, Context())
    assert completed("admin_main", "zbroker-admin --context he") == {"here"}
    assert completed("admin_main", "zbroker-admin context use ") == {"far", "here", "there"}


def items(found: list[click.shell_completion.CompletionItem]) -> list[str]:
    return [item.value for item in found]


def test_topics_of_an_instance_on_this_host_are_completed(
    fake: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"topic": name} for name in ("orders", "orders.eu", "other")]
    fake.answers["GET /topics?match=ord%2A&limit=100"] = {"topics": rows}
    ctx, parameter = click.Context(main.main), click.Option(["--x"])
    contexts.save("here", Context(data_dir=str(fake.data)))
    ctx.params = {"context": "here"}
    assert items(complete_topic(ctx, parameter, "ord")) == ["orders", "orders.eu"]
    running = json.loads((fake.data / "run" / "instance.json").read_text())
    fake.data.rename(fake.data.with_name("zbroker-data"))
    monkeypatch.chdir(fake.data.parent)
    ctx.params = {"url": running["url"]}
    assert items(complete_topic(ctx, parameter, "ord")) == ["orders", "orders.eu"]
    ctx.params = {"url": "tcp://elsewhere:1"}
    assert complete_topic(ctx, parameter, "ord") == []


def test_names_of_an_instance_on_this_host_are_completed(fake: FakeAdmin) -> None:
    fake.answers["GET /queues"] = {"queues": [{"name": name} for name in ("work", "other")]}
    fake.answers["GET /points"] = {"points": [{"name": name} for name in ("eod", "start")]}
    root, parameter = click.Context(admin_main.main), click.Option(["--x"])
    root.params = {"data_dir": str(fake.data)}  # is before the command
    ctx = click.Context(admin_main.main, parent=root)
    assert items(complete_queue(ctx, parameter, "wo")) == ["work"]
    assert items(complete_point(ctx, parameter, "")) == ["eod", "start"]
    fake.answers["GET /exchanges"] = {"exchanges": [{"name": name} for name in ("amq.topic", "e")]}
    assert items(complete_exchange(ctx, parameter, "a")) == ["amq.topic"]
    fake.answers["GET /replication"] = {"links": [{"name": name} for name in ("b", "c", "b")]}
    assert items(complete_link(ctx, parameter, "")) == ["b", "c"], "a link in each direction"
    fake.answers["GET /queues"] = (503, {"code": "not_ready", "reason": "later"})
    assert complete_queue(ctx, parameter, "") == []


def test_where_no_one_runs_nothing_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ctx = click.Context(main.main)
    assert complete_topic(ctx, click.Option(["--x"]), "") == []
    assert complete_queue(ctx, click.Option(["--x"]), "") == []
    ctx.params = {"context": "none"}
    assert complete_topic(ctx, click.Option(["--x"]), "") == []
    assert complete_context(ctx, click.Option(["--x"]), "") == []
