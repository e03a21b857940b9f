"""What a long command is doing, on stderr: only on a terminal, and only after two seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 2.0
"""What ends sooner needs no word."""

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
