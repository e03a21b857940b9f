"""Spark's daemon of Python workers, with what workers import loaded once.

Spark's own daemon has loaded next to nothing when it forks a worker, so each worker imports
pandas, Arrow and our code for itself: seconds of each core whenever a driver starts. Here the
daemon has them, and what it forks begins to work at once and shares their memory.

Spark's has nothing because a fork copies no threads, and a library may have some as soon as it is
imported. So they are counted: where one was begun, Spark's own daemon takes this one's place.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

MODULES = (
    "pyspark.worker",
    "alerts.lifecycle.alert_job",
    "alerts.matching.detection",
    "enrich.dhcp.stateful_operator",
    "ingest.parsing.source:sources",
)
"""What workers of the jobs import, by name as nothing here may import it; `module:function` is
also called, for what it keeps."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Of the allocator that Arrow brings along, which is not the one it uses.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Read by libraries as they are loaded: none needs threads, as a worker has one core."""


def main() -> None:
    """Load what workers need and serve Spark; the first argument is the worker's module."""
    os.environ.update(ONE_THREAD)
    _unzipped()
    # Spark reads from stdout where this process listens.
    with redirect_stdout(sys.stderr):
        load(MODULES)
    if threads() != 1:
        # exec keeps the process and its pipes, by which Spark knows its daemon.
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    gc.collect()
    gc.freeze()  # a collection in a worker would else write to, and so copy, every page
    import_module("pyspark.daemon").manager()


def is_daemon(command: Sequence[str]) -> bool:
    """Whether a process with this command line is a daemon, or a worker that one forked."""
    return not {"pyspark.daemon", "infra.spark.worker_daemon"}.isdisjoint(command)


def load(modules: Sequence[str]) -> None:
    """Import what can be; what cannot fails in the worker that needs it, which tells the batch."""
    for name in modules:
        module, _, function = name.partition(":")
        try:
            loaded = import_module(module)
            if function:
                getattr(loaded, function)()
        except Exception as error:
            print(f"{name} is not loaded ahead: {error}", file=sys.stderr)


def threads() -> int:
    """Threads of this process; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _unzipped() -> None:
    """Take the packages installed here rather than Spark's archive of the same.

    Python keeps no compiled code of an archive: each process would compile all of it again.
    """
    given = list(sys.path)
    sys.path[:] = [path for path in given if not Path(path).match("py*.zip")]
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = given


if __name__ == "__main__":
    main()
