"""zbroker/cli/group.py, and what holds for every command of both programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import zbroker
from zbroker.cli import admin_main, main
from zbroker.cli.group import LazyGroup, exit_code
from zbroker.errors import ConfigError, StorageError, ZBrokerError

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = [main.main, admin_main.main]


def walk(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))


COMMANDS = [(program, *row) for program in PROGRAMS for row in walk(program, ())]
IDS = [" ".join([str(program.name), *path]) for program, path, _ in COMMANDS]


@pytest.mark.parametrize(("program", "path", "command"), COMMANDS, ids=IDS)
class TestEveryCommand:
    def test_says_what_it_does(
        self, program: click.Group, path: tuple[str, ...], command: click.Command
    ) -> None:
        assert command.help
        assert all(option.help for option in command.params if isinstance(option, click.Option)), (
            "an option without help"
        )

    def test_has_a_version(
        self, program: click.Group, path: tuple[str, ...], command: click.Command
    ) -> None:
        result = CliRunner().invoke(program, [*path, "--version"])
        assert result.exit_code == 0
        assert result.output == f"zbroker {zbroker.__version__}\n"

    def test_has_a_test(
        self, program: click.Group, path: tuple[str, ...], command: click.Command
    ) -> None:
        folder = (ROOT / "tests" / "cli").joinpath(*path[:-1])
        name = path[-1].replace("-", "_")
        if isinstance(command, click.Group):
            assert list(folder.glob(f"test_{name}*.py")) or (folder / name).is_dir()
        else:
            assert list(folder.glob(f"test_{name}*.py")) or path[0] == "config"

    def test_has_an_example(
        self, program: click.Group, path: tuple[str, ...], command: click.Command
    ) -> None:
        if path[0] in ("journal", "action") and not isinstance(command, click.Group):
            assert f"Example: {program.name}" in command.help
            assert f"journal {path[-1]}" in command.help or f"action {path[-1]}" in command.help


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_help(program: click.Group) -> None:
    result = CliRunner().invoke(program, ["--help"])
    assert result.exit_code == 0
    assert program.help in result.output


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_a_version(program: click.Group) -> None:
    assert CliRunner().invoke(program, ["--version"]).output == f"zbroker {zbroker.__version__}\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unknown_command_is_a_usage_error(program: click.Group) -> None:
    assert CliRunner().invoke(program, ["fly"]).exit_code == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ZBrokerError("timeout", "late"), 1),
        (ZBrokerError("not_found", "nothing"), 3),
        (ConfigError("bad_config", "wrong"), 78),
        (StorageError("io", "broken"), 74),
    ],
)
def test_an_error_has_its_exit_code(error: ZBrokerError, status: int) -> None:
    assert exit_code(error) == status


def test_an_error_is_one_line_on_stderr() -> None:
    group = LazyGroup("program", table={"fail": f"{__name__}:fail"})
    result = CliRunner().invoke(group, ["fail"], prog_name="program")
    assert result.exit_code == 3
    assert result.stderr == "program: not_found: it is not there (look elsewhere)\n"


@click.command()
def fail() -> None:
    """Fails."""
    raise ZBrokerError("not_found", "it is not there", "look elsewhere")
