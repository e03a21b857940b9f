"""`headgate ledger --check`: what it found, and accepting what stays missing."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.kafka.client import source_of
from infra.process.os_user import acting_user
from infra.process.priority import stand_back
from infra.process.table_output import print_rows
from infra.process.text_output import printable
from infra.streaming.kafka_offsets import TopicPartitionKey
from infra.streaming.outbox import put_row
from ingest.completeness.gaps import INGEST_JOB
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder
from ingest.completeness.offset_ranges import Span, Stretch, merged_ranges, offset_count, without
from reporting.cli.reader import open_lake
from reporting.ledger.check import TABLES, check_ledger
from reporting.ledger.missing_offsets import hole_id

if TYPE_CHECKING:
    import duckdb

_NICE = 10
"""A scheduled run lets the jobs beside it go first."""
_SPANS_NAMED = 3
"""Failures that are named in one line; the table has all."""
ROWS = 1_000
"""Rows of `ops.gap` that holes of a partition are accepted in at most."""
_COLUMNS = (
    "topic", "partition", "source", "from_offset", "to_offset", "records", "gaps", "expired",
    "erased", "empty", "unasked", "missing", "repeated", "broker_first", "broker_end", "unread",
    "expiring", "passed",
)  # fmt: skip

_AROUND = """
SELECT max(received_at) FILTER (WHERE "offset" < $first),
       min(received_at) FILTER (WHERE "offset" >= $end)
FROM bronze.record
WHERE topic = $topic AND "partition" = $partition AND "offset" >= $first - 100000
  AND "offset" < $end + 100000
"""


def run_check(args: argparse.Namespace, settings: Settings) -> int:
    """Exit code 1 when something is missing, doubled, unaccounted or about to be lost.

    The last line names it, so that who starts this on a schedule can tell of it.
    """
    if args.accept is not None and not args.accept.strip():
        raise Usage("--accept: say why it is right to go on; it stays in ops.gap")
    stand_back(_NICE)
    lake = open_lake(settings, TABLES)
    before = (
        LedgerCheckState.load(ledger_check_folder(settings))
        if args.accept is not None
        else LedgerCheckState()
    )
    checked = check_ledger(settings, lake, everything=args.all)
    if args.accept is not None:
        if not checked.holes:
            raise Usage("nothing is missing in bronze: there is nothing to accept")
        message, new = parted(checked.holes, before)
        _say("accepted", message)
        _say("new since the check before, and not accepted", new)
        if message:
            accept_holes(settings, lake, message, acting_user(), args.accept)
            # Once more: what is accepted is known now, and what is told of is what is left.
            checked = check_ledger(settings, lake, everything=args.all)
    rows = [{name: row.get(name) for name in _COLUMNS} for row in checked.rows]
    print_rows(rows, args.output, _COLUMNS)
    sys.stdout.flush()
    if not checked.failures:
        return 0
    more = len(checked.failures) - _SPANS_NAMED
    named = "; ".join(checked.failures[:_SPANS_NAMED]) + (f" (and {more} more)" if more > 0 else "")
    page = "docs/how-to/runbooks/ledger-check-failed.md"
    reason_text = f"the ledger's check failed: {named}; see ops.ledger_check and {page}"
    print(f"headgate: {printable(reason_text)}", file=sys.stderr)
    return 1


Holes = Sequence[tuple[Stretch, Span]]


def parted(holes: Holes, before: LedgerCheckState) -> tuple[Holes, Holes]:
    """Holes, or parts of them, that the check before has told of, and the rest: a person accepts
    what they have read, not what was lost since."""
    known: dict[tuple[str, int, str], list[Span]] = {}
    for topic, partition, named, first, end, kind in before.again:
        if kind == "all":
            known.setdefault((topic, partition, named), []).append((first, end))
    gaps: list[tuple[Stretch, Span]] = []
    new: list[tuple[Stretch, Span]] = []
    for stretch, span in holes:
        rest = without([span], known.get((*stretch.place, stretch.topic_id), []))
        new += [(stretch, rest_span) for rest_span in rest]
        gaps += [(stretch, rest_span) for rest_span in without([span], rest)]
    return gaps, new


def _say(what: str, holes: Holes) -> None:
    spans = [f"topic {stretch.topic} partition {stretch.partition}: {begin} to {end - 1}"
             for stretch, (begin, end) in holes]  # fmt: skip
    if spans:
        more = f" (and {len(spans) - _SPANS_NAMED} more)" if len(spans) > _SPANS_NAMED else ""
        message = f"{what}: {'; '.join(spans[:_SPANS_NAMED])}{more}"
        print(f"headgate: {printable(message)}", file=sys.stderr)


def accept_holes(
    settings: Settings,
    lake: duckdb.DuckDBPyConnection,
    holes: Holes,
    who: str,
    reason: str,
) -> None:
    """Leave holes for `ops.gap`, where the ledger tells of them for good, and the act for
    `ops.audit`. Where a log has very many, a row reaches from one to another."""
    stamp = datetime.now(UTC).isoformat()
    spool = settings.home.absolute() / "spool"
    rows = [_gap(settings, lake, stretch, spans) for stretch, spans in _rows(holes)]
    for row in rows:
        put_row(
            spool / "gap",
            row["gap_id"],
            row | {"accepted_at": stamp, "accepted_by": who, "reason": reason},
        )
    stated = hashlib.sha256("".join(row["gap_id"] for row in rows).encode()).hexdigest()[:12]
    act = {"at": stamp, "who": who, "act": "gap.accept", "target": stated, "outcome": "ok"}
    put_row(spool / "audit", f"gap-{stated}", act | {"detail": json.dumps({"reason": reason})})


def _rows(holes: Holes) -> Iterator[tuple[Stretch, Sequence[Span]]]:
    """The holes of each row: one, unless a log has so many."""
    logs: dict[tuple[TopicPartitionKey, str], tuple[Stretch, list[Span]]] = {}
    for stretch, span in holes:
        log = stretch.place, stretch.topic_id
        logs.setdefault(log, (stretch, []))[1].append(span)
    for stretch, spans in logs.values():
        spans.sort()
        for begin, end in merged_ranges(spans, ROWS):
            yield stretch, spans[bisect_left(spans, (begin,)) : bisect_left(spans, (end,))]


def _gap(
    settings: Settings,
    lake: duckdb.DuckDBPyConnection,
    stretch: Stretch,
    spans: Sequence[Span],
) -> dict[str, Any]:
    first, end = spans[0][0], spans[-1][1]
    bounds = {"topic": stretch.topic, "partition": stretch.partition, "first": first, "end": end}
    after, before = lake.execute(_AROUND, bounds).fetchone() or (None, None)
    return {
        "gap_id": hole_id(stretch.topic_id, stretch.place, (first, end)),
        "job": INGEST_JOB,
        "kind": "hole",
        "topic": stretch.topic,
        "partition": stretch.partition,
        "from_offset": first,
        "to_offset": end,
        "messages": offset_count(spans),
        "goes_on_at": end,
        "source": source_of(stretch.topic, settings.kafka),
        "lost_after": after and after.isoformat(),
        "lost_before": before and before.isoformat(),
    }
