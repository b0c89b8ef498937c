"""When an older generation of this instance may be closed."""

from __future__ import annotations

from zbroker.journal.generation_closer import ClosableGeneration, GenerationCloser
from zbroker.journal.origins import Seen
from zbroker.journal.start_question import PeerAnswer

ROWS = {1: Seen(10, 8, crc_at=9), 2: Seen(15, crc_at=0), 3: Seen(20, 20, crc_at=20)}


def closing(**asked_in: int) -> GenerationCloser:
    """Peers b and c, which hold generation 1 up to 9."""
    made = GenerationCloser(["b", "c"])
    made.heard(PeerAnswer(peer, {1: 9}, 0, number) for peer, number in asked_in.items())
    return made


def numbers(made: GenerationCloser, **more: object) -> list[int]:
    given = {"here": 3, "rows": ROWS, "closed": (), "forgotten": (), **more}
    return [one.generation for one in made.closable(**given)]  # type: ignore[arg-type]


def test_all_older_ones_once_everyone_has_answered() -> None:
    made = closing(b=3, c=3)
    assert made.closable(3, ROWS, (), ()) == [ClosableGeneration(1, 9), ClosableGeneration(2, 0)]
    assert made.has_answered("b", 3)


def test_not_while_a_peer_has_not_answered() -> None:
    assert numbers(closing(b=3)) == []
    assert not closing(b=3).has_answered("c", 3)
    assert not closing(b=3, c=2).have_answered(3, ())
    assert closing(b=3, c=3).have_answered(3, ())
    assert closing(b=3).have_answered(3, ["c"])


def test_an_answer_counts_for_generations_that_had_ended_when_it_was_asked() -> None:
    assert numbers(closing(b=3, c=2)) == [1]
    assert numbers(closing(b=3, c=1)) == []


def test_an_older_answer_takes_nothing_back() -> None:
    made = closing(b=3, c=3)
    made.heard([PeerAnswer("c", {})])
    assert numbers(made) == [1, 2]


def test_a_forgotten_peer_is_not_waited_for() -> None:
    assert numbers(closing(b=3), forgotten=["c"]) == [1, 2]
    assert numbers(closing(), forgotten=["b", "c"]) == [1, 2]


def test_a_lost_tail_has_to_be_back_and_nothing_passes_it() -> None:
    made = closing(b=3, c=3)
    made.heard([PeerAnswer("b", {1: 11}, 0, 3)])
    assert numbers(made) == []
    assert numbers(made, rows={**ROWS, 1: Seen(11, 11, crc_at=11)}) == [1, 2]


def test_one_that_only_a_peer_has_is_waited_for() -> None:
    made = closing(b=3, c=3)
    made.heard([PeerAnswer("b", {0: 5}, 0, 3)])
    assert numbers(made) == []
    assert numbers(made, closed=[0]) == [1, 2]


def test_one_whose_end_is_not_known_stays_open() -> None:
    """As an older release left it."""
    assert numbers(closing(b=3, c=3), rows={1: Seen(10, 8, crc_at=0)}) == []


def test_an_instance_without_peers_closes_none() -> None:
    assert numbers(GenerationCloser([])) == []


def test_the_most_that_any_peer_has_is_copied() -> None:
    made = closing(b=3, c=3)
    made.heard([PeerAnswer("c", {1: 12, 2: 4}), PeerAnswer("b", {2: 3})])
    assert made.copied(()) == made.copied(["b"]) == {1: 12, 2: 4}


def test_no_copy_is_waited_for_without_peers() -> None:
    assert closing(b=3).copied(["b", "c"]) is None
    assert GenerationCloser([]).copied(()) is None
