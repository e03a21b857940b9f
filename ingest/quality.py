"""Expectations about silver.event, and what of it does not meet them.

What is expected is declared once, as Great Expectations' own objects, so a
notebook can run the same suite over a Spark or a pandas frame of its own. The
library takes seconds to import: it is imported only when a check runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from infra.errors import Usage

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.expectations.expectation import Expectation

    from infra.settings import Settings

MOST_ROWS = 500_000
DEAD_SHARE = 0.05
"""More dead letters than this are no accident of single lines but a source that is read wrongly."""
OLDEST_SECONDS = 400 * 86_400
"""Beyond a year and a month an event is not late: its year or its zone was taken wrongly."""
AHEAD_SECONDS = 86_400
"""A day covers every zone; a clock further in the future is wrong."""
ADDRESS = r"^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$|^(?=.*:.*:)[0-9a-f:]{2,39}$"
"""Spelled canonically: four numbers up to 255, or an IPv6 address in lower case."""
EXAMPLES = 3

ROWS = """
SELECT event_uid, source, class_uid, activity_id, type_uid,
       class_uid * 100 + activity_id AS type_uid_of_class, src_ip,
       epoch(received_at) - epoch("time") AS lag_seconds
FROM silver.event
WHERE source <> '_heartbeat' AND ($since IS NULL OR received_at >= $since)
  AND ($until IS NULL OR received_at < $until)
ORDER BY received_at DESC LIMIT $most
"""
SHARES = """
SELECT source, count(*) AS rows, count(dead_letter_reason) AS dead,
       count(dead_letter_reason) / count(*) AS dead_share
FROM silver.event
WHERE source <> '_heartbeat' AND ($since IS NULL OR received_at >= $since)
  AND ($until IS NULL OR received_at < $until)
GROUP BY source ORDER BY source
"""


@dataclass(frozen=True)
class Written:
    """What ingest wrote in an interval: its newest rows, and all of it counted by source.

    `rows`: event_uid, source, class_uid, activity_id, type_uid, type_uid_of_class, src_ip,
    lag_seconds (arrival minus event time). `shares`: source, rows, dead, dead_share.
    """

    rows: pd.DataFrame
    shares: pd.DataFrame

    @property
    def total(self) -> int:
        """Rows of the interval, looked at or not."""
        return int(self.shares["rows"].sum())


@dataclass(frozen=True)
class Outcome:
    """One expectation and how it came out. `unexpected` counts rows, or sources for a share."""

    expectation: str
    passed: bool
    checked: int
    unexpected: int
    examples: str = ""


def written(
    settings: Settings, since: datetime | None, until: datetime | None, most: int = MOST_ROWS
) -> Written:
    """Rows received in `[since, until)`, at most the newest `most`, without heartbeats."""
    from infra.duck import connect

    connection = connect(settings.lake_root, needs=("silver.event",))
    try:
        interval = {"since": since, "until": until}
        rows = connection.execute(ROWS, {**interval, "most": most}).df()
        return Written(rows, connection.execute(SHARES, interval).df())
    finally:
        connection.close()


def check(found: Written) -> list[Outcome]:
    """Run all expectations; nothing is kept and nothing goes to a network."""
    if not found.total:
        return [Outcome("ingest wrote something", False, 0, 0)]
    return [
        *_validate(found.rows, event_expectations()),
        *_validate(found.shares, source_expectations()),
    ]


def event_expectations() -> list[Expectation]:
    """What holds for the rows of silver.event; `notes` say it in words."""
    from ingest.ocsf import KINDS

    gxe = _library()
    filled = ("event_uid", "source", "class_uid", "type_uid", "lag_seconds")
    return [
        *(gxe.ExpectColumnValuesToNotBeNull(column=c, notes=f"{c} is there") for c in filled),
        gxe.ExpectColumnValuesToBeUnique(column="event_uid", notes="event_uid is there once"),
        gxe.ExpectColumnValuesToBeInSet(
            column="class_uid", value_set=sorted(KINDS), notes="class_uid is a class we write"
        ),
        gxe.ExpectColumnPairValuesToBeEqual(
            column_A="type_uid",
            column_B="type_uid_of_class",
            notes="type_uid is class_uid * 100 + activity_id",
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="lag_seconds",
            min_value=-AHEAD_SECONDS,
            max_value=OLDEST_SECONDS,
            mostly=0.99,
            notes="time lies from 400 days before arrival to a day after it, for 99 %",
        ),
        gxe.ExpectColumnValuesToMatchRegex(
            column="src_ip", regex=ADDRESS, notes="src_ip is an address, where there is one"
        ),
    ]


def source_expectations() -> list[Expectation]:
    """What holds for each source, given as one row `source, rows, dead, dead_share`."""
    from ingest.source import sources

    gxe = _library()
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="source", value_set=sorted(sources()), notes="source is one that can be read"
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="dead_share",
            max_value=DEAD_SHARE,
            notes=f"dead letters are at most {DEAD_SHARE:.0%} of each source",
        ),
    ]


def _library() -> Any:
    """The library's expectations; by name, because it exports none of them explicitly."""
    # Read at import; without it each run reports itself to the library's makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    return import_module("great_expectations.expectations")


