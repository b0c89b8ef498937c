"""`zbroker completion` and `zbroker-admin completion`: what a shell needs to complete commands.

zbroker completion bash > ~/.local/share/bash-completion/completions/zbroker
zbroker-admin completion zsh > "${fpath[1]}/_zbroker-admin"
zbroker-admin completion fish > ~/.config/fish/completions/zbroker-admin.fish

Options and commands come from the program itself. Contexts are read from their directory; topics,
queues, exchanges and links are asked from an instance that runs on this host, within half a second
or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from zbroker.errors import ZBrokerError

SHELLS: Final = ("bash", "zsh", "fish")
NAMES_MAX: Final = 100
_PATIENCE_S: Final = 0.5

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_shell_argument = click.argument("shell", type=click.Choice(SHELLS))


@click.command()
@_shell_argument
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete this program's commands.

    Example: eval "$(zbroker completion bash)"
    """
    _print(ctx, "zbroker", shell)


@click.command("completion")
@_shell_argument
@click.pass_context
def admin_completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete this program's commands.

    Example: eval "$(zbroker-admin completion bash)"
    """
    _print(ctx, "zbroker-admin", shell)


def _print(ctx: click.Context, program: str, shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of SHELLS"
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    maker = kind(ctx.find_root().command, {}, program, variable)
    # not `source()`: that of bash runs the bash of this host, which may be another one's
    click.echo(maker.source_template % maker.source_vars())


def complete_topic(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Topics that begin like this, of an instance on this host."""
    from urllib.parse import urlencode

    query = urlencode({"match": incomplete + "*", "limit": NAMES_MAX})
    return _names(ctx, incomplete, f"/topics?{query}", "topics", "topic")


def _completer(path: str, rows: str) -> Complete:
    """Completes names in the answer of an instance on this host to GET `path`."""
    return lambda ctx, _param, incomplete: _names(ctx, incomplete, path, rows, "name")


complete_queue, complete_point = _completer("/queues", "queues"), _completer("/points", "points")
complete_link = _completer("/replication", "links")
complete_exchange = _completer("/exchanges", "exchanges")


def _names(
    ctx: click.Context, incomplete: str, path: str, rows: str, key: str
) -> list[CompletionItem]:
    """Those in the answer to GET `path`."""
    try:
        # options of zbroker-admin come before the command
        found = _ask(ctx.find_root().params | ctx.params, path)
        names = [row[key] for row in found.get(rows, ()) if row[key].startswith(incomplete)]
        return [CompletionItem(name) for name in [*dict.fromkeys(names)][:NAMES_MAX]]
    except (ZBrokerError, OSError, ValueError, KeyError, TypeError):
        return []  # errors cannot be shown here


def _ask(params: dict[str, Any], path: str) -> dict[str, Any]:
    import json  # `pub` and `sub` import this file, and seldom complete anything
    from pathlib import Path

    from zbroker.control.contexts import Context, resolve
    from zbroker.control.target import get

    url = str(params.get("url") or "")
    given = Context(url=url, data_dir=str(params.get("data_dir") or ""))
    context = resolve(given, params.get("context"))
    data = Path(context.data_dir or "zbroker-data")
    running = json.loads((data / "run" / "instance.json").read_text())
    if context.url not in ("", running["url"]):
        return {}
    return get(running["endpoints"]["admin"], path, timeout_s=_PATIENCE_S)
