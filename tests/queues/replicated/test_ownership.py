"""Who owns a message: by scope, by number, by ties, in whatever order the records come."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.queues.replicated.origin_runs import OriginRuns
from zbroker.queues.replicated.ownership import OwnerClaim, Ownership

A, B, C, D = 1, 2, 3, 4  # instances
M = BitMap64([10])


def owner_of(origin: int, me: int = A, initial: bool | None = None) -> Ownership:
    """Of one message, at position 10, that this instance accepted."""
    runs = OriginRuns()
    runs.add(10, Origin(origin, 1), 5, 1, (7, 1))
    return Ownership(me, runs, initial)


def transfer(number: int, by: int, to: int, at: int = 50, generation: int = 1) -> OwnerClaim:
    return OwnerClaim(number, False, by, generation, at, to)


def takeover(number: int, by: int, at: int = 50) -> OwnerClaim:
    return OwnerClaim(number, True, by, 1, at, by)


def owner(one: Ownership) -> int:
    [(found, positions)] = one.owners(M).items()
    assert positions == M
    return found


def test_a_new_message_belongs_to_the_instance_that_accepted_it() -> None:
    assert owner(owner_of(B)) == B
    assert owner_of(B).mine(M) == BitMap64()
    assert owner_of(A).mine(M) == M


def test_a_new_message_of_a_group_local_queue_belongs_to_the_initial_owner() -> None:
    assert owner_of(B, initial=True).mine(M) == M
    assert owner_of(A, initial=False).mine(M) == BitMap64()
    assert owner(owner_of(A, initial=False)) == 0


def test_the_highest_number_holds() -> None:
    chain = [transfer(1, A, B), transfer(2, B, A), transfer(3, A, C)]
    for order in permutations(chain):
        one = owner_of(A)
        for claim in order:
            one.apply(claim, M)
        assert owner(one) == C
        one.check(M)


def test_of_equal_numbers_a_takeover_holds() -> None:
    for order in permutations([transfer(1, A, B, at=90), takeover(1, C)]):
        one = owner_of(A)
        for claim in order:
            one.apply(claim, M)
        assert owner(one) == C


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        (takeover(1, B), takeover(1, C)),
        (transfer(1, A, B, generation=1, at=90), transfer(1, A, C, generation=2, at=50)),
        (transfer(1, A, B, at=50), transfer(1, A, C, at=51)),
    ],
    ids=["instance", "generation", "position"],
)
def test_of_equal_numbers_the_higher_record_holds(lower: OwnerClaim, higher: OwnerClaim) -> None:
    for order in ((lower, higher), (higher, lower)):
        one = owner_of(A)
        for claim in order:
            one.apply(claim, M)
        assert owner(one) == higher.to


def test_a_record_says_for_which_messages_it_holds() -> None:
    runs = OriginRuns()
    runs.add(10, Origin(A, 1), 5, 4, (7, 1))
    one = Ownership(A, runs)
    assert one.apply(transfer(2, B, C), BitMap64([11, 12])) == BitMap64([11, 12])
    assert one.apply(transfer(1, A, B), BitMap64([10, 11, 12])) == BitMap64([10])
    assert one.numbers(BitMap64([10, 11, 13])) == {
        0: BitMap64([13]), 1: BitMap64([10]), 2: BitMap64([11]),
    }  # fmt: skip
    assert (one.number(10), one.number(11), one.number(13)) == (1, 2, 0)


def test_a_tie_gives_a_message_to_the_lower_instance() -> None:
    one = owner_of(B)
    assert one.tie(A, M) == M
    assert owner(one) == A
    assert one.mine(M) == M
    assert one.tie(C, M) == BitMap64()
    assert owner(one) == A


def test_a_tie_between_generations_of_one_instance_changes_no_owner() -> None:
    one = owner_of(A)
    one.apply(transfer(1, A, B), M)
    assert one.tie(A, M) == BitMap64()
    assert owner(one) == B


def test_what_the_loser_of_a_tie_gave_away_is_void() -> None:
    one = owner_of(B)
    one.apply(transfer(1, B, C), M)
    assert one.tie(A, M) == M
    assert owner(one) == A
    one.check(M)
    later = owner_of(B)
    later.tie(A, M)
    assert later.apply(transfer(1, B, C), M) == BitMap64()


def test_what_the_winner_of_a_tie_gave_away_holds() -> None:
    one = owner_of(A)
    one.apply(transfer(1, A, C), M)
    assert one.tie(B, M) == BitMap64()
    assert owner(one) == C


def test_a_takeover_from_the_loser_of_a_tie_holds() -> None:
    one = owner_of(B)
    one.apply(takeover(1, C), M)
    assert one.tie(A, M) == BitMap64()
    assert owner(one) == C


def test_ties_change_nothing_in_a_group_local_queue() -> None:
    one = owner_of(B, initial=False)
    assert one.tie(A, M) == BitMap64()
    assert one.mine(M) == BitMap64()


def test_the_same_record_again_changes_nothing() -> None:
    one = owner_of(A)
    assert one.apply(transfer(1, A, B), M) == M
    assert one.apply(transfer(1, A, B), M) == BitMap64()


def test_what_left_the_queue_is_forgotten() -> None:
    one = owner_of(B)
    one.tie(A, M)
    one.apply(transfer(1, A, C), M)
    one.drop(M)
    one.check(BitMap64())
    assert one.claimed == BitMap64()


def test_a_dump_is_the_same_again() -> None:
    one, again = owner_of(B), owner_of(B)
    one.tie(A, M)
    one.apply(takeover(3, C), M)
    again.load(one.dump())
    again.check(M)
    assert (again.dump(), owner(again)) == (one.dump(), C)


@pytest.mark.parametrize("seed", range(200))
def test_every_instance_comes_to_the_same_owner(seed: int) -> None:
    """Records about the messages of two instances, some of them tied, in the order of each one's
    log; who reads them in which order is drawn."""
    rng = Random(seed)
    positions = range(10, 18)
    tied = {at for at in positions if rng.random() < 0.4}
    of = {at: rng.choice((A, B)) for at in positions}  # where it came first, at the first reader
    records: dict[int, list[tuple[OwnerClaim, BitMap64]]] = {A: [], B: [], C: []}
    for at in range(1, rng.randint(2, 12)):
        by = rng.choice((A, B, C))
        number, named = rng.randint(1, 4), BitMap64(rng.sample(positions, rng.randint(1, 4)))
        claim = OwnerClaim(number, rng.random() < 0.3, by, 1, at, rng.choice((A, B, C)))
        if number == 1 and not claim.takeover:
            named = BitMap64([one for one in named if by in ({A, B} if one in tied else {of[one]})])
        records[by].append((claim, named))
    found = set()
    for _ in range(4):
        runs = OriginRuns()
        stored = {at: rng.choice((A, B)) if at in tied else of[at] for at in positions}
        for at in positions:
            runs.add(at, Origin(stored[at], 1), at, 1, (7, at))
        one = Ownership(A, runs)
        left = {by: list(many) for by, many in records.items()}
        ties = [at for at in positions if at in tied]
        known = {at: {stored[at]} for at in positions}
        while ties or any(left.values()):
            if ties and rng.random() < 0.3:
                at = ties.pop(rng.randrange(len(ties)))
                other = A if stored[at] == B else B
                one.tie(other, BitMap64([at]))
                known[at].add(other)
                continue
            by = rng.choice([by for by, many in left.items() if many] or [0])
            # a transfer by a tied instance names the message as it is there: early before the tie
            if not by or any(by in (A, B) and by not in known[at] and at in tied
                             for at in left[by][0][1]):  # fmt: skip
                if not ties:
                    continue
                at = ties.pop()
                other = A if stored[at] == B else B
                one.tie(other, BitMap64([at]))
                known[at].add(other)
                continue
            one.apply(*left[by].pop(0))
            one.check(BitMap64(positions))
        owners = one.owners(BitMap64(positions))
        found.add(tuple(sorted((who, tuple(many)) for who, many in owners.items())))
    assert len(found) == 1
