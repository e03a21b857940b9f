"""`headgate parse` on recorded lines of sshd: seconds and CPU seconds, on one core and on all."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from bench.measure import Report
from infra.spark.session import project_root

AIM_SECONDS = 4.0
_NOW = "2026-01-01T00:00:00Z"
"""When the records are said to have arrived: else two runs differ."""


@dataclass(frozen=True)
class _Run:
    seconds: float
    cpu_seconds: float
    digest: str


def run(quick: bool = False) -> Report:
    """100,000 lines (quick: 20,000), one core and all in turn; what they write must be equal."""
    count, repetitions = (20_000, 1) if quick else (100_000, 5)
    report = Report("parse_cli", "make bench ONLY=parse_cli")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        recorded = _recorded()
        file.write(b"".join(islice(cycle(recorded), count)))
        file.flush()
        pairs = [
            (_parse(Path(file.name), cores[:1]), _parse(Path(file.name), cores))
            for _ in range(repetitions)
        ]
    if len({each.digest for pair in pairs for each in pair}) > 1:
        raise SystemExit("one core and all of them do not write the same objects")
    single = report.add("on one core", [one.seconds for one, _ in pairs], "s")
    every = report.add(
        f"on {len(cores)} cores", [many.seconds for _, many in pairs], "s",
        compared_with="on one core", bar=f"<= {AIM_SECONDS:.0f} s",
    )  # fmt: skip
    if single.value and every.value:
        every.ratio, every.met = every.value / single.value, every.value <= AIM_SECONDS
    report.add("on one core, CPU", [one.cpu_seconds for one, _ in pairs], "CPU s")
    report.add(f"on {len(cores)} cores, CPU", [many.cpu_seconds for _, many in pairs], "CPU s")
    report.notes.append(
        f"{count} lines: the {len(recorded)} of sshd in samples/syslog/syslog_rfc3164.log, again "
        "and again; the whole command, its start included; all runs wrote the same bytes"
    )
    return report


def _recorded() -> list[bytes]:
    file = project_root() / "samples" / "syslog" / "syslog_rfc3164.log"
    return [line for line in file.read_bytes().splitlines(keepends=True) if b" sshd[" in line]


def _parse(file: Path, cores: Sequence[int]) -> _Run:
    command = [sys.executable, "-m", "headgate.cli", "parse", "--source", "sshd", "--now", _NOW]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    digest = hashlib.sha256()
    with subprocess.Popen(
        [*command, str(file)],
        stdout=subprocess.PIPE,
        cwd=project_root(),
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    ) as running:
        assert running.stdout is not None
        while part := running.stdout.read(1 << 20):
            digest.update(part)
    if running.returncode:
        raise SystemExit(f"headgate parse ended with {running.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Run(time.monotonic() - began, spent, digest.hexdigest())
