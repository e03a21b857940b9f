"""Gaps as the ledger tells them: messages that never reached bronze, in the hours they are missing
from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb


@dataclass(frozen=True)
class Missed:
    """Messages of a partition that were gone on without, `[first, end)`, and when they came."""

    topic: str
    partition: int
    kind: str
    first: int
    end: int | None
    messages: int | None
    after: datetime | None
    """Arrival of the newest record before them; None: there was none, or nobody noted it."""
    before: datetime
    """Arrival of the first message after them, else when they were gone on without."""
    noted: bool
    """Whether the times are those of the messages; else both are when a person accepted it."""
    accepted_at: datetime
    accepted_by: str
    reason: str

    def sentence(self) -> str:
        """The gap in words."""
        # A partition that was made anew does not tell where its former log ended.
        many = f"from {self.first} on, how many is not known"
        span = many if self.end is None else f"{self.first} to {self.end - 1}"
        count = "" if self.messages is None else f" ({self.messages} messages)"
        return (
            f"gap in {self.topic} partition {self.partition}: {span}{count}, {self.kind}; "
            f"{self._when()}accepted by {self.accepted_by} at {_clock(self.accepted_at)}: "
            f"{self.reason}"
        )

    def _when(self) -> str:
        if not self.noted:
            return ""
        if self.after is None:
            return f"came before {_clock(self.before)}; "
        return f"came between {_clock(self.after)} and {_clock(self.before)}; "


# Gaps of releases that noted no times count as missing from when they were accepted. One of a
# partition of which bronze had nothing is missing from all hours before the first message.
_GAPS = """
WITH gap AS (
  SELECT topic, "partition", kind, any_value(from_offset) AS first,
         any_value(to_offset) AS "end", any_value(messages) AS messages,
         any_value(lost_after) AS after, any_value(lost_before) AS before,
         any_value(source) AS source, min(accepted_at) AS accepted_at,
         any_value(accepted_by) AS accepted_by, any_value(reason) AS reason
  FROM ops.gap GROUP BY gap_id, topic, "partition", kind
),
dated AS (
  SELECT *, source IS NOT NULL AS noted,
         coalesce(after, CASE WHEN source IS NULL THEN accepted_at ELSE '-infinity' END) AS begun,
         greatest(after, coalesce(before, accepted_at)) AS ended
  FROM gap
)
SELECT topic, "partition", kind, first, "end", messages, after, ended, noted, accepted_at,
       accepted_by, reason
FROM dated
WHERE begun < $until AND ended >= $since
  AND ($source IS NULL OR source IS NULL OR source = $source)
ORDER BY ended, topic, "partition"
"""


def missed(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
) -> Sequence[Missed]:
    """What is missing of [since, until) by arrival, of one source or of all.

    A gap whose source nobody noted may be anyone's.
    """
    bounds = {"since": since, "until": until, "source": source}
    return [Missed(*row) for row in connection.execute(_GAPS, bounds).fetchall()]


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
