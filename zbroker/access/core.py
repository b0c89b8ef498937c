"""Principals and their rights: the rules of one version of the access file. Pure.

A logon with a password takes three steps, in this order, so that a client learns nothing about a
user whose password it does not know: `identify`, `passwords.verify` of `password_of`, `check_name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

from zbroker.access.content import TopicFilters
from zbroker.access.grants import ACTIONS, Grant, Principal
from zbroker.access.patterns import AccessPattern
from zbroker.access.permits import Permit, Rules, Verdict, rules_of
from zbroker.errors import ClientError

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
