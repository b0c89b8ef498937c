"""Rot, tears, swapped and stale files: found, never served, and nothing after it is lost.

ZB_FLIPS says how many flips (default 100; scripts/test-all: 2,000). A failure names its number,
which is also its seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.sim.disk import SECTOR, SimDisk
from tests.torture.damage import KINDS, Layout, Place, aim, flipped, make, plant, served
from tests.torture.engine import Engine, Violation, goes_on, known
from tests.torture.tracing import scratch
from zbroker.cli.journal.verify import verify
from zbroker.errors import StorageError
from zbroker.log.recovery import Recovered
from zbroker.log.segments import NOTE_FILE, segment_name

ROUNDS = 36
TORN_ROUNDS = 8
FLIPS = int(os.environ.get("ZB_FLIPS", "100"))
ONLY = os.environ.get("ZB_FLIP")
PAGE = 4096


@pytest.fixture(scope="module")
def layout() -> Layout:
    return make(ROUNDS, seed=1)


@pytest.fixture(scope="module")
def tailed() -> Layout:
    """With groups in the open segment that no one was promised."""
    for seed in range(1, 50):
        made = make(ROUNDS + seed, seed=seed, unsynced=TORN_ROUNDS // 2)
        tail = [p for p in made.of("group header") if p.serial == made.serial and behind(made, p)]
        if len(tail) >= 3:
            return made
    raise AssertionError("no log with such a tail")


def behind(layout: Layout, place: Place) -> bool:
    """True if nothing of the group at `place` was promised."""
    following = [p for p in layout.of("batch header") if p.serial == place.serial]
    first = next((p.first for p in following if p.start >= place.start), 0)
    return first >= layout.end


def numbers(count: int) -> list[int]:
    return [int(ONLY)] if ONLY else list(range(count))


def one_flip(layout: Layout, number: int, directory: Path) -> str:
    """Flips a bit below the evidence. What kind of byte it was."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    place, offset, bit = aim(layout, rng, kind)
    name = segment_name(place.serial)
    changed = {name: flipped(layout.files[name], offset, bit)}
    what = f"flip {number}: bit {bit} of {offset} in {name}, {kind}"
    disk = plant(layout, changed)
    if place.last == layout.end and kind == "batch header":
        assert refusal(disk) == "tail_damaged", f"{what}: the last batch cannot be found any more"
        return kind
    try:
        engine = Engine(disk)
        found, gaps = served(disk, layout.end)
    except (Violation, StorageError) as error:
        pytest.fail(f"{what}: {error}")
    expected = [(place.first, place.last)] if place.last else []
    assert gaps == expected, what
    assert engine.recovered.next_position == layout.end, what
    assert all(found.high[name] == high for name, high in layout.acked.items() if not gaps), what
    if kind != "padding":
        assert engine.recovered.findings or reported(layout, changed, directory), f"{what}: unseen"
    if number % 7 == 0:
        _goes_on(engine, what)
    return kind


def _goes_on(engine: Engine, what: str) -> None:
    """Publishes after the damage: nothing of what came before may change by that."""
    before = served(engine.disk, engine.recovered.next_position)[1]  # type: ignore[arg-type]
    high = served(engine.disk, engine.recovered.next_position)[0].high  # type: ignore[arg-type]
    told = known(engine)
    assert all(told[name] >= sequence for name, sequence in high.items()), f"{what}: {told}, {high}"
    for name in ("ann", "ben"):
        engine.publish(name, 2)
    engine.turn()
    assert served(engine.disk, engine.writer.synced)[1] == before, what  # type: ignore[arg-type]


def reported(layout: Layout, changed: dict[str, bytes], directory: Path) -> bool:
    """True if `zbroker-admin journal verify` finds something."""
    for name, content in {**layout.files, **changed}.items():
        (directory / name).write_bytes(content)
    return not verify(directory, lambda _what, _done, _total: None).ok


