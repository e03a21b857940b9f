"""Work on batches by all cores, its results in the order of the batches."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, TypeVar

from infra.errors import Fatal
from infra.process.subprocesses import die_with_parent

_MOST_PROCESSES = 8

Batch = TypeVar("Batch")
_Work = Callable[[Batch], bytes]


def map_in_order(
    work: _Work[Batch], batches: Iterator[Batch], cores: int | None = None
) -> Generator[bytes, None, None]:
    """`work` of each batch, in order; in processes of their own where there is more than one.

    At most two batches a process are read ahead, so a file of any size takes bounded memory.
    Raises `Fatal` when a process was ended from outside, such as for want of memory.
    """
    ahead = list(islice(batches, 2))
    cores = min(_MOST_PROCESSES, len(os.sched_getaffinity(0))) if cores is None else cores
    # Forked, so that they begin at once with all that is loaded; only Linux does that safely.
    if len(ahead) < 2 or cores < 2 or sys.platform != "linux":
        yield from map(work, chain(ahead, batches))
        return
    pool = ProcessPoolExecutor(
        cores, mp_context=get_context("fork"), initializer=_prepare, initargs=(work,)
    )
    try:
        yield from _results(pool, chain(ahead, batches), 2 * cores)
    except BrokenProcessPool:
        raise Fatal(
            "a process that worked beside this one was ended from outside; is memory short?"
        ) from None
    finally:
        # Whoever reads may have gone: what nobody waits for is not begun.
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, batches: Iterator[Batch], ahead: int) -> Iterator[bytes]:
    waiting: deque[Future[bytes]] = deque()
    for batch in batches:
        waiting.append(pool.submit(_run, batch))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


_work: list[Callable[[Any], bytes]] = []
"""In a process of the pool: what it does with each batch."""


def _prepare(work: Callable[[Any], bytes]) -> None:
    die_with_parent()
    # Ctrl-C goes to all of a terminal's processes; the one that reads ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work[:] = [work]


def _run(batch: Any) -> bytes:
    return _work[0](batch)
