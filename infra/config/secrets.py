"""Secrets in files: read late, by their owner alone, and never shown."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.errors import Fatal, Usage

_SHOWN = "*****"
"""What stands where a secret was."""

NAMES = r"(?i)secret|passw|token|credential|jaas|access[._]?key|private[._]?key|ssl\.key\.pem"
"""Names of options that hold a secret, by which Spark hides their values too."""

_SECRET = re.compile(NAMES)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def of_file(path: Path, what: str) -> str:
    """The one line of a secret's file, without its end; `what` is the setting that names it.

    Raises `Fatal` when it cannot be read, is empty, or is open to others. The rule is
    PostgreSQL's for keys: a file of our own 0600 or less, one of root's 0640 or less
    (https://www.postgresql.org/docs/current/ssl-tcp.html).
    """
    try:
        with path.open("rb") as file:
            # Of the open file: under its name there may be another one by now.
            about = os.fstat(file.fileno())
            # Bounded: a device that is named by mistake may never end.
            text = file.read(65536).decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Fatal(f"{what} = {path}: cannot be read ({why})") from None
    if stat.S_ISREG(about.st_mode):
        require_closed(path, what, about)
    if not text or "\n" in text:
        raise Fatal(f"{what} = {path}: holds {'nothing' if not text else 'several lines'}")
    return text


def require_closed(path: Path, what: str, about: os.stat_result) -> None:
    """Raises `Fatal` where a secret's file belongs to, or is open to, others than us and root."""
    if about.st_uid not in (0, os.geteuid()):
        raise Fatal(f"{what} = {path}: belongs to another user (uid {about.st_uid})")
    if about.st_mode & (0o037 if about.st_uid == 0 else 0o077):
        raise Fatal(f"{what} = {path}: others may read it; run chmod 600 {path}")


def either(
    given: SecretStr | None, file: Path | None, what: str, variable: str | None = None
) -> str | None:
    """A secret from its setting, from the file that the setting `<what>_file` names, or from an
    environment variable.

    Raises `Usage` where that variable is not set.
    """
    if given is not None:
        return given.get_secret_value()
    if file is not None:
        return of_file(file, f"{what}_file")
    if variable is None:
        return None
    # Empty is as if not set: that is how units of systemd and of containers often leave it.
    value = os.environ.get(variable, "")
    if not value:
        raise Usage(f"{what}: environment variable {variable} is not set")
    return value


def is_secret(name: str) -> bool:
    """Whether an option of that name holds a secret."""
    return _SECRET.search(name) is not None


def without_secrets(value: Any, name: str = "") -> Any:
    """Settings as they may be shown: secrets, and users and passwords in URLs, replaced."""
    if isinstance(value, Mapping):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(inner, name) for inner in value]
    if isinstance(value, SecretStr):
        return _SHOWN
    if isinstance(value, str):
        # The name of a file, or of a variable, that holds a secret is none.
        plain = not is_secret(name) or name.endswith(("_file", "_env"))
        return _IN_URL.sub(_SHOWN, value) if plain else _SHOWN
    return value
