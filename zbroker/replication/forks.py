"""`replication fork ORIGIN --keep HOST`: what the journal is asked, and what that comes to. Pure.

The instance that gave the names of an origin takes what HOST has of it beyond its end, over the
link from there (zbroker.journal.forked_records). HOST itself says on that link how far it has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from zbroker.ids import Origin
from zbroker.replication.incoming_link import IncomingLink
from zbroker.wire.replicas import ChangeLink, ForkOrigin, LinkChanged, OriginForked

_ORIGIN: Final = re.compile(r"([0-9a-f]{1,16})\.(\d{1,10})")


def of_host(
    ask: ChangeLink, sources: Iterable[IncomingLink], known: Iterable[str], journal: int
) -> ForkOrigin | LinkChanged:
    """What the journal is asked, or why nothing is. known: destinations. journal: that listens."""
    match = _ORIGIN.fullmatch(ask.origin)
    if match is None:
        reason = f"{ask.origin!r} is not an origin, <instance hex>.<generation>; see replication ls"
        return LinkChanged(ask.cid, code="bad_field", reason=reason)
    links = {link.name: link for link in sources if link.welcomed}
    link = links.get(ask.link)
    if link is None and ask.link not in known:
        there = ", ".join(sorted({*links, *known})) or "none"
        reason = f"there is no instance {ask.link!r}; there are: {there}"
        return LinkChanged(ask.cid, code="not_found", reason=reason)
    if link is None or not journal:
        reason = (
            f"{ask.link} does not send its log here now, so it is not known what it holds: ask "
            "again when it does, see replication ls; nothing has changed"
        )
        return LinkChanged(ask.cid, code="not_ready", reason=reason)
    origin = Origin(int(match[1], 16), int(match[2]))
    last = link.peer.position(origin, 0)
    if not last:
        reason = f"{ask.link} holds nothing of {ask.origin}, or not with all topics"
        return LinkChanged(ask.cid, code="not_found", reason=reason)
    return ForkOrigin(0, journal, *origin, last, link.instance, ask.dry_run)


def answer(said: OriginForked, ask: ChangeLink, asked: ForkOrigin) -> LinkChanged:
    """What follows from it."""
    if said.code:
        return LinkChanged(ask.cid, code=said.code, reason=said.reason)
    text = (
        f"records of {ask.origin} from {said.end + 1} to {asked.last} are taken from {ask.link} as "
        "new ones of this instance; a message that is here already is not stored again, and one "
        "whose sequence has another content here is kept as a conflict (zbroker-admin journal "
        "conflicts). Other instances get them from here. `zbroker-admin replication missing` lists "
        f"the old names (forked). {ask.link} then closes {ask.origin} by itself"
    )
    return LinkChanged(ask.cid, text)