def _validate(frame: pd.DataFrame, expectations: Iterable[Expectation]) -> list[Outcome]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("written").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="ingest", expectations=list(expectations))
    results = batch.validate(suite, result_format="SUMMARY").results
    return [_outcome(result.to_json_dict(), frame) for result in results]


def _outcome(result: dict[str, Any], frame: pd.DataFrame) -> Outcome:
    config, numbers = result["expectation_config"], result["result"]
    failure = result["exception_info"].get("exception_message")
    examples = list(dict.fromkeys(str(one) for one in numbers.get("partial_unexpected_list", ())))
    if config["kwargs"].get("column") == "dead_share":
        worst = frame[frame["dead_share"] > DEAD_SHARE].nlargest(EXAMPLES, "dead_share")
        examples = [f"{one.source}: {one.dead} of {one.rows}" for one in worst.itertuples()]
    return Outcome(
        expectation=config["notes"],
        passed=bool(result["success"]),
        checked=int(numbers.get("element_count", 0)) - int(numbers.get("missing_count") or 0),
        unexpected=int(numbers.get("unexpected_count", 0)),
        examples=failure or ", ".join(examples[:EXAMPLES]),
    )


def build(subparsers: Any) -> None:
    """Register `quality`."""
    command = subparsers.add_parser("quality", help="check what ingest wrote against expectations")
    command.add_argument("--since", help="received since, such as 2026-11-20T00:00:00Z")
    command.add_argument("--until", help="received before")
    command.add_argument(
        "--rows", type=int, default=MOST_ROWS, help=f"look at the newest N (default: {MOST_ROWS})"
    )
    command.add_argument("--output", choices=("table", "json"), default="table")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate quality`: exit code 1 when an expectation is not met."""
    since, until = _instant("--since", args.since), _instant("--until", args.until)
    if args.rows < 1:
        raise Usage(f"--rows {args.rows}: must be at least 1")
    found = written(settings, since, until, args.rows)
    outcomes = check(found)
    if args.output == "json":
        print(json.dumps([asdict(one) for one in outcomes], indent=2))
    else:
        for one in outcomes:
            print(_line(one))
    if found.total > len(found.rows):
        print(
            f"looked at the newest {len(found.rows)} of {found.total} rows (--rows); "
            "dead letters and sources are counted over all",
            file=sys.stderr,
        )
    return 0 if all(one.passed for one in outcomes) else 1


def _line(one: Outcome) -> str:
    """An outcome for a terminal, control characters of a log's values made harmless."""
    told = "" if one.passed and not one.unexpected else f"  {one.unexpected} of {one.checked}"
    text = f"{'ok    ' if one.passed else 'FAILED'} {one.expectation}{told}"
    if one.examples:
        text += f": {one.examples}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _instant(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{option} {text}: write an instant such as 2026-11-20T00:00:00Z") from None
    if at.tzinfo is None:
        raise Usage(f"{option} {text}: name the zone, such as {text}Z")
    return at
