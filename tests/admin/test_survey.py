"""zbroker/admin/survey.py: what the two directories hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.admin.rig import Rig
from zbroker.admin.survey import Catalog
from zbroker.errors import StorageError
from zbroker.log.places import LOOKS_MAX, SegmentPlace, SegmentPlaces


@pytest.fixture
def listing(tmp_path: Path) -> Catalog:
    paths = Rig(tmp_path / "data", segments=3).paths
    return Catalog(paths.journal, paths.archive)


def _remove_when_read(monkeypatch: pytest.MonkeyPatch, *serials: int) -> list[int]:
    removed: list[int] = []
    header = SegmentPlaces.header

    def read(places: SegmentPlaces, place: SegmentPlace) -> object:
        if place.serial in serials and place.serial not in removed:
            removed.append(place.serial)
            places.unlink(place)
        return header(places, place)

    monkeypatch.setattr(SegmentPlaces, "header", read)
    return removed


def test_a_segment_that_is_removed_while_they_are_listed_is_left_out(
    listing: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [row.serial for row in listing.rows()]
    listing = Catalog(listing._journal, listing._archive)
    removed = _remove_when_read(monkeypatch, *before[:2])
    assert [row.serial for row in listing.rows()] == before[2:]
    assert removed == before[:2]


def test_a_segment_that_is_never_there_is_an_error_in_the_end(
    listing: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def gone(places: SegmentPlaces, place: SegmentPlace) -> None:
        looks.append(place)
        raise StorageError("file_missing", "read")

    monkeypatch.setattr(SegmentPlaces, "header", gone)
    with pytest.raises(StorageError, match="read"):
        listing.rows()
    assert len(looks) == LOOKS_MAX
