"""What a long command is doing: on stderr, only on a terminal and only after two seconds; or in a
file, for a process that waits for it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from infra.storage.atomic_files import write_private

QUIET_SECONDS = 2.0
"""What ends sooner needs no word."""

Tell = Callable[[str, float | None, float | None], None]
"""Is given a sentence, how much is done, and of how much; None where that is not known."""

PAUSE = 0.5
"""Seconds between two looks of who reads the file; more often nobody sees."""

_Step = Callable[..., None]
"""`step(sentence)`, or `step(sentence, done, total)` where the end is in sight."""


@contextmanager
def progress(what: str, *, stream: TextIO | None = None) -> Iterator[_Step]:
    """Show what goes on until the block ends; the line is taken away then."""
    err = stream or sys.stderr
    if not err.isatty():
        yield lambda sentence, done=None, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=Console(file=err),
        transient=True,
        redirect_stdout=False,  # what goes to stdout may go to a pipe, and stays whole
    )
    task = bar.add_task(what, total=None)
    late = threading.Timer(QUIET_SECONDS, bar.start)
    late.daemon = True
    late.start()

    def step(sentence: str, done: float | None = None, total: float | None = None) -> None:
        description = f"{what}: {sentence}" if sentence else what
        bar.update(task, description=description, completed=done, total=total)

    try:
        yield step
    finally:
        late.cancel()
        # Else the timer may begin the bar after it was stopped.
        late.join()
        bar.stop()


def into_file(file: Path) -> Tell:
    """Tells a process that reads that file (`progress_in`)."""
    told_at = 0.0

    def tell(step: str, done: float | None, total: float | None) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at < PAUSE:
            return
        told_at = now
        percent = None if done is None or not total else round(100 * done / total, 1)
        with suppress(OSError):
            write_private(file, json.dumps({"step": step, "progress": percent}))

    return tell


def progress_in(file: Path) -> dict[str, object]:
    """`step` and `progress`, in percent, as a process left them; empty: it has not begun."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
