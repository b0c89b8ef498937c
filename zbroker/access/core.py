"""Principals and their rights: the rules of one version of the access file. Pure.

A logon with a password takes three steps, in this order, so that a client learns nothing about a
user whose password it does not know: `identify`, `passwords.verify` of `password_of`, `check_name`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, Self

from zbroker.access.grants import (
    ACTIONS,
    ANY,
    AccessPattern,
    Clause,
    Grant,
    Principal,
    TopicFilters,
)
from zbroker.errors import ClientError
from zbroker.limits import TOPICS_MAX

__all__ = ["ACTIONS", "Access", "Permit", "TopicFilters", "Verdict"]

#: Said of an unknown key, an unknown user and a wrong password alike.
NOT_ACCEPTED: Final = "key, user or password were not accepted"
NOT_ACCEPTED_HINT: Final = "see your principal in the access file of the broker"

#: What every principal may call its clients beside its own name: names that are made up.
MADE_UP: Final = ("client-*", "spark-*", "zbroker-*")
_MADE_UP: Final = tuple(map(AccessPattern, MADE_UP))


class Access:
    """The rules. on: False if everybody may do everything."""

    def __init__(
        self, principals: Iterable[Principal], roles: Mapping[str, Iterable[Grant]]
    ) -> None:
        """Keys, roles and passwords fit together: `format.parse` has checked that."""
        self.on = True
        self.principals: dict[str, Principal] = {one.name: one for one in principals}
        self.roles: dict[str, tuple[Grant, ...]] = {k: tuple(v) for k, v in roles.items()}
        self._by_key: dict[str, tuple[str, ...]] = {}
        for one in self.principals.values():
            for key in dict.fromkeys(one.keys):
                self._by_key[key] = (*self._by_key.get(key, ()), one.name)
        self._listed = frozenset(
            pattern.text
            for one in self.principals.values()
            for pattern in one.names or ()
            if "*" not in pattern.text
        )
        self._permits: dict[tuple[str, str], Permit] = {}
        self._equal: dict[str, Permit] = {}
        self._nothing = self._shared({}, {})
        self._everything = self._shared({("*", ""): (AccessPattern("*"), None)}, {})

    @classmethod
    def off(cls) -> Self:
        """Everybody is principal "" and may do everything."""
        access = cls((), {})
        access.on = False
        return access

    def __repr__(self) -> str:
        if not self.on:
            return "Access.off()"
        return f"Access({len(self.principals)} principals, {len(self.roles)} roles)"

    # -- who ------------------------------------------------------------------------------------

    def principals_of(self, key: str) -> tuple[str, ...]:
        """The principals that have a public key."""
        return self._by_key.get(key, ())

    def identify(self, key: str, user: str | None) -> str:
        """The principal of a key, where it has several, `user`; its password is not asked here.

        Raises: ClientError auth_failed.
        """
        if not self.on:
            return ""
        known = self.principals_of(key)
        if user is None and len(known) > 1:
            raise ClientError("auth_failed", "this key needs a `user`", NOT_ACCEPTED_HINT)
        found = known[0] if user is None and known else user
        if found is None or found not in known:
            raise ClientError("auth_failed", NOT_ACCEPTED, NOT_ACCEPTED_HINT)
        return found

    def check_name(self, principal: str, name: str) -> None:
        """Raises: ClientError not_entitled, unless `may_name`."""
        if not self.may_name(principal, name):
            raise ClientError("not_entitled", f"you may not use the client name {name!r}")

    def holds(self, principal: str, key: str) -> bool:
        """True if this principal still has this key."""
        return not self.on or principal in self.principals_of(key)

    def password_of(self, principal: str) -> str:
        """The hash that its password has to fit, "" if it needs none."""
        found = self.principals.get(principal)
        return found.password if found else ""

    def may_name(self, principal: str, name: str) -> bool:
        """True if the clients of a principal may be called so.

        By default these are made-up names, its own, and those that begin with it and `-` or `.`;
        but never what belongs to another one more closely: `a-b` is not a name of `a` if there is
        a principal `a-b`, or one that lists it.
        """
        if not self.on:
            return True
        found = self.principals.get(principal)
        if found is None:
            return False
        if found.names is not None:
            return any(pattern(name) for pattern in found.names)
        if name in self._listed:
            return False
        owner = self._owner(name)
        return owner == principal or (owner is None and any(fits(name) for fits in _MADE_UP))

    def _owner(self, name: str) -> str | None:
        """The principal with the longest name that `name` is, or begins with and `-` or `.`."""
        if name in self.principals:
            return name
        for end in range(len(name) - 1, 0, -1):
            if name[end] in "-." and name[:end] in self.principals:
                return name[:end]
        return None

    # -- what -----------------------------------------------------------------------------------

    def permit(self, principal: str, action: str) -> Permit:
        """What it may do with an action; the same object for equal rules."""
        found = self._permits.get((principal, action))
        if found is not None:
            return found
        assert action in ACTIONS, action
        if not self.on:
            return self._everything
        if principal not in self.principals:
            return self._nothing
        self._permits[principal, action] = made = self._permit(principal, action)
        return made

    def may(self, principal: str, action: str, topic: str | None = None) -> bool:
        """True if it may do something of this with `topic`; None: with any topic."""
        permit = self.permit(principal, action)
        return not permit.nothing if topic is None else permit.verdict(topic) != "no"

    def grants(self, principal: str, action: str) -> list[Grant]:
        """The grants of its roles that are about an action, in the order of the file."""
        found = self.principals.get(principal)
        roles = found.roles if found else ()
        return [one for role in roles for one in self.roles[role] if action in one.actions]

    def _permit(self, principal: str, action: str) -> Permit:
        grants = self.grants(principal, action)
        allow = rules_of(one for one in grants if one.kind == "allow")
        deny = rules_of(one for one in grants if one.kind == "deny")
        return self._shared(allow, deny)

    def _shared(self, allow: Rules, deny: Rules) -> Permit:
        made = Permit(allow, deny)
        return self._equal.setdefault(made.key, made)


class AccessDecision(NamedTuple):
    """The verdict, and the grants that make it so; none: nothing allows it."""

    verdict: Verdict
    grants: tuple[Grant, ...]


def explain(
    access: Access, principal: str, action: str, topic: str | None = None
) -> AccessDecision:
    """The grants that decide about an action with a topic; None: "some" if not all are."""
    permit = access.permit(principal, action)
    grants = access.grants(principal, action)
    if topic is None:
        verdict: Verdict = "all" if permit.everything else "no" if permit.nothing else "some"
        return AccessDecision(verdict, tuple(grants))
    fitting = [grant for grant in grants if grant.fits(topic)]
    verdict = permit.verdict(topic)
    if verdict == "no":
        # a topic that is not denied as a whole is refused because nothing allows it
        fitting = [grant for grant in fitting if grant.kind == "deny"]
    if verdict != "some":
        fitting = [grant for grant in fitting if grant.clause is None]
    return AccessDecision(verdict, tuple(fitting))


Verdict = Literal["all", "some", "no"]
Rule = tuple[AccessPattern, Clause | None]
Rules = dict[tuple[str, str], Rule]  # (pattern, filter or "") -> the same, compiled

_EVERYTHING: Final = (ANY, "")


class Permit:
    """The topics and messages that are permitted.

    everything: no topic is refused, and no filter asked. nothing: every topic is refused.
    key: equal for two permits if and only if their rules are.
    """

    def __init__(self, allow: Rules, deny: Rules) -> None:
        self._allow, self._deny = _normal(allow, deny)
        self.nothing = not self._allow
        self.everything = _EVERYTHING in self._allow and not self._deny
        self.key = json.dumps([sorted(self._allow), sorted(self._deny)], ensure_ascii=False)
        self._verdicts: dict[str, Verdict] = {}
        self._contents: dict[str, TopicFilters] = {}
        self._made: dict[Hashable, TopicFilters] = {}  # by the texts of its filters

    def verdict(self, topic: str) -> Verdict:
        """Whether all, some or none of the messages of `topic` are permitted; remembered."""
        verdict = self._verdicts.get(topic)
        return self._judge(topic) if verdict is None else verdict

    def content(self, topic: str) -> TopicFilters:
        """What decides over the messages of a topic whose verdict is "some"."""
        if topic not in self._contents:
            assert self._judge(topic) == "some", "only filters decide over messages"
        return self._contents[topic]

    def patterns(self) -> list[str] | None:
        """RE2 patterns of the topics that are permitted as a whole; None if something is denied."""
        if self._deny:
            return None
        texts = [pattern for pattern, clause in sorted(self._allow) if not clause]
        return [".*".join(map(re.escape, text.split(ANY))) for text in texts]

    def __repr__(self) -> str:
        return f"Permit({self.key})"

    def _judge(self, topic: str) -> Verdict:
        if len(self._verdicts) >= TOPICS_MAX:
            self._verdicts.clear()
            self._contents.clear()
            self._made.clear()
        allow, deny = _about(self._allow, topic), _about(self._deny, topic)
        verdict: Verdict = "some"
        if not allow or None in deny:
            verdict = "no"
        elif None in allow and not deny:
            verdict = "all"
        else:
            names = (tuple(allow), tuple(deny))
            if names not in self._made:
                allowed = None if None in allow else _clauses(allow)
                self._made[names] = TopicFilters(allowed, _clauses(deny))
            self._contents[topic] = self._made[names]
        self._verdicts[topic] = verdict
        return verdict


def rules_of(grants: Iterable[Grant]) -> Rules:
    """Every pair of a pattern and its filter."""
    return {
        (pattern.text, grant.clause.text if grant.clause else ""): (pattern, grant.clause)
        for grant in grants
        for pattern in grant.topics
    }


def _normal(allow: Rules, deny: Rules) -> tuple[Rules, Rules]:
    deny = _without_needless(deny)
    if _EVERYTHING in deny:
        return {}, {}
    # a pattern that fits the text of another one, stars included, fits all that the other one does
    barred = [pattern for (_, text), (pattern, _) in deny.items() if not text]
    allow = {
        pair: rule for pair, rule in allow.items() if not any(fits(pair[0]) for fits in barred)
    }
    return (_without_needless(allow), deny) if allow else ({}, {})


def _without_needless(rules: Rules) -> Rules:
    """Without those that the same filter for every topic, or the same topics unfiltered, imply."""
    return {
        (pattern, text): rule
        for (pattern, text), rule in rules.items()
        if ({(pattern, ""), (ANY, text), _EVERYTHING} - {(pattern, text)}).isdisjoint(rules)
    }


def _about(rules: Rules, topic: str) -> dict[str | None, Clause | None]:
    """The filters of the rules that `topic` fits, by text; None: one has no filter."""
    return {
        clause.text if clause else None: clause
        for pattern, clause in rules.values()
        if pattern(topic)
    }


def _clauses(found: dict[str | None, Clause | None]) -> list[Clause]:
    return [clause for clause in found.values() if clause is not None]
