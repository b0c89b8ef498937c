"""`zbroker-admin journal ls | info`: the segments of the log; the log as a whole, or one segment.

Both read the files; with --url `ls` asks the running instance. Answer of `ls`: per segment serial,
place (journal or archive), packed, positions [first, end), times, bytes of the file, size of the
segment when it is not compressed, open. Answer of `info`, which reads every batch header once:
whose log it is, its generations with their first positions, positions, note, counts, times, topics,
space and compression; of one segment also its header and all its copies.

    zbroker-admin --data-dir /var/lib/zbroker journal ls
    zbroker-admin --url tcp://127.0.0.1:9101 --json journal ls
    zbroker-admin --json journal info 17
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import progress, show
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import opened
from zbroker.cli.journal.description import describe, newest_snapshot, segment_rows
from zbroker.cli.journal.folded import folded, missing_rows
from zbroker.clock import format_time
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.format import SegmentHeader
from zbroker.log.reader import Log
from zbroker.log.segments import read_note
from zbroker.paths import Paths

SIZES: Final = ("bytes", "size", "body_bytes", "journal_bytes", "archive_bytes")
TOPICS_SHOWN: Final = 20  # in text; JSON has more
COLUMNS: Final = show.columns(
    "serial:0 place packed:3 first:0 end first_time:4 last_time:2 bytes size:4 open:3",
    sizes="bytes size",
)


@click.command(cls=AdminCommand)
def ls(target: Target) -> None:
    """List the segments of the log, oldest first.

    `first` is the first position in a segment, `end` the one after its last. `bytes` is the size of
    the file, `size` that of its content uncompressed.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal ls
    """
    rows = rows_of(target)
    show.answer(target.as_json, {"segments": rows}, lambda: show.table(COLUMNS, rows))


def rows_of(target: Target) -> list[dict[str, Any]]:
    """The segments, as the instance at the URL tells them or as the files do."""
    if target.url:
        found: list[dict[str, Any]] = target.ask("/journal")["segments"]
        return found
    with opened.log(target) as log:
        if log.missing:
            names = f"{log.missing.start} to {log.missing.stop - 1}"
            reason = f"segments {names} are not there although they were not removed"
            show.warn(str(ZBrokerError("segments_missing", reason, "is the archive mounted?")))
        return segment_rows(log)


@click.command(cls=AdminCommand)
@click.argument("serial", required=False, type=click.IntRange(min=1))
def info(target: Target, serial: int | None) -> None:
    """Describe the log, or with SERIAL one segment.

    `size` is what the segments hold, `bytes` what their files take, `ratio` the one by the other.
    `snapshot` is the newest segment with a complete state snapshot: only older ones can be removed.
    `generations` are those of which segments are here, each from its first position here. `missing`
    are ranges of origins that are not here, as `zbroker-admin replication missing` lists them.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal info 17
    """
    paths = opened.find(target)
    with opened.log(target) as log, progress.bar() as step:
        found = of_segment(log, paths, serial, step) if serial else of_log(log, paths, step)
    show.answer(target.as_json, found, lambda: _show(found))


def of_log(log: Log, paths: Paths, step: progress.Step) -> dict[str, Any]:
    """The whole log."""
    places, copies = log.places.list(), log.places.copies()
    note, end = read_note(log.places.journal), log.end()
    taken, size = sum(p.file_bytes for p in copies), sum(map(log.places.size, places))
    return {
        "instance": f"{log.instance:016x}",
        "generation": log.generation,
        "generations": [
            {"generation": generation, "first": first} for generation, first in log.history.begins
        ],
        "directory": str(paths.journal),
        "archive_directory": str(paths.archive),
        "floor": log.first_position,
        "end": end,
        "note": note._asdict() | {"instance": f"{note.instance:016x}"} if note else None,
        "segments": len(places),
        "archived": sum(place.archived for place in places),
        "packed": sum(place.packed for place in places),
        "missing_segments": list(log.missing),
        "missing": missing_rows(folded(log).sessions),
        "journal_bytes": sum(place.file_bytes for place in copies if not place.archived),
        "archive_bytes": sum(place.file_bytes for place in copies if place.archived),
        "bytes": taken,
        "size": size,
        "ratio": _ratio(size, taken),
        "snapshot": newest_snapshot(log, end),
        **describe(log, (log.first_position, end), step).as_dict(),
    }


def of_segment(log: Log, paths: Paths, serial: int, step: progress.Step) -> dict[str, Any]:
    """One segment. Raises: ZBrokerError not_found."""
    by_serial = log.places.by_serial()
    if serial not in by_serial:
        there = f"there are {min(by_serial)} to {max(by_serial)}" if by_serial else "there is none"
        raise ZBrokerError("not_found", f"there is no segment {serial}", there)
    place = by_serial[serial][0]
    header = log.places.header(place)
    if not isinstance(header, SegmentHeader):
        reason = f"both copies of the header of segment {serial} are damaged: {header.why}"
        raise ZBrokerError("damaged", reason, "`journal verify` shows all damage")
    follower = by_serial.get(serial + 1)
    after = log.places.header(follower[0]) if follower else None
    end = after.first_position if isinstance(after, SegmentHeader) else log.end()
    size = log.places.size(place)
    return {
        "serial": serial,
        "instance": f"{header.instance:016x}",
        "generation": header.generation,
        "first": header.first_position,
        "previous_last_position": header.previous_last_position,
        "previous_end": header.previous_end,
        "salt": f"{header.salt:016x}",
        "created": format_time(header.created_ns),
        "end": end,
        "open": follower is None,
        "copies": [
            {
                "file": str(opened.file_of(paths, copy)),
                "place": "archive" if copy.archived else "journal",
                "packed": copy.packed,
                "bytes": copy.file_bytes,
            }
            for copy in by_serial[serial]
        ],
        "bytes": place.file_bytes,
        "size": size,
        "used_bytes": after.previous_end if isinstance(after, SegmentHeader) else None,
        "ratio": _ratio(size, place.file_bytes),
        "snapshot": newest_snapshot(log, end) == serial,
        **describe(log, (header.first_position, end), step).as_dict(),
    }


def _ratio(size: int, taken: int) -> float | None:
    return round(size / taken, 2) if taken else None


def _show(found: dict[str, Any]) -> None:
    topics, copies = found.pop("topics"), found.pop("copies", [])
    missing = found.get("missing", [])
    if "missing" in found:
        found["missing"] = len(missing)
    found["gaps"] = len(found["gaps"])
    if "generations" in found:
        found["generations"] = [
            f"{one['generation']} from {one['first']}" for one in found["generations"]
        ]
    found["topics"] = len(topics)
    if isinstance(found.get("note"), dict):
        found |= {f"note.{key}": value for key, value in found.pop("note").items()}
    show.facts(found, SIZES)
    for copy in copies:
        click.echo(f"copy {copy['file']} ({copy['bytes']} bytes)")
    for one in missing:
        click.echo(f"missing of {one['origin']}: {one['first']} to {one['last']} ({one['why']})")
    rows = [{"topic": name, "messages": count} for name, count in topics.items()]
    if rows:
        show.table(show.columns("topic messages"), rows[:TOPICS_SHOWN])
    if len(rows) > TOPICS_SHOWN:
        click.echo(f"and {len(rows) - TOPICS_SHOWN} more topics: --json shows all")
