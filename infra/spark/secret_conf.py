"""Spark settings that hold a secret: they reach the JVM by a file, never by its command line.

PySpark starts the JVM with `--conf NAME=VALUE` for all it knows by then, and everybody on
the machine may read that. `--properties-file` is read once, while the JVM starts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.config.secrets import is_secret
from infra.storage.atomic_files import write_private

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


def split_secrets(conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings that may be seen, and those that hold a secret."""
    secret = {name: value for name, value in conf.items() if is_secret(name)}
    return {name: conf[name] for name in conf if name not in secret}, secret


@contextmanager
def handed_over(secret: Mapping[str, str], folder: Path) -> Iterator[None]:
    """A JVM that is started inside gets these settings; the file is gone afterwards."""
    if not secret:
        yield
        return
    file = folder / f"secret-{os.getpid()}.properties"
    write_private(file, "".join(f"{name}={_escaped(secret[name])}\n" for name in secret))
    before = os.environ.get(_ARGUMENTS)
    # With a properties file given, Spark leaves out its own defaults unless told otherwise.
    ours = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{ours} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before
        file.unlink(missing_ok=True)


def _escaped(value: str) -> str:
    """As `java.util.Properties` reads it."""
    # Java escapes units of UTF-16, of which a character may take two.
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[index : index + 2], "big") for index in range(0, len(units), 2)]
    return "".join(chr(c) if 32 < c < 127 and chr(c) != "\\" else f"\\u{c:04x}" for c in codes)
