"""What the commands of alerts share: spans of time as people write them, when an act is taken."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from infra.config.settings import Settings
from infra.config.time_args import instant
from infra.errors import Usage
from infra.runtime.job_status import at_work, read_status

_SPANS = {"m": "minutes", "h": "hours", "d": "days"}


def since_when(text: str, now: datetime, option: str = "--since") -> datetime:
    """An instant with its zone, or a span before `now` such as 90m, 24h or 7d; else `Usage`."""
    alternative = ", or a span such as 24h"
    if text[-1:] in _SPANS and text[:-1].isdecimal():
        try:
            return now - timedelta(**{_SPANS[text[-1]]: int(text[:-1])})
        except OverflowError:
            raise Usage(f"{option} {text}: write an instant{alternative}") from None
    return instant(option, text, alternative)


def when_taken(settings: Settings) -> str:
    """When job `alert` takes what was asked: soon, or not before a driver runs."""
    status = read_status(settings).get("alert")
    if status is not None and at_work(status, time.time()):
        return "job alert takes it within seconds"
    return "no driver runs job alert now: it waits, also its row of ops.audit, until 'headgate up'"
