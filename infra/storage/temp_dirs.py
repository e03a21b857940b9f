"""A folder for what a process needs only while it lives.

Spark and the native libraries in its archives remove their temporary files when their JVM ends
in order. After a kill -9, a power cut or a want of memory they would stay for ever: RocksDB's
library (15 MB) with each start, and with it the working copies of states.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import socket
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TextIO

_LOCK = "lock"
_held: list[TextIO] = []
"""Locks of this process's folders. The kernel takes them back when it ends, however it ends."""


@cache
def scratch(root: Path) -> Path:
    """This process's own folder below `root`, which nobody else may read.

    It goes with the process; where that was killed, with the next of its machine that asks.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK).open("a") as turn:  # else a folder is seen before it is locked
        fcntl.flock(turn, fcntl.LOCK_EX)
        for old in root.iterdir():
            # Locks need not reach other machines: what theirs left is theirs to remove.
            if _machine(old) == socket.gethostname() and not _in_use(old):
                # A JVM whose driver was killed may still be writing its last.
                shutil.rmtree(old, ignore_errors=True)
        mine = Path(mkdtemp(prefix=f"{socket.gethostname()}-{os.getpid()}-", dir=root))
        lock = (mine / _LOCK).open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(lock)
    atexit.register(shutil.rmtree, mine, ignore_errors=True)
    return mine


def _machine(folder: Path) -> str:
    """Of a name MACHINE-PROCESS-CHANCE; anything else is not ours."""
    return folder.name.rpartition("-")[0].rpartition("-")[0]


def _in_use(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # half made, or half removed
        return False
    return False
