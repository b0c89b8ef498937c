"""Changes that a person makes to a link: paused, resumed, downgraded, upgraded, forgotten. Pure.

None but the last is written anywhere: the next start of the process begins as the config says. A
forgotten destination is in the log, so the core has the journal write it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from zbroker.engine.effects import Note
from zbroker.ids import Origin
from zbroker.replication.durability import Durability
from zbroker.replication.effects import LinkEffect
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.wire.replicas import ChangeLink, LinkAction, LinkChanged

FORGOTTEN: Final = (
    "generations of this instance are closed without its answer, and no log is kept for it, until "
    "it answers, also after a restart; messages that only {name} holds are lost, unless it comes "
    "back: then they are refused (fork) until `replication fork` has them taken again. Take its "
    "[[destination]] out of the config"
)
UNTIL: Final = "this ends with the replication process"


class LinkChanges:
    """Judges what an operator asks for, and does it."""

    def __init__(self, links: dict[str, OutgoingLink], durability: Durability) -> None:
        self._links, self._durability = links, durability
        self._changes: dict[LinkAction, Callable[[OutgoingLink, int], Sequence[LinkEffect]]] = {
            "pause": lambda link, now_ms: link.pause(now_ms),
            "resume": _resume,
            "downgrade": lambda link, _: durability.set_downgraded(link.link, on=True),
            "upgrade": lambda link, _: durability.set_downgraded(link.link, on=False),
            "forget": lambda _link, _: [],
        }
        self._texts: dict[LinkAction, Callable[[str], str]] = {
            "pause": self._paused,
            "resume": self._resumed,
            "downgrade": self._downgraded,
            "upgrade": self._upgraded,
            "forget": lambda name: FORGOTTEN.format(name=name),
        }

    def change(self, ask: ChangeLink, now_ms: int) -> tuple[Sequence[LinkEffect], LinkChanged]:
        """The effects, and the answer. A dry run has no effects."""
        link = self._links.get(ask.link)
        if link is None:
            there = ", ".join(sorted(self._links)) or "none"
            reason = f"there is no destination {ask.link!r}; there are: {there}"
            return [], LinkChanged(ask.cid, code="not_found", reason=reason)
        if ask.what in ("downgrade", "upgrade") and not self._durability.is_sync(ask.link):
            reason = f"{ask.link} is asynchronous: no acknowledgement waits for it"
            return [], LinkChanged(ask.cid, code="bad_field", reason=reason)
        if ask.what == "forget" and link.state in ("finding", "sending"):
            reason = f"{ask.link} answers: it is not gone, and what it holds comes from there"
            return [], LinkChanged(ask.cid, code="bad_field", reason=reason)
        if ask.what == "skip":
            return self._skip(link, ask)
        answer = LinkChanged(ask.cid, self._texts[ask.what](ask.link))
        if ask.dry_run:
            return [], answer
        effects = self._changes[ask.what](link, now_ms)
        text = f"{ask.link}: {ask.what} asked for by an operator; {answer.text}"
        note = Note(f"replication.{ask.what}", text, "info", {"link": ask.link})
        return [note, *effects], answer

    def _skip(self, link: OutgoingLink, ask: ChangeLink) -> tuple[list[LinkEffect], LinkChanged]:
        ranges = {_text(origin): origin for origin in link.selection.skippable}
        chosen = [ask.origin] if ask.origin else sorted(ranges)
        if link.state != "sending" or not chosen or not all(one in ranges for one in chosen):
            there = ", ".join(sorted(ranges)) or "none"
            reason = (
                f"nothing of {ask.origin or 'any origin'} holds {link.link} up that can be given "
                f"up; there are: {there}; the link is {link.state}"
            )
            return [], LinkChanged(ask.cid, code="not_found", reason=reason)
        found = [(name, *link.selection.skippable[ranges[name]]) for name in chosen]
        listed = "; ".join(map(_listed, found))
        text = (
            f"{link.link} goes on without {listed}: these messages never get there from here; its "
            "log says that they are missing, and `zbroker-admin replication missing` lists them"
        )
        answer = LinkChanged(ask.cid, text)
        if ask.dry_run:
            return [], answer
        note = Note(
            "replication.skip", f"an operator asked for it: {text}", values={"link": link.link}
        )
        return [note, *link.skip(ranges[name] for name in chosen)], answer

    def _paused(self, name: str) -> str:
        waits = (
            "it counts as lagging, and acknowledgements wait for it; "
            if self._durability.is_sync(name) and not self._durability.downgraded(name) else ""
        )  # fmt: skip
        return (
            f"records on their way are finished, then nothing more is sent to it; {waits}"
            f"the log is kept from its mark on; {UNTIL}"
        )

    def _resumed(self, name: str) -> str:
        return f"it is sent what it lacks from its mark on, {self._links[name].mark}"

    def _downgraded(self, name: str) -> str:
        needed = self._durability.needed_after(name, downgraded=True)
        return (
            f"{_waits(needed)}; it stays so until it is upgraded by hand, however far it has "
            f"caught up; {UNTIL}"
        )

    def _upgraded(self, name: str) -> str:
        needed, mark = self._durability.needed_after(name), self._links[name].mark
        return f"{_waits(needed)}; everything below this position is durable there: {mark}"


def _listed(found: tuple[str, int, int]) -> str:
    """A range; one without positions: what other topics left out of the origin."""
    name, first, last = found
    if last < first:
        return f"what of {name} before {first} is of these topics and not there yet"
    return f"{name} {first} to {last}"


def _text(origin: Origin) -> str:
    return f"{origin.instance:016x}.{origin.generation}"


def _waits(needed: int) -> str:
    """How many destinations acknowledgements wait for, and what that means."""
    if not needed:
        return (
            "acknowledgements wait for no other instance: messages that are acknowledged may be "
            "lost with the disk of this one"
        )
    return f"acknowledgements wait for {needed} synchronous destination{'s' * (needed > 1)}"


def _resume(link: OutgoingLink, now_ms: int) -> Sequence[LinkEffect]:
    link.resume(now_ms)
    return []
