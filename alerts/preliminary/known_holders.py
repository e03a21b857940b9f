"""Who is known to hold an address right now: the newest statement about it, kept in memory.

A preliminary alert waits for nothing, so it names the last known holder; the alert that answers it
has the one that the join found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import duckdb

from alerts.domain.entity import Holder
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.appended_rows import AppendedRows
from infra.delta.duckdb_views import connect
from infra.errors import HeadgateError
from infra.process.clock import clock
from infra.process.log import say

MOST = 200_000
"""Addresses that are remembered; beyond them those that were heard of least lately are not."""

_COLUMNS = (
    *("scope", "ip", "seg_start", "seg_end", "mac", "hostname", "session_id", "session_start"),
    *("session_end", "known_at", "rev", "kind"),
)

_SQL = f"""
SELECT {", ".join(f'"{name}"' for name in _COLUMNS)} FROM silver.dhcp_segment
WHERE known_at >= $since AND kind NOT IN ('heartbeat', 'too_late')
QUALIFY row_number() OVER (PARTITION BY scope, ip ORDER BY rev DESC) = 1
ORDER BY known_at DESC LIMIT {MOST}
"""


class KnownHolders:
    """The newest statement about each address, as job `sessions` wrote it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._statements: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._tail: AppendedRows | None = None

    def refresh(self) -> None:
        """Take in what was written since the last call; the first reads what leases may last.

        What cannot be read now is said, and holders are not known.
        """
        try:
            tail = self._tail
            if tail is None:
                # Before the question: what comes meanwhile is then read twice, and not missed.
                tail = AppendedRows(self._settings.lake_root / DHCP_SEGMENT.path, _COLUMNS)
                self.take(reversed(self._before()) if tail.has_rows else ())
                # Behind the answer: where there is none, the next call asks again.
                self._tail = tail
            self.take(tail.read())
        except (HeadgateError, OSError, duckdb.Error) as error:
            say(f"job ingest: preliminary alerts name no holders now: leases are unread: {error}")

    def take(self, statements: Iterable[Mapping[str, Any]]) -> None:
        """Remember rows of silver.dhcp_segment; of an address the one with the highest rev."""
        known = self._statements
        for row in statements:
            if row["kind"] in ("heartbeat", "too_late"):
                continue
            key = (row["scope"] or "", row["ip"] or "")
            former = known.pop(key, row)
            # Put in anew: the first in the order are then those heard of least lately.
            known[key] = row if row["rev"] >= former["rev"] else former
        for key in list(known)[: max(0, len(known) - MOST)]:
            del known[key]

    def holder(self, scope: str | None, ip: str | None, time: datetime) -> Holder | None:
        """Who held an address at `time`, by the newest statement about it; None: not known."""
        row = self._statements.get((scope or "", ip or "")) if ip else None
        if row is None or not row["seg_start"] <= time < row["seg_end"]:
            return None
        if row["mac"] is None:
            return Holder(ip=ip, scope=scope, status="none", known_at=row["known_at"])
        return Holder(
            ip=ip,
            scope=scope,
            mac=row["mac"],
            hostname=row["hostname"],
            session_id=row["session_id"],
            lease_start=row["session_start"],
            lease_end=row["session_end"],
            known_at=row["known_at"],
            status="leased",
        )

    def _before(self) -> list[dict[str, Any]]:
        since = clock.now() - timedelta(seconds=self._settings.jobs.max_lease_seconds)
        with connect(self._settings.lake_root, needs=("silver.dhcp_segment",), only=()) as duck:
            return list(duck.execute(_SQL, {"since": since}).to_arrow_table().to_pylist())
