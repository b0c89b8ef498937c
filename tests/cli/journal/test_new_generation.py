"""`zbroker-admin journal new-generation` says that the log was put back from a copy."""

from __future__ import annotations

import json
import shutil

from tests.cli.journals import INSTANCE, Maker, admin, run, segments
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.log.recovery import Recovered, recover


def started(maker: Maker) -> Recovered:
    disk = RealDisk(maker.directory)
    found = recover(disk, INSTANCE, segment_bytes=MIB)
    disk.close()
    return found


def test_the_next_start_begins_a_new_generation(maker: Maker) -> None:
    segments(maker, 2)
    end = maker.batches[-1].end_position
    reported = json.loads(run(maker, "new-generation", "--json").stdout)
    assert reported == {"instance": f"{INSTANCE:016x}", "generation": 1, "position": end}
    found = started(maker)
    assert found.generation > 1
    assert found.next_position == end
    assert started(maker).generation == found.generation, "once"


def test_asking_twice_is_asking_once(maker: Maker) -> None:
    segments(maker, 1)
    assert run(maker, "new-generation").exit_code == 0
    result = run(maker, "new-generation")
    assert "the next start begins a new generation" in result.stdout
    generation = started(maker).generation
    assert started(maker).generation == generation


def test_a_running_instance_is_refused(maker: Maker) -> None:
    """Its clients would go on with places that mean something else then."""
    segments(maker, 1)
    maker.close()
    disk = RealDisk(maker.directory)
    disk.lock()
    result = admin(maker.directory.parent, "journal", "new-generation")
    disk.close()
    assert result.exit_code == 74
    assert "second_writer" in result.stderr
    assert started(maker).generation == 1


def test_an_empty_directory_is_no_copy(maker: Maker) -> None:
    maker.close()
    shutil.rmtree(maker.directory)
    maker.directory.mkdir()
    result = run(maker, "new-generation")
    assert result.exit_code == 3
    assert "not_found" in result.stderr
