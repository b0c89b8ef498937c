"""What the configs of instances say of one another, before any of them runs. Pure.

Each config is right by itself when it comes here; a mismatch is between two or more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations
from typing import Final, NamedTuple

from zbroker import endpoints
from zbroker.access.core import Access
from zbroker.config import Config, DestinationConfig
from zbroker.config.link_content import link_topics
from zbroker.errors import ClientError
from zbroker.link_topics import ANY, LinkTopics
from zbroker.recording import Recording
from zbroker.topics import TopicPattern

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
    found += [one for a, b in combinations(hosts, 2) for one in _both_ways(a, b)]
    found += [one for host in hosts for one in _several_lists(hosts, host.name)]
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
    elif host.public and there.access is not None:
        yield from _narrower(host, rule, there.access)


def _may_send(access: Access, key: str) -> bool:
    try:
        return access.may(access.identify(key, None), RIGHT)
    except ClientError:
        return False  # no principal has this key


def _narrower(host: Host, rule: DestinationConfig, access: Access) -> Iterator[ConfigMismatch]:
    """A right for fewer topics than the link carries stops at the first record of another one."""
    patterns = access.permit(access.identify(host.public, None), RIGHT).patterns()
    if patterns is None:
        text = f"a `deny` for `{RIGHT}` at {rule.name} refuses the link as a whole"
        yield ConfigMismatch(ERROR, host.name, text, "list the allowed topics instead")
        return
    permitted = [TopicPattern(pattern) for pattern in patterns]
    wanted = LinkTopics(rule.topics).patterns or (ANY,)
    beyond = [one for one in wanted if not any(fits(one) for fits in permitted)]
    if beyond:
        text = (
            f"{rule.name} permits fewer topics to {host.name} than the link carries: it lacks "
            f"{', '.join(beyond)}, so the first record of another topic stops an origin"
        )
        fix = f"permit these topics there, or take them out of `topics` of {rule.name}"
        yield ConfigMismatch(ERROR, host.name, text, fix)


def _both_ways(one: Host, other: Host) -> Iterator[ConfigMismatch]:
    """Two that send to each other hold the same only if they send the same topics."""
    there, back = _topics(one, other.name), _topics(other, one.name)
    if there is not None and back is not None and there != back:
        text = f"{one.name} sends {there} to {other.name}, and gets {back}"
        fix = (
            "write the same `topics` and `filter` in both [[destination]] tables, and the same "
            "types in [[record]]; else programs of topics that only one of them has must not go to "
            "the other"
        )
        yield ConfigMismatch(WARNING, one.name, text, fix)


def _several_lists(hosts: list[Host], name: str) -> Iterator[ConfigMismatch]:
    """Sources with different topics do not pass on what another one published."""
    lists = {host.name: found for host in hosts if (found := _topics(host, name)) is not None}
    if len(set(lists.values())) > 1:
        listed = "; ".join(f"{source}: {topics}" for source, topics in lists.items())
        text = (
            f"{name} gets different topics from its sources ({listed}): while the link of one of "
            f"them is down, the others do not send what it published (digest_differs)"
        )
        fix = f"write the same `topics` and `filter` for {name} at all of them"
        yield ConfigMismatch(WARNING, name, text, fix)


def _topics(host: Host, destination: str) -> LinkTopics | None:
    rules = [rule for rule in host.config.destination if rule.name == destination]
    if not rules:
        return None
    return link_topics(rules[0], Recording(host.config.record, nothing=host.config.records_nothing))


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
