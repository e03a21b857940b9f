"""What a benchmark reports, and how CPU time is read."""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil

from infra.process import jdk
from infra.spark.worker_daemon import is_daemon

RESULTS = Path(__file__).with_name("results")


@dataclass
class Measure:
    """One figure. `ratio` is value against `compared_with`'s; `met` says whether the bar held."""

    name: str
    value: float | None
    unit: str
    repetitions: list[float] = field(default_factory=list)
    compared_with: str | None = None
    ratio: float | None = None
    bar: str | None = None
    met: bool | None = None


@dataclass
class Report:
    """A benchmark's outcome; `finish` prints it and keeps it."""

    name: str
    command: str
    notes: list[str] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)

    def add(self, name: str, repetitions: list[float], unit: str, **more: Any) -> Measure:
        """A figure with all its repetitions; the value is their median."""
        value = round(median(repetitions), 4) if repetitions else None
        measure = Measure(name, value, unit, [round(r, 4) for r in repetitions], **more)
        self.measures.append(measure)
        return measure

    def finish(self, *, keep: bool = True) -> None:
        """Print the table; `keep`: write it to `bench/results/` too."""
        if keep:
            self._keep()
        for m in self.measures:
            met = {True: "met", False: "NOT met", None: ""}[m.met]
            against = f"{m.ratio:.2f}x {m.compared_with}" if m.ratio is not None else ""
            bar = f"bar {m.bar}: {met}" if m.bar else ""
            print(f"{m.name:<44} {m.value!s:>10} {m.unit:<16} {against:<34} {bar}")
        for note in self.notes:
            print(f"  {note}")

    def _keep(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        content = {
            "name": self.name,
            "command": self.command,
            "machine": machine(),
            "versions": versions(),
            "notes": self.notes,
            "measures": [asdict(measure) for measure in self.measures],
        }
        (RESULTS / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What it ran on, without names."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        # The same machine is at times half as fast: figures of two days compare only beside this.
        "python_loop_cpu_seconds": _python_loop(),
    }


def _python_loop() -> float:
    """CPU seconds of a loop that never changes, the quickest of three."""

    def once() -> float:
        began, total = time.process_time(), 0
        for number in range(2_000_000):
            total += number * number % 7
        return time.process_time() - began

    return round(min(once() for _ in range(3)), 3)


def versions() -> dict[str, str]:
    """Versions that matter."""
    java = jdk.version_text(jdk.require_java()).splitlines()[0]
    packages = {name: version(name) for name in ("pyspark", "delta-spark", "pyarrow", "duckdb")}
    return {"python": sys.version.split()[0], "java": java, **packages}


def cpu_seconds(root: int | None = None) -> float:
    """CPU time of a process (this one) and all its descendants, finished workers included."""
    return sum(cpu_by_process(root).values())


def cpu_by_process(root: int | None = None) -> dict[tuple[int, float], float]:
    """The same by process, each known by its id and when it began."""
    top = psutil.Process(root)
    found: dict[tuple[int, float], float] = {}
    for process in (top, *top.children(recursive=True)):
        try:
            used, begun = process.cpu_times(), process.create_time()
        except psutil.Error:
            continue
        own = used.user + used.system
        found[process.pid, begun] = own + used.children_user + used.children_system
    return found


def cpu_since(before: Mapping[tuple[int, float], float]) -> float:
    """CPU time since `cpu_by_process` said `before`.

    Spark ends Python workers that were idle for a minute, and nobody inherits what they
    used: a difference of two sums would be short by all of it.
    """
    now = cpu_by_process()
    return sum(used - before.get(process, 0.0) for process, used in now.items())


def cut(values: Sequence[float], percent: int) -> float:
    """A percentile, as Python's inclusive method has it."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def settle(longest: float = 20.0) -> None:
    """Wait until the JVM has done what it still does of the last round, such as compiling it."""
    end = time.monotonic() + longest
    while time.monotonic() < end:
        before = cpu_by_process()
        time.sleep(0.5)
        if cpu_since(before) < 0.05:
            return


class WorkerMemory:
    """The largest resident set that one of Spark's Python workers had, looked at as they run."""

    def __init__(self, every: float = 0.25) -> None:
        self.peak = 0
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        top = psutil.Process()
        while not self._done.wait(self._every):
            for process in top.children(recursive=True):
                try:
                    if is_daemon(process.cmdline()):
                        self.peak = max(self.peak, process.memory_info().rss)
                except psutil.Error:
                    continue
