"""What an access file says: TOML to `core.Access`, and errors that say line and remedy. Pure.

docs/reference/access.md has every key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from zbroker.access.core import MADE_UP, Access
from zbroker.access.grants import (
    ACTIONS,
    ADMIN,
    ANY,
    UNFILTERED,
    UNFILTERED_TOPICS,
    AccessPattern,
    Clause,
    Grant,
    Kind,
    Principal,
)
from zbroker.access.keys import is_key
from zbroker.access.passwords import read as read_hash
from zbroker.errors import ClientError
from zbroker.limits import MIB, NAME_MAX_BYTES
from zbroker.toml_source import KeyPath, TomlSource

FILE_MAX_BYTES: Final = 1 * MIB  # reading that takes a second or two, blocking its process
PATTERNS_MAX: Final = 1_000  # of one principal; a topic that is new is compared with all of them
FILTERS_MAX: Final = 100  # of one principal; each may be asked for every message

_EVERY: Final = frozenset(ACTIONS)
_TAKEN: Final = frozenset(name.partition("-")[0] for name in MADE_UP)
_KINDS: Final[tuple[Kind, ...]] = ("allow", "deny")
_SEE: Final = "see docs/reference/access.md, or `zbroker-admin access example`"

T = TypeVar("T", bound=Struct)


class PrincipalTable(Struct, forbid_unknown_fields=True):
    """`[principal.NAME]` as it is written."""

    keys: list[str]
    password: str = ""
    roles: list[str] = []
    names: list[str] | None = None


class GrantTable(Struct, forbid_unknown_fields=True):
    """`[[role.NAME.allow]]` or `deny` as it is written."""

    actions: list[str]
    topics: list[str] = field(default_factory=lambda: [ANY])
    filter: str = ""


def parse(text: str, name: str) -> Access:
    """The rules in the TOML `text`, called `name` in errors.

    Raises: ConfigError; the reason has no key and no hash in it.
    """
    source = TomlSource(name, text)
    tree = source.tree()
    for key in tree:
        source.check_known((key,), ("principal", "role"))
    roles = {
        role: list(_grants(source, role, table))
        for role, table in _named(source, tree, "role").items()
    }
    principals = [
        _principal(source, one, table, roles)
        for one, table in _named(source, tree, "principal").items()
    ]
    if not principals:
        hint = "write [principal.NAME] and its keys; see `zbroker-admin access example`"
        source.fail((), "there is no principal, so no client could log on", hint)
    _check_shared_keys(source, principals)
    access = Access(principals, roles)
    _check_sizes(source, access)
    return access


def _named(source: TomlSource, tree: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The tables `[kind.NAME]`."""
    found = tree.get(kind, {})
    if not isinstance(found, dict):
        source.fail((kind,), f"`{kind}` holds tables", f"write [{kind}.NAME] above the keys")
    for name, table in found.items():
        if not isinstance(table, dict):
            hint = f"write [{kind}.{name}] above the keys"
            source.fail((kind, name), f"`{kind}.{name}` is a table", hint)
    return found


# -- roles ----------------------------------------------------------------------------------------


def _grants(source: TomlSource, role: str, table: dict[str, Any]) -> Iterator[Grant]:
    for key in table:
        source.check_known(("role", role, key), _KINDS)
    for kind in _KINDS:
        tables = table.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            hint = f"write [[role.{role}.{kind}]] above its keys"
            source.fail(("role", role, kind), f"`role.{role}.{kind}` is a list of tables", hint)
        for index, one in enumerate(tables):
            yield from _grant(source, (role, kind, index), one)


def _grant(source: TomlSource, at: tuple[str, Kind, int], table: dict[str, Any]) -> Iterator[Grant]:
    role, kind, index = at
    path: KeyPath = ("role", *at)
    found = _read(source, path, table, GrantTable)
    topics = tuple(
        _pattern(source, (*path, "topics"), text, "a topic pattern") for text in found.topics
    )
    clause = _clause(source, path, found.filter)
    actions = _actions(source, path, found)
    number = index + 1
    seen = actions - UNFILTERED if clause else actions
    yield Grant(role, kind, number, seen, topics, clause)
    if clause and kind == "deny" and ANY in found.actions:
        # a copy of the log cannot be filtered, so what is denied in part is not copied at all; nor
        # is part of a queue made
        yield Grant(role, kind, number, UNFILTERED_TOPICS, topics)


def _clause(source: TomlSource, path: KeyPath, text: str) -> Clause | None:
    if not text:
        return None
    try:
        return Clause(text)
    except ClientError as error:
        hint = "see docs/reference/filters.md"
        source.fail((*path, "filter"), f"`filter` cannot be used: {error.reason}", hint)


def _actions(source: TomlSource, path: KeyPath, found: GrantTable) -> frozenset[str]:
    """The actions that are meant; "*" leaves out those that topics or filter do not fit."""
    place = (*path, "actions")
    for action in found.actions:
        source.check_known(place, (*ACTIONS, ANY), action, "action")
    if not found.actions:
        source.fail(place, "`actions` is empty", f"name some of: {', '.join(ACTIONS)}")
    named = frozenset(found.actions) - {ANY}
    is_for_some = any(topic.strip(ANY) for topic in found.topics) or not found.topics
    if is_for_some and named & ADMIN:
        reason = f"{min(named & ADMIN)} is about no topic"
        source.fail((*path, "topics"), reason, "leave `topics` out, or give it a grant of its own")
    if found.filter and named & UNFILTERED:
        reason = f"{min(named & UNFILTERED)} cannot have a filter"
        source.fail((*path, "filter"), reason, "give it a grant of its own, without `filter`")
    if ANY not in found.actions:
        return named
    return _EVERY - ADMIN if is_for_some or found.filter else _EVERY


