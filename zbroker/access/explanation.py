"""Why somebody may do something or not: the grants that decide. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zbroker.access.core import Access, Verdict
from zbroker.access.grants import Grant


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
        return AccessDecision(verdict, tuple(one for one in fitting if _denies_all(one)))
    if verdict == "all":
        return AccessDecision(verdict, tuple(one for one in fitting if one.clause is None))
    return AccessDecision(verdict, tuple(fitting))


def _denies_all(grant: Grant) -> bool:
    return grant.kind == "deny" and grant.clause is None
