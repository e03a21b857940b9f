"""A clock of its own for whatever is started inside, and a hand that steps it (libfaketime)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LEFT_TRUE = {
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
    # A JVM waits by the clock that is left true; with the fix each of its waits takes seconds.
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    "FAKETIME_CACHE_DURATION": "1",
}


class Hand:
    """Moves the clock of the processes that were started under it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.turn("+0")

    def turn(self, by: str) -> None:
        """From now on the clock shows the true time and `by`, such as "+1d"."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{by}\n")
        beside.replace(self._file)


def libraries(folder: Path) -> str | None:
    """What goes before all other libraries; None where this machine cannot have it."""
    found, compiler = importlib.util.find_spec("libfaketime"), shutil.which("cc")
    if found is None or found.origin is None or compiler is None:
        return None
    clock = Path(found.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    waits, source = folder / "waits.so", Path(__file__).with_name("c11_waits.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", waits, source], check=True)
    both = f"{clock}:{waits}"
    shown = subprocess.run(
        ["date", "+%Y"],
        env=os.environ | {"LD_PRELOAD": both, "FAKETIME": "@2001-01-01 00:00:00"},
        capture_output=True,
        text=True,
        check=False,
    )
    return both if shown.stdout.startswith("2001") else None


@contextmanager
def stepped(folder: Path) -> Iterator[Hand]:
    """While inside, processes that are started have a clock that `Hand` moves.

    What counts seconds is left to them, as a step of a machine's clock leaves it; and files
    keep their true times, so that after a step ahead each looks old.
    """
    before = libraries(folder)
    if before is None:
        pytest.skip("needs libfaketime for this machine, and a C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", before)
        patch.setenv("FAKETIME_TIMESTAMP_FILE", str(folder / "clock"))
        for name, value in LEFT_TRUE.items():
            patch.setenv(name, value)
        yield Hand(folder / "clock")
