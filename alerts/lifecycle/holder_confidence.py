"""Confidence of the holders that job `alert` itself finds out (see
`enrich.attribution.confidence`).

A batch's rows know their segment only; how far the DHCP log is known comes from ticks, and
when the DHCP servers were last heard from what the driver decided for the batch.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from alerts.domain.batch_files import batch_file
from alerts.domain.entity import event_instant
from enrich.attribution.confidence import assessed
from enrich.attribution.confidence_spark import superseded
from enrich.attribution.server_liveness import LAST_SEEN_SQL, ServerLiveness
from infra.config.settings import ScopeSettings, Settings
from infra.errors import HeadgateError, Retryable

DHCP_SERVERS_DECISION = "dhcp_servers"
_EVERY_SECONDS = 60.0
FIRST_LOOK = timedelta(days=7)
OVERLAP = timedelta(minutes=15)
"""Lines that came later than that after their time are not news of a server."""


def judge_holders(
    rows: Sequence[dict[str, Any]],
    known_us: int,
    liveness: ServerLiveness,
    scopes: Sequence[ScopeSettings],
) -> None:
    """Fill in the confidence of each holder among a batch's rows that has none yet.

    `known_us`: how far the DHCP log is complete, microseconds of arrival; 0: not known.
    """
    known = event_instant(known_us) if known_us else None
    # The join gives a row for each lease that fits; how sure one is depends on its rivals.
    same: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["row_kind"] == "finding" and row.get("holder") is not None:
            same.setdefault((row["finding_id"], row["role"]), []).append(row)
    for group in same.values():
        for row in group:
            holder = row["holder"]
            row["holder"] = assessed(
                holder,
                row["event_time"],
                row["received_at"],
                complete_up_to=known,
                servers=liveness.before(holder.get("scope"), row["event_time"]),
                rivals=superseded(group, row),
                scopes=scopes,
            )


class ServerWatch:
    """When each DHCP server was last heard, asked of the lake once a minute beside the batches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: dict[tuple[str, str], datetime] = {}
        self._since: datetime | None = None
        self._asked = -_EVERY_SECONDS
        self._thread: threading.Thread | None = None

    def current(self) -> list[list[str]] | None:
        """What is known now, for `ServerLiveness.from_json`; asks the lake again if that is due.

        None while the first answer is still to come.
        """
        idle = self._thread is None or not self._thread.is_alive()
        if idle and time.monotonic() - self._asked >= _EVERY_SECONDS:
            self._asked = time.monotonic()
            # Beside the batches: a query over the lake must not delay alerts.
            self._thread = threading.Thread(target=self._ask, name="dhcp-servers", daemon=True)
            self._thread.start()
        if self._since is None:
            return None
        return [
            [scope, name, instant.isoformat()]
            # In order, since the decision is written to a file and equal ones should be equal
            # bytes.
            for (scope, name), instant in sorted(self._last.items())
        ]

    def _ask(self) -> None:
        now = datetime.now(UTC)
        since = now - FIRST_LOOK if self._since is None else self._since - OVERLAP
        bounds: dict[str, datetime | None] = {
            "since": since,
            "until": now + FIRST_LOOK,
            "known_by": None,
        }
        try:
            rows = ask(self._settings, bounds)
        except HeadgateError:
            return  # evidence beside the point of the batch: the next minute asks again
        newest_lines = {(scope, name or ""): new.astimezone(UTC) for scope, name, new in rows}
        # The spans asked for overlap, so an answer may be older than what is known.
        newest = {key: max(new, self._last.get(key, new)) for key, new in newest_lines.items()}
        self._last, self._since = self._last | newest, now


def ask(
    settings: Settings, bounds: dict[str, datetime | None]
) -> list[tuple[str, str | None, datetime]]:
    """Rows of `LAST_SEEN_SQL`. Raises `Retryable` when the lake cannot be read now."""
    # The workers, too, import this module; they need no engine.
    import duckdb

    from infra.delta.duckdb_views import connect

    # Few resources on purpose: the query runs beside Spark on the driver's machine.
    connection = connect(
        settings.lake_root, needs=("silver.event",), only=(), memory="256MB", threads=1
    )
    try:
        return connection.execute(LAST_SEEN_SQL, bounds).fetchall()
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise Retryable(f"the lake cannot be read: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


def decided_servers(checkpoints: Path) -> ServerLiveness:
    """What the driver decided for the micro-batch that this task belongs to; else nothing."""
    file = batch_file(checkpoints)
    return ServerLiveness() if file is None else decided_in(file)


def decision(checkpoints: Path, name: str) -> Any:
    """Another of its decisions for that batch, by name; None where there is none."""
    file = batch_file(checkpoints)
    return None if file is None else _read(file).get(name)


def decided_in(file: Path) -> ServerLiveness:
    """What one batch decided, from its file; nothing where there is none."""
    written = _written(file)
    return ServerLiveness() if written is None else _servers(file, written)


def _read(file: Path) -> dict[str, Any]:
    written = _written(file)
    return {} if written is None else _parsed(file, written)


def _written(file: Path) -> int | None:
    """When a file was: after a restore another one may have its name. None: there is none."""
    try:
        # Part of the cache's key below.
        return file.stat().st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=4)
def _servers(file: Path, written: int) -> ServerLiveness:
    kept = _parsed(file, written).get(DHCP_SERVERS_DECISION)
    return ServerLiveness() if kept is None else ServerLiveness.from_json(kept)


@lru_cache(maxsize=4)
def _parsed(file: Path, written: int) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return decoded
