"""`zbroker-admin access explain FILE PRINCIPAL ACTION [TOPIC]`: may it, and which grant says so.

"some" is a yes for the messages that filters let through. Without TOPIC: what grants it has for the
action. Exit 0: yes; 1: no; 3: there is no such principal; 78: the file cannot be used.

    zbroker-admin access explain access.toml pricer publish prices.eu --name pricer-2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from zbroker.access.core import ACTIONS, AccessDecision
from zbroker.access.core import explain as decide
from zbroker.access.grants import Grant
from zbroker.cli import show
from zbroker.cli.access.check import load
from zbroker.cli.group import EX_ERROR
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.ids import check_topic
from zbroker.toml_source import find_line


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("principal")
@click.argument("action", type=click.Choice(list(ACTIONS)))
@click.argument("topic", required=False)
@click.option("--name", help="Ask also whether its clients may have this name.")
@show.json_option
@click.pass_obj
def explain(  # noqa: PLR0913 - one parameter per option
    target: Target,
    file: Path,
    principal: str,
    action: str,
    topic: str | None,
    name: str | None,
    json_here: bool,
) -> None:
    """Say whether a principal may do something, and which grant of which role decides.

    Example: zbroker-admin access explain access.toml pricer publish prices.eu --name pricer-2
    """
    rules, text = load(file)
    if principal not in rules.principals:
        hint = "`zbroker-admin access check` lists them"
        raise ZBrokerError("not_found", f"{file} has no principal {principal!r}", hint)
    if topic is not None:
        check_topic(topic)
    decision = decide(rules, principal, action, topic)
    named = None if name is None else rules.may_name(principal, name)
    if show.wants_json(target, json_here):
        grants = [_row(grant, text) for grant in decision.grants]
        show.as_json(
            {
                "permitted": decision.verdict != "no",
                "verdict": decision.verdict,
                "grants": grants,
                "name_permitted": named,
            }
        )
    else:
        asked = f"{principal} {action} {topic!r}" if topic else f"{principal} {action}"
        _tell(decision, asked, text, rules.principals[principal].roles)
        if named is not None:
            click.echo(f"{'yes' if named else 'no'}: the client name {name!r}")
    if decision.verdict == "no" or named is False:
        sys.exit(EX_ERROR)


def _row(grant: Grant, text: str) -> dict[str, Any]:
    """A grant, and its place in the text of the file."""
    return {
        "role": grant.role,
        "kind": grant.kind,
        "number": grant.number,
        "line": find_line(text, ("role", grant.role, grant.kind, grant.number - 1)),
        "topics": [pattern.text for pattern in grant.topics],
        "filter": grant.clause.text if grant.clause else "",
    }


def _tell(decision: AccessDecision, asked: str, text: str, roles: Sequence[str]) -> None:
    word = {"all": "yes", "some": "yes, some", "no": "no"}[decision.verdict]
    click.echo(f"{word}: {asked}")
    for grant in decision.grants:
        row = _row(grant, text)
        told = f"  role {grant.role}, {grant.kind} {grant.number} (line {row['line']}): "
        condition = f" where {row['filter']}" if row["filter"] else ""
        click.echo(told + ", ".join(row["topics"]) + condition)
    if not decision.grants:
        click.echo(f"  no grant of its roles allows it ({', '.join(roles) or 'it has none'})")
