"""The right to do something alone: a lock file that names its holder and is lost with it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from infra.errors import Fatal, HeadgateError, Retryable

LockRefused = Callable[[str], str]
"""Says, of the process that holds a right, why it cannot be had."""


class Taken(Fatal):
    """Another one has the right at the moment."""


class ExclusiveLock:
    """Held by the living process; raises `Taken` where another one holds it."""

    def __init__(self, file: Path, refused: LockRefused) -> None:
        self._file = _locked(file, fcntl.LOCK_EX, lambda holder: Taken(refused(holder)))
        self._file.seek(0)
        self.abandoned = bool(self._file.read().strip())
        """Whether who had it last ended without giving it back: was killed, or the machine was."""
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        # Whoever is refused reads the holder from the file while this process lives.
        self._file.flush()

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        if not self._file.closed:
            # A number that is still in it would say that this process was killed.
            with suppress(OSError):  # it may only look as if it had been abandoned
                self._file.truncate(0)
        self._file.close()


class SharedLock:
    """Held by any number of living processes, and by none while one is `Alone` with the file.

    Raises `Retryable` then: whoever wants to be beside others wants no more than that one's end.
    """

    def __init__(self, file: Path, refused: LockRefused) -> None:
        self._file = _locked(file, fcntl.LOCK_SH, lambda holder: Retryable(refused(holder)))

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        self._file.close()


def _locked(file: Path, kind: int, refusal: Callable[[str], HeadgateError]) -> IO[str]:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Not "w", which would empty the file, and the holder's name in it, before the lock is ours.
    opened = file.open("a+")
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        opened.seek(0)
        holder = opened.read().strip() or "another process"
        opened.close()
        raise refusal(holder) from None
    return opened
