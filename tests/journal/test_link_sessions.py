"""What a peer may bring over one connection, and what becomes of an older one."""

from __future__ import annotations

import pytest

from tests.journal.linked import (
    HERE,
    LINK,
    MINE,
    THERE,
    WALL,
    P,
    commit,
    give,
    make,
    name,
    open_link,
    record,
)
from zbroker.ids import Origin, publisher_id
from zbroker.journal import link_sessions, replicas
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.link_sessions import owner_of
from zbroker.log import records
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, KIND_PUBLISHER
from zbroker.wire import internal as m
from zbroker.wire.internal import Record


@pytest.fixture
def core() -> GroupCommit:
    return make()


def codes(items: list[m.ReceiptItem]) -> list[str]:
    return [item.code for item in items]


def test_what_came_of_an_older_session_and_is_not_placed_is_dropped(core: GroupCommit) -> None:
    """Rows that were told to the peer before stay true: nothing of the old session follows."""
    core.receive(LINK, m.Replicate(MINE, 1, 0, [record(1, 2, at=40)], 1), [b"body"])
    open_link(core, 2)
    batches, items = commit(core)
    assert (batches, codes(items)) == ([], ["dropped"])
    assert core.sessions.origins.vector == {}
    assert codes(give(core, record(1, 2, at=40), link=1)[1]) == ["dropped"]
    assert codes(give(core, record(1, 2, at=40), link=2)[1]) == [""]


def test_a_session_of_another_peer_goes_on(core: GroupCommit) -> None:
    open_link(core, 2, peer=7)
    assert codes(give(core, record(1, 1, at=40))[1]) == [""]
    assert codes(give(core, record(2, 1, at=41, after=40), link=2)[1]) == [""]


def test_a_replication_process_that_begins_anew_opens_its_sessions_again(core: GroupCommit) -> None:
    core.receive(LINK, m.Hello("replication", 2), [])
    assert codes(give(core, record(1, 1, at=40))[1]) == ["dropped"]
    open_link(core)
    assert codes(give(core, record(1, 1, at=40))[1]) == [""]


@pytest.mark.parametrize(
    ("given", "code"), [({"topics": ["("]}, "bad_filter"), ({"peer": 7}, "bad_field")]
)
def test_a_session_that_cannot_be_is_refused(
    core: GroupCommit, given: dict[str, object], code: str
) -> None:
    assert open_link(core, **given).code == code


@pytest.mark.parametrize(
    "right",
    [
        {"topics": ["orders/.*"]},
        {"origins": [f"{THERE + 1:016x}"]},
        {"topics": []},
        {"origins": []},
    ],
)
def test_what_is_beyond_the_right_of_a_session_is_refused(
    core: GroupCommit, right: dict[str, list[str]]
) -> None:
    open_link(core, 2, **right)
    batches, [item] = give(core, record(1, 1, at=40), link=2)
    assert (batches, item.code, item.high) == ([], "not_entitled", 0)
    assert not core.sessions.origins.foreign, "nothing is noted of it"


def test_a_covered_position_of_an_origin_beyond_the_right_changes_nothing(
    core: GroupCommit,
) -> None:
    open_link(core, 2, origins=["f+"])
    cover(core, 2, m.Covered(THERE, 1, 0, 90))
    assert core.sessions.origins.vector == {}
    assert core.refused == 1


def cover(core: GroupCommit, link: int, *covered: m.Covered) -> None:
    core.receive(LINK, m.Replicate(MINE, 1, 0, [], link, list(covered)), [])
    assert core.group(WALL) is None


def test_names_count_in_their_session_until_the_log_has_them(core: GroupCommit) -> None:
    other = publisher_id("other")
    assert name(core, "other", "alice").code == ""
    assert core.sessions.get(other) is None, "a name without a record leaves nothing behind"
    open_link(core, 2)
    [item] = give(core, record(1, 1, at=40, publisher=other), link=2)[1]
    assert item.code == "name_missing"
    assert name(core, "other", "alice").code == "dropped"
    open_link(core, 1)
    name(core, "other", "alice")
    batches, [item] = give(core, record(1, 1, at=40, publisher=other))
    assert ([batch.kind for batch in batches], item.code) == ([KIND_PUBLISHER, KIND_PUBLISH], "")
    open_link(core, 3)
    assert codes(give(core, record(2, 1, at=41, after=40, publisher=other), link=3)[1]) == [""]


