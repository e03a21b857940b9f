"""The feed: revisions of alerts in the order in which they were committed, from any place on.

The same revisions as on the topic, each once, for as long as gold.alert keeps
them. The order is kept in the rows (`sequence`), not in the table's log, so
compaction and clean-up change nothing. A batch is one commit: a reader sees all
of it or nothing, so nothing can appear before a place that was read.

A batch's sequence is the version that comes next when the batch begins. Its commit
gets that version or a later one, so the next batch's sequence is greater, also under
a new checkpoint, whose batches count from 0 again.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from infra.errors import Usage

BEHIND_ALL = "~"
"""Sorts behind every alert id of a batch."""

START = "start"
"""Cursor before the first revision."""

_MOST = 2**62
"""No sequence and no revision is greater."""

_NOT_OURS = "after: not a cursor of ours; take 'next' of the page before as it is"

FEED_SQL = """
SELECT sequence, alert_id, revision, body FROM gold.alert
WHERE suppressed_by IS NULL AND (sequence > $sequence OR (sequence = $sequence AND
      (alert_id > $alert_id OR (alert_id = $alert_id AND revision > $revision))))
ORDER BY sequence, alert_id, revision LIMIT $most
"""


@dataclass(frozen=True)
class FeedCursor:
    """Where a reader of the feed stands: behind this revision of this batch."""

    sequence: int = -1
    alert_id: str = ""
    revision: int = 0

    def cursor(self, lake: str) -> str:
        """The place as text, for the lake whose gold.alert has identity `lake`."""
        text = json.dumps(
            [lake, self.sequence, self.alert_id, self.revision], separators=(",", ":")
        )
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_place(cursor: str, lake: str) -> FeedCursor:
    """The place that a cursor names: `start`, a cursor of a page, or a `ce_sequence`.

    A `ce_sequence` (digits) tells the batch of a message on the topic: the feed goes on
    with the whole of that batch, of which the reader may have had a part. Raises
    `Usage` for what is none of these, or of another lake.
    """
    if cursor in ("", START):
        return FeedCursor()
    try:
        if cursor.isdecimal():
            # Before the whole batch: which part of it the reader had, the number does not say.
            return FeedCursor(min(int(cursor), _MOST) - 1, BEHIND_ALL)
        padded = cursor + "=" * (-len(cursor) % 4)
        decoded = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        identity, sequence, alert_id, revision = decoded
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise Usage(_NOT_OURS) from None
    kinds = (str, int, str, int)
    # The exact type, as True would pass for a number.
    if not all(type(v) is kind for v, kind in zip(decoded, kinds, strict=True)):
        raise Usage(_NOT_OURS)
    if not (abs(sequence) < _MOST and abs(revision) < _MOST and alert_id.isascii()):
        raise Usage(_NOT_OURS)
    # Sequences begin again in a lake that was made anew; a cursor of then would skip alerts.
    if identity != lake:
        raise Usage("after: belongs to another lake; begin again with after=start")
    return FeedCursor(sequence, alert_id, revision)


def sequence_of(sequence: int | None) -> str:
    """`ce_sequence` of what a batch made: text that sorts as numbers do (CloudEvents, Sequence)."""
    # Padded: consumers compare it as text.
    return f"{sequence or 0:016d}"
