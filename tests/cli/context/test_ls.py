"""`zbroker-admin context ls` lists contexts, broken ones too."""

from __future__ import annotations

from tests.cli.context.running import context, document
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login


def test_without_any_it_says_how_to_make_one() -> None:
    assert "context add" in context("ls").stdout
    assert document("ls") == {"contexts": []}


def test_each_is_a_line() -> None:
    contexts.save("far", Context("tcp://h:1", "", "", Login("/k", "/s", "ann")))
    contexts.save("here", Context(data_dir="/d"))
    contexts.use("here")
    assert context("ls").stdout.splitlines() == [
        "context=far in_use=no url=tcp://h:1 data_dir=- config=- key=/k user=ann problem=-",
        "context=here in_use=yes url=- data_dir=/d config=- key=- user=- problem=-",
    ]


def test_a_broken_one_says_what_is_wrong() -> None:
    contexts.save("bad", Context()).write_text("x = 1")
    (row,) = document("ls")["contexts"]
    assert row["context"] == "bad"
    assert "bad.toml" in row["problem"]
