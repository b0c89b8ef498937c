"""Runs `zbroker-admin context`."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from zbroker.cli.admin_main import main


def context(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["context", *arguments], prog_name="zbroker-admin")


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(context(*arguments, "--json").stdout)
    return found
