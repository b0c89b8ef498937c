"""Logs are compared by digests, down to the first message that differs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.control.compared_logs import A, B, FakeLog, published, tied
from zbroker.control.log_comparison import LogComparison, compare_logs
from zbroker.errors import ZBrokerError
from zbroker.log.format import Batch


def run(*batches: list[Batch], **more: Any) -> LogComparison:
    logs = [FakeLog(A + number, each, **more) for number, each in enumerate(batches)]
    return compare_logs([log.compared() for log in logs])


def many(count: int = 3_000) -> list[Batch]:
    """Messages of two origins, in the same order."""
    found = [published(n, origin=(A, 1), crc=n) for n in range(1, count)]
    return found + [published(n, origin=(B, 2), publisher=8, crc=n) for n in range(1, 50)]


def test_logs_that_hold_the_same_are_equal() -> None:
    found = run(many(), many(), many(), chunk=500)
    assert found.state == "equal"
    assert [one.origin for one in found.origins] == [f"{A:016x}.1", f"{B:016x}.2"]
    assert [held.messages for held in found.origins[0].held] == [2_999] * 3


def test_empty_logs_are_equal() -> None:
    assert run([], []).origins == []


def test_the_order_of_different_origins_is_no_difference() -> None:
    one = many(200)
    assert run(one, [*many(200)[199:], *many(200)[:199]]).state == "equal"


def test_how_batches_are_cut_is_no_difference() -> None:
    whole = [published(1, 10)]
    cut = [published(1, 4, cut=6), tied(5, 2), published(7, 4, skip=6)]
    found = run(whole, cut)
    assert found.state == "equal"
    assert [held.ties for held in found.origins[0].held] == [0, 2]


def test_what_only_one_has_at_its_end_is_lag() -> None:
    found = run([published(n) for n in range(1, 11)], [published(n) for n in range(1, 8)])
    (origin,) = found.origins
    assert (found.state, origin.last, origin.newest) == ("lag", 7, ["a"])
    assert [held.lag for held in origin.held] == [0, 3]
    assert [held.messages for held in origin.held] == [7, 7]


def test_an_origin_that_one_has_nothing_of_is_lag() -> None:
    assert run([published(1)], []).state == "lag"


@pytest.mark.parametrize("at", [1, 2, 1_023, 1_024, 1_025, 2_500, 2_999])
@pytest.mark.parametrize("kind", ["missing", "content", "sequence", "publisher"])
def test_the_first_difference_is_found(at: int, kind: str) -> None:
    other = many()
    if kind == "missing":
        del other[at - 1]
    else:
        change = {"content": {"crc": 5_000}, "sequence": {"sequence": 9_000}}
        other[at - 1] = published(at, **{"crc": at, **change.get(kind, {"publisher": 9})})
    found = run(many(), other, many(), chunk=700)
    origin, same = found.origins
    if kind == "missing" and at == 2_999:
        assert (found.state, origin.held[1].lag) == ("lag", 1)
        return
    assert (found.state, same.state) == ("different", "equal")
    assert origin.difference is not None
    assert origin.difference.position == at
    first, second, third = origin.difference.found.values()
    assert first is not None
    assert third is not None
    assert first.content == third.content == (f"{7:016x}", at, at)
    assert second is None or second.content != first.content
    assert origin.held[1].missing == (kind == "missing")


def test_of_several_differences_the_first_is_named() -> None:
    other = many()
    for at in (2_000, 1_500, 1_400):
        del other[at - 1]
    (origin, _) = run(many(), other, chunk=1_000).origins
    assert origin.difference is not None
    assert (origin.difference.position, origin.held[1].missing) == (1_400, 3)


def test_a_message_that_is_there_twice_is_a_difference() -> None:
    found = run([published(1), published(2)], [published(1), published(1), published(2)])
    assert found.state == "different"


def test_messages_that_changed_places_are_a_difference() -> None:
    one = [published(1, sequence=1), published(2, sequence=2)]
    other = [published(1, sequence=2), published(2, sequence=1)]
    assert run(one, other).state == "different"


def test_what_retention_removed_of_one_is_not_compared() -> None:
    logs = [FakeLog(A, many(100), chunk=50), FakeLog(B, many(100), chunk=50)]
    logs[1].remove(through=40)
    logs[0].batches[10].body_crc = 1  # nothing can be said of it
    found = compare_logs([log.compared() for log in logs])
    assert (found.state, found.origins[0].first) == ("equal", 41)
    logs[0].batches[50].body_crc = 1
    found = compare_logs([log.compared() for log in logs])
    assert found.origins[0].difference is not None
    assert found.origins[0].difference.position == 51


def test_an_origin_of_which_a_log_has_no_part_any_more_is_not_compared() -> None:
    logs = [FakeLog(A, many(100)), FakeLog(B, many(100))]
    logs[1].remove(through=99)
    found = compare_logs([log.compared() for log in logs])
    assert [one.state for one in found.origins] == ["removed", "equal"]


def test_random_logs_differ_where_they_were_changed() -> None:
    rng = random.Random(1)
    for _ in range(50):
        batches = [(n, rng.randrange(1 << 32), rng.random() < 0.1) for n in range(1, 2_000)]
        others = list(batches)
        at = rng.randrange(len(others))
        others[at] = (at + 1, (others[at][1] + 1) % (1 << 32), others[at][2])
        made = [
            [(tied if tie else published)(n, crc=crc) for n, crc, tie in each]
            for each in (batches, others)
        ]
        difference = run(*made, chunk=rng.randrange(1, 900)).origins[0].difference
        assert difference is not None
        assert difference.position == at + 1


# -- wrong answers ----------------------------------------------------------------------------


def refused(change: Any) -> ZBrokerError:
    logs = [FakeLog(A, many(100)), FakeLog(B, many(100))]
    logs[1].change = change
    with pytest.raises(ZBrokerError) as caught:
        compare_logs([log.compared() for log in logs])
    return caught.value


def test_one_instance_twice_is_refused() -> None:
    error = refused(lambda found: found | {"instance": f"{A:016x}"})
    assert (error.code, "a and b are one instance" in error.reason) == ("bad_field", True)


@pytest.mark.parametrize(
    "change",
    [
        {"instance": "x"}, {"persisted": -1}, {"next": {}}, {"ranges": [{"origin": "x"}]},
        {"ranges": None}, {"done": "no"},
    ],
)  # fmt: skip
def test_an_answer_of_something_else_is_an_error(change: dict[str, Any]) -> None:
    error = refused(lambda found: found | change)
    assert (error.code, "is that the admin" in error.hint) == ("internal", True)


def test_answers_that_do_not_go_on_are_an_error() -> None:
    place = {"serial": 0, "offset": 0, "position": 1}
    error = refused(lambda found: found | {"done": False, "next": place})
    assert "do not go on" in error.reason


def test_a_log_that_is_shortened_meanwhile_is_an_error() -> None:
    starts = iter(range(1, 1_000))
    error = refused(lambda found: found | {"log_start": next(starts)})
    assert (error.code, "meanwhile" in error.reason) == ("not_ready", True)


def test_too_many_ranges_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.control.log_comparison.RANGES_MAX", 1)
    assert refused(lambda found: found).code == "too_many"


def test_a_difference_that_is_gone_when_it_is_looked_for_is_an_error() -> None:
    def wrong(found: dict[str, Any]) -> dict[str, Any]:
        whole = [one | {"digest": "0" * 32} for one in found["ranges"] if "message" not in one]
        return found | {"ranges": whole or found["ranges"]}

    assert "and then does not" in refused(wrong).reason
