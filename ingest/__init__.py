"""Raw records in, events out: `parse` for one record, the jobs for streams of them.

Imports `infra`; `enrich` and above may import it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = ["parse"]


def parse(
    raw: bytes,
    source: str,
    *,
    tz: str = "UTC",
    now: datetime | None = None,
    header: bytes | None = None,
) -> list[dict[str, Any]]:
    """The events of one raw record as OCSF 1.8.0 objects, `time` in milliseconds since 1970.

    `tz` is the zone of times that name none, `now` when the record arrived
    (aware; default: this moment), by which missing years are completed.
    `header` is the header of formats that need one. Never raises for what is in
    `raw`: what cannot be read is an object with `dead_letter_reason`. Raises
    `infra.errors.Usage` for a source or zone that does not exist.
    """
    from ingest.cli import parser_of

    return parser_of(source, tz, header)(raw, now)
