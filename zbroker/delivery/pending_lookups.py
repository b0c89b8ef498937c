"""Look-ups of points that the journal has not answered yet. Pure.

A question has one or two points (where it begins, where it ends), each of one or more values; each
value is one Locate with a number of its own. After a restart of the journal all of them are asked
again.

    asked --answered--> done       not here yet, and the client waits: --> waiting --moved--> asked

Two times can run out: the patience with a journal that does not answer, and the time for which a
client wants to wait for a bookmark that is not here yet.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Final

from msgspec import Struct, field

from zbroker.delivery.points import Point, RangePoints, refusal, refused, rows, settle, wanted
from zbroker.errors import ClientError
from zbroker.ids import NOW, Origin, is_range
from zbroker.limits import LOOKUPS_MAX
from zbroker.wire.internal import Locate, Located
from zbroker.wire.messages import Ranges, Subscribe

PATIENCE_MS: Final = 10_000  # how long a client waits for a journal that does not answer
ASK_AGAIN_MS: Final = 250  # a question whose bookmark is not here yet is not asked more often
AGAIN_MAX: Final = 64  # look-ups asked again in that time for one principal
IN_FLIGHT_MAX: Final = 256  # look-ups that the journal has at a time; others want it, too
LOOKUPS_ALL_MAX: Final = 100_000  # of all principals: some 100 bytes each

_PENDING: Final = "bookmark_pending"
_LATER: Final = frozenset({_PENDING, "bookmark_not_found"})  # may be found later


class Question(Struct):
    """The begin and end of a command, to be located. `key`: its subscription, 0 for ranges.

    wait_until_ms: until then it waits for a bookmark that is not here yet; None: it does not.
    asked_ms: when it was asked last. at: what the journal had persisted when it said "not yet".
    """

    rid: bytes
    command: Subscribe | Ranges
    deadline_ms: int
    points: RangePoints
    key: int = 0
    wait_until_ms: int | None = None
    asked_ms: int = 0
    waiting: bool = False
    at: int = -1
    answers: dict[int, Located] = field(default_factory=dict)  # by place in first + last
    who: Hashable = ""  # the principal, or connection, that asks
    cids: list[int] = field(default_factory=list)  # numbers of those that were opened last

    @classmethod
    def of(cls, rid: bytes, command: Subscribe | Ranges, now_ms: int, key: int = 0) -> Question:
        """The question of a command. Raises: ClientError bad_bookmark or too_many."""
        points = wanted(command.bookmark, _until(command))
        if isinstance(command, Ranges) and not points.last:
            points = points._replace(last=[NOW])
        options = command.options if isinstance(command, Subscribe) else None
        wait_ms = int(options.wait_s * 1_000) if options is not None else 0
        until_ms = now_ms + wait_ms if wait_ms else None
        return cls(rid, command, now_ms + PATIENCE_MS, points, key, until_ms, now_ms)

    @property
    def what(self) -> str:
        """What it is about, for people."""
        return self.command.topic if isinstance(self.command, Subscribe) else "ranges"

    @property
    def values(self) -> int:
        """How many look-ups it takes."""
        return len(self.points.first) + len(self.points.last)

    @property
    def persisted(self) -> int:
        """The newest that the journal said while it answered."""
        return max(answer.persisted for answer in self.answers.values())

    @property
    def not_yet(self) -> bool:
        """True if all that keeps it from its points is a bookmark that is not here yet."""
        begin, end = self._refused(), self._refused(end=True)
        if begin is not None and self._chosen(begin.code):
            begin = None
        return {no.code for no in (begin, end) if no is not None} == {_PENDING}

    def start(self, here: Origin) -> Point:
        """Where it begins.

        Raises: ClientError. What no wait can mend, also of the end, comes before "not here yet".
        """
        begins, no = self._answers(), self._refused()
        if no is None:
            return settle(begins, here)
        choice = self._chosen(no.code)
        if not choice:
            last = self._refused(end=True)
            final = last is not None and last.code != _PENDING and no.code == _PENDING
            raise refusal(last if last is not None and final else no, here)
        newest = max(begins, key=lambda answer: answer.persisted)
        if choice == "epoch":
            return Point(newest.log_start)
        end = rows(newest.at_end)
        at = newest.persisted
        return Point(at, passed=end, passed_at=at if end else 0, at_end=end)

    def end(self, here: Origin) -> Point | None:
        """Where it ends, if it does; at the start, if it ends before it begins.

        Raises: ClientError.
        """
        if not self.points.last:
            return None
        start, end = self.start(here), settle(self._answers(end=True), here, end=True)
        if start.time_ns is not None and end.time_ns is not None and end.time_ns <= start.time_ns:
            return Point(start.position)  # both are to come; neither has to be waited for
        return end

    def late(self) -> ClientError:
        """The wait of its client ran out, or the patience with the journal."""
        if not self.waiting:
            return ClientError("not_ready", "the journal does not answer")
        both = (self._refused(), self._refused(end=True))
        reasons = [no.reason for no in both if no is not None and no.code == _PENDING]
        return ClientError(_PENDING, f"{'; '.join(reasons)}: waited as long as was asked")

    def _places(self, *, end: bool = False) -> range:
        more = len(self.points.first)
        return range(more, self.values) if end else range(more)

    def _answers(self, *, end: bool = False) -> list[Located]:
        return [self.answers[at] for at in self._places(end=end)]

    def _refused(self, *, end: bool = False) -> Located | None:
        """Why it has no begin, or no end; None if it has one, or needs none."""
        answers = self._answers(end=end)
        return refused(answers, end=end) if answers else None

    def _chosen(self, code: str) -> str:
        """Where the client wants to begin instead: "epoch", "now", or "" for not at all."""
        if code != "bookmark_not_found" or not isinstance(self.command, Subscribe):
            return ""
        choice = self.command.bookmark_not_found
        return "" if choice == "fail" else choice

    def reopen(self) -> None:
        """Drops the answers that may change: those of a point that was not found."""
        for end in (False, True):
            if self._refused(end=end) is not None:
                for at in self._places(end=end):
                    if self.answers[at].code in _LATER:
                        del self.answers[at]


def _until(command: Subscribe | Ranges) -> str | None:
    """The `until` of a command; that of Ranges is "now" by default, so it may come with a range."""
    if isinstance(command, Ranges) and is_range(command.bookmark) and command.until == "now":
        return None
    return command.until


class Asking:
    """All open questions, and those that wait.

    The journal has so many look-ups at a time; the others wait here, and connections take turns. A
    question that waits is asked again less often the more values it has, and the more look-ups wait
    for the same principal: what somebody asks for again and again costs only himself.
    """

    def __init__(self, most: int = LOOKUPS_MAX) -> None:
        """most: look-ups of one principal."""
        self._most = most
        self._last_cid = 0
        self._open: dict[int, tuple[Question, int]] = {}  # sent or not, by number
        self._sent: set[int] = set()  # numbers that the journal has not answered
        self._queues: dict[bytes, deque[int]] = {}  # numbers to be sent, by connection
        self._questions: dict[bytes, dict[int, Question]] = {}  # all, by connection and identity
        self._waiting: dict[
            int, Question
        ] = {}  # by identity; the one that waits longest comes first
        self._values: Counter[Hashable] = Counter()  # look-ups, by `who`
        self._busy_ms: dict[Hashable, float] = {}  # until when what was asked again is paid for

    def __len__(self) -> int:
        return len(self._open) + len(self._waiting)

    def check(self, question: Question) -> None:
        """Raises: ClientError too_many, if so much is looked up already."""
        count = question.values
        if self._values[question.who] + count > self._most:
            reason = f"at most {self._most} points may be looked up at a time for one principal"
            raise ClientError("too_many", reason, "wait for answers, or end what waits")
        if self._values.total() + count > LOOKUPS_ALL_MAX:
            raise ClientError("too_many", "too much is looked up here", "ask again in a while")

    def ask(self, question: Question) -> list[Locate]:
        """Opens a question; returns what to send to the journal now."""
        self.keep(question)
        return self.more()

    def keep(self, question: Question) -> None:
        """Opens a question, to be sent later."""
        mine = self._questions.setdefault(question.rid, {})
        if id(question) not in mine:
            mine[id(question)] = question
            self._values[question.who] += question.values
        question.cids.clear()
        for place in range(question.values):
            if place not in question.answers:
                self._last_cid += 1
                self._open[self._last_cid] = (question, place)
                question.cids.append(self._last_cid)
        self._queues.setdefault(question.rid, deque()).extend(question.cids)

    def more(self) -> list[Locate]:
        """What to send now, as answers have come."""
        messages = []
        while self._queues and len(self._sent) < IN_FLIGHT_MAX:
            rid = next(iter(self._queues))
            queue = self._queues.pop(rid)
            cid = queue.popleft()
            if queue:
                self._queues[rid] = queue  # after the others
            if cid in self._open:
                self._sent.add(cid)
                messages.append(self._message(cid))
        return messages

    def repeat(self, question: Question) -> list[Locate]:
        """Opens an answered question once more: its answers do not hold any more."""
        question.answers.clear()
        return self.ask(question)

    def again(self) -> list[Locate]:
        """Everything not answered yet, for a journal that has not been asked.

        It may know what questions wait for: the next `moved` asks those.
        """
        for question in self._waiting.values():
            question.at = -1
        self._sent.clear()
        self._queues.clear()
        for cid, (question, _) in self._open.items():
            self._queues.setdefault(question.rid, deque()).append(cid)
        return self.more()

    def moved(self, persisted: int, now_ms: int) -> list[Locate]:
        """The log may hold more now: asks those that wait once more, each at most every 250 ms."""
        due = []
        for one in self._waiting.values():
            if one.at == persisted or now_ms - one.asked_ms < ASK_AGAIN_MS:
                continue
            busy_ms = max(now_ms, self._busy_ms.get(one.who, now_ms))
            if busy_ms - now_ms < ASK_AGAIN_MS:
                self._busy_ms[one.who] = busy_ms + ASK_AGAIN_MS * one.values / AGAIN_MAX
                due.append(one)
        messages = []
        for question in due:
            del self._waiting[id(question)]
            question.waiting = False
            question.asked_ms, question.deadline_ms = now_ms, now_ms + PATIENCE_MS
            question.reopen()
            messages += self.ask(question)
        return messages

    def _message(self, cid: int) -> Locate:
        question, place = self._open[cid]
        points, end = question.points, place >= len(question.points.first)
        value = points.last[place - len(points.first)] if end else points.first[place]
        return Locate(cid, value, end, points.last_cut if end else points.first_cut)

    def answered(self, located: Located) -> Question | None:
        """The question that this answer completes, if it does and has not to wait."""
        self._sent.discard(located.cid)
        question, place = self._open.pop(located.cid, (None, 0))
        if question is None:
            return None
        question.answers[place] = located
        if len(question.answers) < question.values:
            return None
        if question.wait_until_ms is not None and question.not_yet:
            question.waiting = True
            question.at = min(one.persisted for one in question.answers.values() if one.code)
            self._waiting[id(question)] = question
            return None
        self.close(question)
        return question

    def overdue(self, now_ms: int) -> list[Question]:
        """Closes and returns the questions whose time is over; `late` says which of the two."""
        late = [one for one in self.questions() if _ends_ms(one) <= now_ms]
        for question in late:
            self.close(question)
        return late

    def forget(self, rid: bytes, key: int | None = None) -> None:
        """Closes the questions of a connection, or of one of its subscriptions."""
        for question in list(self._questions.get(rid, {}).values()):
            if key in (None, question.key):
                self.close(question)

    def ranges_of(self, rid: bytes) -> list[Question]:
        """The open questions of a connection that are about ranges."""
        mine = self._questions.get(rid, {}).values()
        return [one for one in mine if isinstance(one.command, Ranges)]

    def questions(self) -> Iterator[Question]:
        """The open ones and those that wait."""
        return chain.from_iterable(map(dict.values, self._questions.values()))

    def close(self, question: Question) -> None:
        """Forgets a question."""
        rid, who = question.rid, question.who
        for cid in question.cids:
            self._open.pop(cid, None)
        self._waiting.pop(id(question), None)
        mine = self._questions[rid]
        del mine[id(question)]
        if not mine:
            del self._questions[rid]
        self._values[who] -= question.values
        if not self._values[who]:
            del self._values[who]
            self._busy_ms.pop(who, None)


def _ends_ms(question: Question) -> int:
    """When its time is over. One that is being asked once more gets its answer first."""
    if question.waiting and question.wait_until_ms is not None:
        return question.wait_until_ms
    return question.deadline_ms
