"""`zbroker-admin exchange`: exchanges, and what is bound to them; `binding` changes that.

zbroker-admin --data-dir /var/lib/zbroker exchange ls
zbroker-admin exchange declare events --kind topic
zbroker-admin exchange delete events --if-unused --yes
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.binding import COLUMNS as BINDINGS
from zbroker.cli.binding import left_out
from zbroker.cli.completion import complete_exchange
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import dry_run_option, flag_option, text_option
from zbroker.control.target import Target

KINDS: Final = ("direct", "topic", "fanout", "headers")
COLUMNS: Final = show.columns(
    "name:0 kind:0 bindings:0 alternate auto_delete:2 internal:2 predeclared:3"
)


@click.group(cls=AdminGroup)
def exchange() -> None:
    """See exchanges and what is bound to them; declare and delete them."""


@exchange.command()
def ls(target: Target) -> None:
    """List exchanges, by name, with the number of their bindings.

    A `predeclared` exchange is always there. `bindings` has those of other instances, too.

    Example: zbroker-admin exchange ls
    """
    found = target.ask("/exchanges")
    show.listing(target.as_json, found, COLUMNS, found["exchanges"], "there is no exchange")


@exchange.command()
@click.argument("name", shell_complete=complete_exchange)
def info(target: Target, name: str) -> None:
    """Show the exchange NAME and its bindings.

    Example: zbroker-admin exchange info events
    """
    _check(name)
    [one] = target.ask("/exchanges", {"exchange": name})["exchanges"]
    bound = target.ask("/bindings", {"exchange": name})

    def people() -> None:
        show.facts(one)
        if bound["bindings"]:
            show.table(BINDINGS, bound["bindings"], "bindings")
        for note in left_out(bound):
            show.warn(note)

    show.answer(target.as_json, {"exchange": one, **bound}, people)


@exchange.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="direct",
    show_default=True,
    help="Which bindings get a message.",
)
@text_option(
    "--alternate",
    "The exchange that gets what no binding of this one asks for.",
    shell_complete=complete_exchange,
)
@flag_option("--auto-delete", "It goes with its last binding.")
@flag_option("--internal", "No client publishes to it: it is the alternate of others.")
@dry_run_option
def declare(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    name: str,
    kind: str,
    alternate: str,
    auto_delete: bool,
    internal: bool,
    dry_run: bool,
) -> None:
    """Make the exchange NAME: a recorded topic whose messages go to the queues bound to it.

    If it is there with the same kind, alternate and --internal, nothing changes; with others it is
    an error.

    Example: zbroker-admin exchange declare events --kind topic
    """
    body = {
        "exchange": name, "kind": kind, "alternate": alternate, "auto_delete": auto_delete,
        "internal": internal, "dry_run": dry_run,
    }  # fmt: skip
    found = target.admin().tell("/exchanges", body)
    made = "it can be made (dry run)" if dry_run else "made"
    _report(target, found, made if found["changed"] else "it is there already")


@exchange.command()
@click.argument("name", shell_complete=complete_exchange)
@flag_option("--if-unused", "Only if nothing is bound to it.")
@dry_run_option
@flag_option("--yes", "Do not ask.")
def delete(target: Target, name: str, if_unused: bool, dry_run: bool, yes: bool) -> None:
    """Delete the exchange NAME, with its bindings. Messages stay in the log and in queues.

    Example: zbroker-admin exchange delete events --if-unused --dry-run
    """
    body = {"exchange": name, "if_unused": if_unused, "dry_run": dry_run}
    if not (dry_run or yes):
        if target.as_json or not sys.stdin.isatty():
            raise click.UsageError("this ends bindings for good: give --yes, or --dry-run first")
        planned = target.admin().tell("/exchanges/delete", body | {"dry_run": True})
        click.confirm(f"{name} is deleted, with {_bindings(planned)}; go on?", abort=True)
    found = target.admin().tell("/exchanges/delete", body)
    done = "it would be deleted (dry run)" if dry_run else "deleted"
    _report(target, found, f"{done}, with {_bindings(found)}")


def _bindings(found: dict[str, Any]) -> str:
    count = found["bindings"]
    return f"{count} binding{'' if count == 1 else 's'}"


def _report(target: Target, found: dict[str, Any], line: str) -> None:
    show.answer(target.as_json, found, f"{found['exchange']}: {line}")


def _check(name: str) -> None:
    if not name:
        raise click.UsageError("the name of an exchange is not empty")
