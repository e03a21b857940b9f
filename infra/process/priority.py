"""Work that stands back behind the jobs of the same machine, by its priority for the CPU.

Linux with `sched_autogroup` shares the cores between sessions first: there a nice value counts
within one session only, and so does SCHED_IDLE. A session has a nice value of its own, which any
process may raise (sched(7)). Where that is not, plain nice counts alone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

LOWEST = 19
_SESSION = Path("/proc/self/autogroup")
"""Such as `/autogroup-17 nice 0`; a number that is written there is its new nice value."""
_TRIES = 10
_AGAIN_SECONDS = 0.11
"""Linux takes one such change in a tenth of a second, of all processes without privileges."""
_FURTHER = 5
"""How far the threads of long questions stand behind the others of their process."""

_nice = 0


def stand_back(nice: int) -> None:
    """Lower this process, and what it starts, to `nice` (0 to 19), where it is not lower already.

    Its session is lowered where this process began it; a person's terminal never is.
    """
    global _nice
    # Up to that and no further: what starts us on a schedule may have been nice already.
    _nice = min(nice, os.nice(max(0, nice - os.nice(0))))
    if nice and leads_session():
        lower_session(nice)


def stands_at() -> int:
    """What `stand_back` came to last in this process; 0 where it was not asked for."""
    return _nice


def leads_session() -> bool:
    """Whether this process began the session that it is in."""
    return os.getsid(0) == os.getpid()


def lower_session(nice: int) -> None:
    """Lower the session of this process to `nice`; nothing where a system knows no such value."""
    for _ in range(_TRIES):
        try:
            if int(_SESSION.read_text("ascii").split()[-1]) < nice:
                _SESSION.write_text(str(nice), "ascii")
            return
        except BlockingIOError:
            time.sleep(_AGAIN_SECONDS)
        except (OSError, ValueError, IndexError):
            return


def lower_thread() -> None:
    """Put the calling thread behind the others of a process that stands back."""
    # Elsewhere than on Linux that number is not a thread's, and may be another process's.
    if _nice and sys.platform == "linux":
        with suppress(OSError):
            lower = min(LOWEST, _nice + _FURTHER)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lower)
