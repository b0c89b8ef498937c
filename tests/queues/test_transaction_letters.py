"""zbroker/queues/transaction_letters.py: what transactions and branches reject, in their units."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import HERE, Bench, Got
from tests.queues.test_branch_commands import X, decide, prepare, states
from tests.queues.test_replicated import QUEUE, Shared
from tests.queues.test_transaction_commands import attach, bench, code, commit, took
from zbroker.config import QueueConfig
from zbroker.limits import MIB
from zbroker.log import queue_records as r
from zbroker.log.format import (
    KIND_BRANCH,
    KIND_OUTCOMES,
    KIND_PUBLISH,
    KIND_QUEUE,
    KIND_TRANSACTION,
)
from zbroker.log.records import MessagesGone, ends_of, unpack_positions
from zbroker.queues import dead_letters, transaction_letters
from zbroker.queues.branch_commands import BranchRequest
from zbroker.queues.effects import Inspect
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import queue_messages as q
from zbroker.wire.branches import BranchDecided, BranchPrepared
from zbroker.wire.transactions import REJECTS_MAX, RejectedMessages, TransactionCommitted

Q = QueueConfig("q", topic="t", dead_letter="dead", max_per_subscription=5_000)
OTHER = QueueConfig("other", topic="u", dead_letter="morgue")
PLAIN = QueueConfig("q", topic="t")


def rejected(*positions: int, reason: str = "bad", sid: str = "s") -> RejectedMessages:
    queue = "other" if sid == "o" else "q"
    return RejectedMessages(queue, sid, HERE.generation, ends_of(BitMap64(positions)), reason)


def held(*payloads: bytes, config: QueueConfig = Q) -> tuple[Bench, list[int], int]:
    """A consumer holds messages of "q", and a session is attached. Returns: where they are, and its
    epoch."""
    at = bench(config, OTHER)
    at.consume()
    positions = at.publish(*(payloads or (b"one", b"two", b"three")))
    return at, positions, attach(at).epoch


def said(at: Bench) -> list[tuple[str, bytes, str, str]]:
    """Topic, payload, reason and text of each letter."""
    return [
        (topic, data, headers[dead_letters.REASON], headers[dead_letters.TEXT])
        for topic, data, headers in at.letters()
    ]


def gone(at: Bench) -> dict[str, list[int]]:
    """What left "q", by why."""
    found: dict[str, list[int]] = {}
    for fact in at.facts(MessagesGone):
        found.setdefault(fact.why, []).extend(unpack_positions(fact.where))
    return found


# -- transactions ---------------------------------------------------------------------------------


def test_what_it_rejects_has_its_letters_in_the_unit_of_the_transaction() -> None:
    at, m, epoch = held()
    at.holding = True
    command = [rejected(m[1], reason="no"), rejected(m[2], reason="")]
    assert commit(at, epoch, 1, took(m[0]), rejects=command, messages=2) is None
    [(_, (parts, _))] = at.under_way
    assert [part.kind for part in parts] == [KIND_TRANSACTION, KIND_PUBLISH, KIND_QUEUE]
    assert (parts[1].topics, parts[1].count) == (["dead"], 2)
    assert at.here() == m, "nothing before it is in the log"
    at.land()
    shown = next(one for one in at.log if one.topics == ["out"])
    assert at.last() == TransactionCommitted("bills", 1, shown.position, 2, 3, "c", 2)
    assert said(at) == [
        ("dead", b"two", "rejected", "no"),
        ("dead", b"three", "rejected", "rejected"),
    ]
    assert gone(at) == {"acked": m[:1], "rejected": m[1:]}
    assert (at.here(), at.one().counts.acked, at.one().counts.dead) == ([], 1, 2)


def test_letters_of_several_queues_go_to_the_topic_of_each() -> None:
    at, m, epoch = held(b"one")
    at.consume("other", "o")
    [other] = at.publish(b"x", topic="u")
    assert commit(at, epoch, 1, rejects=[rejected(*m), rejected(other, sid="o")]).rejected == 2
    [batch] = [one for one in at.log if one.kind == KIND_PUBLISH and one.topics[0] == "dead"]
    assert batch.topics == ["dead", "morgue"]
    assert batch.columns is not None
    assert batch.columns.index == b"\0\0\1\0"


def test_a_queue_without_a_topic_for_letters_has_none() -> None:
    at, m, epoch = held(config=PLAIN)
    assert commit(at, epoch, 1, rejects=[rejected(m[0])]).rejected == 1
    assert (said(at), gone(at)) == ([], {"rejected": m[:1]})
    assert list(at.one().dead) == m[:1], "it may be brought back"


@pytest.mark.parametrize("refusal", ["session_fenced", "too_large"])
def test_what_the_journal_refuses_leaves_no_letter(refusal: str) -> None:
    at, m, epoch = held(b"one")
    at.holding = True
    commit(at, epoch, 1, rejects=[rejected(*m)])
    at.refuse(refusal)
    assert at.codes() == [refusal]
    assert (at.here(), at.letters()) == (m, [])
    assert at.seen()[-1] == Got(m[0], 2), "it comes again, flagged"


@pytest.mark.parametrize("what", ["not held", "twice", "in both", "too many", "too many entries"])
def test_rejects_that_cannot_be_change_nothing(what: str) -> None:
    at, m, epoch = held()
    accepts, rejects = [took(m[0])], [rejected(m[1])]
    if what == "not held":
        rejects = [rejected(m[1], 99)]
    elif what == "twice":
        rejects += [rejected(m[1], reason="also")]
    elif what == "in both":
        accepts = [took(m[1])]
    elif what == "too many":
        rejects = [rejected(*at.many(REJECTS_MAX + 1))]
    else:
        rejects = [rejected()] * (REJECTS_MAX + 1)
    expected = {"not held": "transaction_aborted", "twice": "bad_field", "in both": "bad_field"}
    answer = commit(at, epoch, 1, *accepts, rejects=rejects)
    assert code(answer) == expected.get(what, "too_many")
    assert states(at, m) == ["leased"] * 3
    assert commit(at, epoch, 1, *[took(m[0])], rejects=[rejected(m[1])]).accepted == 2


def test_nobody_else_has_them_while_they_are_read() -> None:
    at, m, epoch = held(b"one")
    at.later = (Inspect,)
    assert commit(at, epoch, 1, rejects=[rejected(*m)]) is None
    at.pass_ms(100_000)
    at.ack(*m)
    at.lose()
    at.logon()
    at.consume(sid="again")
    assert (at.got("again"), at.here()) == ([], m)
    at.later = ()
    at.go_on()
    assert (at.here(), len(at.letters())) == ([], 1)


def test_many_are_read_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_letters, "SLICE_BYTES", 1)
    at = bench(Q, OTHER)
    at.consume()
    m = [position for number in range(5) for position in at.publish(b"%d" % number)]
    epoch = attach(at).epoch
    assert commit(at, epoch, 1, rejects=[rejected(*m)]).rejected == 5
    assert [data for _, data, *_ in said(at)] == [b"%d" % number for number in range(5)]


def test_parts_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 2)
    at, m, epoch = held(*[b"%d" % number for number in range(5)])
    at.holding = True
    commit(at, epoch, 1, rejects=[rejected(*m)])
    [(_, (parts, _))] = at.under_way
    assert [part.count for part in parts[1:-1]] == [2, 2, 1]
    at.land()
    assert at.last().position == 0
    assert at.here() == []


@pytest.mark.parametrize("how", ["commit", "prepare"])
def test_more_than_a_unit_may_have_is_refused(how: str) -> None:
    at, m, epoch = held(b"a" * (2 * MIB), b"b" * MIB)
    if how == "commit":
        answer = commit(at, epoch, 1, rejects=[rejected(*m)])
    else:
        answer = prepare(at, epoch, rejects=[rejected(*m)])
    assert code(answer) == "too_large"
    assert (at.here(), at.letters()) == (m, [])
    assert at.seen()[-1] == Got(m[1], 2)


def test_what_cannot_be_read_is_gone_without_a_letter() -> None:
    at, m, epoch = held()
    at.unreadable = BitMap64(m[1:2])
    assert commit(at, epoch, 1, rejects=[rejected(*m)]).rejected == 3
    assert [data for _, data, *_ in said(at)] == [b"one", b"three"]
    assert gone(at) == {"rejected": [m[0], m[2]], "unreadable": [m[1]]}
    assert at.here() == []


def test_nothing_of_it_can_be_read() -> None:
    at, m, epoch = held(b"one")
    at.unreadable = BitMap64(m)
    assert commit(at, epoch, 1, rejects=[rejected(*m)]).rejected == 1
    assert (at.letters(), gone(at)) == ([], {"unreadable": m})


def test_a_queue_that_is_deleted_meanwhile_refuses_it() -> None:
    at = bench(Q)
    settings = {"topic": "u", "dead_letter": "dead"}
    at.say(q.DeclareQueue("other", settings=settings))
    at.consume("other", "o")
    [position] = at.publish(b"x", topic="u")
    epoch = attach(at).epoch
    at.later = (Inspect,)
    commit(at, epoch, 1, rejects=[rejected(position, sid="o")])
    at.send(q.DeleteQueue("other"))
    at.later = ()
    at.go_on()
    assert "not_ready" in at.codes()
    assert at.letters() == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_journal_that_dies_under_way_has_each_letter_once(landed: bool) -> None:
    at, m, epoch = held(b"one", b"two")
    at.doubt(lambda: commit(at, epoch, 1, rejects=[rejected(*m)], messages=3), landed=landed)
    [answer] = at.of(TransactionCommitted)
    shown = next(one for one in at.log if one.topics == ["out"])
    assert (answer.position, answer.rejected) == (shown.position, 2)
    assert len(at.letters()) == 2
    assert at.here() == []


# -- branches -------------------------------------------------------------------------------------


def prepared(**more: Any) -> tuple[Bench, list[int]]:
    """A branch acknowledges the first of three messages and rejects the second."""
    at, m, epoch = held(**more)
    answer = prepare(at, epoch, took(m[0]), rejects=[rejected(m[1], reason="no")], messages=2)
    assert (answer.accepted, answer.rejected) == (2, 1)
    return at, m


def test_a_branch_rejects_when_it_is_committed() -> None:
    at, m = prepared()
    assert states(at, m) == ["locked", "locked", "leased"]
    assert at.letters() == []
    at.holding = True
    decide(at, "commit")
    [(_, (parts, _))] = at.under_way
    assert [part.kind for part in parts] == [KIND_BRANCH, KIND_PUBLISH, KIND_QUEUE]
    at.land()
    answer = at.last()
    assert isinstance(answer, BranchDecided)
    assert (answer.accepted, answer.rejected, answer.mixed) == (2, 1, False)
    shown = next(one for one in at.log if one.topics == ["out"])
    assert answer.position == shown.position
    assert said(at) == [("dead", b"two", "rejected", "no")]
    assert gone(at) == {"acked": m[:1], "rejected": m[1:2]}
    assert at.here() == m[2:]


def test_a_rollback_brings_back_what_it_would_have_rejected() -> None:
    at, m = prepared()
    answer = decide(at, "rollback")
    assert (answer.accepted, answer.rejected) == (2, 0)
    assert (at.here(), at.letters()) == (m, [])


@pytest.mark.parametrize("tables", [True, False])
def test_a_restart_keeps_what_is_to_be_rejected(tables: bool) -> None:
    at, m = prepared()
    saved = Snapshots().take(at.manager).many if tables else None
    at.restart(saved)
    at.logon()
    assert decide(at, "commit").rejected == 1
    assert said(at) == [("dead", b"two", "rejected", "no")]
    assert at.here() == m[2:]


def test_a_queue_whose_letters_have_no_topic_any_more_has_none() -> None:
    at, m = prepared(config=PLAIN)
    assert decide(at, "commit").rejected == 1
    assert (at.letters(), gone(at)["rejected"]) == ([], m[1:2])


def test_another_decision_while_its_letters_are_read_holds() -> None:
    at, m = prepared()
    at.later = (Inspect,)
    decide(at, "commit")
    assert decide(at, "rollback").accepted == 2
    at.ack(*m[:2])
    at.holding = True
    at.ack(*m[2:])
    at.later = ()
    at.go_on()
    assert at.codes() == ["not_ready"]
    assert at.one().queue.going == BitMap64(m[2:]), "it undoes nothing of what came after it"
    at.land()
    assert (at.here(), at.letters()) == ([], [])


def test_a_refused_decision_leaves_the_locks_and_no_letter() -> None:
    at, m = prepared()
    at.holding = True
    decide(at, "commit")
    at.refuse("too_large")
    assert states(at, m) == ["locked", "locked", "leased"]
    at.holding = False
    assert decide(at, "commit").rejected == 1
    assert len(at.letters()) == 1


def test_a_dry_run_says_what_would_be_rejected() -> None:
    at, m = prepared()
    answers: list[BranchDecided] = []
    at.core._branches.request(
        BranchRequest("ann", X, "commit", True, False, answers.append, pytest.fail, True)
    )
    at.run()
    assert [(one.accepted, one.rejected) for one in answers] == [(2, 1)]
    assert states(at, m[:2]) == ["locked", "locked"]


def test_old_commands_mean_what_they_did() -> None:
    at, m, epoch = held()
    raw = {
        "cmd": "commit_transaction", "cid": "c", "session": "bills", "epoch": epoch, "number": 1,
        "accepts": [["q", "s", HERE.generation, [m[0], m[0] + 1]]],
    }  # fmt: skip
    at.frames([[msgpack.encode(raw)]])
    assert at.last() == TransactionCommitted("bills", 1, accepted=1, cid="c")
    assert isinstance(prepare(at, epoch, took(m[1]), number=2), BranchPrepared)


# -- queues of several instances ------------------------------------------------------------------


def shared() -> tuple[Shared, list[int], int]:
    """A consumer holds three messages of a queue of several instances."""
    at = Shared(replace(QUEUE, dead_letter="dead"))
    at.consume()
    positions = at.publish(b"one", b"two", b"three")
    assert sorted(at.got()) == positions
    return at, positions, attach(at).epoch


def test_all_instances_hear_what_a_transaction_rejects() -> None:
    at, m, epoch = shared()
    at.holding = True
    commit(at, epoch, 1, took(m[0]), rejects=[rejected(m[1])])
    assert at.kinds() == [KIND_TRANSACTION, KIND_PUBLISH, KIND_OUTCOMES]
    at.land()
    record = r.OUTCOMES.decode(at.log[-1].body)
    gone = {fact.why: fact.where for fact in r.facts_of(record) if isinstance(fact, r.OriginsGone)}
    assert {why: [each.positions for each in where] for why, where in gone.items()} == {
        "acked": [BitMap64(m[:1])], "rejected": [BitMap64(m[1:2])],
    }  # fmt: skip
    assert at.here() == m[2:]


@pytest.mark.parametrize("tables", [True, False])
def test_how_a_branch_takes_messages_is_read_again_from_their_records(tables: bool) -> None:
    at, m, epoch = shared()
    prepare(at, epoch, took(m[0]), rejects=[rejected(m[1], reason="no")])
    saved = Snapshots().take(at.manager).many if tables else None
    at.restart(saved)
    at.logon()
    answer = decide(at, "commit")
    assert (answer.accepted, answer.rejected, answer.mixed) == (2, 1, False)
    assert said(at) == [("dead", b"two", "rejected", "no")]
    assert at.here() == m[2:]
