"""What the commands of alerts share: spans of time as people write them, rows as they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from infra.config.time_args import instant
from infra.errors import Usage
from infra.process.text_output import for_programs, lines

FORMATS = ("table", "json", "ndjson", "csv")
SPANS = {"m": "minutes", "h": "hours", "d": "days"}


def since_when(text: str, now: datetime, option: str = "--since") -> datetime:
    """An instant with its zone, or a span before `now` such as 90m, 24h or 7d; else `Usage`."""
    alternative = ", or a span such as 24h"
    if text[-1:] in SPANS and text[:-1].isdecimal():
        try:
            return now - timedelta(**{SPANS[text[-1]]: int(text[:-1])})
        except OverflowError:
            raise Usage(f"{option} {text}: write an instant{alternative}") from None
    return instant(option, text, alternative)


def print_rows(rows: Sequence[Mapping[str, Any]], output: str) -> None:
    """Rows on stdout in one of `FORMATS`; the first row says which columns there are."""
    columns = list(rows[0]) if rows else []
    if output == "table":
        for line in lines(columns, rows):
            print(line)
    else:
        for_programs(columns, rows, output)
