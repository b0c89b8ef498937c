"""What both programs are made of: commands imported when used, errors as one line, exit codes.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found; 74 the storage, 78 the config: see `zbroker start`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click

import zbroker
from zbroker.cli import terminal
from zbroker.errors import ConfigError, StorageError, ZBrokerError

EX_ERROR: Final = 1
EX_NOT_FOUND: Final = 3
EX_STORAGE: Final = 74
EX_CONFIG: Final = 78
EX_INTERRUPTED: Final = 130  # as shells say it of a program that Ctrl-C ended


#: adds `--version`, which every command has
add_version: Final = click.version_option(
    zbroker.__version__, prog_name="zbroker", message="%(prog)s %(version)s"
)


def commands(place: str, names: str) -> dict[str, str]:
    """Where these commands are, for a LazyGroup. place: `module:attribute`, `*` is the name."""
    return {name: place.replace("*", name) for name in names.split()}


class LazyGroup(click.Group):
    """A group in the order of its commands; those of `table` are imported when they are used.

    table: {name: "module:attribute"}.
    """

    def __init__(self, *args: Any, table: dict[str, str] | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.table = table or {}
        add_version(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.table, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.commands.get(cmd_name)
        if cmd_name in self.table:
            module, _, attribute = self.table[cmd_name].partition(":")
            command = getattr(import_module(module), attribute)
        if command and not any(parameter.name == "version" for parameter in command.params):
            add_version(command)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's signature
        """The whole program. What others wrote cannot command the terminal that shows it."""
        with terminal.guarded():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Runs the command; an error of ours is one line on stderr, never a traceback.

        When the output is no longer read, as with `| head`, it ends without an error.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # else Python complains at its end about output that is not read
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except ZBrokerError as error:
            click.echo(f"{ctx.command_path}: {error}", err=True)
            ctx.exit(exit_code(error))


class AdminCommand(click.Command):
    """A command of `zbroker-admin`: its function gets the Target first; it has `--json`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - click's signature
        super().__init__(*args, **kwargs)
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_answer_in_json,
            help="Answer in JSON with stable keys.",
        )(self)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        assert self.callback is not None, "every command has a function"
        return ctx.invoke(self.callback, ctx.obj, **ctx.params)


class AdminGroup(LazyGroup):
    """A group of such commands."""

    command_class = AdminCommand


def _answer_in_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """`--json` may come before the command or after it."""
    if wanted and not ctx.resilient_parsing:
        ctx.obj.as_json = True


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the program without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(EX_INTERRUPTED)


def exit_code(error: ZBrokerError) -> int:
    """What a program says to its caller about `error`."""
    if isinstance(error, ConfigError):
        return EX_CONFIG
    if isinstance(error, StorageError):
        return EX_STORAGE
    return EX_NOT_FOUND if error.code == "not_found" else EX_ERROR
