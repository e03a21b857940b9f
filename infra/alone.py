"""The right to do something alone: a lock file that names its holder and is lost with it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from infra.errors import Fatal


class Taken(Fatal):
    """Another one has the right at the moment."""


class Alone:
    """Held by the living process. `refused` says, of the process that holds it, why it cannot be
    had; that is raised as `Taken`."""

    def __init__(self, file: Path, refused: Callable[[str], str]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise Taken(refused(holder)) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        self._file.close()
