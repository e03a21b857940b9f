"""The Java that runs Spark and the broker: which one it is, and whether it will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from infra.errors import Fatal

OLDEST = 17


def java_command() -> str | None:
    """The `java` that Spark's own launcher takes: that of JAVA_HOME, else the first on the PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java")


def require_java() -> str:
    """The command; raises `Fatal`, saying what to install, unless it is Java 17 or newer."""
    java = java_command()
    if java is None and (home := os.environ.get("JAVA_HOME")):
        raise Fatal(f"JAVA_HOME is {home}, which has no bin/java; correct it, or unset it")
    if java is None:
        raise Fatal(
            "Java was not found; install a JDK or JRE 17 or 21 (Debian: apt-get install "
            "openjdk-17-jre-headless) and put 'java' on the PATH"
        )
    number = version(java)
    if number < OLDEST:
        where = "set JAVA_HOME to one" if os.environ.get("JAVA_HOME") else "put one first on PATH"
        raise Fatal(f"{java} is Java {number}; Spark 4 needs Java 17 or 21: {where}")
    return java


def version(java: str) -> int:
    """Major version of a `java` command, 0 when it does not say."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text(java))
    return int(match[1]) if match else 0


@cache
def version_text(java: str) -> str:
    """What a `java` command says of itself, by its path; not what it took from the environment."""
    # Java tells its version on stderr.
    stderr = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    # Options of JAVA_TOOL_OPTIONS and the like are told first, in quotes of their own.
    lines = [line for line in stderr.splitlines() if not line.startswith("Picked up ")]
    return "\n".join(lines)
