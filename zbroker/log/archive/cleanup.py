"""Throws away what unfinished work left behind, and summaries of segments that are gone."""

from __future__ import annotations

import re
from typing import Final

from zbroker.errors import StorageError
from zbroker.log import owner
from zbroker.log.disk import Disk
from zbroker.log.places import SegmentPlaces

_PART: Final = re.compile(r"\d{10}\.(journal|journal\.zst|idx)\.part")
_SUMMARY: Final = re.compile(r"(\d{10})\.idx")


def tidy(places: SegmentPlaces) -> list[str]:
    """The names of the files that were thrown away. Not while anything is copied or packed.

    Raises: StorageError, also foreign_instance.
    """
    owner.check(places)
    serials = set(places.by_serial())
    thrown: list[str] = []
    for disk in (places.journal, places.archive):
        if disk is not None:
            thrown += _tidy(disk, serials)
    return thrown


def _tidy(disk: Disk, serials: set[int]) -> list[str]:
    names = [name for name, _ in _listed(disk) if _is_rubbish(name, serials)]
    for name in names:
        disk.unlink(name)
    return names


def _listed(disk: Disk) -> list[tuple[str, int]]:
    try:
        return disk.list()
    except StorageError as error:
        if error.code != "file_missing":
            raise
        return []  # an archive directory that was not made yet


def _is_rubbish(name: str, serials: set[int]) -> bool:
    if _PART.fullmatch(name):
        return True
    summary = _SUMMARY.fullmatch(name)
    return summary is not None and int(summary[1]) not in serials
