"""The embedded broker as a process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

START = """
import sys, time
from pathlib import Path
from infra.kafka.client import Broker, free_port
print(Broker(Path(sys.argv[1]), free_port()).start().pid, flush=True)
time.sleep(600)
"""


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_it_does_not_outlive_a_kill_of_who_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        assert runs(broker)
        parent.kill()
    end = time.monotonic() + 20
    while runs(broker):
        assert time.monotonic() < end, "the broker still runs"
        time.sleep(0.1)
