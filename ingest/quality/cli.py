"""The command `quality`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infra.config.number_args import whole
from infra.config.time_args import instant_or_none
from infra.process.priority import stand_back
from infra.process.table_output import add_output_option, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from infra.config.settings import Settings
    from ingest.quality.outcome import Outcome

_MOST_ROWS = 500_000
_NICE = 10
_UNHEARD = "no source was heard live in the last 30 days"
"""A scheduled run lets the jobs beside it go first."""

WHAT = {
    "check": "check what ingest wrote (the default); nothing is kept",
    "run": "what runs on a schedule: check what is new, keep it, report what failed",
    "history": "what runs found",
    "drift": "fields that are new, by source",
    "silence": "sources, how long each is silent, and how long it may be",
}


def build(subparsers: Any) -> None:
    """Register `quality`."""
    command = subparsers.add_parser(
        "quality",
        help="check what ingest wrote against expectations",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="\n".join(f"{name:<8} {doc}" for name, doc in WHAT.items()),
    )
    command.add_argument("what", nargs="?", choices=tuple(WHAT), default="check")
    command.add_argument("--history", action="store_true", help="the same as `quality history`")
    command.add_argument("--since", help="received (or found) since: 2026-11-20T00:00:00Z")
    command.add_argument("--until", help="received (or found) before")
    command.add_argument("--failed", action="store_true", help="history: only what was not met")
    command.add_argument("--source", help="drift: one source")
    command.add_argument(
        "--all", action="store_true", help="drift: also what a source had from the beginning"
    )
    command.add_argument(
        "--rows",
        type=whole(),
        default=_MOST_ROWS,
        help=f"look at the newest N (default: {_MOST_ROWS})",
    )
    add_output_option(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate quality`: exit code 1 when an expectation is not met or a source is silent."""
    since, until = instant_or_none("--since", args.since), instant_or_none("--until", args.until)
    what = "history" if args.history else args.what
    code: int = _DOES[what](args, settings, since, until)
    return code


def _check(
    args: argparse.Namespace, settings: Settings, since: datetime | None, until: datetime | None
) -> int:
    from ingest.quality.measurements import measure_written
    from ingest.quality.validate import check

    measured = measure_written(settings, since, until, args.rows)
    outcomes = check(measured)
    _show(outcomes, args.output)
    # Told on stderr, so that the output of `--output json` holds the outcomes alone.
    if measured.total > len(measured.rows):
        print(
            f"looked at the newest {len(measured.rows)} of {measured.total} rows (--rows); "
            "dead letters and sources are counted over all",
            file=sys.stderr,
        )
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _run(
    args: argparse.Namespace, settings: Settings, since: datetime | None, until: datetime | None
) -> int:
    from ingest.quality.run import run as run_all

    stand_back(_NICE)
    ran = run_all(settings)
    _show([outcome for outcome in ran.outcomes if not outcome.passed], args.output)
    failed = sum(not outcome.passed for outcome in ran.outcomes)
    new = sum(not outcome.baseline for outcome in ran.fields)
    print(
        f"quality: {len(ran.outcomes)} expectations, {failed} not met, {new} new fields, "
        f"{sum(outcome.broken for outcome in ran.found.silences)} sources silent, {ran.told} "
        "records sent",
        file=sys.stderr,
    )
    return 1 if failed else 0


def _history(
    args: argparse.Namespace, settings: Settings, since: datetime | None, until: datetime | None
) -> int:
    from infra.delta.duckdb_views import connect
    from ingest.quality.outcome_store import outcome_history

    connection = connect(settings.lake_root, needs=("ops.quality",), only=())
    try:
        rows = outcome_history(connection, since, until, failed=args.failed)
    finally:
        connection.close()
    limited = since or until or args.failed
    _print(rows, args.output, f"no result {'like that' if limited else 'of a check'} is kept")
    return 0


def _drift(
    args: argparse.Namespace, settings: Settings, since: datetime | None, until: datetime | None
) -> int:
    from infra.delta.duckdb_views import AskedViews

    with AskedViews(settings.lake_root, needs=("ops.drift",)) as views:
        rows = views.rows(
            'SELECT first_seen, source, field, "rows", event_uid, baseline FROM ops.drift '
            "WHERE ($all OR NOT baseline) AND ($source IS NULL OR source = $source) "
            "AND ($since IS NULL OR first_seen >= $since) "
            "AND ($until IS NULL OR first_seen < $until) "
            "ORDER BY first_seen DESC, source, field",
            {"all": args.all, "source": args.source, "since": since, "until": until},
        )
    _print(rows, args.output, "no field is new")
    return 0


def _silence(
    args: argparse.Namespace, settings: Settings, since: datetime | None, until: datetime | None
) -> int:
    from infra.delta.duckdb_views import connect, without_pandas
    from ingest.quality.silence_rules import finished
    from ingest.quality.source_silence import ASKED, NEEDS, silences, span_text

    connection = connect(settings.lake_root, needs=NEEDS, only=ASKED)
    try:
        now = until or datetime.now(UTC)
        # Not beyond what ingest has read: a source is not silent because ingest is behind.
        with without_pandas():
            instant = min(now, finished(connection) or now)
            result = silences(connection, settings, instant, now=until)
    finally:
        connection.close()
    # Programs get seconds and instants; spans in words are for the table alone.
    if args.output != "table":
        _print([asdict(silence) for silence in result], args.output, _UNHEARD)
    else:
        rows = [
            {
                "source": silence.source,
                "state": "SILENT"
                if silence.broken
                else "learning"
                if silence.allowed is None
                else "ok",
                "newest": silence.newest,
                "silent for": span_text(silence.seconds),
                "may be silent for": "" if silence.allowed is None else span_text(silence.allowed),
                "because": silence.why,
            }
            for silence in result
        ]
        _print(rows, "table", _UNHEARD)
    return 1 if any(silence.broken for silence in result) else 0


Does = Callable[[argparse.Namespace, "Settings", datetime | None, datetime | None], int]
_DOES: Mapping[str, Does] = {
    "check": _check,
    "run": _run,
    "history": _history,
    "drift": _drift,
    "silence": _silence,
}


def _show(outcomes: Sequence[Outcome], form: str) -> None:
    if form != "table":
        print_rows([asdict(outcome) for outcome in outcomes], form)
        return
    for outcome in outcomes:
        print(_line(outcome))


def _line(one: Outcome) -> str:
    """An outcome for a terminal, control characters of a log's values made harmless."""
    # An expectation that holds for most rows is met although some are not so: these are told, too.
    message = "" if one.passed and not one.unexpected else f"  {one.unexpected} of {one.checked}"
    text = f"{'ok    ' if one.passed else 'FAILED'} {one.name}{message}"
    if one.examples:
        text += f": {one.examples}"
    return printable(text)


def _print(rows: Sequence[Mapping[str, Any]], form: str, nothing: str) -> None:
    # An empty JSON list says so itself; an empty table would be no line at all.
    if not rows and form == "table":
        print(nothing, file=sys.stderr)
    print_rows(rows, form)