def flips(layout: Layout, count: int) -> None:
    with scratch() as directory:
        kinds = [one_flip(layout, number, directory) for number in numbers(count)]
    assert ONLY or set(kinds) == set(KINDS)


def test_no_flip_below_the_evidence_is_unseen_or_costs_more_than_its_batch(layout: Layout) -> None:
    flips(layout, FLIPS)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_two_thousand_flips_below_the_evidence(layout: Layout) -> None:
    flips(layout, 2_000)


def one_tear(layout: Layout, places: list[Place], number: int) -> None:
    """Damages what was never promised: the log ends exactly in front of it."""
    rng = random.Random(number)
    name = segment_name(layout.serial)
    place = rng.choice(places)
    offset = rng.randrange(place.start, place.end)
    content, what = layout.files[name], f"tear {number} at {offset}, {place.kind}"
    if number % 3 == 0:
        start = offset // SECTOR * SECTOR  # of a sector nothing arrived, or garbage
        junk = bytes(SECTOR) if number % 2 else rng.randbytes(SECTOR)
        content = content[:start] + junk + content[start + SECTOR :]
        offset = start
    else:
        content = flipped(content, offset, rng.randrange(8))
    disk = plant(layout, {name: content})
    found = Engine(disk).recovered
    assert found.next_position == expected_end(layout, offset), what
    assert [f.code for f in found.findings] == ["journal.torn_tail_cut"], what
    assert disk.content(name) == content, f"{what}: the torn segment was changed"
    assert not served(disk, found.next_position)[1], what


def tail_of(layout: Layout) -> list[Place]:
    """What is in the groups of the open segment that no one was promised."""
    here = [p for p in layout.places if p.serial == layout.serial and p.kind != "padding"]
    begin = min(p.start for p in here if p.kind == "group header" and behind(layout, p))
    return [p for p in here if p.start >= begin]


def expected_end(layout: Layout, offset: int) -> int:
    """The first position of the group that holds `offset`."""
    groups = [p for p in layout.of("group header") if p.serial == layout.serial]
    start = max(p.start for p in groups if p.start <= offset)
    batches = [p for p in layout.of("batch header") if p.serial == layout.serial]
    return next(p.first for p in batches if p.start > start)


def test_what_is_torn_after_the_evidence_is_cut_exactly_there(tailed: Layout) -> None:
    places = tail_of(tailed)
    for number in numbers(FLIPS):
        one_tear(tailed, places, number)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_thousand_tears_after_the_evidence(tailed: Layout) -> None:
    places = tail_of(tailed)
    for number in range(1_000):
        one_tear(tailed, places, number)


