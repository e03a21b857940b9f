"""What the batches of a driver take of the cores: CPU seconds of all its processes, by job.

Spark's own measure, `executorCpuTime`, knows the threads of tasks alone: neither Python workers,
where most of the work is done, nor planning, commits and collections of garbage. So the kernel is
asked for the processes as they are: this one, its JVM and the Python workers below that. What they
used is the batch's that ran meanwhile. Of several at once each is given the same part, as the fair
scheduler gives them the cores, and how much came about so is told beside it.

Source of the files: proc(5), `/proc/PID/stat` and `/proc/PID/task/TID/children`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.spark.internals import jvm_process

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_DAEMONS_SECONDS = 30.0
"""So long the daemons of workers are taken for the same: looking through all threads of a JVM
takes a millisecond or two."""
_PROC = Path("/proc")


CPU_COLUMNS = ("cpu_seconds", "cpu_shared_seconds", "cpu_between_seconds")
"""What a batch took; the part of it that was split among several; what was used without any."""


@dataclass
class CpuUse:
    """CPU seconds of a batch so far, and the part of them that was split."""

    used: float = 0.0
    shared: float = 0.0


class CpuMeter:
    """Tells batches apart that share processes; `read`: their CPU seconds so far, None: unknown.

    A batch goes by its job's checkpoint, which only one driver has.
    """

    def __init__(self, read: Callable[[], float | None]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._seen = 0.0  # not the first reading: what a start took is between batches as well
        self._between = 0.0
        self._running: dict[Path, CpuUse] = {}
        self._failed: dict[Path, CpuUse] = {}

    def begin(self, checkpoint: Path) -> None:
        """A batch begins; what a failed attempt at it took counts with it."""
        with self._lock:
            self._settle()
            self._running[checkpoint] = self._failed.pop(checkpoint, CpuUse())

    def fail(self, checkpoint: Path) -> None:
        """It ended without being in, and comes again."""
        with self._lock:
            self._settle()
            self._failed[checkpoint] = self._running.pop(checkpoint)

    def end(self, checkpoint: Path) -> dict[str, float | None]:
        """It is in: its columns of `ops.ledger`, null where nobody knows what it took."""
        with self._lock:
            complete = self._settle()
            use = self._running.pop(checkpoint)
            seconds = (use.used, use.shared, self._between)
            self._between = 0.0
        return {
            name: round(value, 3) if complete else None
            for name, value in zip(CPU_COLUMNS, seconds, strict=True)
        }

    def _settle(self) -> bool:
        """Charge what was used since the last time; False: nobody knows how much."""
        now = self._read()
        if now is None:
            return False
        # A worker that has ended and is not yet waited for is counted nowhere for a moment.
        more, self._seen = max(0.0, now - self._seen), max(self._seen, now)
        if not self._running:
            self._between += more
        for use in self._running.values():
            use.used += more / len(self._running)
            use.shared += more / len(self._running) if len(self._running) > 1 else 0.0
        return True


class DriverProcesses:
    """This process, the JVM that it began and the Python workers below that."""

    def __init__(self) -> None:
        # Without these files workers would count as nothing.
        self._shown = Path("/proc/thread-self/children").exists()
        self._daemons: list[int] = []
        self._looked = 0.0

    def seconds(self) -> float | None:
        """CPU seconds that they used so far, of those that have ended too; None: the system does
        not tell, or the JVM is not ours."""
        jvm = jvm_process()
        if jvm is None or not self._shown:
            return None
        try:
            ticks = _ticks(jvm.pid)
            for daemon in self._daemons_of(jvm.pid):
                with suppress(OSError):
                    ticks += _ticks(daemon) + sum(_each(_children(daemon)))
        except OSError:
            return None
        # Without its children: they are commands beside the jobs, and the JVM when it has ended.
        return time.process_time() + ticks / _TICKS

    def _daemons_of(self, jvm: int) -> list[int]:
        now = time.monotonic()
        gone = any(not (_PROC / str(pid)).exists() for pid in self._daemons)
        if gone or not self._daemons or now - self._looked > _DAEMONS_SECONDS:
            self._daemons, self._looked = list(_children(jvm)), now
        return self._daemons


def _children(pid: int) -> Iterator[int]:
    """Processes that any thread of a process began and that have not ended."""
    for thread in (_PROC / str(pid) / "task").iterdir():
        with suppress(FileNotFoundError):
            yield from map(int, (thread / "children").read_text("ascii").split())


def _each(pids: Iterator[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(OSError):
            yield _ticks(pid)


def _ticks(pid: int) -> int:
    """User and system time of a process and of its children that it waited for, in ticks."""
    stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    # Behind the name, which may hold anything; utime is the 14th field of all.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


DRIVER_METER = CpuMeter(DriverProcesses().seconds)
"""That of this process, which is one driver."""

UNMETERED = CpuMeter(lambda: None)
"""For a driver whose tasks run in other processes than its own, or on other machines."""


def cpu_meter_of(master: str | None) -> CpuMeter:
    """The meter of a driver of this master (`spark.master`)."""
    return DRIVER_METER if re.match(r"local($|\[)", master or "") else UNMETERED
