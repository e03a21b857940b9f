"""When messages came that the broker lost: between the newest one that bronze has and the first one
that is there behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.delta.duckdb_views import connect
from infra.errors import HeadgateError
from infra.streaming.kafka_offsets import Place
from ingest.completeness.log_truncation import Log

if TYPE_CHECKING:
    import duckdb

_NEWEST = """
SELECT max(received_at) FROM bronze.record
WHERE topic = $topic AND "partition" = $partition AND received_at >= $since
"""
LOOKS = (timedelta(days=1), timedelta(days=30), None)
"""How far back the newest record is looked for: as a rule it is of yesterday, in a long table."""


def newest(settings: Settings, places: list[Place]) -> dict[Place, datetime]:
    """Arrival of the newest record of each partition that bronze has any of."""
    try:
        connection = connect(
            settings.lake_root, needs=("bronze.record",), memory=settings.api.statement_memory
        )
    except HeadgateError:  # no table yet, so nothing is in it
        return {}
    try:
        found = {place: _newest(connection, place) for place in places}
    finally:
        connection.close()
    return {place: at for place, at in found.items() if at is not None}


def _newest(connection: duckdb.DuckDBPyConnection, place: Place) -> datetime | None:
    for back in LOOKS:
        since = datetime.now(UTC) - back if back else datetime(1, 1, 2, tzinfo=UTC)
        asked = {"topic": place[0], "partition": place[1], "since": since}
        row = connection.execute(_NEWEST, asked).fetchone()
        if row and row[0] is not None:
            return row[0]  # type: ignore[no-any-return]
    return None


def goes_on(settings: Settings, wanted: dict[Place, int]) -> dict[Place, datetime]:
    """The broker's time of the first message from an offset on, by partition; one that has none
    is missing in the answer."""
    if not wanted:
        return {}
    log = Log(settings.kafka)
    try:
        found = log.first(wanted)
    finally:
        log.close()
    return {
        place: datetime.fromtimestamp(one.timestamp()[1] / 1000, UTC)
        for place, one in found.items()
    }
