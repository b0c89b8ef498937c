"""The verdict on a replicated queue: what was delivered, and what must not have been. Pure.

Workers write a line for each message that they are given, before they do anything with it, and one
for each acknowledgement that was answered:

    given MESSAGE INSTANCE SENT_AFTER_NS DELIVERIES
    done MESSAGE INSTANCE ANSWERED_NS CARRIED

SENT_AFTER_NS is a moment after which the instance has certainly sent the message: the worker asked
something before it, and had the answer on the same connection before the message. So a message that
was under way while another worker's acknowledgement was answered is no violation. Both times are
those of CLOCK_MONOTONIC, which all processes of a machine share. CARRIED: 1 if it was taken at
another instance, and acknowledged by bookmark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Given(NamedTuple):
    """An instance gave a message to a worker."""

    message: str
    instance: str
    sent_after_ns: int
    deliveries: int

    @property
    def flagged(self) -> bool:
        return self.deliveries > 1


class Done(NamedTuple):
    """An instance answered the acknowledgement of a message."""

    message: str
    instance: str
    answered_ns: int
    carried: int = 0


@dataclass
class Written:
    """All lines of all workers."""

    given: list[Given] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)


@dataclass
class QueueVerdict:
    """What was wrong, in words, and how often what is allowed happened.

    again: deliveries beyond the first of a message. by_two: messages that came unflagged from
    each of several instances that had accepted them. carried: acknowledged by bookmark elsewhere.
    """

    wrong: list[str] = field(default_factory=list)
    again: int = 0
    by_two: int = 0
    carried: int = 0


def read(paths: Iterable[Path]) -> Written:
    """What workers wrote. The last line of one that was killed may be cut: it does not count."""
    written = Written()
    for path in paths:
        for line in path.read_text().split("\n")[:-1]:
            kind, message, instance, *numbers = line.split()
            if kind == "given":
                written.given.append(Given(message, instance, *map(int, numbers)))
            else:
                written.done.append(Done(message, instance, *map(int, numbers)))
    return written


def judge(
    acknowledged: Collection[str], accepted: Mapping[str, Collection[str]], written: Written
) -> QueueVerdict:
    """acknowledged: messages that publishers know to be durable, all of which must be done by now.
    accepted: the instances that may offer a message as its first owners, without knowing of each
    other; never empty for a message that there is.
    """
    verdict = QueueVerdict()
    given: defaultdict[str, list[Given]] = defaultdict(list)
    for one in written.given:
        given[one.message].append(one)
    verdict.again = len(written.given) - len(given)
    verdict.carried = sum(one.carried for one in written.done)
    verdict.wrong += [
        f"{message} was acknowledged and never delivered"
        for message in sorted(set(acknowledged) - given.keys())
    ]
    verdict.wrong += [
        f"{message} was delivered and is in no log" for message in given.keys() - accepted.keys()
    ]
    for message, many in given.items():
        _judge_flags(verdict, message, many, accepted.get(message, ()))
    verdict.wrong += _after_its_end(given, written.done)
    return verdict


def _judge_flags(
    verdict: QueueVerdict, message: str, many: list[Given], accepted: Collection[str]
) -> None:
    """Unflagged once for each instance that accepted it, and never twice at one instance."""
    where = [one.instance for one in many if not one.flagged]
    if len(where) <= 1:
        return
    verdict.by_two += 1
    if len(where) > len(accepted) or len(set(where)) < len(where):
        verdict.wrong.append(
            f"{message} was delivered unflagged at {', '.join(where)}; "
            f"accepted by {', '.join(sorted(accepted))}"
        )


def _after_its_end(given: Mapping[str, list[Given]], done: Iterable[Done]) -> list[str]:
    """What an instance sent although it had answered that it is done."""
    ended: dict[tuple[str, str], int] = {}
    for one in done:
        key = one.message, one.instance
        ended[key] = min(one.answered_ns, ended.get(key, one.answered_ns))
    return [
        f"{message} came from {one.instance} again, which had answered that it is done "
        f"{(one.sent_after_ns - end_ns) / 1e9:.3f} s before"
        for message, many in given.items() for one in many
        if (end_ns := ended.get((message, one.instance))) is not None
        and one.sent_after_ns > end_ns
    ]  # fmt: skip
