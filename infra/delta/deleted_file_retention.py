"""How long the log of a table remembers files that left it.

VACUUM deletes what is neither part of a table nor remembered as a file that left it lately, and
a log forgets these after its own time, whatever it is asked to keep. So that has to be as long
as former versions are promised.

Source: the Delta transaction log protocol, "Add File and Remove File", on tombstones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from infra.config.settings import Settings
from infra.delta.schema import Table

PROPERTY = "delta.deletedFileRetentionDuration"
_WEEK = timedelta(days=7)
"""What Delta takes where the property says nothing. Less saves little: checkpoints name them."""

_UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+) +(second|minute|hour|day|week)s?")


def wanted_interval(settings: Settings, table: Table) -> timedelta:
    """How long a table's log has to remember what left it."""
    promised = timedelta(hours=math.ceil(settings.maintenance.keep_hours))
    return max(_WEEK, table.kept, min(promised, table.rewritten or promised))


def remembered(described: Mapping[str, Any]) -> timedelta:
    """How long the log of a table does, by its `metaData`."""
    return interval(dict(described.get("configuration") or {}).get(PROPERTY, ""))


def interval(text: str) -> timedelta:
    """A time as Delta's properties have it, as `interval 30 days`; a week if it is no such."""
    parts = _PART.findall(text.lower())
    return sum((int(n) * _UNITS[unit] for n, unit in parts), timedelta()) if parts else _WEEK


def said_interval(kept: timedelta) -> str:
    """A time as Delta's properties want it."""
    return f"interval {math.ceil(kept / timedelta(hours=1))} hours"
