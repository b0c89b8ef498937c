"""`zbroker-admin replication ls | info | missing`: looks at links; changes nothing.

Answer of `ls`: the document of GET /replication; of `info`: `links`, those with this name, and
`lines`: what their states mean, and what to do.

    zbroker-admin --data-dir /var/lib/zbroker replication ls
    zbroker-admin --json replication info b
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_link
from zbroker.cli.group import AdminCommand
from zbroker.cli.replication.explanation import explained
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

Document = dict[str, Any]

COLUMNS: Final = show.columns(
    "name:0 direction:0 state:0 mode:1 topics:2 filter:2 downgraded:2 lag:0 mark:4 "
    "on_the_way_bytes:5 log_bytes:3 stopped:2 problem:6 address:7",
    sizes="on_the_way_bytes log_bytes",
)
_SIZES: Final = ("on_the_way_bytes", "log_bytes")
EMPTY: Final = "there is no link; see [[destination]] and listen.replication in the config"

MISSING: Final = show.columns("origin:0 first:0 last:0 why:0")
NOTHING: Final = "nothing is missing: the log has each origin from its beginning"

name_argument = click.argument("name", shell_complete=complete_link)


@click.command(cls=AdminCommand)
def ls(target: Target) -> None:
    """List the links to other instances, and from them.

    `out` is a destination of the config, `in` an instance that sends its log here. `lag` counts the
    positions of the log here that a destination lacks, `log bytes` is what is kept of the log for
    it; `lag` of an instance that sends here counts the positions that it holds and this one does
    not. `stopped` origins are not sent from here: info says why. `topics` are those that a link
    carries, empty: all; of these it carries what the `filter` is true for. A link with one of the
    two sends staged batches as messages, not all at once.

    Example: zbroker-admin replication ls
    """
    found = target.ask("/replication")
    if found.get("waits") and not target.as_json:
        click.echo(f"not open to publishers: {found['waits']}", err=True)
    show.listing(target.as_json, found, COLUMNS, [shown(row) for row in found["links"]], EMPTY)


@click.command(cls=AdminCommand)
def missing(target: Target) -> None:
    """List the ranges of origins that are not in the log of this instance.

    `state`: the log began with the state of another instance, and has nothing of before. `skipped`:
    a person gave the range up. A subscriber that was before its end gets bookmark_expired here.
    `topics`: the topics or the filter of the link were changed there, or holes were given up;
    before that not all is here that the link wants now.
    `forked`: messages with these names were taken again under new ones; no subscriber misses them.

    Example: zbroker-admin replication missing
    """
    found = target.ask("/replication")
    rows = found["missing"]
    document = {"missing": rows}
    show.listing(target.as_json, document, MISSING, rows, NOTHING)


@click.command(cls=AdminCommand)
@name_argument
def info(target: Target, name: str) -> None:
    """Show the link to the instance NAME, and the one from it: state, meaning, what to do.

    Example: zbroker-admin replication info b
    """
    found = target.ask("/replication")
    links = named(found, name)
    lines = [line for link in links for line in explained(link, found["needed"])]
    document = {"links": links, "lines": lines}
    show.answer(target.as_json, document, lambda: _show(links, lines))


def _show(links: list[Document], lines: list[str]) -> None:
    for link in links:
        known = {key: value for key, value in link.items() if value is not None}
        show.facts(known | {"stopped": _stopped(link)}, _SIZES)
        click.echo()
    click.echo("\n".join(lines))


def named(found: Document, name: str, direction: str = "") -> list[Document]:
    """The links with this name. Raises: ZBrokerError not_found."""
    rows = [row for row in found["links"] if direction in ("", row["direction"])]
    links = [row for row in rows if row["name"] == name]
    if not links:
        there = ", ".join(dict.fromkeys(row["name"] for row in rows))
        reason = f"there is no link {name!r}; there are: {there}" if there else EMPTY
        raise ZBrokerError("not_found", reason, "see replication ls")
    return links


def shown(row: Document) -> Document:
    """A row of the table: how a downgrade came about, and how many origins are stopped."""
    downgraded = "by hand" if row["by_hand"] else row["downgraded"] or None
    topics = ", ".join(row.get("topics", [])) or None
    return {
        **row, "downgraded": downgraded, "stopped": len(row["stopped"]) or None, "topics": topics,
        "filter": row.get("filter") or None,
    }  # fmt: skip


def _stopped(link: Document) -> list[str]:
    return [f"{origin} ({code})" for origin, code in link["stopped"].items()]
