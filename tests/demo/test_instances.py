"""Claims about instances of the demo that need none of them."""

from __future__ import annotations

from pathlib import Path

from zbroker.demo import copies
from zbroker.demo.instances import instances_in


def test_each_instance_sends_to_the_others_and_waits_for_one() -> None:
    a, b, c = instances_in(Path("demo"), copies.NAMES)
    a.configure([b, c], copies.SETTINGS)
    assert [(table["name"], table["to"]) for table in a.settings["destination"]] == [
        (one.name, [one.listen["replication"]]) for one in (b, c)
    ]
    assert a.settings["replication"] == {"sync_needed": 1}


def test_each_has_a_directory_and_ports_of_its_own() -> None:
    made = instances_in(Path("demo"), ["north", "south"])
    assert [one.data for one in made] == [Path("demo/north"), Path("demo/south")]
    addresses = [address for one in made for address in one.listen.values()]
    assert len(set(addresses)) == 10
    assert made[0].listen["admin"].startswith("http://")


def test_keys_of_a_destination_are_those_of_each() -> None:
    north, south = instances_in(Path("demo"), ["north", "south"])
    north.configure([south], {}, {"downgrade_after": "2s"})
    [table] = north.settings["destination"]
    assert table["mode"] == "sync"
    assert table["downgrade_after"] == "2s"
