"""`--set key=value`: keys of a [[queue]] table on a command line, read as in the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from zbroker.errors import ClientError


def complete_key(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Keys that begin like this, for a shell."""
    from zbroker.admin.documents import keys

    return [CompletionItem(f"{key}=") for key in keys() if key.startswith(incomplete)]


set_option = click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of [[queue]], as in the config: lease=30s; a list by commas. Any number of times.",
    shell_complete=complete_key,
)


def read(pairs: Sequence[str], given: dict[str, str] | None = None) -> dict[str, Any]:
    """The definition that they make, with what other options `given`. Raises: UsageError."""
    from zbroker.admin.documents import read_definition  # it reads the whole config

    texts = dict(given or {})
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--set {pair!r}: write KEY=VALUE")
        if key in texts:
            raise click.UsageError(f"--set {pair!r}: {key} is given twice")
        texts[key] = value
    try:
        return read_definition(texts, texts=True)
    except ClientError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise click.UsageError(f"--set: {error.reason}{hint}") from None
