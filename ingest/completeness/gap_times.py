"""When messages came that the broker lost: between the newest one that bronze has and the first one
that is there behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.delta.duckdb_views import connect
from infra.errors import HeadgateError
from infra.kafka.range_reader import moment_of
from infra.streaming.kafka_offsets import TopicPartitionKey
from ingest.completeness.log_truncation import PartitionLog

if TYPE_CHECKING:
    import duckdb

_NEWEST = """
SELECT max(received_at) FROM bronze.record
WHERE topic = $topic AND "partition" = $partition AND received_at >= $since
"""
_LOOKS = (timedelta(days=1), timedelta(days=30), None)
"""How far back the newest record is looked for: as a rule it is of yesterday, in a long table."""


def newest_times(
    settings: Settings, places: list[TopicPartitionKey]
) -> dict[TopicPartitionKey, datetime]:
    """Arrival of the newest record of each partition that bronze has any of."""
    try:
        connection = connect(
            settings.lake_root,
            needs=("bronze.record",),
            only=(),
            memory=settings.api.statement_memory,
        )
    except HeadgateError:  # no table yet, so nothing is in it
        return {}
    try:
        instants = {place: _newest(connection, place) for place in places}
    finally:
        connection.close()
    return {place: place_row for place, place_row in instants.items() if place_row is not None}


def _newest(connection: duckdb.DuckDBPyConnection, place: TopicPartitionKey) -> datetime | None:
    for back in _LOOKS:
        # A day above Python's first, as DuckDB may shift it by a zone.
        since = datetime.now(UTC) - back if back else datetime(1, 1, 2, tzinfo=UTC)
        bounds = {"topic": place[0], "partition": place[1], "since": since}
        row = connection.execute(_NEWEST, bounds).fetchone()
        if row and row[0] is not None:
            newest: datetime = row[0]
            return newest
    return None


def goes_on(
    settings: Settings, offsets: dict[TopicPartitionKey, int]
) -> dict[TopicPartitionKey, datetime]:
    """The broker's time of the first message from an offset on, by partition; one that has none
    is missing in the answer."""
    if not offsets:
        return {}
    log = PartitionLog(settings.kafka)
    try:
        first = log.first(offsets)
    finally:
        log.close()
    return {place: moment_of(offset.timestamp()[1]) for place, offset in first.items()}
