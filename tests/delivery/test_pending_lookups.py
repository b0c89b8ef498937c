"""Questions: asked, answered, asked again while a client waits, given up."""

from __future__ import annotations

import pytest

from zbroker.delivery.pending_lookups import (
    AGAIN_MAX,
    ASK_AGAIN_MS,
    IN_FLIGHT_MAX,
    LOOKUPS_ALL_MAX,
    PATIENCE_MS,
    Asking,
    Question,
)
from zbroker.delivery.points import Point
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.wire.internal import Locate, Located
from zbroker.wire.messages import Options, Ranges, Subscribe

HERE = Origin(7, 1)
SLOW_MS = 5_000


class Journal:
    """Answers what it is asked to know: positions by value, "pending" for all else."""

    def __init__(self) -> None:
        self.persisted = 50
        self.known: dict[str, int | str] = {}
        self.asked: list[str] = []

    def answer(self, ask: Locate) -> Located:
        self.asked.append(ask.value)
        found = self.known.get(ask.value, "pending")
        code = f"bookmark_{found}" if isinstance(found, str) else ""
        position = found if isinstance(found, int) else 0
        return Located(ask.cid, position, persisted=self.persisted, code=code, reason=ask.value)


class Bench:
    """The questions of a process, and its journal."""

    def __init__(self) -> None:
        self.asking, self.journal = Asking(), Journal()

    def ask(self, bookmark: str, wait_ms: int = 0, now_ms: int = 0, **more: str) -> Question | None:
        options = Options(wait_s=wait_ms / 1_000)
        command = Subscribe("s", "t", bookmark=bookmark, options=options, **more)
        return self.tell(self.asking.ask(Question.of(b"r", command, now_ms, 1)))

    def tell(self, asks: list[Locate]) -> Question | None:
        done = [self.asking.answered(self.journal.answer(ask)) for ask in asks]
        return next((one for one in done if one is not None), None)

    def moved(self, now_ms: int) -> Question | None:
        return self.tell(self.asking.moved(self.journal.persisted, now_ms))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_a_wait_what_is_not_here_yet_is_answered_at_once(bench: Bench) -> None:
    question = bench.ask("1|9|")
    assert question is not None
    assert len(bench.asking) == 0
    with pytest.raises(ClientError, match="bookmark_pending"):
        question.start(HERE)


def test_a_bookmark_that_comes_while_it_is_waited_for_is_found(bench: Bench) -> None:
    assert bench.ask("1|9|", SLOW_MS) is None
    bench.journal.known["1|9|"], bench.journal.persisted = 61, 62
    question = bench.moved(ASK_AGAIN_MS)
    assert question is not None
    assert question.start(HERE) == Point(61)
    assert question.persisted == 62
    assert len(bench.asking) == 0


def test_it_is_asked_again_only_if_the_log_moved(bench: Bench) -> None:
    bench.ask("1|9|", SLOW_MS)
    assert bench.asking.moved(50, 2_000) == []
    assert [ask.value for ask in bench.asking.moved(51, 2_001)] == ["1|9|"]


def test_it_is_asked_again_no_more_than_four_times_a_second(bench: Bench) -> None:
    bench.ask("1|9|", SLOW_MS, now_ms=1_000)
    for now_ms in range(1_000, 2_000):
        bench.journal.persisted += 1
        assert bench.moved(now_ms) is None
    assert len(bench.journal.asked) == 1 + 3
    bench.moved(2_000)
    assert len(bench.journal.asked) == 1 + 4


def test_a_move_between_two_answers_is_not_missed(bench: Bench) -> None:
    question = Question.of(b"r", Subscribe("s", "t", bookmark="[1|8|:1|9|]",
                                           options=Options(wait_s=5)), 0)  # fmt: skip
    for ask in bench.asking.ask(question):
        bench.asking.answered(bench.journal.answer(ask))
        bench.journal.persisted += 1
    assert len(bench.asking.moved(51, ASK_AGAIN_MS)) == 2, "the second answer knew of position 51"


@pytest.mark.parametrize("last_ms", [SLOW_MS, SLOW_MS + 700])
def test_a_wait_that_is_over_ends_with_what_was_waited_for(bench: Bench, last_ms: int) -> None:
    bench.ask("1|9|", SLOW_MS)
    assert bench.asking.overdue(SLOW_MS - 1) == []
    [question] = bench.asking.overdue(last_ms)
    assert (question.late().code, len(bench.asking)) == ("bookmark_pending", 0)
    assert "1|9|" in question.late().reason


def test_a_journal_that_does_not_answer_is_another_end_than_a_wait(bench: Bench) -> None:
    command = Subscribe("s", "t", bookmark="1|9|", options=Options(wait_s=60))
    bench.asking.ask(Question.of(b"r", command, 0))
    assert bench.asking.overdue(PATIENCE_MS - 1) == []
    [question] = bench.asking.overdue(PATIENCE_MS)
    assert question.late().code == "not_ready"