def zero_page(layout: Layout, number: int) -> None:
    """A whole page is zeros; a segment's first header copy lies in one, so it is left a copy."""
    rng = random.Random(number)
    name = segment_name(rng.randint(1, layout.serial))
    start = rng.randrange(len(layout.files[name]) // PAGE) * PAGE
    content = layout.files[name]
    content = content[:start] + bytes(PAGE) + content[start + PAGE :]
    disk = plant(layout, {name: content})
    what = f"page {number}: {name} {start}"
    serial = int(name.split(".")[0])
    hit = {
        (p.first, p.last) for p in layout.places
        if p.serial == serial and p.last and p.start < start + PAGE and start < p.end
    }  # fmt: skip
    refused = refusal(disk)
    disk.crash()
    if refused != "started":
        last = max((last for _, last in hit), default=0)
        assert (refused, last) == ("tail_damaged", layout.end), what
        return
    engine = Engine(disk)
    assert engine.recovered.next_position == layout.end, what
    lost = {p for first, last in served(disk, layout.end)[1] for p in range(first, last)}
    assert lost == {p for first, last in hit for p in range(first, last)}, what


def test_a_zeroed_page_costs_what_was_in_it(layout: Layout) -> None:
    for number in numbers(FLIPS):
        zero_page(layout, number)


# -- whole files --


def test_a_missing_newest_segment_is_refused(layout: Layout) -> None:
    disk = plant(layout, {})
    disk.remove(segment_name(layout.serial))
    with pytest.raises(StorageError, match=r"acknowledged|missing") as caught:
        Engine(disk)
    assert caught.value.code == "tail_damaged"


def test_any_two_swapped_segments_are_refused(layout: Layout) -> None:
    for one in range(1, layout.serial):
        for other in range(one + 1, layout.serial + 1):
            a, b = segment_name(one), segment_name(other)
            disk = plant(layout, {a: layout.files[b], b: layout.files[a]})
            assert refusal(disk) == "serial_gap", f"{a} and {b}"


def test_an_old_copy_of_any_segment_is_a_gap_or_refused(layout: Layout) -> None:
    """Each file as it was when half of it was written: a backup put back too eagerly."""
    for serial in range(1, layout.serial + 1):
        name = segment_name(serial)
        groups = [p for p in layout.of("group header") if p.serial == serial]
        cut = groups[len(groups) // 2].start
        old = layout.files[name][:cut].ljust(len(layout.files[name]), b"\0")
        gone = [p for p in layout.of("batch header") if p.serial == serial and p.start > cut]
        disk = plant(layout, {name: old})
        if serial == layout.serial:
            assert refusal(disk) == "tail_damaged"
        else:
            found = Engine(disk).recovered
            assert served(disk, found.next_position)[1] == [(gone[0].first, gone[-1].last)]


def refusal(disk: SimDisk) -> str:
    try:
        Engine(disk)
    except StorageError as error:
        return error.code
    return "started"


def without_headers(layout: Layout, serial: int) -> SimDisk:
    """Both copies of a segment's header are lost."""
    name = segment_name(serial)
    return plant(layout, {name: bytes(2 * PAGE) + layout.files[name][2 * PAGE :]})


def test_a_segment_without_headers_is_a_gap_wherever_it_is(layout: Layout) -> None:
    for serial in range(1, layout.serial):
        disk = without_headers(layout, serial)
        engine = Engine(disk)
        batches = [p for p in layout.of("batch header") if p.serial == serial]
        expected = [(batches[0].first, batches[-1].last)]
        assert served(disk, layout.end)[1] == expected, f"segment {serial}"
        told = [f.code for f in engine.recovered.findings]
        assert "journal.segment_unreadable" in told, f"segment {serial}: {told}"
        goes_on_behind(engine)


def goes_on_behind(engine: Engine) -> Recovered:
    """A start after damage, then another one."""
    before = served(engine.disk, engine.recovered.next_position)[1]  # type: ignore[arg-type]
    engine.disk.crash()  # type: ignore[attr-defined]
    again = Engine(engine.disk)
    assert served(engine.disk, again.recovered.next_position)[1] == before  # type: ignore[arg-type]
    return again.recovered


def test_a_newest_segment_without_headers_is_refused(layout: Layout) -> None:
    assert refusal(without_headers(layout, layout.serial)) == "tail_damaged"


def test_left_over_spare_files_are_never_taken_for_segments(layout: Layout) -> None:
    """Partly filled, garbage, or a copy of a real segment: thrown away and made again."""
    segment = layout.files[segment_name(2)]
    for content in (b"", bytes(5_000), random.Random(1).randbytes(30_000), segment):
        for spare in ("next.prepared", "next.allocated"):
            disk = plant(layout, {spare: content})
            engine = Engine(disk)
            assert not engine.recovered.findings
            goes_on(engine)
            served(disk, engine.writer.synced)


def test_a_note_that_is_gone_or_garbage_costs_nothing(layout: Layout) -> None:
    for content in (b"", bytes(576), random.Random(1).randbytes(576)):
        disk = plant(layout, {NOTE_FILE: content})
        assert Engine(disk).recovered.next_position == layout.end
        assert not served(disk, layout.end)[1]
