"""Claims about backfilling: an input is known by what it is, and published once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from zbroker.cli.main import main
from zbroker.errors import ClientError
from zbroker.spark.jobs.backfill import Input, format_of, identity, listed


def table(directory: Path, rows: int = 3) -> Path:
    directory.mkdir()
    lines = "".join(f"{number},name {number}\n" for number in range(rows))
    (directory / "part.csv").write_text("id,name\n" + lines)
    (directory / "_SUCCESS").write_text("")
    (directory / ".hidden.csv").write_text("x\n")
    return directory


def test_only_what_spark_reads_is_part_of_the_identity(tmp_path: Path) -> None:
    assert [name for name, _, _ in listed(str(table(tmp_path / "in")))] == ["part.csv"]


def test_an_input_is_the_same_until_its_files_change(tmp_path: Path) -> None:
    path = table(tmp_path / "in")
    known = identity(Input(str(path)), "t")
    assert identity(Input(str(path)), "t") == known
    assert identity(Input(str(path)), "other") != known
    assert identity(Input(str(path), payload="name"), "t") != known
    os.utime(path / "part.csv", ns=(1, 1))
    assert identity(Input(str(path)), "t") != known


def test_an_input_that_no_one_sees_has_no_identity(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="--publish-id"):
        identity(Input("s3://bucket/table"), "t")


def test_names_say_the_format(tmp_path: Path) -> None:
    assert format_of(str(table(tmp_path / "in"))) == "csv"
    assert format_of("s3://bucket/table.parquet") == "parquet"
    with pytest.raises(ClientError, match="--format"):
        format_of(str(tmp_path / "nothing"))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["spark", "backfill", *map(str, arguments), "--json"])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.process
def test_rows_are_published_once(spark: Any, tmp_path: Path) -> None:
    path = table(tmp_path / "in")
    with zbroker.LocalBroker(tmp_path / "data") as broker:
        for _ in range(2):
            done = run(path, broker.url, "--topic", "rows", "--order-by", "id")
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["rows"] == 3
        wrong = run(path, broker.url, "--topic", "rows", "--payload", "nothing")
        assert (wrong.exit_code, "no column 'nothing'" in wrong.stderr) == (1, True)
        with (
            zbroker.connect(broker.url) as client,
            client.subscribe("rows", since="epoch", until="now") as subscription,
        ):
            found = [json.loads(message.data) for message in subscription]
    assert found == [{"id": str(number), "name": f"name {number}"} for number in range(3)]