def test_asking_again_begins_a_new_patience(bench: Bench) -> None:
    bench.ask("1|9|", 60_000)
    assert len(bench.asking.moved(51, 30_000)) == 1
    assert bench.asking.overdue(30_000 + PATIENCE_MS - 1) == []
    [question] = bench.asking.overdue(30_000 + PATIENCE_MS)
    assert question.late().code == "not_ready"


def test_an_answer_under_way_is_taken_although_the_wait_is_over(bench: Bench) -> None:
    bench.ask("1|9|", 1_000)
    asks = bench.asking.moved(51, 999)
    assert bench.asking.overdue(1_001) == []
    bench.journal.known["1|9|"] = 5
    question = bench.tell(asks)
    assert question is not None
    assert question.start(HERE) == Point(5)


def test_of_a_list_one_that_is_found_is_not_waited_with(bench: Bench) -> None:
    bench.journal.known["1|3|"] = 4
    question = bench.ask("1|9|,1|3|", SLOW_MS)
    assert question is not None
    assert question.start(HERE) == Point(4)


def test_of_a_list_all_are_asked_again_that_may_be_found_later(bench: Bench) -> None:
    bench.journal.known["5|1|"] = "not_found"
    assert bench.ask("1|9|,5|1|", SLOW_MS) is None
    bench.journal.known |= {"5|1|": 7, "1|9|": 9}
    bench.journal.persisted += 1
    question = bench.moved(ASK_AGAIN_MS)
    assert question is not None
    assert question.start(HERE) == Point(7)


def test_an_end_that_is_not_here_yet_is_waited_for_by_itself(bench: Bench) -> None:
    bench.journal.known["1|3|"] = 4
    assert bench.ask("(1|3|:1|9|]", SLOW_MS) is None
    [waiting] = bench.asking.questions()
    assert [one.position for one in waiting.answers.values() if not one.code] == [4], "it is held"
    bench.journal.known["1|9|"], bench.journal.persisted = 60, 61
    question = bench.moved(ASK_AGAIN_MS)
    assert bench.journal.asked == ["1|3|", "1|9|", "1|9|"]
    assert question is not None
    assert (question.start(HERE), question.end(HERE)) == (Point(4), Point(60))


@pytest.mark.parametrize(
    ("bookmark", "more", "code"),
    [
        ("[5|1|:1|9|]", {}, "bookmark_not_found"),
        ("[1|9|:5|1|]", {}, "bookmark_not_found"),
        ("[1|1|:1|9|]", {}, "bookmark_expired"),
        ("1|1|,1|9|", {}, "bookmark_expired"),
        ("[5|1|:1|1|]", {"bookmark_not_found": "now"}, "bookmark_expired"),
    ],
)
def test_what_no_wait_can_mend_is_reported_at_once(
    bench: Bench, bookmark: str, more: dict[str, str], code: str
) -> None:
    bench.journal.known |= {"5|1|": "not_found", "1|1|": "expired"}
    question = bench.ask(bookmark, SLOW_MS, **more)
    assert question is not None
    with pytest.raises(ClientError) as raised:
        (question.start(HERE), question.end(HERE))
    assert raised.value.code == code


def test_an_unknown_begin_that_the_client_chose_waits_for_its_end_only(bench: Bench) -> None:
    bench.journal.known["5|1|"] = "not_found"
    assert bench.ask("[5|1|:1|9|]", SLOW_MS, bookmark_not_found="now") is None
    bench.journal.known["1|9|"], bench.journal.persisted = 60, 61
    question = bench.moved(ASK_AGAIN_MS)
    assert question is not None
    assert (question.start(HERE).position, question.end(HERE)) == (61, Point(60))


def test_a_journal_that_restarted_is_asked_although_it_is_where_it_was(
    bench: Bench,
) -> None:
    bench.ask("1|9|", SLOW_MS)
    assert bench.asking.again() == []
    assert len(bench.asking.moved(50, ASK_AGAIN_MS)) == 1


def test_what_a_connection_waited_for_goes_with_it(bench: Bench) -> None:
    bench.ask("1|9|", SLOW_MS)
    bench.asking.forget(b"r", 2)
    assert len(bench.asking) == 1
    bench.asking.forget(b"r", 1)
    assert (len(bench.asking), bench.asking.overdue(10 * SLOW_MS)) == (0, [])


def test_a_repeated_question_is_asked_whole(bench: Bench) -> None:
    bench.journal.known |= {"1|3|": 4, "1|9|": 9}
    question = bench.ask("[1|3|:1|9|)")
    assert question is not None
    asks = bench.asking.repeat(question)
    assert [(ask.value, ask.cut, ask.end) for ask in asks] == [
        ("1|3|", "at", False), ("1|9|", "at", True)
    ]  # fmt: skip


