"""Which DHCP servers a site's log has been hearing from, and when last.

A lease log that ends silently, because a shipper died, looks like a quiet night: what ingest has
finished says nothing of it. So each attribution names the servers' last lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from enrich.attribution.confidence import Server
from infra.storage.paths import Location

_LOOK_BACK = timedelta(days=7)
"""A server that said nothing for so long is no server of the site any more."""

_SERVER = "coalesce(dst_endpoint.hostname, dst_endpoint.ip, host_name)"
"""What names the server in a DHCP event, Spark SQL and DuckDB alike."""

_DHCP_LINE = "class_uid = 4004 AND dead_letter_reason IS NULL AND scope IS NOT NULL"

LAST_SEEN_SQL = f"""
SELECT scope, {_SERVER} AS server, max(time) AS last_line_at FROM silver.event
WHERE {_DHCP_LINE} AND time > $since AND time <= $until
  AND ($known_by IS NULL OR received_at <= $known_by)
GROUP BY ALL ORDER BY ALL
"""
"""DuckDB: each server's newest line of a span, as known by an arrival time or (null) now."""

# To the minute: this goes to workers with the tasks, and a busy server has very many lines.
_MINUTES_SQL = f"""
SELECT scope, {_SERVER} AS server, max(time) AS last_line_at FROM silver.event
WHERE {_DHCP_LINE} AND time > $since AND time <= $until
GROUP BY scope, server, time_bucket(INTERVAL 1 MINUTE, time)
"""


@dataclass(frozen=True)
class ServerLiveness:
    """Instants at which each server was heard, ascending, by scope and server; None: nobody
    asked. Pickles."""

    lines: Mapping[str, Mapping[str, tuple[datetime, ...]]] | None = None

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str | None, datetime]]) -> ServerLiveness:
        """From rows (scope, server, instant)."""
        lines: dict[str, dict[str, list[datetime]]] = {}
        for scope, server, position in rows:
            lines.setdefault(scope, {}).setdefault(server or "", []).append(
                position.astimezone(UTC)
            )
        return cls(
            {
                scope: {name: tuple(sorted(times)) for name, times in servers.items()}
                for scope, servers in lines.items()
            }
        )

    def before(self, scope: str | None, at: datetime) -> tuple[Server, ...] | None:
        """The servers of a scope, each with its newest line up to an instant, if any."""
        if self.lines is None:
            return None
        results = []
        for name, times in sorted(self.lines.get(scope or "", {}).items()):
            place = bisect_right(times, at)
            if place:
                results.append(Server(name or None, times[place - 1]))
        return tuple(results)

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[Any]]) -> ServerLiveness:
        """From rows with the instant as text, as a batch's decision keeps them."""
        return cls.of(
            (scope, server, datetime.fromisoformat(instant)) for scope, server, instant in rows
        )


def server_activity(
    lake_root: Location, since: datetime, until: datetime, memory: str = "512MB"
) -> ServerLiveness:
    """When each server was heard in a span, to the minute, and up to `LOOK_BACK` before it."""
    from infra.delta.duckdb_views import (
        connect,  # the workers, too, import this module; they need no engine
    )

    connection = connect(lake_root, needs=("silver.event",), only=(), memory=memory)
    try:
        # Further back than the span: a server may have been silent all through it.
        bounds = {"since": since - _LOOK_BACK, "until": until}
        return ServerLiveness.of(connection.execute(_MINUTES_SQL, bounds).fetchall())
    finally:
        connection.close()
