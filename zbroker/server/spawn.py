"""Another Python process that finds exactly the modules that this one does.

`python -m` would put the current directory first, where a user's `random.py` may lie; and it would
not find a package that only this process knows.
"""

from __future__ import annotations

import json
import sys
from typing import Final

_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from {module} import main; sys.exit(main())"
)


def command(module: str, *arguments: str) -> list[str]:
    """What to execute to call `module`'s `main` with these arguments in sys.argv."""
    code = _CODE.format(module=module)
    return [sys.executable, "-P", "-c", code, json.dumps(sys.path), *arguments]
