"""What a publisher learns of mandatory messages that went to no queue."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.client.test_core import START, batch, live, relogged
from tests.client.times import at
from zbroker.client.effects import SendCommand
from zbroker.client.publisher import file_store, packer
from zbroker.client.publisher.file_store import FileStore
from zbroker.client.publisher.packer import Extra, PackedBatch
from zbroker.client.publisher.receipt import AckTracker, Receipt
from zbroker.client.values import to_extra
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack, Publish

MANDATORY = Extra(mandatory=True)


def mandatory(count: int = 1) -> PackedBatch:
    made = batch(count)
    made.mandatory = True
    return made


def runs(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in pairs)


def commands(effects: object) -> list[Publish]:
    assert isinstance(effects, list)
    sent = [one.command for one in effects if isinstance(one, SendCommand)]
    return [one for one in sent if isinstance(one, Publish)]


# -- what is sent ---------------------------------------------------------------------------------


def test_a_batch_is_mandatory_as_a_whole() -> None:
    track = AckTracker(7)
    extras = [None, MANDATORY, Extra(b"k", mandatory=True), Extra(b"k"), None, MANDATORY]
    items = [Receipt(track, "t", b"x", None, extra) for extra in extras]
    made = [one for one, _, _ in packer.batches(items, 1_000)]
    assert [(one.count, one.mandatory) for one in made] == [
        (1, False), (2, True), (2, False), (1, True)
    ]  # fmt: skip
    assert made[-1].columns is None


def test_a_publish_says_so() -> None:
    core = live()
    assert [one.mandatory for one in commands(core.add(mandatory(), 0))] == [True]
    assert [one.mandatory for one in commands(core.add(batch(), 0))] == [False]


def test_it_is_beside_the_payload() -> None:
    assert to_extra(None, None, None, 0, mandatory=True)[0] == MANDATORY


def test_a_body_that_is_only_in_a_file_is_still_mandatory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "RESIDENT_BYTES", 0)
    store = FileStore(tmp_path / "store", "me")
    try:
        track = AckTracker(7)
        items = [Receipt(track, "t", b"x", None, extra) for extra in (None, MANDATORY)]
        for number, (made, _, _) in enumerate(packer.batches(items, 1_000)):
            made.first = made.last = number + 1
            store.append(made)
        assert [store.batches[index].body for index in range(2)] == [b"", b""]
        assert [store.load(index).mandatory for index in range(2)] == [False, True]
    finally:
        store.close()


# -- what is said of it ---------------------------------------------------------------------------


def test_an_ack_names_what_went_to_no_queue() -> None:
    core = live()
    core.add(mandatory(3), 0)
    core.handle(Ack("persisted", seq=START + 2, returned=runs((START + 1, START + 1))), at(1))
    assert [START + n in core.returned.known for n in range(3)] == [False, True, False]
    assert core.settled == START + 2


def test_what_the_broker_had_at_a_new_logon_is_not_known() -> None:
    """It says so once: the ack that was lost, or the one that never comes."""
    core = live()
    core.add(batch(), 0)
    core.add(mandatory(3), 0)
    relogged(core, 5_000, seq=START + 2, acked=START)
    assert [START + n in core.returned.unknown for n in range(4)] == [False, True, True, False]


def test_a_receipt_says_whether_it_was_returned() -> None:
    track = AckTracker(7)
    track.returned.known.add(runs((2, 2)))
    track.returned.unknown.add_run(3, 3)
    kept, lost, unknown, plain = (
        Receipt(track, "t", number, None, extra)
        for number, extra in ((1, MANDATORY), (2, MANDATORY), (3, MANDATORY), (4, None))
    )
    assert (kept.returned, lost.returned, plain.returned) == (None, None, False)
    track.settled = 4
    found = [one.returned for one in (kept, lost, unknown, plain)]
    assert found == [False, True, None, False]
    assert lost.wait(0) == "7|2|", "the log has it"
    track.refuse(2, 2, ZBrokerError("bad_field", ""))
    assert lost.returned is None


def test_what_is_forgotten_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.client.publisher.unrecorded.RUNS_MAX", 4)
    track = AckTracker(7)
    track.settled = 10
    for number in range(1, 11, 2):
        track.returned.known.add(runs((number, number)))
    found = [Receipt(track, "t", number, None, MANDATORY).returned for number in range(1, 11)]
    assert found == [None, None, None, False, True, False, True, False, True, False]


def test_of_many_the_last_receipt_says_which_went_nowhere() -> None:
    track = AckTracker(7)
    before = [Receipt(track, "t", b"x", None, MANDATORY) for _ in range(3)]
    last = Receipt(track, "t", b"x", None, Extra(mandatory=True, before=tuple(before)))
    for sequence, receipt in enumerate([*before, last], 1):
        receipt.value = sequence
    track.settled = 3
    assert last.returned_indexes is None, "the last one is not known"
    track.settled = 4
    track.returned.known.add(runs((2, 2), (4, 4)))
    assert last.returned_indexes == [1, 3]
    assert before[1].returned_indexes == [0], "by itself"
    track.returned.unknown.add_run(1, 1)
    assert last.returned_indexes is None
