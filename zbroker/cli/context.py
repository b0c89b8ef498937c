"""`zbroker-admin context`: how instances are reached, kept under names.

A context is the file $XDG_CONFIG_HOME/zbroker/contexts/NAME.toml, which names files of secrets and
holds none.

    zbroker-admin context add trading --url tcp://10.0.0.5:9101 --key me.key_secret \\
        --server-key broker.key
    zbroker-admin context use trading
"""

from __future__ import annotations

import os
from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import complete_context, dry_run_option, flag_option, login_options
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

COLUMNS: Final = show.columns("context:0 in_use url data_dir:2 config:2 key:3 user:3 problem")


@click.group(cls=AdminGroup)
def context() -> None:
    """Keep under a name how an instance is reached, with which keys.

    Both programs take them: --context NAME, else ZBROKER_CONTEXT, else the one in use.
    """


@context.command()
@click.argument("name")
@click.option("--url", help="The ingest URL of the instance.")
@click.option("--data-dir", help="Its data directory, if it is on this host.")
@click.option("-c", "--config", help="Its config file, if it is on this host.")
@login_options
@flag_option("--use", "Use it from now on.", "at_once")
@flag_option("--force", "Replace one of that name.")
def add(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    *,
    name: str,
    url: str | None,
    data_dir: str | None,
    config: str | None,
    login: Login,
    at_once: bool,
    force: bool,
) -> None:
    """Keep how an instance is reached, as NAME.

    Say where it is by one of --url, --data-dir and -c; either there or before the command.

    Example: zbroker-admin context add here --data-dir /var/lib/zbroker --use
    """
    places = (url or target.url, data_dir or target.data_dir, config or target.config_path)
    if sum(place is not None for place in places) != 1:
        raise click.UsageError("say where it is by one of --url, --data-dir and -c")
    at, data, path_of_config = (str(place or "") for place in places)
    made = Context(at, data, path_of_config, login).over(Context(credentials=target.login or login))
    if bool(made.credentials.key) != bool(made.credentials.server):
        raise click.UsageError("--key and --server-key go together")
    path = contexts.save(name, contexts.absolute(made), force=force)
    if at_once:
        contexts.use(name)
    document = {"context": name, "file": str(path), "in_use": contexts.current() == name}
    text = f"{name}: kept in {path}{', in use' if at_once else ''}"
    show.answer(target.as_json, document, text)


@context.command()
@click.argument("name", required=False, shell_complete=complete_context)
@flag_option("--none", "Use none from now on.", "nothing")
def use(target: Target, name: str | None, nothing: bool) -> None:
    """Have the context NAME count where none is named.

    An option that says where the instance is, or another --context, wins over it.

    Example: zbroker-admin context use trading
    """
    if (name is None) != nothing:
        raise click.UsageError("give NAME, or --none")
    if name is None:
        contexts.use_none()
    else:
        contexts.use(name)
    show.answer(target.as_json, {"context": name}, f"{name or 'no context'} is in use")


@context.command()
def ls(target: Target) -> None:
    """List contexts.

    Example: zbroker-admin context ls
    """
    in_use = contexts.current()
    rows = [_row(name) | {"in_use": name == in_use} for name in contexts.names()]
    shown = [row | row["credentials"] for row in rows]
    empty = "there is no context; zbroker-admin context add makes one"
    show.listing(target.as_json, {"contexts": rows}, COLUMNS, shown, empty)


@context.command("show")
@click.argument("name", required=False, shell_complete=complete_context)
def show_one(target: Target, name: str | None) -> None:
    """Show the context NAME, or the one that counts now.

    Example: zbroker-admin context show trading
    """
    name = name or os.environ.get(contexts.ENVIRONMENT) or contexts.current()
    if not name:
        raise ZBrokerError("not_found", "no context is in use", "zbroker-admin context use NAME")
    found = contexts.document(contexts.load(name))
    document = {"context": name, **found, "in_use": name == contexts.current()}
    credentials = found.pop("credentials")
    show.answer(target.as_json, document, {"context": name, **found, **credentials})


@context.command()
@click.argument("name", shell_complete=complete_context)
@dry_run_option
def rm(target: Target, name: str, dry_run: bool) -> None:
    """Forget the context NAME. Files of keys and passwords stay.

    Example: zbroker-admin context rm trading
    """
    was_in_use = contexts.current() == name
    if not dry_run:
        contexts.remove(name)
    elif name not in contexts.names():
        contexts.load(name)
    done = "would be forgotten" if dry_run else "forgotten"
    document = {"context": name, "dry_run": dry_run, "in_use": was_in_use}
    text = f"{name}: {done}{', and it is the one in use' if was_in_use else ''}"
    show.answer(target.as_json, document, text)


def _row(name: str) -> dict[str, Any]:
    """One context with every key that there may be; a broken one says what is wrong with it."""
    problem = ""
    try:
        found = contexts.load(name)
    except ZBrokerError as error:
        found, problem = Context(), str(error)
    return {"context": name, **contexts.document(found), "problem": problem}
