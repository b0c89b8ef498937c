"""`zbroker-admin access check FILE`: whether an access file can be used, and who is in it.

A row per principal: how many keys it has, whether it needs a password, its roles, the client names
that it lists, and what it may do at all. Exit 78: the file cannot be used; file, line and remedy.

    zbroker-admin access check /etc/zbroker/access.toml
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from zbroker.access.core import ACTIONS, Access
from zbroker.access.file import read
from zbroker.access.format import parse
from zbroker.cli import show
from zbroker.control.target import Target

COLUMNS: Final = (
    show.TableColumn("principal"),
    show.number("keys"),
    show.TableColumn("password"),
    show.TableColumn("roles"),
    show.TableColumn("names"),
    show.TableColumn("may"),
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@show.json_option
@click.pass_obj
def check(target: Target, file: Path, json_here: bool) -> None:
    """Say whether an access file can be used, and who is in it.

    Example: zbroker-admin access check /etc/zbroker/access.toml
    """
    rules, _ = load(file)
    rows = [_row(rules, name) for name in rules.principals]
    used = {role for one in rules.principals.values() for role in one.roles}
    unused = [role for role in rules.roles if role not in used]
    if show.wants_json(target, json_here):
        show.as_json({"principals": rows, "roles": list(rules.roles), "unused_roles": unused})
        return
    show.table(COLUMNS, rows)
    for role in unused:
        show.warn(f"no principal has the role {role!r}")


def load(file: Path) -> tuple[Access, str]:
    """The rules of a file as a broker would read it, and its text. Raises: ConfigError."""
    text, _ = read(file)
    return parse(text, str(file)), text


def _row(rules: Access, name: str) -> dict[str, Any]:
    one = rules.principals[name]
    return {
        "principal": name,
        "keys": len(one.keys),
        "password": bool(one.password),
        "roles": list(one.roles),
        "names": None if one.names is None else [pattern.text for pattern in one.names],
        "may": [action for action in ACTIONS if rules.may(name, action)],
    }
