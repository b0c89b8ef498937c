"""Queues of several instances: what their configs have to say alike, and how they are linked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from zbroker import config
from zbroker.cli.admin_main import main
from zbroker.cli.replication.queue_validation import queue_mismatches
from zbroker.cli.replication.validation import Host

WORK = '[[queue]]\nname = "work"\ntopic = "t"\nscope = "distributed"\n'
OWNED = '[[queue]]\nname = "work"\ntopic = "t"\nscope = "group-local"\ninitial_owner = "{}"\n'
LOCAL = '[[queue]]\nname = "work"\ntopic = "t"\n'


def sends(to: str, *topics: str) -> str:
    table = f'[[destination]]\nname = "{to}"\nto = ["tcp://{to}.example:9104"]\n'
    return table + (f"topics = {json.dumps(topics)}\n" if topics else "")


def text_of(name: str, *parts: str) -> str:
    listens = f'[instance]\nname = "{name}"\n[listen]\nreplication = "tcp://127.0.0.1:9104"\n'
    return listens + "".join(parts)


def found(**instances: list[str]) -> list[tuple[str, str, str]]:
    hosts = [
        Host(name, config.parse(text_of(name, *parts), f"{name}.toml"))
        for name, parts in instances.items()
    ]
    rows = queue_mismatches(hosts)
    assert all(row.fix for row in rows)
    return [(row.level, row.instance, row.text) for row in rows]


@pytest.mark.parametrize(
    "instances",
    [
        {"a": [WORK, sends("b")], "b": [WORK, sends("a")]},
        {"a": [WORK, sends("b")], "b": [WORK, sends("c")], "c": [WORK, sends("a")]},
        {
            "a": [WORK, sends("b")], "b": [WORK, sends("a"), sends("c")],
            "c": [WORK, sends("b"), sends("audit", "t")], "audit": [],
        },
        {"a": [OWNED.format("b"), sends("b")], "b": [OWNED.format("b"), sends("a")]},
        {"a": [LOCAL, sends("b")], "b": [LOCAL, sends("a")]},
        {"a": [LOCAL, sends("b")], "b": []},
    ],
)  # fmt: skip
def test_a_mesh_a_ring_and_a_star_are_right(instances: dict[str, list[str]]) -> None:
    assert found(**instances) == []


@pytest.mark.seed("000-34")
def test_a_queue_needs_both_directions() -> None:
    rows = found(a=[WORK, sends("b")], b=[WORK, sends("elsewhere")])
    [(level, instance, text)] = rows
    assert (level, instance) == ("error", "b")
    assert "nothing leads from b to a" in text


@pytest.mark.seed("000-28")
def test_acknowledgements_have_a_way_to_each_instance_that_has_the_queue() -> None:
    """c sends to nobody who passes it on: b and c are the pair that lacks a way, and c and a."""
    rows = found(
        a=[WORK, sends("b"), sends("c")], b=[WORK, sends("a")], c=[WORK, sends("d")], d=[],
    )  # fmt: skip
    errors = {(instance, text.split(",")[0]) for level, instance, text in rows if level == "error"}
    assert errors == {
        ("c", "queue work: nothing leads from c to a"),
        ("c", "queue work: nothing leads from c to b"),
    }


@pytest.mark.seed("000-38")
def test_a_link_with_topics_between_instances_of_a_queue_is_an_error() -> None:
    """Also with the topic of the queue: acknowledgements have none. Others lead there, too, but an
    origin comes under one list of topics."""
    mesh = {
        "a": [WORK, sends("b", "t"), sends("c")], "b": [WORK, sends("a"), sends("c")],
        "c": [WORK, sends("a"), sends("b")],
    }  # fmt: skip
    [(level, instance, text)] = found(**mesh)
    assert (level, instance) == ("error", "a")
    assert "this link has `topics`: it carries no acknowledgements, and only messages of t" in text
    large = mesh | {"a": [WORK, sends("b") + 'filter = "/n > 1"\n', sends("c")]}
    [(level, instance, text)] = found(**large)
    assert (level, instance) == ("error", "a")
    assert "this link has `filter`: it carries no acknowledgements" in text
    assert "only messages of all topics where /n > 1" in text


@pytest.mark.seed("000-35")
@pytest.mark.parametrize(
    ("there", "key"),
    [
        (WORK.replace('"t"', '"u"'), "topic"),
        (WORK + 'filter = "/a > 1"\n', "filter"),
        (OWNED.format("a"), "scope"),
        (WORK + 'semantics = "at-most-once"\n', "semantics"),
    ],
)
def test_a_queue_is_the_same_on_all(there: str, key: str) -> None:
    rows = found(a=[WORK, sends("b")], b=[there, sends("a")])
    assert {(level, instance) for level, instance, _ in rows} == {("error", "b")}
    assert key in {text.split("`")[1] for _, _, text in rows}


def test_an_instance_without_the_table_is_named() -> None:
    [(level, instance, text)] = found(a=[WORK, sends("b")], b=[sends("a")])
    assert (level, instance) == ("warning", "b")
    assert text == "b has no [[queue]] work, and gets that queue with the log of a"


@pytest.mark.seed("000-43")
def test_a_queue_that_is_local_on_one_of_them_is_an_error(tmp_path: Path) -> None:
    files = []
    for name, other, queue in (("a", "b", LOCAL), ("b", "a", WORK)):
        file = tmp_path / f"{name}.toml"
        file.write_text(text_of(name, queue, sends(other)))
        files.append(str(file))
    done = CliRunner().invoke(main, ["--json", "replication", "validate", *files])
    assert done.exit_code == 1
    [row] = json.loads(done.stdout)["mismatches"]
    assert (row["level"], row["instance"]) == ("error", "b")
    assert row["text"] == "`scope` of queue work is 'local' at a and 'distributed' at b"
    assert row["fix"].startswith("a local queue cannot be replicated")


@pytest.mark.seed("000-37")
def test_the_initial_owner_is_the_same_everywhere() -> None:
    a, b = OWNED.format("a"), OWNED.format("b")
    [(level, instance, text)] = found(a=[a, sends("b")], b=[b, sends("a")])
    assert (level, instance) == ("error", "b")
    assert text == "`initial_owner` of queue work is 'a' at a and 'b' at b"


@pytest.mark.parametrize(
    ("owner", "more", "level", "part"),
    [
        ("nobody", [], "error", "no instance has that name: nothing is offered"),
        ("c", [], "warning", "c has no such table"),
        ("away", [sends("away")], "warning", "it is not among these files"),
    ],
)
def test_the_initial_owner_has_the_queue(
    owner: str, more: list[str], level: str, part: str
) -> None:
    table = OWNED.format(owner)
    rows = found(
        a=[table, sends("b"), sends("c"), *more], b=[table, sends("a"), sends("c")],
        c=[sends("a"), sends("b")],
    )  # fmt: skip
    about = [(one, instance) for one, instance, text in rows if part in text]
    assert about == [(level, "a"), (level, "b")]
