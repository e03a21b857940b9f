"""The archive of Spark's classes: a JVM maps it instead of loading each class anew.

Before its first batch a driver loads, checks and links some twenty thousand classes, a third of
what a start costs. Java can keep them as they are in memory (class data sharing, JEP 350) in a
file made by a JVM that ends (`headgate.demo.appcds_training`). It fits one Java and one class path:
for any other, and where there is none, Java loads classes as ever.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from infra.process import java_jars, jdk

INTO = "CLASSES_INTO"
"""Environment: a JVM that begins with it writes its classes there when it ends."""

_MAGIC = 0xF00BABA8.to_bytes(4, sys.byteorder)
"""How HotSpot begins such a file (`CDS_DYNAMIC_ARCHIVE_MAGIC` of its sources)."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is passed over without a word."""


NOT_GATHERED = "Spark's classes are not gathered, all works without"

_Say = Callable[[str], None]
Training = Callable[[_Say, bool], bool]
"""Makes the archive unless it is there; the flag: try again where it failed. Whether it is
there."""

_training: list[Callable[[], Training]] = []


def register_training(load: Callable[[], Training]) -> None:
    """Make known what runs the jobs for a moment so that their classes can be kept."""
    _training[:] = [load]


def train_archive(say: _Say, *, again: bool = False) -> bool:
    """Make the archive of this Java and class path if it is missing; whether it is there."""
    return bool(_training) and _training[0]()(say, again)


@cache
def file() -> Path:
    """Where the archive for this Java and these archives lies, or would."""
    java = jdk.java_command()
    identities = [jdk.version_text(java) if java else "", *map(_identity, class_path())]
    digest = hashlib.sha256("\n".join(identities).encode()).hexdigest()[:16]
    return java_jars.jars_folder() / f"classes-{digest}.jsa"


def is_whole(path: Path) -> bool:
    """Whether a JVM wrote it to its end: the first bytes come last.

    Java turns its own archive off as well where it is given one that is not.
    """
    if not path.exists():
        return False
    with path.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


def class_path() -> list[Path]:
    """What a local driver's JVM loads Spark from: our archives and all of pyspark's."""
    # Looked up, not imported: every command comes by here, and few need Spark.
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return [*ours(), *sorted((Path(spark.origin).parent / "jars").glob("*.jar"))]


def ours() -> list[Path]:
    """What of it stands before pyspark's."""
    return [*java_jars.paths("local"), *java_jars.paths("spark")]


def _identity(path: Path) -> str:
    stat = path.stat()
    return f"{path} {stat.st_size} {int(stat.st_mtime)}"  # Java compares the same


def options() -> str:
    """Options for a local driver's JVM, with a blank at their end; none without an archive."""
    if into := os.environ.get(INTO):
        return f"{shlex.quote(f'-XX:ArchiveClassesAtExit={into}')} {_QUIET} "
    there = file()
    return f"{shlex.quote(f'-XX:SharedArchiveFile={there}')} {_QUIET} " if there.exists() else ""
