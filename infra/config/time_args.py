"""Instants as people write them: on the command line and in the parameters of the API."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from infra.errors import Usage

_SPAN = re.compile(r"[-+]?(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FIRST, _LAST = 1900, 9900
"""Years of an instant that is asked for: what looks beside it does not leave the calendar."""
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}

TIME_FORMS = (
    "an instant such as 2026-11-20T00:00:00Z, a date, now, today, yesterday, or a span such as -24h"
)
"""What `time_of` takes, for descriptions and for sentences that refuse."""


def instant(option: str, text: str, alternative: str = "") -> datetime:
    """An instant in UTC by any of `TIME_FORMS`, seen from now; raises `Usage` as `time_of` does.

    `alternative`: what else the option takes, for that sentence.
    """
    try:
        return time_of(option, text, datetime.now(UTC))
    except Usage as error:
        raise Usage(f"{error}{alternative}") from None


def instant_or_none(option: str, text: str | None) -> datetime | None:
    """The same of an option that may be left out."""
    return None if text is None else instant(option, text)


def instant_utc(option: str, text: str) -> datetime:
    """The same, where a time of day without a zone is one of UTC."""
    try:
        naive = datetime.fromisoformat(text.strip())
    except ValueError:
        return instant(option, text)
    return instant(option, text if naive.tzinfo else naive.replace(tzinfo=UTC).isoformat())


def time_of(option: str, text: str, now: datetime) -> datetime:
    """An instant in UTC, however a person writes it: see `TIME_FORMS`.

    A span is before `now` (`24h` and `-24h` are the same), or behind it with a plus. A date is its
    first instant. A zone may stand behind what has none: `yesterday Europe/Berlin`; a date alone
    is of UTC, a time of day without a zone is refused. Raises `Usage` that names the option.
    """
    words = text.strip().rsplit(" ", 1)
    zone: tzinfo = UTC
    named = len(words) == 2 and (named_zone := _zone(words[1])) is not None
    if named and named_zone is not None:
        zone = named_zone
    plain = (words[0] if named else text).strip()
    beyond = Usage(f"{option} {text}: lies beyond the years {_FIRST} to {_LAST}")
    try:
        moment = _read(option, plain, now, zone, named=named).astimezone(UTC)
    except OverflowError:
        raise beyond from None
    except ValueError:
        raise Usage(f"{option} {text}: write {TIME_FORMS}") from None
    if not _FIRST <= moment.year <= _LAST:
        raise beyond
    return moment


def time_or_none(option: str, text: str | None, now: datetime) -> datetime | None:
    """The same of an option that may be left out."""
    return None if text is None else time_of(option, text, now)


def _read(option: str, text: str, now: datetime, zone: tzinfo, *, named: bool) -> datetime:
    word = text.lower()
    if word == "now":
        return now
    if word in _DAYS:
        day = now.astimezone(zone).date() + timedelta(days=_DAYS[word])
        return _first_instant(day, zone)
    if span := _SPAN.fullmatch(word):
        length = timedelta(**{_UNITS[span[2]]: int(span[1])})
        return now + length if word.startswith("+") else now - length
    # Before `datetime` reads it, which would take a date for a midnight without a zone.
    if len(text) == len("2026-11-20"):
        return _first_instant(date.fromisoformat(text), zone)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return moment
    if not named:
        raise Usage(f"{option} {text}: name the zone, such as {text}Z or '{text} Europe/Berlin'")
    return moment.replace(tzinfo=zone)


def _first_instant(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)


def _zone(name: str) -> tzinfo | None:
    """A zone of the time zone database by its name, or an offset such as +02:00."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if "/" in name:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None
    try:
        return datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
    except ValueError:
        return None
