"""What was asked of the journal and is not answered yet: points to be located.

A question has one or two points (from, until), each of one or more values; each value is one
Locate with a number of its own. After a restart of the journal all of them are asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from zbroker.delivery.points import Point, settle
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.wire.internal import Locate, Located
from zbroker.wire.messages import Ranges, Subscribe

PATIENCE_MS: Final = 10_000  # how long a client waits for a journal that does not answer


@dataclass(slots=True)
class Question:
    """Where does this command begin and end? `key`: its subscription, 0 for ranges."""

    rid: bytes
    command: Subscribe | Ranges
    deadline_ms: int
    first: list[str]
    last: list[str]
    key: int = 0
    answers: dict[int, Located] = field(default_factory=dict)  # by place in first + last

    @property
    def what(self) -> str:
        """What it is about, for people."""
        return self.command.topic if isinstance(self.command, Subscribe) else "ranges"

    @property
    def complete(self) -> bool:
        """True if every value has its answer."""
        return len(self.answers) == len(self.first) + len(self.last)

    @property
    def persisted(self) -> int:
        """The newest that the journal said while it answered."""
        return max(answer.persisted for answer in self.answers.values())

    def start(self, here: Origin) -> Point:
        """Where it begins. Raises: ClientError."""
        command = self.command
        not_found = command.bookmark_not_found if isinstance(command, Subscribe) else "fail"
        answers = [self.answers[at] for at in range(len(self.first))]
        try:
            return settle(answers, here)
        except ClientError as error:
            if error.code != "bookmark_not_found" or not_found == "fail":
                raise
        newest = max(answers, key=lambda answer: answer.persisted)
        return Point(newest.floor if not_found == "epoch" else newest.persisted)

    def end(self, here: Origin) -> Point | None:
        """Where it ends, if it does. Raises: ClientError."""
        if not self.last:
            return None
        more = len(self.first)
        return settle([self.answers[more + at] for at in range(len(self.last))], here)


class Asking:
    """All open questions."""

    def __init__(self) -> None:
        self._last_cid = 0
        self._open: dict[int, tuple[Question, int]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, question: Question) -> list[Locate]:
        """Opens a question; returns what to send to the journal."""
        messages = []
        for place in range(len(question.first) + len(question.last)):
            self._last_cid += 1
            self._open[self._last_cid] = (question, place)
            messages.append(self._message(self._last_cid))
        return messages

    def repeat(self, question: Question) -> list[Locate]:
        """Opens an answered question once more: its answers do not hold any more."""
        question.answers.clear()
        return self.ask(question)

    def again(self) -> list[Locate]:
        """Everything not answered yet, for a journal that has not been asked."""
        return [self._message(cid) for cid in self._open]

    def _message(self, cid: int) -> Locate:
        question, place = self._open[cid]
        end = place >= len(question.first)
        value = question.last[place - len(question.first)] if end else question.first[place]
        return Locate(cid, value, end)

    def answered(self, located: Located) -> Question | None:
        """The question that this answer completes, if it does."""
        question, place = self._open.pop(located.cid, (None, 0))
        if question is None:
            return None
        question.answers[place] = located
        return question if question.complete else None

    def overdue(self, now_ms: int) -> list[Question]:
        """Closes and returns the questions whose time is over."""
        late = {id(one): one for one in self.questions() if one.deadline_ms <= now_ms}
        self._drop(late)
        return list(late.values())

    def next_wake_ms(self) -> int | None:
        """When the next question is overdue."""
        return min((question.deadline_ms for question in self.questions()), default=None)

    def forget(self, rid: bytes, key: int | None = None) -> None:
        """Closes the questions of a connection, or of one of its subscriptions."""
        self._drop({
            id(question): question for question in self.questions()
            if question.rid == rid and key in (None, question.key)
        })  # fmt: skip

    def questions(self) -> Iterator[Question]:
        """The open ones; one with several points may come several times."""
        return (question for question, _ in self._open.values())

    def _drop(self, questions: dict[int, Question]) -> None:
        for cid in [cid for cid, (question, _) in self._open.items() if id(question) in questions]:
            del self._open[cid]
