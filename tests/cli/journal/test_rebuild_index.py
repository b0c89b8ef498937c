"""`zbroker-admin journal rebuild-index` makes the index again, here or in the instance."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import INSTANCE, PUBLISHER, Maker, admin, flip, run, segments
from zbroker.bookmarks.index import Index
from zbroker.cli.journal import admin_actions
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH
from zbroker.log.segments import NOTE_FILE, read_note, segment_name, write_note


def test_every_batch_is_found_in_the_new_index(maker: Maker) -> None:
    segments(maker, 3)
    index = maker.directory.parent / "index"
    index.mkdir()
    (index / "data.mdb").write_bytes(b"junk")
    reported = json.loads(run(maker, "rebuild-index", "--json").stdout)
    assert (reported["result"], reported["batches"]) == ("done", len(maker.batches))
    assert reported["batches_per_s"] > 0
    made = Index(index, INSTANCE)
    assert made.found == ""
    assert made.stamp.position == maker.batches[-1].end_position
    for batch in [one for one in maker.batches if one.kind == KIND_PUBLISH]:
        hint = made.before_bookmark(PUBLISHER, batch.sequence)
        assert hint is not None
        assert hint.position <= batch.position
    made.close()


def test_the_stamp_proves_no_more_than_the_note_does(maker: Maker) -> None:
    """Else a tail that was not synced would be taken for an acknowledged one after a power cut."""
    segments(maker, 2)
    disk = RealDisk(maker.directory)
    note = read_note(disk)
    assert note is not None
    behind = maker.batches[-3].position
    for at in (0, 512):
        disk.write(NOTE_FILE, at, [bytes(64)])
    write_note(disk, note._replace(position=behind))
    disk.close()
    assert run(maker, "rebuild-index").exit_code == 0
    made = Index(maker.directory.parent / "index", INSTANCE)
    assert made.stamp.position <= behind
    made.close()


def test_an_index_that_is_ahead_of_the_log_is_kept(maker: Maker) -> None:
    """It proves that acknowledged messages are missing: that is for the next start to say."""
    segments(maker, 2)
    assert run(maker, "rebuild-index").exit_code == 0
    batch = maker.batches[-1]
    with (maker.directory / segment_name(2)).open("r+b") as file:
        file.seek(batch.offset - 64)
        file.write(bytes(64 + 200_000))
    (maker.directory / NOTE_FILE).write_bytes(bytes(1024))
    result = run(maker, "rebuild-index")
    assert result.exit_code == 74
    assert "tail_damaged" in result.stderr
    kept = Index(maker.directory.parent / "index", INSTANCE)
    assert kept.stamp.position == batch.end_position
    kept.close()


def test_damaged_ranges_are_stepped_over(maker: Maker) -> None:
    segments(maker, 2)
    flip(maker, 1, maker.batches[2].offset + 20)
    reported = json.loads(run(maker, "rebuild-index", "--json").stdout)
    assert reported["batches"] == len(maker.batches) - 1


def test_a_running_instance_does_it(fake: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_actions, "POLL_S", 0.0)
    fake.answers["POST /journal/reindex"] = {"id": 4}
    fake.answers["GET /actions/4"] = {
        "id": 4, "action": "reindex", "result": "done", "reason": "", "bytes": 0, "took_s": 2.5,
    }  # fmt: skip
    result = admin(fake.data, "journal", "rebuild-index", "--json")
    assert result.exit_code == 0, result.output
    assert fake.reported == [("/journal/reindex", {})]
    assert json.loads(result.stdout)["result"] == "done"


def test_a_failed_rebuild_is_an_error(fake: FakeAdmin) -> None:
    fake.answers["POST /journal/reindex"] = {"id": 4}
    fake.answers["GET /actions/4"] = {
        "id": 4, "action": "reindex", "result": "failed", "reason": "no space", "bytes": 0,
        "took_s": 0.0,
    }  # fmt: skip
    result = admin(fake.data, "journal", "rebuild-index")
    assert result.exit_code == 1
    assert "no space" in result.stderr


def test_an_instance_that_owns_it_is_not_worked_around(maker: Maker) -> None:
    segments(maker, 2)
    owner = RealDisk(maker.directory)
    owner.lock()
    result = run(maker, "rebuild-index")
    owner.close()
    assert result.exit_code == 74
    assert "second_writer" in result.stderr


def test_an_index_that_proves_a_loss_is_kept(maker: Maker) -> None:
    segments(maker, 2)
    path = maker.directory.parent / "index"
    index = Index(path, INSTANCE)
    index.skip_to(maker.batches[-1].end_position + 1)
    index.set_generation(1)
    index.commit(index.take())
    stamp = index.stamp
    index.close()
    result = run(maker, "rebuild-index")
    assert result.exit_code == 74
    assert "tail_damaged" in result.stderr
    kept = Index(path, INSTANCE)
    assert kept.stamp == stamp
    kept.close()
    assert [found.name for found in path.parent.glob("index*")] == ["index"]
