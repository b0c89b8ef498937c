"""What the receiving end of a link says of the topics that its source sends. Pure.

Nothing is refused for these reasons: records say by themselves what may not come. But each of them
is a config of one end that the other end did not expect.
"""

from __future__ import annotations

from zbroker.engine.effects import Note
from zbroker.link_topics import ANY
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.incoming_link import IncomingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.topics import TopicPattern


class LinkAgreement:
    """Compares a link with the config here, and with the rows of the log here."""

    def __init__(self, settings: ReplicationSettings, own: OwnHoldings) -> None:
        self._back = {rule.name: rule.topics for rule in settings.destinations}
        self._own = own

    def notes(self, link: IncomingLink) -> list[Note]:
        """When the journal has said what it holds."""
        found = [*self._changed(link), *self._both_ways(link), *self._rights(link)]
        return [Note(name, text, values={"link": link.name}) for name, text in found]

    def _changed(self, link: IncomingLink) -> list[tuple[str, str]]:
        """Its own origins are taken under its topics from here on."""
        rows = self._own.statement().rows
        changed = [
            f"{row.instance:016x}.{row.generation} after {row.position}" for row in rows
            if row.instance == link.instance and row.position and row.digest != link.digest
        ]  # fmt: skip
        if not changed:
            return []
        text = (
            f"{link.name} sends other topics than before: {link.wants}. They count for "
            f"{', '.join(changed)}; what the older ones left out before that does not come, and "
            "`zbroker-admin replication missing` lists it"
        )
        return [("replication.topics_changed", text)]

    def _both_ways(self, link: IncomingLink) -> list[tuple[str, str]]:
        back = self._back.get(link.name)
        if back is None or back.digest == link.digest:
            return []
        text = (
            f"{link.name} sends {link.wants}, and gets {back} from "
            "here: the two do not hold the same, so publishers and subscribers of topics that "
            "only one of them has must not go to the other; nothing is refused for it"
        )
        return [("replication.topics_differ", text)]

    def _rights(self, link: IncomingLink) -> list[tuple[str, str]]:
        permitted = [TopicPattern(text) for text in link.topics]  # `*` is a text like others there
        wanted = link.wants.patterns or [ANY]
        beyond = [one for one in wanted if not any(fits(one) for fits in permitted)]
        if not beyond:
            return []
        text = (
            f"{link.name} is to send {', '.join(beyond)}, and its right `replicate` here is "
            f"narrower: an origin stops at the first record of another topic (not_entitled); "
            "permit these topics, or take them out of its [[destination]]"
        )
        return [("replication.right_narrower", text)]