def test_ranges_may_be_asked_for_with_a_range(bench: Bench) -> None:
    question = Question.of(b"r", Ranges(bookmark="[1|3|:1|9|]"), 0)
    assert (question.points.first, question.points.last, question.points.last_cut) == (
        ["1|3|"],
        ["1|9|"],
        "behind",
    )
    question = Question.of(b"r", Ranges(bookmark="0"), 0)
    assert (question.points.first, question.points.last) == (["0"], ["0|1|"])


def test_ranges_without_an_end_of_their_own_end_now(bench: Bench) -> None:
    question = Question.of(b"r", Ranges(bookmark="[1|3|:)"), 0)
    assert (question.points.first, question.points.last) == (["1|3|"], ["0|1|"])


def test_ranges_with_two_ends_are_refused() -> None:
    with pytest.raises(ClientError, match="leave out `until`"):
        Question.of(b"r", Ranges(bookmark="[1|3|:1|9|]", until="1|5|"), 0)


# -- many look-ups --------------------------------------------------------------------------------


def question(rid: bytes, count: int, *, who: str = "eve", key: int = 1) -> Question:
    marks = ",".join(f"1|{n}|" for n in range(1, count + 1))
    command = Subscribe("s", "t", bookmark=marks, options=Options(wait_s=1e6))
    made = Question.of(rid, command, 0, key)
    made.who = who
    return made


def test_the_journal_has_a_bounded_number_of_look_ups_at_a_time() -> None:
    bench = Bench()
    asks = bench.asking.ask(question(b"r", 1_000))
    assert len(asks) == IN_FLIGHT_MAX
    asked = 0
    while asks:
        asked += len(asks)
        bench.tell(asks)
        asks = bench.asking.more()
        assert len(asks) <= IN_FLIGHT_MAX
    assert asked == 1_000


def test_connections_take_turns() -> None:
    bench = Bench()
    first = bench.asking.ask(question(b"r", 1_000))
    assert bench.asking.ask(question(b"s", 1, who="ann")) == []
    bench.tell(first[:2])
    asks = bench.asking.more()
    assert len(asks) == 2, "one of each"
    assert {bench.asking._open[ask.cid][0].rid for ask in asks} == {b"r", b"s"}


def test_a_new_journal_is_asked_as_gently() -> None:
    bench = Bench()
    bench.asking.ask(question(b"r", 1_000))
    assert len(bench.asking.again()) == IN_FLIGHT_MAX


def test_one_principal_has_a_bounded_number_of_look_ups() -> None:
    asking = Asking(most=1_500)
    first = question(b"r", 1_000)
    asking.check(first)
    asking.ask(first)
    for rid in (b"r", b"s"):
        with pytest.raises(ClientError, match="at most 1500") as caught:
            asking.check(question(rid, 1_000))
        assert caught.value.code == "too_many"
    asking.check(question(b"t", 1_000, who="ann"))
    asking.check(question(b"s", 500))
    asking.forget(b"r")
    asking.check(question(b"s", 1_000))
    assert not asking._values


def test_all_together_have_a_bounded_number_of_look_ups() -> None:
    asking = Asking()
    for number in range(LOOKUPS_ALL_MAX // 1_000):
        asking.ask(question(b"%d" % number, 1_000, who=str(number // 5)))
    with pytest.raises(ClientError, match="too much") as caught:
        asking.check(question(b"x", 1, who="ann"))
    assert caught.value.code == "too_many"


def test_what_is_asked_again_costs_one_principal_little_however_much_waits() -> None:
    """And no one else waits for it: each has his own pace."""
    bench = Bench()
    for key in range(9):
        many = question(b"r", 1_000, key=key)
        asks = bench.asking.ask(many)
        while asks:
            bench.tell(asks)
            asks = bench.asking.more()
    bench.tell(bench.asking.ask(question(b"s", 1, who="ann")))
    bench.journal.asked.clear()
    mine = 0
    for now_ms in range(0, 60_000, ASK_AGAIN_MS):
        bench.journal.persisted += 1
        asks = bench.asking.moved(bench.journal.persisted, now_ms)
        while asks:
            mine += sum(bench.asking._open[ask.cid][0].who == "ann" for ask in asks)
            bench.tell(asks)
            asks = bench.asking.more()
    turns = 60_000 // ASK_AGAIN_MS
    assert mine == turns - 1
    assert len(bench.journal.asked) - mine <= turns * AGAIN_MAX + 1_000, (
        "9,000 would be 2.1 million"
    )
    assert len(set(bench.journal.asked)) > 900
