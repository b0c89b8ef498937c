"""`zbroker completion` and `zbroker-admin completion`: what a shell needs to complete commands.

zbroker completion bash > ~/.local/share/bash-completion/completions/zbroker
zbroker-admin completion zsh > "${fpath[1]}/_zbroker-admin"
zbroker-admin completion fish > ~/.config/fish/completions/zbroker-admin.fish

Options and commands come from the program itself. Contexts are read from their directory, topics
asked from an instance that runs on this host, within half a second or not at all.
"""

from __future__ import annotations

from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from zbroker.errors import ZBrokerError

SHELLS: Final = ("bash", "zsh", "fish")
TOPICS_MAX: Final = 100
_PATIENCE_S: Final = 0.5

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
    try:
        return [CompletionItem(name) for name in _topics(ctx.params, incomplete)]
    except (ZBrokerError, OSError, ValueError, KeyError, TypeError):
        return []  # nobody can be told anything here


def _topics(params: dict[str, Any], incomplete: str) -> list[str]:
    import json  # `pub` and `sub` import this file, and seldom complete anything
    from pathlib import Path
    from urllib.parse import urlencode

    from zbroker.cli.contexts import Context, resolve
    from zbroker.cli.target import get

    url = str(params.get("url") or "")
    context = resolve(Context(url=url), params.get("context"))
    data = Path(context.data_dir or "zbroker-data")
    running = json.loads((data / "run" / "instance.json").read_text())
    if context.url not in ("", running["url"]):
        return []
    query = urlencode({"match": incomplete + "*", "limit": TOPICS_MAX})
    found = get(running["endpoints"]["admin"], f"/topics?{query}", timeout_s=_PATIENCE_S)
    return [row["topic"] for row in found["topics"] if row["topic"].startswith(incomplete)]
