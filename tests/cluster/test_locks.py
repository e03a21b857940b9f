"""Several drivers on one lake: one of them commits to a table at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from infra.config.settings import load
from infra.streaming.lake import Lake
from ingest.tables import EVENT

ASK = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""


def taken(lock: Path) -> bool:
    """Whether another process finds the lock taken."""
    ended = subprocess.run([sys.executable, "-c", ASK, str(lock)], check=False).returncode
    assert ended in (0, 3)
    return ended == 3


def test_another_driver_waits_for_a_table(tmp_path: Path) -> None:
    no_spark: Any = None
    lake = Lake(no_spark, load(home=tmp_path))
    lock = lake.settings.lake_root / "_locks" / EVENT.name
    with lake.alone(EVENT):
        assert taken(lock)
    assert not taken(lock)
