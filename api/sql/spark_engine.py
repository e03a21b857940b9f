"""Spark for statements that DuckDB does not know: begun with the first, ended when idle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.sql.spark_lake import described_lake
from api.sql.worker_line import Ended, WorkerLine
from api.sql.worker_process import Program, Worker
from infra.config.settings import Settings

SPARK = Program(
    ("-m", "api.sql.spark_worker"),
    # Of a busy machine: a JVM, a session, and the first plan of it.
    starting=180.0,
    reading=60.0,
    environment=("PATH", "JAVA_HOME", "HEADGATE_JARS"),
)


class SparkEngine:
    """One session in a process of its own, for one statement at a time."""

    def __init__(self, settings: Settings, room: Path | None) -> None:
        self._idle = settings.api.spark_engine_idle_seconds
        self.worker = Worker(
            {
                "lake_root": str(settings.lake_root),
                "memory": settings.api.spark_engine_memory,
                "lake": described_lake(settings.lake_root),
            },
            room,
            SPARK,
        )
        self._line = WorkerLine([self.worker], wait_seconds=settings.api.wait_seconds)
        self._rest: threading.Timer | None = None

    def ask(
        self,
        asked: dict[str, Any],
        seconds: float,
        who: str | None,
        cancelled: Ended | None,
        tell: Callable[[float], None],
    ) -> dict[str, Any] | None:
        """What Spark says to a statement, as `Worker.ask` tells it."""
        with self._line.worker(who, cancelled) as worker:
            try:
                return worker.ask(asked, seconds, cancelled, tell)
            finally:
                self._rest_later()

    def _rest_later(self) -> None:
        # One that waits is enough, however many statements come.
        if self._rest is not None:
            self._rest.cancel()
        # A little later than idle: what asks at that very moment is not ended.
        self._rest = threading.Timer(self._idle + 1, self.worker.rest, [self._idle])
        self._rest.daemon = True
        self._rest.start()