# -- principals -----------------------------------------------------------------------------------


def _principal(
    source: TomlSource, name: str, table: dict[str, Any], roles: Collection[str]
) -> Principal:
    path: KeyPath = ("principal", name)
    if not name.isprintable() or not 0 < len(name.encode()) <= NAME_MAX_BYTES or ANY in name:
        reason = f"the principal's name {name[:64]!r} cannot be used"
        source.fail(path, reason, f"1 to {NAME_MAX_BYTES} bytes of printable text without *")
    if name in _TAKEN or name.startswith("$"):
        reason = f"no principal is called {name!r}: every client may use names that begin so"
        source.fail(path, reason, "choose another name")
    found = _read(source, path, table, PrincipalTable)
    for key in found.keys:
        if not is_key(key):
            hint = "`zbroker-admin key show NAME.key` prints one"
            source.fail((*path, "keys"), "a key is not 40 characters of Z85", hint)
    for role in found.roles:
        source.check_known((*path, "roles"), roles, role, "role")
    _check_password(source, (*path, "password"), found.password)
    names = found.names
    patterns = (
        None
        if names is None
        else tuple(_pattern(source, (*path, "names"), text, "a client name") for text in names)
    )
    keys = tuple(dict.fromkeys(found.keys))
    return Principal(name, keys, found.password, tuple(dict.fromkeys(found.roles)), patterns)


def _check_password(source: TomlSource, path: KeyPath, hashed: str) -> None:
    try:
        if hashed:
            read_hash(hashed)
    except ValueError as error:
        hint = "`zbroker-admin key password` prints one"
        source.fail(path, f"`password` is not a hash: {error}", hint)


def _check_shared_keys(source: TomlSource, principals: list[Principal]) -> None:
    """Principals that share a key each need a password: only it distinguishes them."""
    holders: dict[str, Principal] = {}
    for one in principals:
        for key in one.keys:
            other = holders.setdefault(key, one)
            if other is not one and not (one.password and other.password):
                lacking = one if not one.password else other
                reason = f"principals {other.name!r} and {one.name!r} share a key"
                hint = f"give {lacking.name!r} a `password`, or a key of its own"
                source.fail(("principal", lacking.name, "keys"), reason, hint)


def _check_sizes(source: TomlSource, access: Access) -> None:
    known: set[tuple[str, ...]] = set()
    for one in access.principals.values():
        if one.roles in known:
            continue
        known.add(one.roles)
        grants = [grant for role in one.roles for grant in access.roles[role]]
        for what, count, limit in (
            ("topic patterns", sum(len(grant.topics) for grant in grants), PATTERNS_MAX),
            ("filters", sum(grant.clause is not None for grant in grants), FILTERS_MAX),
        ):
            if count > limit:
                reason = f"the roles of {one.name!r} have {count} {what}, {limit} at most"
                hint = "use patterns with *, or several principals"
                source.fail(("principal", one.name, "roles"), reason, hint)


# -- both -----------------------------------------------------------------------------------------


def _read(source: TomlSource, path: KeyPath, table: dict[str, Any], kind: type[T]) -> T:
    for key in table:
        source.check_known((*path, key), kind.__struct_fields__)
    return source.convert(table, kind, lambda _: _SEE, path)


def _pattern(source: TomlSource, path: KeyPath, text: str, what: str) -> AccessPattern:
    try:
        return AccessPattern(text)
    except ValueError as error:
        source.fail(path, f"{what} cannot be used: {error}", "* matches any characters")


# -- the example ----------------------------------------------------------------------------------

#: What `zbroker-admin access example` prints.
EXAMPLE: Final = """\
# The access rules. `security.access` in the config of the broker names this file. It is read again
# when it changes. Only actions that a role allows are permitted. See docs/reference/access.md
#
#   zbroker-admin key new pricer           makes pricer.key_secret, and pricer.key for this file
#   zbroker-admin access check FILE        says whether it can be used
#   zbroker-admin access explain FILE pricer publish prices.eu

# -- principals, with their keys and roles ---------------------------------------------------------

[principal.pricer]
keys = [                        # as in NAME.key; several while you change from one to another
    "put-here-what-key-new-printed-1-........",
]
roles = ["feed"]
# names = ["pricer", "pricer-*"]  # of its clients; by default its own name, that followed by
#                                 # - or . and anything, and generated names

[principal.risk]
keys = ["put-here-what-key-new-printed-2-........"]
roles = ["reader"]

[principal.ann]                 # two people share one key: a password distinguishes them
keys = ["put-here-what-key-new-printed-3-........"]
password = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
roles = ["reader", "operator"]  # `zbroker-admin key password` prints the line above

[principal.ben]
keys = ["put-here-what-key-new-printed-3-........"]
password = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
roles = ["reader"]

# -- roles: what they allow; a deny overrides every allow ------------------------------------------

[[role.feed.allow]]
actions = ["publish"]           # publish subscribe replay consume configure bind replicate
                                # admin_read admin_write
topics = ["prices.*", "trades"] # * matches any characters; without `topics`: every topic

[[role.reader.allow]]
actions = ["subscribe", "replay"]
topics = ["prices.*"]

[[role.reader.allow]]
actions = ["subscribe", "replay"]
topics = ["trades"]
filter = "/region = 'EU'"       # only messages for which it is true: docs/reference/filters.md

[[role.reader.deny]]
actions = ["*"]
topics = ["*.secret"]

[[role.operator.allow]]
actions = ["admin_read", "admin_write"]
"""
