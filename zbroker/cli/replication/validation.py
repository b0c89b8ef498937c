"""What the configs of instances say of one another, before any of them runs. Pure.

Each config is right by itself when it comes here; a mismatch is between two or more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Final, NamedTuple

from zbroker import endpoints
from zbroker.access.core import Access
from zbroker.config import Config, DestinationConfig
from zbroker.errors import ClientError

ERROR: Final = "error"
WARNING: Final = "warning"
RIGHT: Final = "replicate"


class Host(NamedTuple):
    """One instance. public: its key; access: its rules; "" and None: unknown here, or no security.

    place: the file with its config.
    """

    place: str
    config: Config
    public: str = ""
    access: Access | None = None

    @property
    def name(self) -> str:
        """As others name it in a [[destination]] table."""
        return self.config.instance.name

    @property
    def synchronous(self) -> list[DestinationConfig]:
        """Destinations that its acknowledgements wait for."""
        return [one for one in self.config.destination if one.mode == "sync"]


class ConfigMismatch(NamedTuple):
    """level: ERROR: replication will not work, or promises too much; WARNING: look at it."""

    level: str
    instance: str
    text: str
    fix: str


def mismatches(hosts: list[Host]) -> list[ConfigMismatch]:
    """All that is wrong, errors first."""
    found = [*_names(hosts)]
    by_name = {host.name: host for host in hosts}
    for host in hosts:
        found += _quorum(host, by_name)
        for rule in host.config.destination:
            found += _link(host, rule, by_name.get(rule.name))
    found += [one for a, b in permutations(hosts, 2) for one in _recorded(a, b)]
    return sorted(found, key=lambda one: one.level != ERROR)


def _names(hosts: list[Host]) -> Iterator[ConfigMismatch]:
    seen: dict[str, str] = {}
    for host in hosts:
        if host.name in seen:
            text = f"{seen[host.name]} and {host.place} have the same `instance.name`"
            yield ConfigMismatch(ERROR, host.name, text, "give each instance a name of its own")
        seen[host.name] = host.place


def _quorum(host: Host, by_name: Mapping[str, Host]) -> Iterator[ConfigMismatch]:
    """Whether what is acknowledged is where the rule says, and comes from there to the others."""
    name, synchronous = host.name, host.synchronous
    if not 0 < host.config.replication.sync_needed < len(synchronous):
        return
    for one, other in permutations((rule.name for rule in synchronous), 2):
        there = by_name.get(one)
        if there is not None and other not in {rule.name for rule in there.config.destination}:
            text = (
                f"a message may be acknowledged when only {one} has it, and {one} does not send "
                f"to {other}: if {name} is lost, {other} never gets it"
            )
            fix = f"add a [[destination]] for {other} at {one}, or set `sync_needed = 0` at {name}"
            yield ConfigMismatch(ERROR, name, text, fix)


def _link(host: Host, rule: DestinationConfig, there: Host | None) -> Iterator[ConfigMismatch]:
    name, other = host.name, rule.name
    if there is None:
        text = f"{other} is not among these files, so the link to it is not checked"
        yield ConfigMismatch(WARNING, name, text, "name its config, too")
        return
    if not there.config.listen.replication:
        text = f"{other} does not listen for sources: {there.place} has no `listen.replication`"
        yield ConfigMismatch(
            ERROR, name, text, f'set `listen.replication = "tcp://…:9104"` at {other}'
        )
        return
    port = endpoints.split(there.config.listen.replication).port
    ports = {endpoints.split(one).port for one in rule.to}
    if port and port not in ports:
        text = f"{other} listens on port {port}, and `to` names {_listed(ports)}"
        yield ConfigMismatch(WARNING, name, text, "write that port, unless something forwards it")
    if name not in {one.name for one in there.config.destination}:
        text = f"{other} does not send its log back to {name}"
        fix = f"right for an audit copy; otherwise add a [[destination]] for {name} at {other}"
        yield ConfigMismatch(WARNING, name, text, fix)
    yield from _security(host, rule, there)


def _security(host: Host, rule: DestinationConfig, there: Host) -> Iterator[ConfigMismatch]:
    name, other = host.name, rule.name
    if host.config.security.on != there.config.security.on:
        without = other if host.config.security.on else name
        text = f"security is off at {without} only, so there is no link between {name} and {other}"
        yield ConfigMismatch(
            ERROR, name, text, f"set security.key and security.access at {without}"
        )
        return
    if there.public and rule.server_key != there.public:
        text = f"`server_key` of the destination {other} is not the public key of {other}"
        yield ConfigMismatch(ERROR, name, text, f'write server_key = "{there.public}"')
    if host.public and there.access is not None and not _may_send(there.access, host.public):
        text = f"{other} permits nothing to {name}: no role of its key has `{RIGHT}`"
        fix = f"add a principal with the key {host.public} to {there.config.security.access}"
        yield ConfigMismatch(ERROR, name, text, fix)


def _may_send(access: Access, key: str) -> bool:
    try:
        return access.may(access.identify(key, None), RIGHT)
    except ClientError:
        return False  # no principal has this key


def _recorded(host: Host, there: Host) -> Iterator[ConfigMismatch]:
    """What a publisher loses that fails over: copies are stored whatever the settings there are."""
    linked = there.name in {rule.name for rule in host.config.destination}
    mine = host.config.record, host.config.journal.record
    theirs = there.config.record, there.config.journal.record
    if linked and host.name < there.name and mine != theirs:
        text = f"{host.name} and {there.name} record different topics"
        fix = "a publisher that fails over may not be recorded: write the same [[record]] tables"
        yield ConfigMismatch(WARNING, host.name, text, fix)


def _listed(ports: set[int]) -> str:
    return ", ".join(str(port) for port in sorted(ports))