def test_names_without_records_are_bounded(
    core: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LINK_NAMES_MAX", 2)
    assert [name(core, f"n{n}").code for n in range(3)] == ["", "", "too_many"]


def test_a_name_with_another_owner_is_refused_and_kept_for_people(core: GroupCommit) -> None:
    core.sessions.fold_name(P, "p", "alice")
    item = name(core, "p", "mallory")
    assert item.code == "principal_differs"
    assert "'alice'" in item.reason
    assert "'mallory'" in item.reason
    [kept] = core.take_conflicts()
    assert (kept.name, kept.body) == ("p", records.encode(records.PublisherRecord("p", "mallory")))
    assert core.sessions.meet(P).principal == "alice"


def test_an_owner_that_came_after_the_name_was_told_stays(core: GroupCommit) -> None:
    """The name is told as mallory's; before its first record alice logs on with it here."""
    name(core, "q", "mallory")
    core.sessions.open("q", "alice", 1)
    [item] = give(core, record(1, 1, at=40, publisher=publisher_id("q")))[1]
    assert item.code == "principal_differs"
    assert core.sessions.meet(publisher_id("q")).principal == "alice"


# -- generations of another instance ----------------------------------------------------------


def begins(generation: int = 2, of: int = THERE) -> Record:
    """The first record of a generation."""
    return Record(KIND_NOOP, of, generation, 50, 0, WALL)


def unnamed(generation: int = 1) -> Record:
    """It is refused."""
    one = record(1, 2, at=40, publisher=publisher_id("unnamed"))
    one.generation = generation
    return one


def test_a_generation_begins_here_after_what_was_refused_of_an_older_one(
    core: GroupCommit,
) -> None:
    """A nearly full disk takes the fact that begins generation 2, and not the messages before it.
    With it, readers would be told that nothing more of generation 1 comes."""
    core.accepting, core.left_bytes = False, 100_000
    older = record(1, 2, at=40)
    assert codes(give(core, older, begins())[1]) == ["disk_full", "origin_gap"]
    core.accepting = True
    [item] = give(core, begins())[1]
    assert item.code == "origin_gap", "it was under way when there was space again"
    assert "older generations" in item.reason
    assert core.sessions.origins.vector == {}
    assert codes(give(core, older, begins())[1]) == ["", ""]
    assert core.sessions.origins.vector == {Origin(THERE, 1): 41, Origin(THERE, 2): 50}


def test_each_generation_waits_for_the_one_before(core: GroupCommit) -> None:
    """Another link brings what was missing of the first one; the second one is not here yet."""
    core.accepting, core.left_bytes = False, 100_000
    give(core, record(1, 2, at=40), begins(2))
    core.accepting = True
    open_link(core, 2, peer=7)
    assert codes(give(core, record(1, 2, at=40), link=2)[1]) == [""]
    assert codes(give(core, begins(3))[1]) == ["origin_gap"]
    assert codes(give(core, begins(2), begins(3))[1]) == ["", ""]


def test_no_generation_begins_with_what_a_peer_has_covered(core: GroupCommit) -> None:
    give(core, unnamed())
    cover(core, 1, m.Covered(THERE, 2, 0, 50))
    assert core.sessions.origins.vector == {}


def test_others_do_not_wait_for_what_was_refused(core: GroupCommit) -> None:
    """Older generations, other instances, other links, the next session, generations begun."""
    give(core, begins(4))
    assert codes(give(core, unnamed(3))[1]) == ["name_missing"]
    assert codes(give(core, begins(2), begins(9, of=7))[1]) == ["", ""]
    after = begins(4)
    after.position, after.after = 51, 50
    assert codes(give(core, after)[1]) == [""], "nothing is told by it that was not known"
    open_link(core, 2, peer=7)
    assert codes(give(core, begins(5), link=2)[1]) == [""]
    open_link(core, 1)
    assert codes(give(core, begins(6))[1]) == [""]


def test_a_fork_is_left_by_a_new_generation(core: GroupCommit) -> None:
    give(core, record(1, 1, at=40))
    behind = record(2, 1, at=41, after=40, after_crc=77), record(3, 1, at=42, after=41)
    assert codes(give(core, *behind, begins())[1]) == ["fork", "origin_gap", ""]


def test_where_too_much_was_refused_no_generation_begins(
    core: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted of a session is bounded."""
    monkeypatch.setattr(link_sessions, "STOPPED_MAX", 2)
    give(core, unnamed(1), unnamed(2), unnamed(3))
    assert codes(give(core, begins(of=7))[1]) == ["origin_gap"]
    name(core, "unnamed")
    assert codes(give(core, unnamed(1), begins(of=7))[1]) == ["", "origin_gap"]
    assert codes(give(core, unnamed(2), begins(of=7))[1]) == ["", ""]


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("$broker.0000000000000009.1", Origin(9, 1)),
        ("$staged.a.b.00000000000000ff.7", Origin(255, 7)),
        ("$staged.app", None),
        ("broker.0000000000000009.1", None),
        ("$broker.0000000000000009.x", None),
    ],
)
def test_a_name_of_the_broker_says_whose_it_is(text: str, owner: Origin | None) -> None:
    assert owner_of(text) == owner


@pytest.mark.parametrize(
    ("owner", "generation", "at", "code"),
    [
        (Origin(HERE, 2), THERE, 1, "not_entitled"),  # this instance's own, now
        (Origin(7, 1), THERE, 1, "not_entitled"),  # of a third one
        (Origin(THERE, 1), THERE, 1, ""),
        (Origin(HERE, 1), HERE, 1, ""),  # what this instance lost comes home
    ],
)
def test_a_name_of_the_broker_has_records_of_its_own_origin_only(
    core: GroupCommit, owner: Origin, generation: int, at: int, code: str
) -> None:
    core.generation = 2
    own = f"$broker.{owner.instance:016x}.{owner.generation}"
    name(core, own)
    one = record(1, 1, at=40, publisher=publisher_id(own))
    one.instance, one.generation = generation, at
    assert give(core, one)[1][0].code == code
