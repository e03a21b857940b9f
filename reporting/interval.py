"""The span of time a report is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from infra.errors import Usage


@dataclass(frozen=True)
class Interval:
    """[start, end), UTC."""

    start: datetime
    end: datetime

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.end - self.start) / timedelta(days=1)

    @property
    def slug(self) -> str:
        """The interval as part of a file name."""
        return f"{_brief(self.start)}_{_brief(self.end)}"

    def __str__(self) -> str:
        return f"{_brief(self.start, ' ')} to {_brief(self.end, ' ')} UTC"


def parse_interval(text: str) -> Interval:
    """`2026-11-20/2026-11-21`, with times `...T06:00/...T18:00`, or one day `2026-11-20`.

    Raises `Usage` for what is not one, or ends before it begins.
    """
    first, slash, second = text.partition("/")
    start = _moment(first, text)
    try:
        end = _moment(second, text) if slash else start + timedelta(days=1)
    except OverflowError:
        raise Usage(f"--interval {text}: ends beyond the year 9999") from None
    if end <= start:
        raise Usage(f"--interval {text}: ends before it begins")
    return Interval(start, end)


def _moment(part: str, whole: str) -> datetime:
    try:
        day = date.fromisoformat(part)
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    except ValueError:
        pass
    try:
        instant = datetime.fromisoformat(part)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Usage(
            f"--interval {whole}: '{part}' is no day and no time; write 2026-11-20/2026-11-21"
        ) from None


def _brief(at: datetime, between: str = "T") -> str:
    midnight = at.hour == at.minute == at.second == 0
    return at.strftime("%Y-%m-%d") if midnight else at.strftime(f"%Y-%m-%d{between}%H%M")
