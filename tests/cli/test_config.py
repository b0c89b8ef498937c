"""`zbroker config`: check, show, example."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from zbroker import config
from zbroker.cli.main import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], prog_name="zbroker")


def test_check_says_that_a_file_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_text(config.example())
    result = run("check", "-c", str(path))
    assert (result.exit_code, result.output) == (0, f"{path}: ok\n")


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_text("[journal]\nsegmentsize = 1\n")
    result = run("check", "-c", str(path))
    assert result.exit_code == 78
    assert f"{path}:2: unknown key `journal.segmentsize`" in result.stderr


def test_show_prints_settings_that_load(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_text("[journal]\nsegment_size = '8MiB'\n")
    shown = run("show", "-c", str(path)).output
    assert config.parse(shown, "shown") == config.load(path)


def test_example_prints_the_example() -> None:
    assert run("example").output == config.example()
