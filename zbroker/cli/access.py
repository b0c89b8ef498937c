"""`zbroker-admin access`: look at an access file. No instance is asked.

Exit 78: the file cannot be used; the message says where and what to write instead. `explain` ends
with 0 for yes, 1 for no, 3 if there is no such principal.

    zbroker-admin access check /etc/zbroker/access.toml
    zbroker-admin access explain access.toml pricer publish prices.eu --name pricer-2
    zbroker-admin access example > access.toml
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click

from zbroker.access.core import ACTIONS, Access
from zbroker.access.core import explain as decide
from zbroker.access.file import read
from zbroker.access.format import EXAMPLE, parse
from zbroker.access.grants import Grant
from zbroker.cli import show
from zbroker.cli.group import EX_ERROR, AdminGroup
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.ids import check_topic
from zbroker.toml_source import find_line

COLUMNS: Final = show.columns("principal keys password roles names may")
#: "some": for the messages that a filter lets through
_WORDS: Final = {"all": "yes", "some": "yes, some", "no": "no"}


@click.group(cls=AdminGroup)
def access() -> None:
    """Check an access file, and ask it who may do what."""


@access.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(target: Target, file: Path) -> None:
    """Say whether an access file can be used, and who is in it.

    Example: zbroker-admin access check /etc/zbroker/access.toml
    """
    rules, _ = _load(file)
    rows = [_principal(rules, name) for name in rules.principals]
    used = {role for one in rules.principals.values() for role in one.roles}
    unused = [role for role in rules.roles if role not in used]
    document = {"principals": rows, "roles": list(rules.roles), "unused_roles": unused}
    notes = [f"no principal has the role {role!r}" for role in unused]
    show.listing(target.as_json, document, COLUMNS, rows, "it has no principal", notes)


@access.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("principal")
@click.argument("action", type=click.Choice(list(ACTIONS)))
@click.argument("topic", required=False)
@click.option("--name", help="Ask also whether its clients may have this name.")
def explain(
    target: Target, file: Path, principal: str, action: str, topic: str | None, name: str | None
) -> None:
    """Say whether a principal may do something, and which grant of which role decides.

    Example: zbroker-admin access explain access.toml pricer publish prices.eu --name pricer-2
    """
    rules, text = _load(file)
    if principal not in rules.principals:
        hint = "`zbroker-admin access check` lists them"
        raise ZBrokerError("not_found", f"{file} has no principal {principal!r}", hint)
    if topic is not None:
        check_topic(topic)
    decision = decide(rules, principal, action, topic)
    grants = [_grant(grant, text) for grant in decision.grants]
    named = None if name is None else rules.may_name(principal, name)
    asked = f"{principal} {action} {topic!r}" if topic else f"{principal} {action}"
    roles = ", ".join(rules.principals[principal].roles) or "it has none"
    lines = [f"{_WORDS[decision.verdict]}: {asked}"]
    lines += map(_line, grants) if grants else [f"  no grant of its roles allows it ({roles})"]
    if named is not None:
        lines.append(f"{'yes' if named else 'no'}: the client name {name!r}")
    document = {
        "permitted": decision.verdict != "no", "verdict": decision.verdict,
        "grants": grants, "name_permitted": named,
    }  # fmt: skip
    show.answer(target.as_json, document, "\n".join(lines))
    if decision.verdict == "no" or named is False:
        sys.exit(EX_ERROR)


@access.command(cls=click.Command)
def example() -> None:
    """Print an access file with comments, to begin with.

    Example: zbroker-admin access example > access.toml
    """
    click.echo(EXAMPLE, nl=False)


def _load(file: Path) -> tuple[Access, str]:
    """The rules of a file as a broker would read it, and its text. Raises: ConfigError."""
    text, _ = read(file)
    return parse(text, str(file)), text


def _principal(rules: Access, name: str) -> dict[str, Any]:
    one = rules.principals[name]
    return {
        "principal": name,
        "keys": len(one.keys),
        "password": bool(one.password),
        "roles": list(one.roles),
        "names": None if one.names is None else [pattern.text for pattern in one.names],
        "may": [action for action in ACTIONS if rules.may(name, action)],
    }


def _grant(grant: Grant, text: str) -> dict[str, Any]:
    """A grant, and its place in the text of the file."""
    return {
        "role": grant.role,
        "kind": grant.kind,
        "number": grant.number,
        "line": find_line(text, ("role", grant.role, grant.kind, grant.number - 1)),
        "topics": [pattern.text for pattern in grant.topics],
        "filter": grant.clause.text if grant.clause else "",
    }


def _line(row: dict[str, Any]) -> str:
    """A grant for people."""
    head = f"  role {row['role']}, {row['kind']} {row['number']} (line {row['line']}): "
    return head + ", ".join(row["topics"]) + (f" where {row['filter']}" if row["filter"] else "")
