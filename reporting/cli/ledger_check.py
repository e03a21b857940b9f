"""`headgate ledger --check`: what it found, and accepting what stays missing."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.kafka.client import source_of
from infra.process.os_user import person
from infra.process.table_output import print_rows
from infra.process.text_output import printable
from infra.streaming.kafka_offsets import Place
from infra.streaming.outbox import put
from ingest.completeness.gaps import JOB
from ingest.completeness.ledger_state import State, folder_of
from ingest.completeness.offset_ranges import Span, Stretch, gathered, size, without
from reporting.cli.reader import opened
from reporting.ledger.check import TABLES, check
from reporting.ledger.missing_offsets import hole_id

if TYPE_CHECKING:
    import duckdb

NICE = 10
"""A scheduled run lets the jobs beside it go first."""
TOLD = 3
"""Failures that are named in one line; the table has all."""
ROWS = 1_000
"""Rows of `ops.gap` that holes of a partition are accepted in at most."""
COLUMNS = (
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
    os.nice(max(0, NICE - os.nice(0)))
    lake = opened(settings, TABLES)
    before = State.load(folder_of(settings)) if args.accept is not None else State()
    checked = check(settings, lake, everything=args.all)
    if args.accept is not None:
        if not checked.holes:
            raise Usage("nothing is missing in bronze: there is nothing to accept")
        told, new = parted(checked.holes, before)
        _say("accepted", told)
        _say("new since the check before, and not accepted", new)
        if told:
            accept(settings, lake, told, person(), args.accept)
            checked = check(settings, lake, everything=args.all)
    rows = [{name: row.get(name) for name in COLUMNS} for row in checked.rows]
    print_rows(rows, args.output, COLUMNS)
    sys.stdout.flush()
    if not checked.failures:
        return 0
    more = len(checked.failures) - TOLD
    named = "; ".join(checked.failures[:TOLD]) + (f" (and {more} more)" if more > 0 else "")
    said = f"the ledger's check failed: {named}; see ops.ledger_check and docs/how-to/operating.md"
    print(f"headgate: {printable(said)}", file=sys.stderr)
    return 1


Holes = Sequence[tuple[Stretch, Span]]


def parted(holes: Holes, before: State) -> tuple[Holes, Holes]:
    """Holes, or parts of them, that the check before has told of, and the rest: a person accepts
    what they have read, not what was lost since."""
    known: dict[tuple[str, int, str], list[Span]] = {}
    for topic, partition, named, first, end, kind in before.again:
        if kind == "all":
            known.setdefault((topic, partition, named), []).append((first, end))
    told: list[tuple[Stretch, Span]] = []
    new: list[tuple[Stretch, Span]] = []
    for stretch, span in holes:
        rest = without([span], known.get((*stretch.place, stretch.topic_id), []))
        new += [(stretch, one) for one in rest]
        told += [(stretch, one) for one in without([span], rest)]
    return told, new


def _say(what: str, holes: Holes) -> None:
    spans = [f"topic {one.topic} partition {one.partition}: {begin} to {end - 1}"
             for one, (begin, end) in holes]  # fmt: skip
    if spans:
        more = f" (and {len(spans) - TOLD} more)" if len(spans) > TOLD else ""
        told = f"{what}: {'; '.join(spans[:TOLD])}{more}"
        print(f"headgate: {printable(told)}", file=sys.stderr)


def accept(
    settings: Settings,
    lake: duckdb.DuckDBPyConnection,
    holes: Holes,
    who: str,
    reason: str,
) -> None:
    """Leave holes for `ops.gap`, where the ledger tells of them for good, and the act for
    `ops.audit`. Where a log has very many, a row reaches from one to another."""
    at = datetime.now(UTC).isoformat()
    spool = settings.home.absolute() / "spool"
    rows = [_gap(settings, lake, stretch, spans) for stretch, spans in _rows(holes)]
    for row in rows:
        put(
            spool / "gap",
            row["gap_id"],
            row | {"accepted_at": at, "accepted_by": who, "reason": reason},
        )
    stated = hashlib.sha256("".join(row["gap_id"] for row in rows).encode()).hexdigest()[:12]
    act = {"at": at, "who": who, "act": "gap.accept", "target": stated, "outcome": "ok"}
    put(spool / "audit", f"gap-{stated}", act | {"detail": json.dumps({"reason": reason})})


def _rows(holes: Holes) -> Iterator[tuple[Stretch, Sequence[Span]]]:
    """The holes of each row: one, unless a log has so many."""
    logs: dict[tuple[Place, str], tuple[Stretch, list[Span]]] = {}
    for stretch, span in holes:
        log = stretch.place, stretch.topic_id
        logs.setdefault(log, (stretch, []))[1].append(span)
    for stretch, spans in logs.values():
        spans.sort()
        for begin, end in gathered(spans, ROWS):
            yield stretch, spans[bisect_left(spans, (begin,)) : bisect_left(spans, (end,))]


def _gap(
    settings: Settings,
    lake: duckdb.DuckDBPyConnection,
    stretch: Stretch,
    spans: Sequence[Span],
) -> dict[str, Any]:
    first, end = spans[0][0], spans[-1][1]
    asked = {"topic": stretch.topic, "partition": stretch.partition, "first": first, "end": end}
    after, before = lake.execute(_AROUND, asked).fetchone() or (None, None)
    return {
        "gap_id": hole_id(stretch.topic_id, stretch.place, (first, end)),
        "job": JOB,
        "kind": "hole",
        "topic": stretch.topic,
        "partition": stretch.partition,
        "from_offset": first,
        "to_offset": end,
        "messages": size(spans),
        "goes_on_at": end,
        "source": source_of(stretch.topic, settings.kafka),
        "lost_after": after and after.isoformat(),
        "lost_before": before and before.isoformat(),
    }
